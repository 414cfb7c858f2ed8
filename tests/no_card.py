"""Kernels compiled for cards that are not here: a driver that knows none, and the whole machine code of the result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any


def install(arch: int) -> None:
    """Have Triton compile for sm_<arch> in this process, without TRITON_INTERPRET and without a card."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class NoCard:
        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", arch, 32)

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

    driver.set_active(NoCard())


def machine_code(compiled: Any) -> str:
    """Resource usage and instructions. `compiled.asm["sass"]` stops after 4096 of them, so it is not used."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", "-sass", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def compile_for(script: str, arch: int, cases: list[Any], timeout_s: float = 280) -> list[dict[str, Any]]:
    """What `script ARCH`, run without the interpreter, prints as JSON for the cases on its standard input."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    run = subprocess.run(
        [sys.executable, script, str(arch)],
        input=json.dumps(cases),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert run.returncode == 0, run.stderr
    result: list[dict[str, Any]] = json.loads(run.stdout)
    return result
