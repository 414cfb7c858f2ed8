"""The shapes in which an act·mul is judged, each with the scales of its gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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


def is_interpreted(exam: Exam) -> bool:
    """Whether Triton's interpreter runs kernels of the target, some of them in milliseconds for each program."""
    return exam.loaded.interpreted and bool(exam.loaded.kernels or exam.launches)


def rows(exam: Exam) -> Shape:
    """As many rows as the target is judged with."""
    return ROWS_INTERPRETED if is_interpreted(exam) else ROWS


def rows_trained(exam: Exam) -> Shape:
    """As many rows as gradients are judged with: fewer on a CPU, where fp64 takes a second for so many."""
    return ROWS_TRAINED if exam.device == "cpu" and rows(exam) == ROWS else rows(exam)


def cases(exam: Exam) -> list[Case]:
    """The default shapes, each with the scales at which it is judged."""
    found = [(shape, scales(shape)[:1]) for shape in exam.some((*SMALL, *WIDTHS, *USUAL, rows(exam)))]
    if exam.asked.quick:
        exam.left_out["an operand of two million elements"] = None
    else:
        found.append(MANY_BLOCKS)
    found += [(shape, SCALES) for shape in exam.some((*LARGE, LARGE_ON_GPU) if exam.device == "cuda" else LARGE)]
    return [*found, LARGEST_ON_GPU] if exam.device == "cuda" else found


def scales(shape: Shape) -> tuple[float, ...]:
    """The scales in the order in which a shape is judged: the one that a small shape gets alone comes first."""
    known = (*SMALL, *WIDTHS, *USUAL)
    first = known.index(shape) % len(SCALES) if shape in known else 0
    return (*SCALES[first:], *SCALES[:first])
