"""How to wrap what is almost a target: one line that names the mistake and shows the function to validate instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_OUT: Final = frozenset(("out", "output", "out_tensor", "dst", "res", "result"))
_PACKED: Final = "torch.cat((gate, up), dim=-1)"
_OPERANDS: Final = {2: "gate, up", 4: "x, wg, wu, wd"}
_UNFIT: Final = (
    *("shapes cannot be multiplied", "size mismatch", "must match the size", "inconsistent tensor size"),
    *("incompatible dimensions", "incompatible shapes", "expected size", "shape mismatch"),
)
ARGUMENTS: Final = (
    "its file ends the program when it is imported, as one does that reads its arguments there; put what runs the "
    'script below: if __name__ == "__main__":'
)


def of_operands(name: str, operands: Sequence[str], keywords: Sequence[str] = ()) -> str | None:
    """What is meant by a function of these parameters, and its wrapper; None where nothing is recognised.

    Args:
        name: what the function is called.
        operands: its positional parameters without a default.
        keywords: those that may be given by name alone, and have no default either.
    """
    if keywords and len(operands) + len(keywords) in _OPERANDS:
        return _by_keyword(name, operands, keywords)
    if keywords:
        return None
    written = [place for place in (0, -1) if operands and operands[place] in _OUT]
    if written:
        return _into(name, operands, first=written[0] == 0)
    if len(operands) == 1:
        return _shown("takes one operand, gate and up side by side [M, 2H]", "gate, up", f"return {name}({_PACKED})")
    return None


def _by_keyword(name: str, operands: Sequence[str], keywords: Sequence[str]) -> str:
    given = _OPERANDS[len(operands) + len(keywords)]
    values = given.split(", ")
    named = (f"{keyword}={value}" for keyword, value in zip(keywords, values[len(operands) :], strict=True))
    call = ", ".join((*values[: len(operands)], *named))
    return _shown(f"takes {', '.join(keywords)} by name alone", given, f"return {name}({call})")


def _into(name: str, operands: Sequence[str], *, first: bool) -> str | None:
    """The wrapper of a function that writes into a tensor which it is given; of one other operand, the packed one."""
    others = len(operands) - 1
    given = _OPERANDS.get(2 if others == 1 else others)
    if given is None:
        return None
    values = _PACKED if others == 1 else given
    call = f"out, {values}" if first else f"{values}, out"
    like = given.partition(",")[0]
    body = f"out = torch.empty_like({like}); {name}({call}); return out"
    return _shown(f"writes into its parameter {operands[0 if first else -1]!r}", given, body)


def of_module(name: str, projections: Sequence[str]) -> str | None:
    """The same of a module class with these linear layers, of which one is gate and up in one, as Phi-3 has it."""
    joint = next((each for each in projections if "gate_up" in each or "up_gate" in each or each == "w13"), None)
    down = next((each for each in projections if each != joint), None)
    if joint is None or down is None:
        return None
    order = "wu, wg" if "up_gate" in joint else "wg, wu"
    weights = f'{{"{joint}.weight": torch.cat(({order})), "{down}.weight": wd}}'
    body = f"return torch.func.functional_call(layer, {weights}, (x,))"
    return _shown(f"has gate and up in one layer, {joint}", "x, wg, wu, wd", body) + f", with layer = {name}(...)"


def of_refusal(name: str, said: str) -> str | None:
    """The same of an MLP function that cannot multiply weights wg, wu [H, D] and wd [D, H], by what it raises."""
    if not any(each in said for each in _UNFIT):
        return None
    body = f"return {name}(x, wg.T, wu.T, wd.T)"
    return _shown("has its weights the other way round than wg, wu [H, D] and wd [D, H]", "x, wg, wu, wd", body)


def _shown(mistake: str, operands: str, body: str) -> str:
    return f"it {mistake}; validate a wrapper: def wrapped({operands}): {body}"
