"""The sizes, rows and scales with which a whole MLP is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import torch

from mlpfusion.stages.validate.judge import incoming
from mlpfusion.stages.validate.judge.checks.shapes import is_interpreted
from mlpfusion.stages.validate.judge.exam import Sizes

if TYPE_CHECKING:
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

    Varied = Literal["large up", "large gate", "small x", "large dy", "tiny dy", "zeros in x", "all gates below 1"]


class Case(NamedTuple):
    """Rows of x at some sizes, and what is unusual about the values."""

    sizes: Sizes
    shape: tuple[int, ...]
    varied: Varied | None = None

    def of(self, exam: Exam, dtype: Dtype) -> Tensors:
        """The operands."""
        given = exam.operands(dtype, self.shape, "mlp", sizes=self.sizes)
        generator = exam.generator(f"mlp {self.varied}")
        if self.varied in {"large dy", "tiny dy"}:
            return incoming.scaled(given, dtype, large=self.varied == "large dy")
        if self.varied == "small x":
            return given | {"x": given["x"] / 64}
        if self.varied == "all gates below 1":
            largest = (given["x"].double() @ given["wg"].double().T).abs().max()
            return given | {"x": (given["x"] * (BELOW / largest)).to(given["x"].dtype)}
        if self.varied == "zeros in x":
            zeros = torch.rand(given["x"].shape, generator=generator) < ZEROS
            zeros[..., 0, :] = True  # and a row of nothing else
            return given | {"x": given["x"].masked_fill(zeros, 0.0)}
        if self.varied is None:
            return given
        name, most = ("wu", 10) if self.varied == "large up" else ("wg", 7)
        powers = torch.randint(-4, most + 1, (self.sizes.intermediate, 1), generator=generator)
        return given | {name: torch.ldexp(given[name], powers)}


# Rows of x. y then has 10,240 elements or more: the largest error of few is mostly luck.
SHAPES: Final = ((160,), (3, 67), (2, 2, 41))
# Few rows take another path (decoding); their errors are judged together.
FEW: Final = (*((rows,) for rows in (*range(1, 10), 12, 15, 16, 17)), (1, 1), (1, 7))
FEW_TRAINED: Final = ((1,), (2,), (3,), (7,), (16,))
# More than any tile of rows, and more than there are blocks in one wave; gradients of weights are sums over them.
# Not the last in 16 bits on a GPU: cuBLAS, which chooses an algorithm by size, may add the parts of a sum in 16 bits
# (allow_bf16_reduced_precision_reduction); right dWg were over 4 times as far off as eager's on an H200.
TRAINED: Final = ((1031,), (16411,), (40961,))
ZEROS: Final = 0.1  # the part of x
BELOW: Final = 0.96  # the largest gate, which roundings of 16 bits leave below 1
# Each has as many whole tiles of 8, 16, 32, 64 or 128 rows as one before it, and fewer rows: what that one has left in
# the padding would be taken in by sums over rows.
FALLING: Final = ((255,), (250,), (225,), (193,))
MANY: Final = (2113,)
MANY_ON_GPU: Final = (65551,)  # more than the second dimension of a grid holds
# Multiples of 8 but of no tile, of nothing at all, and a square one that is more than one tile wide.
OTHERS: Final = ((Sizes(72, 136), (160,)), (Sizes(67, 131), (160,)), (Sizes(320, 320), (33,)))
# Of each 2^k there is a width that no larger power divides, since a kernel may hold one to be a multiple of what it is
# none of; judged together.
WIDTHS: Final = tuple(Sizes(*pair) for pair in ((66, 132), (80, 130), (96, 144), (384, 96)))
# One tile of what a kernel loops over may be as wide as any usual model. The other size is small: what is judged, and
# what its weights cost, is their product. More rows than decoding has.
WIDE: Final = ((Sizes(8192, 64), (17,)), (Sizes(2816, 72), (17,)), (Sizes(1100, 72), (17,)), (Sizes(72, 1408), (160,)))
# Sums so long that adding up in 16 bits shows (the control long_sums_in_16_bits).
LONG: Final = ((Sizes(64, 8192), (96,)),)
# What decodes has tails of its own: sizes that no power of two divides, and those of usual models, at few rows.
SERVED: Final = (Sizes(72, 136), Sizes(67, 131), Sizes(320, 1408), Sizes(16, 8960), Sizes(3456, 16))
FEW_SERVED: Final = (1, 3, 16)
# A loop over several tiles of the hidden size may be another one where there are many rows: more rows than a tile has,
# and of four tiles of 128 columns and more a whole number of any, and none of any from 16 on. The other size is small.
DEEP: Final = ((Sizes(1024, 128), (160,)), (Sizes(520, 24), (1031,)))
# Sizes of usual models that are no powers of two, for which sums may be split or tiles be chosen by a table; the other
# size is small. Judged together, the intermediate ones and the hidden ones.
USUAL: Final = (
    tuple(Sizes(16, intermediate) for intermediate in (4864, 11008, 13696, 18944)),
    tuple(Sizes(hidden, 16) for hidden in (2880, 3584, 4544)),
)
# Eval and inference mode may have tiles and slices of their own, also where one decodes: of the usual sizes those that
# the smallest power of two divides, so that there is a rest, and two that none does: a long sum and a short one.
IN_MODES: Final = (Sizes(16, 13696), Sizes(4544, 16), Sizes(72, 1413), Sizes(67, 131))
IN_MODES_ROWS: Final = (33, 1)


def cases(exam: Exam, dtype: Dtype, *, grad: bool) -> list[tuple[Case, ...]]:
    """What is judged, where errors of one group are judged together; the exam's sizes are those that are taken.

    Gradients cost eager and fp64 three times as much, so that they have fewer cases; of a quick exam each kind has one.
    """
    own = exam.sizes
    if exam.asked.shapes:
        sizes = (own, *(each for each, _ in OTHERS))
        return [(Case(each, shape),) for shape in exam.asked.shapes for each in sizes]
    if grad:
        long = () if dtype == "float32" else LONG
        # Sums added up in 16 bits from tile to tile show in many rows alone, for which an interpreter takes long.
        fewer = is_interpreted(exam) or (exam.device == "cuda" and dtype != "float32")
        rows = TRAINED[:1] if exam.asked.quick else TRAINED[: 2 if fewer else 3]
        alone = [*((own, shape) for shape in (*SHAPES, *rows)), *OTHERS, *long, WIDE[0], DEEP[0]]
        few = tuple(Case(own, shape) for shape in FEW_TRAINED)
        falling = tuple(Case(own, shape) for shape in FALLING)
        scaled: tuple[Varied, ...] = ("large dy", "tiny dy", "all gates below 1")
        return [*((Case(*each),) for each in alone), *((Case(own, (160,), each),) for each in scaled), few, falling]
    many = MANY_ON_GPU if exam.device == "cuda" else MANY
    varied: tuple[Varied, ...] = ("large up", "large gate", "small x", "zeros in x", "all gates below 1")
    kinds: dict[str, list[tuple[Case, ...]]] = {
        "numbers of rows": [(Case(own, shape),) for shape in SHAPES],
        "sizes of MLPs": [(Case(*each),) for each in OTHERS],
        "wide MLPs": [(Case(*each),) for each in WIDE],
        "many rows of wide MLPs": [(Case(*each),) for each in DEEP],
        "long sums": [(Case(*each),) for each in LONG],
        "few rows": [tuple(Case(own, shape) for shape in FEW)],
        "usual sizes of MLPs": [tuple(Case(sizes, (33,)) for sizes in group) for group in USUAL],
        "widths of MLPs": [tuple(Case(sizes, (33,)) for sizes in WIDTHS)],
        "few rows of other sizes": [tuple(Case(sizes, (rows,)) for sizes in SERVED for rows in FEW_SERVED)],
        "many rows": [(Case(own, many),)],
        "scales of MLPs": [(Case(own, (160,), each),) for each in varied],
    }
    if exam.asked.quick:
        exam.left_out |= {f"all {kind} but one": None for kind, groups in kinds.items() if len(groups) > 1}
        kinds = {kind: groups[:1] for kind, groups in kinds.items()}
    return [group for groups in kinds.values() for group in groups]
