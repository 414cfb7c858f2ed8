"""Shows the names of Python's frames and modules in short, without paths and addresses of a machine."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

MODULE: Final = "nn.Module: "
_FRAME: Final = re.compile(r"(?P<file>.+?)(?P<line>\(\d+\)): (?P<function>.*)", re.DOTALL)
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_PATH: Final = re.compile(r"[^\s'\"<>(),=]*[/\\]")
_NUMBER: Final = re.compile(r"_\d+$")


@lru_cache(maxsize=65536)
def shown(name: str) -> str:
    """`/home/me/model.py(12): forward` as `model.py(12): forward`; what is no frame of a file without path and address.

    A file is named as `*` in place of a number that a notebook gave it.
    """
    plain = " ".join(name.split())
    found = _FRAME.fullmatch(plain)
    if found is None:
        return _PATH.sub("", _ADDRESS.sub("", plain)) or "a frame without a name"
    file = re.split(r"[/\\]", found["file"])[-1]
    return f"{file}{found['line']}: {_PATH.sub('', _ADDRESS.sub('', found['function']))}"


def module(name: str) -> str | None:
    """`LlamaMLP_0` of `nn.Module: LlamaMLP_0`; None if the name is no module's."""
    return _PATH.sub("", name.removeprefix(MODULE)) if name.startswith(MODULE) else None


def module_class(name: str) -> str:
    """The same without the number that tells instances apart: `nn.Module: LlamaMLP`."""
    return _NUMBER.sub("", name)
