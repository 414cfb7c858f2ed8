"""Kernels compiled for cards that are not here: a driver that knows none, and the machine code of the results."""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from typing import Any

from support import forked


def install(arch: int) -> None:
    """Have Triton compile for sm_<arch> from here on, without TRITON_INTERPRET and without a card."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class NoCard:
        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", arch, 32)

        def get_current_device(self) -> int:
            return arch  # Triton asks for the target once per device

        def get_current_stream(self, device: int) -> int:
            return 0

    driver.set_active(NoCard())


def machine_code(kernels: list[Any]) -> list[list[str]]:
    """The instructions of each of these kernels of one architecture, as "@!P0 BRA 0xd220".

    One disassembler reads them all, since starting it takes longer than reading a kernel. `compiled.asm["sass"]` stops
    after 4096 instructions, so it is not used.
    """
    from triton import knobs

    arch = kernels[0].metadata.target.arch
    codes = [_code(kernel.asm["cubin"]) for kernel in kernels]
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(b"".join(codes))
        file.flush()
        command = [knobs.nvidia.nvdisasm.path, "--binary", f"SM{arch}a" if arch >= 90 else f"SM{arch}", file.name]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # A line is "        /*00a0*/                   NOP ;", preceded by lines that begin with a dot.
    found = [line.partition("*/")[2].strip(" ;") for line in printed.splitlines() if line.lstrip().startswith("/*")]
    lengths = [len(code) // 16 for code in codes]  # every instruction since Volta has 128 bits
    assert len(found) == sum(lengths), printed[:2000]
    rest = iter(found)
    return [[next(rest) for _ in range(length)] for length in lengths]


def _code(cubin: bytes) -> bytes:
    """The sections of an ELF file of 64 bits that hold code, one after the other."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, of_names = struct.unpack_from("<HHH", cubin, 0x3A)
    # Of each section: where its name is, its type and flags, its address, where it is, its length.
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + number * size) for number in range(count)]
    names = sections[of_names][4]
    return b"".join(
        cubin[start : start + length]
        for name, _, _, _, start, length in sections
        if cubin.startswith(b".text.", names + name)
    )


def usage(compiled: Any) -> tuple[int, int]:
    """Registers and bytes of stack of each thread."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", printed)
    assert found is not None, printed
    return int(found[1]), int(found[2])


def opcode(instruction: str) -> str:
    """BRA of "@!P0 BRA 0xd220"."""
    words = instruction.split(maxsplit=2)
    return words[1] if words[0].startswith("@") else words[0]


def spills(code: list[str]) -> int:
    """How many of these instructions go to local memory."""
    return sum(opcode(each).partition(".")[0] in {"STL", "LDL"} for each in code)


# What the shipped configurations were chosen with. Of some of them other releases make code that is right and slower.
CHOSEN_WITH = ((3, 6), (3, 7))


def expect_no_slower(slower: list[str]) -> None:
    """Fail for what makes machine code slow; with a Triton that nothing was chosen with, expect the failure."""
    import pytest
    import triton

    if slower and tuple(map(int, triton.__version__.split(".")[:2])) not in CHOSEN_WITH:
        pytest.xfail(f"not chosen with Triton {triton.__version__}: {', '.join(slower)}")
    assert slower == []


class Compiler:
    """A process that runs a script of ours without the interpreter, and compiles one list of cases after the other."""

    def __init__(self, script: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        self._process = forked.Popen(
            [sys.executable, script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
        )

    def __enter__(self) -> Compiler:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for each in (self._process.stdin, self._process.stdout, self._errors):
            assert each is not None
            each.close()

    def compile(self, arch: int, cases: list[Any]) -> list[dict[str, Any]]:
        """What the script's `probe` finds for these cases on sm_<arch>."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # its errors say why
            self._process.stdin.write(json.dumps([arch, cases]).encode() + b"\n")
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise AssertionError(self._errors.read().decode())
        found: list[dict[str, Any]] = json.loads(line)
        return found


def answer(probe: Any) -> None:
    """What such a script does: `probe(arch, cases)` for every line that comes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what compilers print is no answer
    for line in sys.stdin:
        print(json.dumps(probe(*json.loads(line))), file=answers, flush=True)
