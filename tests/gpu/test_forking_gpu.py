"""Forked workers on a GPU: each has it as if it had been started by itself, and runs the same kernels."""

from __future__ import annotations

import warnings

from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.trace.analysis.kernels import analyse
from mlpfusion.trace.read import kineto
from mlpfusion.workers import forking, supervise, tasks

WORK = Workload(spec=MLPSpec(hidden_size=512, intermediate_size=1024), batch=1, seq=256)
NAMES = ("eager", "compile", "triton", "fused")


def qualified(name, folder):
    task = tasks.Qualify(
        backend=name,
        workload=WORK,
        device="cuda",
        seed=0,
        trace=str(folder / f"{name}.json"),
        calls=20,
        emulate=False,
        tokens=None,
    )
    return supervise.run(task, folder=folder, name=name, time_limit_s=900)


def test_a_forked_worker_runs_what_one_started_by_itself_does(tmp_path):
    (tmp_path / "forked").mkdir()
    with warnings.catch_warnings(), forking.kept():
        warnings.simplefilter("error")  # none may say that nothing can be forked
        forked = {name: qualified(name, tmp_path / "forked") for name in NAMES}
    for name, answer in forked.items():
        alone = qualified(name, tmp_path)
        assert isinstance(answer, tasks.Qualified), answer
        assert isinstance(alone, tasks.Qualified), alone
        assert answer.accuracy == alone.accuracy
        assert answer.memory == alone.memory
        kernels = [
            [kernel.name for kernel in analyse(kineto.read(folder / f"{name}.json"), device="cuda").kernels]
            for folder in (tmp_path / "forked", tmp_path)
        ]
        assert kernels[0] == kernels[1]
