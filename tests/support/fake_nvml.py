"""Stands in for NVML: a library whose functions fill in what they are given by reference."""

from __future__ import annotations

from typing import Any

UUID = "GPU-11111111-2222-3333-4444-555555555555"
ANSWERS: dict[str, tuple[int, ...]] = {
    "nvmlInit_v2": (),
    "nvmlDeviceGetHandleByUUID": (7,),
    "nvmlDeviceGetClockInfo": (1755,),
    "nvmlDeviceGetMaxClockInfo": (1980,),
    "nvmlDeviceGetPowerUsage": (412_500,),
    "nvmlDeviceGetEnforcedPowerLimit": (700_000,),
    "nvmlDeviceGetTemperature": (61,),
    "nvmlDeviceGetCurrentClocksThrottleReasons": (0x1 | 0x4 | 0x40,),
    "nvmlDeviceGetEccMode": (1, 0),
    "nvmlDeviceGetMigMode": (0, 1),
    "nvmlDeviceGetPersistenceMode": (1,),
}


class Library:
    """Answers what `ANSWERS` says, or fails with the code of an entry of `codes`; `lacks` names what it has not."""

    def __init__(
        self, codes: dict[str, int] | None = None, lacks: str | None = None, **answers: tuple[int, ...]
    ) -> None:
        self.codes, self.lacks, self.answers = codes or {}, lacks, {**ANSWERS, **answers}
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, question: str) -> Any:
        if question == self.lacks or question not in self.answers:
            raise AttributeError(question)

        def answer(*arguments: Any) -> int:
            self.asked.append((question, arguments))
            if question in self.codes:
                return self.codes[question]
            places = [each._obj for each in arguments if hasattr(each, "_obj")]
            for place, value in zip(places, self.answers[question], strict=True):
                place.value = value
            return 0

        return answer
