"""The command that runs a target under compute-sanitizer, and what its texts mean, by its documented formats."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlpfusion.errors import UsageError
from mlpfusion.stages.validate.judge import sanitizer
from mlpfusion.stages.validate.judge.sanitizer import Fault, faults, judged

HEAD = "========= COMPUTE-SANITIZER\n"
CALLED = "mlpfusion called: forward and backward\n"
WRITE = f"""{HEAD}========= Invalid __global__ write of size 2 bytes
=========     at gelu_mul_kernel+0x2d0 in /home/me/mine.py:37
=========     by thread (64,0,0) in block (0,0,0)
=========     Address 0x7f2a8a000800 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2a8a000200 of size 1,536 bytes
=========
========= Invalid __global__ write of size 2 bytes
=========     at gelu_mul_kernel+0x2d0 in /home/me/mine.py:37
=========     by thread (65,0,0) in block (0,0,0)
=========     Address 0x7f2a8a000802 is out of bounds
=========
"""
OLD = f"""{HEAD}========= Invalid __global__ read of size 4 bytes
=========     at 0x160 in /home/me/mine.py:12:act_mul
=========     by thread (0,0,0) in block (3,0,0)
=========     Address 0x7fb2a0000fc is out of bounds
========= ERROR SUMMARY: 1 error
"""
RACE = f"""{HEAD}========= Error: Race reported between Write access at sum_kernel(float *, int)+0x1b0 in mine.py:22
=========     and Read access at sum_kernel(float *, int)+0x1f0 in mine.py:23 [124 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
UNWRITTEN = f"""{HEAD}========= Uninitialized __global__ memory read of size 4 bytes
=========     at decode_kernel+0x90 in mine.py:51
=========     by thread (17,0,0) in block (0,0,0)
=========     Address 0x7f9ad8200044
=========
========= ERROR SUMMARY: 1 error
"""
LIBRARY = f"""{HEAD}========= Uninitialized __global__ memory read of size 16 bytes
=========     at sm90_xmma_gemm_bf16bf16_bf16f32+0x1290
=========     by thread (17,0,0) in block (0,0,0)
=========     Address 0x7f9ad8200044
=========
"""
ILLEGAL = f"""{HEAD}========= Program hit cudaErrorIllegalAddress (error 700) due to "an illegal memory access"
=========     Saved host backtrace up to driver entry point at error
========= Target application returned an error
========= ERROR SUMMARY: 1 error
"""
CLEAN = f"{HEAD}{CALLED}========= ERROR SUMMARY: 0 errors\n"
RACELESS = f"{HEAD}{CALLED}========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
RAISED = f"{HEAD}Traceback (most recent call last):\nValueError: bfloat16 only\n========= ERROR SUMMARY: 0 errors\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (WRITE, [Fault("Invalid __global__ write of size 2 bytes", "gelu_mul_kernel", "mine.py", 37, 2)]),
        (OLD, [Fault("Invalid __global__ read of size 4 bytes", "act_mul", "mine.py", 12)]),
        (RACE, [Fault("Race reported between Write access", "sum_kernel", "mine.py", 22)]),
        (UNWRITTEN, [Fault("Uninitialized __global__ memory read of size 4 bytes", "decode_kernel", "mine.py", 51)]),
        (
            LIBRARY,
            [
                Fault(
                    "Uninitialized __global__ memory read of size 16 bytes",
                    "sm90_xmma_gemm_bf16bf16_bf16f32",
                    None,
                    None,
                )
            ],
        ),
        (ILLEGAL, [Fault("Program hit cudaErrorIllegalAddress (error 700)", None, None, None)]),
        (WRITE + OLD, [*faults(WRITE), *faults(OLD)]),
        (CLEAN, []),
        (RACELESS, []),
        (RAISED, []),
        ("", []),
        ("=========\n========= \nInvalid __global__ write of size 2 bytes\n    at kernel+0x1 in mine.py:3\n", []),
    ],
    ids=[
        "write",
        "old",
        "race",
        "unwritten",
        "library",
        "illegal",
        "two",
        "clean",
        "raceless",
        "raised",
        "none",
        "own",
    ],
)
def test_faults_are_read_with_their_lines(text: str, found: list[Fault]) -> None:
    assert list(faults(text)) == found
    assert list(faults(text.replace("\n", "\r\n"))) == found


@pytest.mark.parametrize(
    ("tool", "text", "status", "words"),
    [
        (
            "memcheck",
            WRITE,
            "fail",
            "memcheck: Invalid __global__ write of size 2 bytes in gelu_mul_kernel in mine.py, line 37",
        ),
        ("memcheck", WRITE + OLD, "fail", "line 37; 1 place more"),
        ("memcheck", ILLEGAL, "fail", "cudaErrorIllegalAddress (error 700) in a kernel"),
        ("racecheck", RACE, "fail", "racecheck: Race reported between Write access in sum_kernel in mine.py, line 22"),
        ("initcheck", UNWRITTEN, "fail", "in decode_kernel in mine.py, line 51"),
        ("initcheck", LIBRARY + CALLED, "reported", "a kernel without a line of Python"),
        ("initcheck", LIBRARY + UNWRITTEN, "fail", "line 51; 1 place more"),
        ("memcheck", CLEAN, "pass", "memcheck: nothing to object to in forward and backward"),
        ("racecheck", RACELESS, "pass", "racecheck: nothing to object to"),
        ("memcheck", RAISED, "not decidable here", "was not called to the end: ValueError: bfloat16 only"),
        ("memcheck", "", "not decidable here", "nothing was printed"),
        ("memcheck", f"{HEAD}========= Error: No attachable process found\n", "not decidable here", "to the end"),
    ],
)
def test_a_text_is_a_finding(tool: str, text: str, status: str, words: str) -> None:
    found = judged(tool, text)
    assert found.status == status
    assert words in found.sentence
    assert "\n" not in found.sentence


def test_the_command_runs_the_target_once_under_the_tool() -> None:
    for tool in sanitizer.TOOLS:
        made = sanitizer.command(
            Path("/usr/local/cuda/bin/compute-sanitizer"), tool, "mine.py:f", activation="silu", dtype="float16", seed=7
        )
        assert made[:3] == ["/usr/local/cuda/bin/compute-sanitizer", "--tool", tool]
        at = made.index(sys.executable)
        assert made[at + 1 : -1] == [
            "-m",
            "mlpfusion.stages.validate.worker.once",
            "mine.py:f",
            "silu",
            "float16",
            "7",
            "cuda",
        ]
        assert all(
            option.startswith("--") or made[place - 1].startswith("--") for place, option in enumerate(made[1:at], 1)
        )


def program(folder: Path, text: str = "exit 0") -> Path:
    path = folder / "compute-sanitizer"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name", ["PATH", "CUDA_HOME", "CUDA_PATH"])
def test_the_program_is_found_where_toolkits_put_it(tmp_path: Path, name: str) -> None:
    folder = tmp_path if name == "PATH" else tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    path = program(folder)
    assert sanitizer.check("cuda", {name: str(tmp_path), **({} if name == "PATH" else {"PATH": "/nowhere"})}) == path


def test_without_a_gpu_or_the_program_one_line_says_so() -> None:
    with pytest.raises(UsageError, match=r"^--sanitize needs an NVIDIA GPU: .* this run is on the CPU$"):
        sanitizer.check("cpu", {"PATH": "/nowhere"})
    with pytest.raises(UsageError, match=r"^--sanitize needs compute-sanitizer, a part of the CUDA toolkit, "):
        sanitizer.check("cuda", {"PATH": "/nowhere", "CUDA_HOME": "/nowhere"})


def test_what_it_prints_is_taken_whatever_its_exit_code_and_a_hang_is_ended(tmp_path: Path) -> None:
    assert sanitizer.run([str(program(tmp_path, "echo one; echo two >&2; exit 3"))], time_limit_s=60) == "one\ntwo\n"
    cache = program(tmp_path, 'echo "$PYTORCH_NO_CUDA_MEMORY_CACHING"')
    assert sanitizer.run([str(cache)], time_limit_s=60) == "1\n"
    with pytest.raises(TimeoutError, match=r"no end within 0\.2 s"):
        sanitizer.run([str(program(tmp_path, "exec sleep 60"))], time_limit_s=0.2)
