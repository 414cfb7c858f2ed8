"""The sizes, rows and scales with which a whole MLP is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import torch

from mlpfusion.stages.validate.judge import incoming
from mlpfusion.stages.validate.judge.exam import Sizes

if TYPE_CHECKING:
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

    Varied = Literal["large up", "large gate", "small x", "any dy"]


class Case(NamedTuple):
    """Rows of x at some sizes, and what is unusual about the values."""

    sizes: Sizes
    shape: tuple[int, ...]
    varied: Varied | None = None

    def of(self, exam: Exam, dtype: Dtype) -> Tensors:
        """The operands."""
        given = exam.operands(dtype, self.shape, "mlp", sizes=self.sizes)
        generator = exam.generator(f"mlp {self.varied}")
        if self.varied == "any dy":
            return incoming.scaled(given, generator, dtype)
        if self.varied == "small x":
            return given | {"x": given["x"] / 64}
        if self.varied is None:
            return given
        name, most = ("wu", 10) if self.varied == "large up" else ("wg", 7)
        powers = torch.randint(-4, most + 1, (self.sizes.intermediate, 1), generator=generator)
        return given | {name: torch.ldexp(given[name], powers)}


# Rows of x. y then has 10,240 elements or more: the largest error of few is mostly luck.
SHAPES: Final = ((160,), (3, 67), (2, 2, 41))
# Few rows take another path (decoding); their errors are judged together.
FEW: Final = (*((rows,) for rows in range(1, 18)), (1, 1), (1, 7), (2, 1), (3, 1, 2))
# More than any tile of rows, and more than there are blocks in one wave.
MANY: Final = (2113,)
MANY_ON_GPU: Final = (65551,)  # more than the second dimension of a grid holds
# Multiples of 8 but of no tile, of nothing at all, and a square one that is more than one tile wide.
OTHERS: Final = ((Sizes(72, 136), (160,)), (Sizes(67, 131), (160,)), (Sizes(320, 320), (33,)))
# Of each 2^k there is a width that no larger power divides, since a kernel may hold one to be a multiple of what it is
# none of; judged together.
WIDTHS: Final = tuple(Sizes(*pair) for pair in ((66, 132), (68, 130), (80, 160), (96, 144), (192, 96), (384, 192)))
# One tile of what a kernel loops over may be as wide as any usual model. The other size is small: what is judged, and
# what its weights cost, is their product.
WIDE: Final = ((Sizes(8192, 128), (33,)), (Sizes(2816, 128), (33,)), (Sizes(1100, 72), (9,)), (Sizes(72, 1408), (160,)))
# Sums so long that adding up in 16 bits shows (the control long_sums_in_16_bits).
LONG: Final = ((Sizes(64, 4096), (160,)), (Sizes(64, 8192), (33,)))


def cases(exam: Exam, *, grad: bool) -> list[tuple[Case, ...]]:
    """What is judged, where errors of one group are judged together; the exam's sizes are those that are taken."""
    own = exam.sizes
    if exam.asked.shapes:
        sizes = (own, *(each for each, _ in OTHERS))
        return [(Case(each, shape),) for shape in exam.asked.shapes for each in sizes]
    alone = [*((own, shape) for shape in SHAPES), *OTHERS, *WIDE, *LONG]
    found = [
        *((Case(*each),) for each in alone),
        tuple(Case(own, shape) for shape in (FEW[:: 3 if grad else 1])),
        tuple(Case(sizes, (33,)) for sizes in WIDTHS),
    ]
    if grad:
        return [*found, (Case(own, (160,), "any dy"),)]
    varied: tuple[Varied, ...] = ("large up", "large gate", "small x")
    many = MANY_ON_GPU if exam.device == "cuda" else MANY
    return [*found, (Case(own, many),), *((Case(own, (160,), each),) for each in varied)]
