"""What happens on a machine of a cluster: it says what it is, and measures a cell in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from mlpfusion import device as devices
from mlpfusion.device import Device
from mlpfusion.environment import conditions
from mlpfusion.measure import turns
from mlpfusion.records.base import Record
from mlpfusion.records.choice import Conditions
from mlpfusion.stages.sweep import local, worker
from mlpfusion.stages.sweep.measure import Order, limit_s
from mlpfusion.workers import lifetime, supervise

if TYPE_CHECKING:
    from collections.abc import Sequence

_THREADS = "OMP_NUM_THREADS"


class Described(Record, frozen=True, kw_only=True):
    """A machine: its device, and the versions of what runs there; JSON both ways."""

    device: Device
    holds: Conditions


def describe(backends: Sequence[str]) -> bytes:
    """What this process has: a `Described` in JSON."""
    here = replace(devices.detect(), interpreted=False)
    return msgspec.json.encode(Described(device=here, holds=conditions.conditions(here, backends)))


def measure(asked: bytes) -> tuple[str | None, bytes]:
    """Measure a cell, an `Order` in JSON: None and the bytes of its result file, or why there is none."""
    order = msgspec.json.decode(asked, type=Order)
    with tempfile.TemporaryDirectory(prefix="mlpfusion-") as name:
        folder = Path(name)
        waits, log, answer = folder / "waits", folder / "log", folder / "answer.json"
        environment = {**_environment(), **worker.turns_of(order.host_clocks, waits), lifetime.PARENT: f"{os.getpid()}"}
        with log.open("wb") as lines:
            process = subprocess.Popen(
                [*local.COMMAND, order.device],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=lines,
                env=environment,
                start_new_session=True,
            )
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps([msgspec.to_builtins(order), str(answer)]).encode() + b"\n")
            printed, _ = supervise.in_time(
                lambda seconds: process.communicate(timeout=seconds),
                local.START_S + limit_s(order),
                lambda: turns.waited(waits),
            )
        except (subprocess.TimeoutExpired, BrokenPipeError):
            printed = b""
        finally:
            late = process.poll() is None
            with contextlib.suppress(ProcessLookupError):  # nobody of its session is left
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        return _read(printed, "no answer within its time limit; it was killed" if late else None, code, log, answer)


def _read(printed: bytes, late: str | None, code: int, log: Path, answer: Path) -> tuple[str | None, bytes]:
    said = [(kind, text) for kind, text in map(json.loads, printed.splitlines())]
    kind, text = said[-1] if said else ("", "")
    if kind == "done":
        return None, answer.read_bytes()
    if kind == "failed":
        return text, b""
    step = f", at {text}" if kind == "step" and text else ""
    return f"{late or supervise.death(code, log)}{step}", b""


def _environment(first: Path = Path("/proc/self/environ")) -> dict[str, str]:
    """That of this process without the number of threads, unless its machine's owner has set one: Ray sets it to 1."""
    try:
        owners = first.read_bytes().split(b"\0")
    except OSError:
        return dict(os.environ)
    is_set = any(each.startswith(f"{_THREADS}=".encode()) for each in owners)
    return {name: value for name, value in os.environ.items() if is_set or name != _THREADS}
