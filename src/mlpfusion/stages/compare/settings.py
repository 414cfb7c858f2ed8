"""How two results were measured, setting by setting: what forbids a comparison of times, and what is its question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.errors import UsageError
from mlpfusion.records.comparison import SettingChange
from mlpfusion.stages.compare.subjects import Setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mlpfusion.device import Device
    from mlpfusion.records.comparison import Weight
    from mlpfusion.records.environment import Environment
    from mlpfusion.stages.compare.subjects import Group, Timed

NOT_RECORDED: Final = "not recorded"
# Settings without which facts of a call differ too; where times are left out, the others do not matter.
FACTS_DEPEND_ON: Final = ("GPU", "device", "torch", "Triton", "dtype")


def of_result(device: Device, environment: Environment, mlpfusion: str) -> tuple[Setting, ...]:
    """The settings and versions that a result file records."""
    return tuple(_of_result(device, environment, mlpfusion))


def _of_result(device: Device, found: Environment, mlpfusion: str) -> Iterator[Setting]:
    yield Setting("device", "Triton's interpreter" if device.interpreted else device.runtime, True)
    arch = "" if device.capability is None else f" (sm_{device.capability[0]}{device.capability[1]})"
    yield Setting("GPU" if device.kind == "cuda" else "CPU", f"{device.name}{arch}", True)
    units = "multiprocessors" if device.kind == "cuda" else "cores"
    yield Setting(units, None if device.multiprocessors is None else str(device.multiprocessors), True)
    memory = None if device.memory_bytes is None else f"{device.memory_bytes / 2**30:.0f} GiB"
    yield Setting("memory", memory, device.kind == "cuda")
    yield Setting("driver", found.driver, True)
    yield Setting("torch", found.torch, True)
    yield Setting("Triton", found.triton or "not installed", True)
    yield Setting("CUDA", found.cuda or "none", True)
    yield Setting("float32_matmul_precision", found.float32_matmul_precision, True)
    for name, value in found.flags.items():
        yield Setting(f"flag {name}", value, True)
    card = found.card
    if card is not None:
        power = None if card.power_limit_w is None else f"{card.power_limit_w:g} W"
        yield Setting("power limit", power, True)
        for name, state in (("locked clocks", card.locked_clocks), ("ECC", card.ecc), ("MIG", card.mig)):
            yield Setting(name, None if state is None else "on" if state else "off", True)
        yield Setting("card", card.digest, False)
    yield Setting("mlpfusion", mlpfusion, False)
    yield Setting("Python", found.python, False)
    yield Setting("platform", found.platform, False)
    yield Setting("Liger", found.liger_kernel or "not installed", False)
    yield Setting("kernels", found.kernels or "not installed", False)
    if found.checkout is not None:
        yield Setting("commit", found.checkout.commit + ("" if found.checkout.clean else ", with changes"), False)
    for name, version in found.distributions.items():
        if name not in ("torch", "triton", "liger-kernel", "kernels", "mlpfusion"):
            yield Setting(name, version or "not installed", False)


def of_caches(baseline: Mapping[str, Timed], candidate: Mapping[str, Timed]) -> Iterator[SettingChange]:
    """The clocks that two rows were timed by with other states of the last-level cache."""
    for name, a in baseline.items():
        b = candidate.get(name)
        if b is not None and a.l2 != b.l2:
            first, second = (NOT_RECORDED if each.l2 == "unknown" else each.l2 for each in (a, b))
            weight: Weight = "unrecorded" if NOT_RECORDED in (first, second) else "refused"
            yield SettingChange(name=f"L2 of {name}", baseline=first, candidate=second, weight=weight)


def changes(baseline: Group, candidate: Group) -> Iterator[SettingChange]:
    """The settings in which two groups differ, or which only one of them records."""
    before = {each.name: each for each in baseline.settings}
    after = {each.name: each for each in candidate.settings}
    for name in [*before, *(name for name in after if name not in before)]:
        a, b = before.get(name), after.get(name)
        first, second = _text(a, name), _text(b, name)
        if first == second:
            continue
        known = NOT_RECORDED not in (first, second)
        refuses = any(each is not None and each.refuses for each in (a, b))
        if known or refuses:
            weight = ("refused" if refuses else "question") if known else "unrecorded"
            if name == "card":
                first, second = "one card", "another of its kind"
            yield SettingChange(name=name, baseline=first, candidate=second, weight=weight)  # type: ignore[arg-type]


def _text(found: Setting | None, name: str) -> str:
    if found is None:
        return "unset" if name.startswith("flag ") else NOT_RECORDED
    return NOT_RECORDED if found.value is None else found.value


def check(found: Iterable[SettingChange], a: str, b: str) -> None:
    """Raise a UsageError that names every setting in which times of two files are no match."""
    bad = [each for each in found if each.weight == "refused"]
    if bad:
        listed = ", ".join(f"{each.name} {each.baseline} and {each.candidate}" for each in bad)
        raise UsageError(f"{a!r} and {b!r} were measured differently: {listed}; --force compares them anyway")
