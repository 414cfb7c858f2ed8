"""What a target leaves behind in its process is seen, each kind by its name."""

from __future__ import annotations

import sys
import textwrap

from support import forked

LEAVES = {
    "folder": "os.chdir('/')",
    "environment": "os.environ['MINE'] = '1'",
    "device": "torch.set_default_device('meta')",
    "deterministic": "torch.use_deterministic_algorithms(True)",
    "subnormals": "torch.set_flush_denormal(True)",
    "threads": "torch.set_num_threads(torch.get_num_threads() + 1)",
    "function": "F.gelu = lambda x, approximate='none': 1.5 * x",
    "method": "torch.Tensor.__mul__ = lambda x, y: x",
    "thread": "import threading, time; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
    "operator": "torch.library.custom_op('mine::act', lambda x: 2 * x, mutates_args=(), schema='(Tensor x) -> Tensor')",
}


def test_all_that_a_target_may_leave_behind_is_seen() -> None:
    """In a process of its own for each, forked because importing PyTorch takes seconds."""
    text = """
    import os, sys, torch, torch.nn.functional as F
    from mlpfusion.stages.validate.worker.leftovers import Before
    before = Before()
    assert before.changed(()) == []
    for each in sys.argv[1:]:
        if os.fork() == 0:
            exec(each)
            print("|".join(before.changed(())), flush=True)
            os._exit(0)
        os.wait()
    """
    done = forked.run([sys.executable, "-c", textwrap.dedent(text), *LEAVES.values()], check=True)
    assert dict(zip(LEAVES, done.stdout.splitlines(), strict=True)) == {
        "folder": "the working directory",
        "environment": "the environment",
        "device": "the default device",
        "deterministic": "deterministic algorithms",
        "subnormals": "flushing of subnormals",
        "threads": "the number of threads",
        "function": "torch.nn.functional.gelu",
        "method": "torch.Tensor.__mul__",
        "thread": "its threads",
        "operator": "custom operators",
    }
