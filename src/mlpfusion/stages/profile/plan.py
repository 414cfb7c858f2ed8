"""Decides what `profile` does with a backend on this machine: race it, emulate it, or leave it out for a reason."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from mlpfusion import backend as registry
from mlpfusion.errors import BackendUnavailableError, first_line
from mlpfusion.storage import private

if TYPE_CHECKING:
    from mlpfusion.device import Device
    from mlpfusion.spec import MLPSpec

EMULATED_TOKENS: Final = 16
PATIENCE_S: Final = 5.0  # for a third party's backend to be loaded and asked


class Planned(NamedTuple):
    """One backend: available and raced, emulated on the CPU, or unavailable; `reason` says why it is not raced."""

    backend: str
    status: Literal["available", "emulated", "unavailable"]
    reason: str | None


def planned(name: str, spec: MLPSpec, here: Device) -> Planned:
    """What becomes of a registered backend in a profile of `spec` on this device."""
    here = msgspec.structs.replace(here, interpreted=False)  # a profile interprets what it emulates and nothing else
    reason = refusal(name, spec, here)
    if reason is None:
        return Planned(name, "available", None)
    interpreted = msgspec.structs.replace(here, interpreted=True)
    if here.kind == "cpu" and refusal(name, spec, interpreted) is None:
        return Planned(name, "emulated", emulation(EMULATED_TOKENS))
    return Planned(name, "unavailable", reason)


def planned_in_time(name: str, spec: MLPSpec, here: Device, seconds: float = PATIENCE_S) -> Planned:
    """As `planned`; a third party's backend that hangs while it is loaded or asked is unavailable.

    It is asked in a thread that ends with this process, since what hangs may not be interruptible.
    """
    if registry.is_built_in(name):
        return planned(name, spec, here)
    answers: list[Planned] = []
    thread = threading.Thread(target=lambda: answers.append(planned(name, spec, here)), daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else Planned(name, "unavailable", f"it gave no answer within {seconds:g} s: it hangs")


def emulation(tokens: int) -> str:
    """What an emulated row holds."""
    return f"Triton's interpreter on the CPU, {tokens} tokens, for correctness only; no times"


def refusal(name: str, spec: MLPSpec, here: Device) -> str | None:
    """Why a backend cannot run `spec` on this device, or None."""
    try:
        return registry.load(name).unsupported(spec, here)
    except BackendUnavailableError as error:
        return error.reason
    except Exception as error:  # third-party code may raise anything
        return f"its check failed: {type(error).__name__}: {private.text(first_line(error))}"
