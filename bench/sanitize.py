"""Runs the kernels in every configuration that ships for this card under compute-sanitizer, tails included.

python bench/sanitize.py --out bench/results/h200-sanitize.json
python bench/sanitize.py --tools racecheck        one of memcheck, racecheck and initcheck
python bench/sanitize.py --watched                what the sanitizer watches: the calls alone

Each product is by one configuration, over shapes that no tile divides: a write or a read beyond an operand is one into
memory of nobody, since every tensor has its own.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
import torch
from asked import result_file
from mlpfusion_kernels import ACTIVATIONS, Weights
from mlpfusion_kernels.elementwise.launch import act_mul_backward, act_mul_forward
from mlpfusion_kernels.gate_up import launch
from mlpfusion_kernels.gate_up.choice import few_tokens
from mlpfusion_kernels.gate_up.limits import shipped

from mlpfusion import device
from mlpfusion.device import Device
from mlpfusion.environment import machine
from mlpfusion.errors import UsageError
from mlpfusion.records.base import Record
from mlpfusion.records.environment import Environment
from mlpfusion.stages.validate.channel import CALLED
from mlpfusion.stages.validate.judge import sanitizer
from mlpfusion.storage import files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mlpfusion_kernels.gate_up.configs import Card, Config

Direction = Literal["forward", "training", "backward"]
DIRECTIONS: Final[tuple[Direction, ...]] = ("forward", "training", "backward")
DTYPES: Final = (torch.bfloat16, torch.float16, torch.float32)
TIME_LIMIT_S: Final = 540.0
FEW: Final = (1, 3, 9, 17, 31)  # tokens that the kernels for few may get
HEAVIEST: Final = "gelu"


class Case(NamedTuple):
    """One call: of the gate/up product by `config`, or of what has none; x [m, d] and weights [h, d]."""

    what: str
    dtype: torch.dtype
    activation: str
    m: int
    d: int
    h: int
    bias: bool = True
    config: Config | None = None

    def __str__(self) -> str:
        tile = "" if self.config is None else f" by {' '.join(map(str, self.config))}"
        bias = " with biases" * self.bias
        return f"{self.what}, {str(self.dtype)[6:]} {self.activation}, {self.m} x {self.d} x {self.h}{bias}{tile}"


class Seen(Record, frozen=True, kw_only=True):
    """What one tool has found: faults by place, or why it did not come to its end."""

    class Place(Record, frozen=True, kw_only=True):
        """A fault, the kernel and the line of its source, and how often it was told."""

        what: str
        where: str
        times: int

    tool: str
    verdict: str
    sentence: str
    places: tuple[Place, ...]


class Sanitized(Record, frozen=True, kw_only=True):
    """A result file of this script."""

    schema: int = 1
    kind: Literal["sanitized"] = "sanitized"
    created: str
    device: Device
    environment: Environment
    calls: tuple[str, ...]
    tools: tuple[Seen, ...]


# ---- what is called --------------------------------------------------------------------------------------------------


def cases(here: Card) -> Iterator[Case]:
    """Every configuration of a card in each dtype, every activation, and the kernels that have no table."""
    for dtype in DTYPES:
        for direction in DIRECTIONS:
            configs = shipped(here, dtype, direction)
            yield from (_of(direction, dtype, HEAVIEST, config) for config in configs)
            if dtype is torch.bfloat16:
                yield from (_of(direction, dtype, each, configs[0]) for each in ACTIVATIONS if each != HEAVIEST)
                # More tiles than a whole round, of which the rest is shared; three rows of them, as below.
                columns = here.multiprocessors // 3 + 1
                yield from (_of(direction, dtype, HEAVIEST, one, columns) for one in configs if one.split > 1)
        tokens = [few for few in FEW if few <= few_tokens(here.capability, dtype)]
        yield from (Case("few tokens", dtype, HEAVIEST, few, 272, 528) for few in tokens)
        for rows, columns in ((1, 5), (67, 1000), (3, 4099)):
            yield from (
                Case(what, dtype, each, rows, 0, columns, bias=False)
                for what in ("act·mul", "its backward")
                for each in ACTIVATIONS
            )


def _of(direction: Direction, dtype: torch.dtype, activation: str, config: Config, columns: int = 1) -> Case:
    """Two tiles of rows and one more token; tiles of columns and 48 more; a sum with a step cut short."""
    depth = (config.parts + 1) * config.block_k + 16
    has_bias = direction != "backward"
    return Case(
        direction, dtype, activation, 2 * config.block_m + 1, depth, columns * config.block_n + 48, has_bias, config
    )


def call(case: Case, place: str = "cuda") -> None:
    """The kernels of a case, with values that keep products finite."""
    m, d, h = case.m, case.d, case.h

    def made(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=place).to(case.dtype) / 4

    if case.what == "act·mul":
        act_mul_forward(made(m, h), made(m, h), case.activation)
    elif case.what == "its backward":
        act_mul_backward(made(m, h), made(m, h), made(m, h), case.activation, True, True)
    elif case.what == "backward":
        launch.gate_up_backward(made(m, d), made(d, h), made(m, h), made(m, h), case.activation, case.config)
    else:
        biases = (made(h), made(h), made(d)) if case.bias else ()
        weights = Weights(made(h, d), made(h, d), made(d, h), *biases)
        if case.what == "few tokens":
            for keep in (False, True):
                launch.few_tokens_forward(made(m, d), weights, case.activation, keep)
        else:
            launch.gate_up_forward(made(m, d), weights, case.activation, case.what == "training", case.config)


def watched() -> None:
    """All calls, in the process that the sanitizer watches."""
    torch.manual_seed(0)
    found = list(cases(launch.card(torch.cuda.current_device())))
    for each in found:
        print(each, flush=True)
        call(each)
        torch.cuda.synchronize()
    print(f"{CALLED}{len(found)} calls")


# ---- what is found ---------------------------------------------------------------------------------------------------


def run(program: Path, tool: str) -> Seen:
    """One tool's findings."""
    command = [str(program), "--tool", tool, "--print-limit", str(sanitizer.MOST), "--show-backtrace", "no"]
    try:
        text = sanitizer.run([*command, sys.executable, __file__, "--watched"], time_limit_s=TIME_LIMIT_S)
    except TimeoutError as error:
        return Seen(tool=tool, verdict="not decidable here", sentence=f"{tool}: {error}", places=())
    found = sanitizer.judged(tool, text)
    places = tuple(Seen.Place(what=each.what, where=each.where, times=each.times) for each in sanitizer.faults(text))
    return Seen(tool=tool, verdict=found.status, sentence=found.sentence, places=places)


def render(found: Sanitized) -> str:
    """Each tool's line, and below it the places."""
    lines = [f"{found.device.name}, {len(found.calls)} calls"]
    for tool in found.tools:
        lines.append(f"{tool.verdict}: {tool.sentence}")
        lines += [f"    {each.times} times: {each.what} in {each.where}" for each in tool.places]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tools, print, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", nargs="+", choices=sanitizer.TOOLS, default=sanitizer.TOOLS)
    parser.add_argument("--out", type=result_file)
    parser.add_argument("--watched", action="store_true", help="make the calls, without a sanitizer")
    asked = parser.parse_args(arguments)
    if asked.watched:
        watched()
        return 0
    here = device.detect()
    try:
        program = sanitizer.check(here.kind)
    except UsageError as error:
        print(str(error).removeprefix("--sanitize "), file=sys.stderr)
        return 2
    tools = []
    for tool in asked.tools:
        tools.append(run(program, tool))
        print(f"{tool}: {tools[-1].verdict}", file=sys.stderr, flush=True)
    found = Sanitized(
        created=machine.now(),
        device=here,
        environment=machine.collect(here, {}),
        calls=tuple(map(str, cases(launch.card(here.index)))),
        tools=tuple(tools),
    )
    print(render(found))
    if asked.out is not None:
        files.write_whole("result file", asked.out, msgspec.json.format(msgspec.json.encode(found), indent=1))
    # "reported" is in a library's kernel, which has no line of Python.
    return 0 if all(tool.verdict in {"pass", "reported"} for tool in tools) else 1


if __name__ == "__main__":
    sys.exit(main())
