"""The shapes in which an act·mul is judged, each with the scales of its gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

    Shape = tuple[int, ...]
    Case = tuple[Shape, tuple[float, ...]]

SCALES: Final = (0.01, 1.0, 10.0)
# Odd, prime, size 1, empty, a multiple of no tile, multiples of 8 but of no tile, many rows, four and five dimensions,
# and more than one block, also in a width that is a multiple of 16.
SMALL: Final = (
    *((), (1,), (0,), (1, 1, 1), (3, 1, 5), (7, 127), (1031,), (1032,), (8, 264), (3, 1048)),
    *((130, 40), (2, 3, 4, 8), (2, 1, 3, 5, 24), (1, 65537), (1, 131056)),
)
# Vectors, tiles and powers of two are each multiples of other 2^k, and a kernel may hold a width to be a multiple of
# what it is none of: of each 2^k there is a narrow width and a wide one that no larger power divides. None is a power.
NARROW: Final = tuple((3, 3 << k) for k in range(1, 9))
WIDE: Final = tuple(
    (2, odd << k) for k, odd in enumerate((517, 259, 855, 131, 65, 33, 11, 11, 43, 5, 3, 3, 3), start=1)
)
WIDTHS: Final = (*NARROW, *WIDE)
# Intermediate sizes of usual models, for which a kernel may have a table: Gemma, Llama, Mistral, Qwen up to 70B.
USUAL: Final = tuple(
    (1, columns)
    for columns in (
        *(4864, 6912, 8192, 8960, 9216, 9728, 10240, 11008, 12288),
        *(13824, 14336, 16384, 18944, 24576, 28672),
    )
)
# A plan may be kept for calls of as many multiples of 8, 16, 32 or 64 rows: more rows than it was made for, and fewer.
TURNS: Final = ((33, 40), (39, 40), (47, 40), (63, 40), (34, 40))
# Judged at every scale; the last for those that take only multiples.
LARGE: Final = ((33, 97), (2, 2049), (16, 256))
LARGE_ON_GPU: Final = (127, 4097)
# What only so many blocks show does not depend on the scale: judging one saves the judge two thirds of its work.
LARGEST_ON_GPU: Final = ((1024, 3072), (1.0,))
# A grid has at most 65,535 programs along its second and third dimension. Triton's interpreter takes a minute for so
# many.
ROWS: Final = (65551, 8)
ROWS_INTERPRETED: Final = (1039, 8)
# More blocks of 1024 than a kernel launches programs that each work off some, and no multiple of any such number.
MANY_BLOCKS: Final = ((2065, 1024), (1.0,))
ROWS_TRAINED: Final = (4099, 8)
# One row and one vector more than a power of two: of tiles of any smaller power there is an odd number, and more than
# one, along rows and columns at once. Groups of tiles of either leave a rest there.
TILED: Final = ((257, 4112), (513, 2056))
TILED_INTERPRETED: Final = ((257, 2056),)


class Range(NamedTuple):
    """Between which numbers the sizes of all gates and ups are, and which signs the gates have."""

    low: float
    high: float
    signs: tuple[int, ...] = (1, -1)

    @property
    def said(self) -> str:
        """The range in words."""
        sign = "" if len(self.signs) > 1 else f" {'above' if self.signs[0] > 0 else 'below'} 0"
        return f"where all gates{sign} are of a size from {self.low:g} to {self.high:g}"

    def of(self, exam: Exam, dtype: Dtype, shape: Shape) -> Tensors:
        """Operands and dy: gate and up uniform within the range."""
        given = exam.operands(dtype, shape, f"within {self}")
        generator = exam.generator(f"within {self}")
        for name, signs in (("gate", self.signs), ("up", (1, -1))):
            size = self.low + (self.high - self.low) * INSIDE * torch.rand(shape, generator=generator)
            sign = torch.tensor(signs)[torch.randint(len(signs), shape, generator=generator)]
            given[name] = (size * sign).to(given[name].dtype)
        return given


# A path for gates that are all small, or large, or of one sign, would be taken for no random ones. What it does wrongly
# is largest near its end, wherever that is.
INSIDE: Final = 1 - 2.0**-6  # which no rounding makes 1
RANGES: Final = (
    *(Range(0.0, 2.0**power) for power in range(-3, 4)),
    *(Range(8.0, 64.0), Range(0.0, 8.0, (1,)), Range(0.0, 8.0, (-1,))),
)


# Enough for a path that large operands take, and of fewer blocks in an interpreter, which takes 2 ms for each.
RANGED: Final = (64, 1032)
RANGED_INTERPRETED: Final = (8, 1032)


def ranges(exam: Exam) -> Iterator[tuple[Range, Shape]]:
    """The ranges of gates that are judged, and in which shape."""
    shape = RANGED_INTERPRETED if is_interpreted(exam) else RANGED
    if exam.asked.quick:
        exam.left_out["most ranges of gates"] = None
        yield RANGES[3], shape
    else:
        yield from ((each, shape) for each in RANGES)


def is_interpreted(exam: Exam) -> bool:
    """Whether Triton's interpreter runs kernels of the target, some of them in milliseconds for each program."""
    return exam.loaded.interpreted and bool(exam.loaded.kernels or exam.launches)


def rows(exam: Exam) -> Shape:
    """As many rows as the target is judged with."""
    return ROWS_INTERPRETED if is_interpreted(exam) else ROWS


def rows_trained(exam: Exam) -> Shape:
    """As many rows as gradients are judged with: fewer on a CPU, where fp64 takes a second for so many."""
    return ROWS_TRAINED if exam.device == "cpu" and rows(exam) == ROWS else rows(exam)


def tiled(exam: Exam) -> tuple[Shape, ...]:
    """Shapes of several tiles of rows times several of columns: fewer of an interpreted kernel."""
    return TILED_INTERPRETED if is_interpreted(exam) else TILED


def cases(exam: Exam) -> list[Case]:
    """The default shapes, each with the scales at which it is judged."""
    found = [(shape, scales(shape)[:1]) for shape in exam.some((*SMALL, *WIDTHS, *USUAL, *TURNS, rows(exam)))]
    if exam.asked.quick:
        exam.left_out |= {"an operand of two million elements": None, "many rows of many columns": None}
    else:
        found.append(MANY_BLOCKS)
        found += [(shape, SCALES[1:2]) for shape in tiled(exam)]
    found += [(shape, SCALES) for shape in exam.some((*LARGE, LARGE_ON_GPU) if exam.device == "cuda" else LARGE)]
    return [*found, LARGEST_ON_GPU] if exam.device == "cuda" else found


def scales(shape: Shape) -> tuple[float, ...]:
    """The scales in the order in which a shape is judged: the one that a small shape gets alone comes first."""
    known = (*SMALL, *WIDTHS, *USUAL, *TURNS)
    first = known.index(shape) % len(SCALES) if shape in known else 0
    return (*SCALES[first:], *SCALES[:first])
