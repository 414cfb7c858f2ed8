"""What a choice holds for: the card, and the versions of what ran on it, compared one by one."""

from __future__ import annotations

import hashlib
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlpfusion import backend as registry
from mlpfusion.choices import Conditions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.device import Device

OURS: Final = "mlpfusion"
KERNELS: Final = "mlpfusion_kernels"
# What the built-in backends of these names run, beside torch, Triton and our own kernels.
_PEERS: Final = {"liger": "liger-kernel", "hub": "kernels", "quack": "quack-kernels"}


def conditions(device: Device, backends: Sequence[str]) -> Conditions:
    """This card and the versions here of all that these backends run."""
    import torch

    versions: dict[str, str | None] = {
        "torch": str(torch.__version__),
        "triton": _version("triton"),
        OURS: _version(OURS),
        KERNELS: _kernels(),
    }
    for name in backends:
        versions.update(_of_backend(name))
    return Conditions(device=device.name, capability=device.capability, versions=dict(sorted(versions.items())))


def differences(then: Conditions, now: Conditions) -> list[str]:
    """What of `then` is not so `now`, each as one phrase; what `then` does not name does not count."""
    found = []
    if (then.device, then.capability) != (now.device, now.capability):
        found.append(f"{_card(then)} there, {_card(now)} here")
    for name, version in then.versions.items():
        here = now.versions.get(name)
        if version != here:
            found.append(f"{name} {version or 'not installed'} there, {here or 'not installed'} here")
    return found


def _card(known: Conditions) -> str:
    if known.capability is None:
        return known.device
    return f"{known.device} (sm_{known.capability[0]}{known.capability[1]})"


def _of_backend(name: str) -> dict[str, str | None]:
    """The version of the package that a backend comes from or wraps, or the contents of a loose file."""
    if name in registry.BUILT_IN:
        return {_PEERS[name]: _version(_PEERS[name])} if name in _PEERS else {}
    path = Path(name.rpartition(":")[0])
    if path.suffix == ".py":
        return {name: _digest([path]) if path.is_file() else None}
    points = [each for each in metadata.entry_points(group=registry.GROUP) if each.name == name]
    owners = [each.dist for each in points if each.dist is not None]
    return {owner.name: owner.version for owner in owners} or {name: None}


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _kernels() -> str | None:
    """A digest of the kernels' sources, which change more often than a version does."""
    found = util.find_spec(KERNELS)
    if found is None or found.origin is None:
        return None
    return _digest(sorted(Path(found.origin).parent.glob("*.py")))


def _digest(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
