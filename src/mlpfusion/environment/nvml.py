"""Asks NVML, the library that NVIDIA's driver brings, about one card.

Through `ctypes`: it is wherever a driver is, it answers in microseconds where `nvidia-smi` takes up to seconds, and ten
questions are no reason to depend on a package of bindings.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

from mlpfusion.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.device import Device

LIBRARY: Final = "libnvidia-ml.so.1"
_SM: Final = 1  # NVML_CLOCK_SM
_DIE: Final = 0  # NVML_TEMPERATURE_GPU
_NOT_SUPPORTED: Final = 3
_NAME_BYTES: Final = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE
_IDLE: Final = 0x1  # of the reasons below: a card without work is not slowed down
# nvmlClocksEventReasons of nvml.h, in NVML's words.
_THROTTLE: Final = {
    0x2: "applications clocks setting",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake slowdown",
    0x100: "display clock setting",
}


class Card:
    """One card. Each question raises a MeasurementError that says why it has no answer."""

    def __init__(self, library: Any, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle

    def sm_clock_mhz(self) -> int:
        """The clock of its multiprocessors at this moment."""
        return self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, _SM)

    def highest_sm_clock_mhz(self) -> int:
        """The highest clock of its multiprocessors that it can be set to."""
        return self._number("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, _SM)

    def power_w(self) -> float:
        """What it draws."""
        return self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint) / 1000

    def power_limit_w(self) -> float:
        """What it may draw."""
        return self._number("nvmlDeviceGetEnforcedPowerLimit", ctypes.c_uint) / 1000

    def temperature_c(self) -> int:
        """Of its die."""
        return self._number("nvmlDeviceGetTemperature", ctypes.c_uint, _DIE)

    def throttle_reasons(self) -> tuple[str, ...]:
        """What keeps its clocks down at this moment."""
        bits = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong) & ~_IDLE
        each = [1 << place for place in range(bits.bit_length()) if bits >> place & 1]
        return tuple(_THROTTLE.get(bit, f"reason {bit:#x}") for bit in each)

    def has_ecc(self) -> bool:
        """Whether its memory corrects errors."""
        return self._mode("nvmlDeviceGetEccMode")

    def has_mig(self) -> bool:
        """Whether it is divided into instances."""
        return self._mode("nvmlDeviceGetMigMode")

    def is_persistent(self) -> bool:
        """Whether the driver stays loaded where nobody uses the card."""
        return bool(self._number("nvmlDeviceGetPersistenceMode", ctypes.c_uint))

    def _number(self, question: str, kind: type[Any], *which: int) -> int:
        answer = kind()
        self._ask(question, self._handle, *which, ctypes.byref(answer))
        return int(answer.value)

    def _mode(self, question: str) -> bool:
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        self._ask(question, self._handle, ctypes.byref(current), ctypes.byref(pending))
        return bool(current.value)

    def _ask(self, question: str, *arguments: Any) -> None:
        ask(self._library, question, *arguments)


def ask(library: Any, question: str, *arguments: Any) -> None:
    """Call a function of NVML.

    Raises:
        MeasurementError: this library has no such function, or it has no answer.
    """
    function: Callable[..., int] | None = getattr(library, question, None)
    if function is None:
        raise MeasurementError(f"this driver's NVML has no {question}")
    code = function(*arguments)
    if code:
        why = "not supported on this card" if code == _NOT_SUPPORTED else f"NVML's error {code}"
        raise MeasurementError(f"{question}: {why}")


def card(device: Device) -> Card:
    """The card behind a CUDA device of torch.

    Raises:
        MeasurementError: there is no NVML, or it does not know the card.
    """
    if device.runtime != "cuda":
        raise MeasurementError(f"NVML knows NVIDIA's cards alone, and this is {device.name}")
    library = _library()
    handle = ctypes.c_void_p()
    ask(library, "nvmlDeviceGetHandleByUUID", uuid(device).encode(), ctypes.byref(handle))
    return Card(library, handle)


def uuids() -> tuple[str, ...]:
    """The name of every card, and of every instance of one that is divided into some, in NVML's order.

    Raises:
        MeasurementError: there is no NVML, or it has no answer.
    """
    library = _library()
    count = ctypes.c_uint()
    ask(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    found: list[str] = []
    for index in range(count.value):
        handle = ctypes.c_void_p()
        ask(library, "nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
        found += _instances(library, handle) or [_name(library, handle)]
    return tuple(found)


def _instances(library: Any, handle: ctypes.c_void_p) -> list[str]:
    """The names of a card's MIG instances; none where it is whole, or cannot be divided."""
    most, found = ctypes.c_uint(), []
    try:
        ask(library, "nvmlDeviceGetMaxMigDeviceCount", handle, ctypes.byref(most))
    except MeasurementError:
        return []
    for place in range(most.value):
        instance = ctypes.c_void_p()
        try:
            ask(library, "nvmlDeviceGetMigDeviceHandleByIndex", handle, place, ctypes.byref(instance))
        except MeasurementError:  # nothing is in this place
            continue
        found.append(_name(library, instance))
    return found


def _name(library: Any, handle: ctypes.c_void_p) -> str:
    text = ctypes.create_string_buffer(_NAME_BYTES)
    ask(library, "nvmlDeviceGetUUID", handle, text, _NAME_BYTES)
    return text.value.decode()


def _library() -> Any:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        raise MeasurementError(f"the driver's {LIBRARY} is not here") from None
    ask(library, "nvmlInit_v2")
    return library


def uuid(device: Device) -> str:
    """The name that a card has for life, as NVML writes it. It goes into no file.

    Raises:
        MeasurementError: torch sees no card.
    """
    import torch

    try:
        found = str(torch.cuda.get_device_properties(device.index).uuid)
    except (AssertionError, RuntimeError) as error:  # the first from a build of torch without CUDA
        raise MeasurementError(f"torch sees no card: {error}") from None
    return found if found.startswith(("GPU-", "MIG-")) else f"GPU-{found}"
