"""Finds in a kernel's Triton IR the pointer arguments that it loads from and stores to.

Every value is followed back from the loads and stores to the arguments it is made of, through loops and branches. What
was loaded is data and followed no further. Whatever cannot be followed is an error, never a guess.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOADS: Final = frozenset({"tt.load", "tt.descriptor_load", "tt.descriptor_gather", "tt.experimental_descriptor_load"})
_STORES: Final = frozenset(
    {"tt.store", "tt.descriptor_store", "tt.descriptor_scatter", "tt.experimental_descriptor_store"}
)
_BOTH: Final = frozenset({"tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_reduce"})
# Only the first operand says where the result points.
_POINTER_FIRST: Final = frozenset({"tt.addptr", "tt.advance", "tt.make_tensor_ptr", "tt.make_tensor_descriptor"})
# Operations without result that touch no memory of an argument.
_SILENT: Final = frozenset(
    {"tt.return", "tt.assert", "tt.print", "tt.reduce.return", "tt.scan.return", "llvm.intr.assume", "gpu.barrier",
     "ttg.barrier"}
)  # fmt: skip
_PURE_DIALECTS: Final = frozenset({"arith", "math", "tt", "scf", "ub"})

_NAME: Final = re.compile(r"%[\w.$-]+(?:#\d+)?")
_LOCATION: Final = re.compile(r"\s*loc\((?:[^()\"]|\"[^\"]*\"|\([^()]*\))*\)")
_PARAMETER: Final = re.compile(r"(%[\w.$-]+): (![\w.]+|[\w.]+)")
_ASSIGN: Final = re.compile(r"^((?:%[\w.$-]+(?::\d+)?(?:, )?)+) = ")
_CARRIED: Final = re.compile(r"(%[\w.$-]+) = (%[\w.$-]+(?:#\d+)?)")


class UnreadableError(ValueError):
    """What a kernel touches cannot be derived from its code; the message has the reason."""


class Touched(NamedTuple):
    """For each pointer argument, in order, whether the kernel reads and whether it writes through it."""

    reads: tuple[bool, ...]
    writes: tuple[bool, ...]


@functools.lru_cache(maxsize=256)
def touched(text: str) -> Touched:
    """What the kernel in a module of Triton's intermediate code does with its pointer and descriptor arguments.

    Raises:
        UnreadableError: it calls other functions, or something in it cannot be followed.
    """
    lines = [_LOCATION.sub("", line).strip() for line in text.splitlines()]
    starts = [index for index, line in enumerate(lines) if line.startswith("tt.func ")]
    if len(starts) != 1:
        raise UnreadableError(f"its code has {len(starts)} functions")
    reader = _Reader(lines[starts[0]])
    for line in lines[starts[0] + 1 :]:
        reader.line(line)
    return reader.touched()


class _Region:
    """A branch or loop that is being read: what its results and arguments are made of is known at its end."""

    def __init__(self, op: str, results: Sequence[int], carried: Sequence[int] = ()) -> None:
        self.op = op
        self.results = results
        self.carried = carried
        self.passed: list[int] = []  # what a while loop's condition hands on
        self.names: dict[str, int] = {}


class _Reader:
    """A graph of values: each is a number, with the values it is made of."""

    def __init__(self, head: str) -> None:
        self._made_of: list[set[int]] = []
        self._regions = [_Region("tt.func", ())]
        self._loads: list[int] = []
        self._stores: list[int] = []
        self._arguments: list[int] = []
        for name, kind in _PARAMETER.findall(head):
            value = self._new(name)
            if kind in ("!tt.ptr", "!tt.tensordesc"):
                self._arguments.append(value)

    def touched(self) -> Touched:
        reads, writes = self._roots(self._loads), self._roots(self._stores)
        order = {value: index for index, value in enumerate(self._arguments)}
        flags = [[False] * len(order) for _ in range(2)]
        for which, roots in enumerate((reads, writes)):
            for value in roots:
                flags[which][order[value]] = True
        return Touched(tuple(flags[0]), tuple(flags[1]))

    def line(self, line: str) -> None:
        """Read one line of the function's body."""
        if not line or line.startswith(("//", "#")):
            return
        if line.startswith("^"):
            self._block(line)
        elif line.startswith("}"):
            self._close(line)
        else:
            self._operation(line)

    # -- lines

    def _operation(self, line: str) -> None:
        assigned = _ASSIGN.match(line)
        rest = line[assigned.end() :] if assigned else line
        op = rest.split(maxsplit=1)[0].split("(")[0].strip('"')
        if op == "module" or not self._regions:
            return
        operands = [self._find(name) for name in _NAME.findall(_without_bindings(rest))]
        if op in ("scf.yield", "scf.condition"):
            self._hand_on(op, operands)
            return
        self._check(op, rest, has_result=assigned is not None)
        results = self._results(assigned)
        if op in ("scf.for", "scf.while", "scf.if") or rest.endswith("({"):
            self._open(op, rest, results)
        elif op in _LOADS | _STORES | _BOTH:
            if not operands:
                raise UnreadableError(f"{op} has no operand")
            self._loads += operands[:1] if op in _LOADS | _BOTH else []
            self._stores += operands[:1] if op in _STORES | _BOTH else []
            if assigned and op in _LOADS and "!tt.ptr" in rest.rpartition("->")[2] and "->" in rest:
                raise UnreadableError("it loads pointers")
        else:
            chosen = operands[:1] if op in _POINTER_FIRST else operands
            for result in results:
                self._made_of[result].update(chosen)

    def _check(self, op: str, rest: str, *, has_result: bool) -> None:
        known = _LOADS | _STORES | _BOTH | _SILENT | {"scf.for", "scf.while", "scf.if"}
        assembly = op == "tt.elementwise_inline_asm" and _is_harmless(rest)
        if op in ("tt.call", "tt.experimental_tensormap_create") or ("pure = false" in rest and not assembly):
            raise UnreadableError(f"it has a {op}, whose effects are unknown")
        if op not in known and (not has_result or op.partition(".")[0] not in _PURE_DIALECTS):
            raise UnreadableError(f"it has a {op}, whose effects are unknown")

    def _results(self, assigned: re.Match[str] | None) -> list[int]:
        found = []
        for bound in assigned[1].split(", ") if assigned else ():
            name, _, count = bound.partition(":")
            found += [self._new(f"{name}#{index}") for index in range(int(count))] if count else [self._new(name)]
        return found

    # -- regions

    def _open(self, op: str, rest: str, results: list[int]) -> None:
        pairs = _CARRIED.findall(rest) if op in ("scf.for", "scf.while") else []
        if op == "scf.for":  # the first pair is the counter and its lower bound
            counter, pairs = pairs[0][0], pairs[1:]
        initial = [self._find(start) for _, start in pairs]
        region = _Region(op, results)
        self._regions.append(region)
        if op == "scf.for":
            self._new(counter)
        region.carried = [self._new(name) for name, _ in pairs]
        for value, start in zip(region.carried, initial, strict=True):
            self._made_of[value].add(start)
        if op == "scf.for":
            for value, start in zip(results, initial, strict=True):
                self._made_of[value].add(start)

    def _hand_on(self, op: str, operands: list[int]) -> None:
        region = self._regions[-1]
        if op == "scf.condition":
            operands = operands[1:]
            region.passed = operands
            targets: Sequence[Sequence[int]] = [region.results]
        elif region.op == "scf.while":
            targets = [region.carried]
        else:
            targets = [region.results, region.carried] if region.op == "scf.for" else [region.results]
        for values in targets:
            if len(values) != len(operands):
                raise UnreadableError(f"{op} hands on {len(operands)} values where {len(values)} are expected")
            for value, made_of in zip(values, operands, strict=True):
                self._made_of[value].add(made_of)

    def _block(self, line: str) -> None:
        """The arguments of a block: those of a while loop's body are what its condition hands on."""
        region = self._regions[-1]
        names = [name for name, _ in _PARAMETER.findall(line)]
        if region.op not in ("scf.while", "tt.reduce", "tt.scan", "tt.map_elementwise"):
            raise UnreadableError(f"it has a block in {region.op}")
        made_of = region.passed if region.op == "scf.while" else []
        for index, name in enumerate(names):
            value = self._new(name)
            if index < len(made_of):
                self._made_of[value].add(made_of[index])

    def _close(self, line: str) -> None:
        if line.startswith(("} else {", "} do {")):
            self._regions[-1].names = {}
        elif self._regions:
            self._regions.pop()

    # -- values

    def _new(self, name: str) -> int:
        self._made_of.append(set())
        self._regions[-1].names[name] = len(self._made_of) - 1
        return len(self._made_of) - 1

    def _find(self, name: str) -> int:
        for region in reversed(self._regions):
            if name in region.names:
                return region.names[name]
        raise UnreadableError(f"{name} is not defined where it is used")

    def _roots(self, values: list[int]) -> set[int]:
        """The pointer arguments that these values are made of; each value must be made of at least one."""
        arguments = set(self._arguments)
        every: set[int] = set()
        for first in values:
            seen, stack = {first}, [first]
            while stack:
                for value in self._made_of[stack.pop()] - seen:
                    seen.add(value)
                    stack.append(value)
            if not seen & arguments:
                raise UnreadableError("an address in it comes from no pointer argument")
            every |= seen & arguments
        return every


def _is_harmless(assembly: str) -> bool:
    """Whether inline PTX touches no memory: it writes every address in brackets, and a prefetch moves nothing yet."""
    code = assembly.split('"')[1]
    return all("[" not in one or "prefetch" in one for one in code.split(";"))


def _without_bindings(text: str) -> str:
    """An operation's text without the names that it binds itself."""
    return _CARRIED.sub(r"\2", text)
