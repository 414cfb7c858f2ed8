"""Shows kernels' names on one short line: the function, demangled, and what tells it from others of its name."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from mlpfusion.trace.names.cpp import Cpp, split
from mlpfusion.trace.names.decode import readable

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

# Functions that run the class that is their first argument, and classes that only guard another one.
_SHELLS: Final = frozenset({"device_kernel", "Kernel", "Kernel2", "kentry"})
_GUARDS: Final = ("enable_sm", "enable_if")
_LONGEST: Final = 40  # letters of one argument


@lru_cache(maxsize=4096)
def shown(name: str) -> str:
    """A name without return type, template arguments and parameters; one that is no C++ function as it is."""
    plain = " ".join(name.split())
    if not _is_function(plain):
        return readable(plain)
    cpp = _core(plain)
    return f"{cpp.qualified}<…>" if cpp.arguments else cpp.qualified


def told_apart(names: Iterable[str], beside: Mapping[str, Hashable] | None = None) -> dict[str, str]:
    """By name what to show of it: different names that would look the same have the arguments that differ.

    `beside` has for each name what is shown beside it, which may tell them apart already.
    """
    alike: dict[tuple[str, Hashable], list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        alike[shown(name), (beside or {}).get(name)].append(name)
    found: dict[str, str] = {}
    for (text, _), group in alike.items():
        found.update(dict.fromkeys(group, text) if len(group) == 1 else _by_arguments(group))
    return found


def _is_function(name: str) -> bool:
    opens = min((at for at in (name.find("<"), name.find("(")) if at >= 0), default=-1)
    return name.startswith(("_Z", "void ", "std::enable_if")) or (opens > 0 and name[opens - 1] != " ")


def _core(name: str) -> Cpp:
    """The function of a name, or the class that a shell such as `cutlass::device_kernel` runs."""
    cpp = split(readable(name))
    while (cpp.function in _SHELLS or cpp.function.startswith(_GUARDS)) and cpp.arguments:
        inner = next((argument for argument in cpp.arguments if not argument[:1].isdigit()), None)
        if inner is None or len(inner) >= len(name):
            break
        cpp = split(inner)
    return cpp


def _by_arguments(names: list[str]) -> dict[str, str]:
    """The function with the first argument that all have another of, else with all that differ."""
    cores = {name: _core(name) for name in names}
    longest = max(len(cpp.arguments) for cpp in cores.values())
    padded = [(*cpp.arguments, *[""] * (longest - len(cpp.arguments))) for cpp in cores.values()]
    columns = list(zip(*padded, strict=True))
    telling = [place for place, column in enumerate(columns) if len({_argument(text) for text in column}) == len(names)]
    spoken = [place for place in telling if not columns[place][0][:1].isdigit()]  # a class says more than a number
    places = (spoken or telling)[:1] or [place for place, column in enumerate(columns) if len(set(column)) > 1]
    return {name: _with_arguments(cpp, places) for name, cpp in cores.items()}


def _with_arguments(cpp: Cpp, places: list[int]) -> str:
    said = [_argument(cpp.arguments[place]) for place in places if place < len(cpp.arguments)]
    said += ["…"] if len(cpp.arguments) > len(said) else []
    return f"{cpp.qualified}<{', '.join(said)}>" if said else cpp.qualified


def _argument(text: str) -> str:
    """An argument by its own last name, with the last type that it is made of where it has some."""
    cpp = split(text)
    short = f"{cpp.function}<{split(cpp.arguments[-1]).function}>" if cpp.arguments else cpp.function
    return short if len(short) <= _LONGEST else f"{short[: _LONGEST - 1]}…"
