"""Stands for supervise.run where the process of a worker is not what is tested: starting one takes seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch._inductor import config

from mlpfusion.stages.profile import worker
from mlpfusion.workers import supervise, tasks
from support import forked

if TYPE_CHECKING:
    from pathlib import Path

_in_a_process = supervise.run


def run(task: tasks.Task, *, folder: Path, name: str, **options: Any) -> tasks.Answer:
    """The worker's answer to `task`, both of them having been JSON in between.

    An emulation still gets a process, if a forked one: it changes Triton's interpreter for good.
    """
    if isinstance(task, tasks.Qualify) and task.emulate:
        with forked.processes_of(supervise):
            return _in_a_process(task, folder=folder, name=name, **options)
    # A worker has Inductor compile so that its kernels show in traces.
    with config.patch("cpp.enable_kernel_profile", config.cpp.enable_kernel_profile):
        return tasks.decode_answer(tasks.encode(worker._answer(tasks.decode_task(tasks.encode(task)))))
