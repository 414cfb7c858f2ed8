"""Predicts the time of a matrix product on a card from the products that were timed there.

What is interpolated is log(time / roofline), over the logarithms of n and k at each m of the table; over m the times
are made never to fall, and are interpolated between the m of the table. The error is that of the same rule at the
shapes nearby, each pair of n and k left out in its turn.
"""

from __future__ import annotations

from functools import cached_property
from math import hypot
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from mlpfusion.stages.predict.scaled import LAUNCH_US

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from mlpfusion.device import Peaks
    from mlpfusion.stages.predict.table import Table

# A step in n weighs as two in k: the best of three with both others on a held-out half of an A100's shapes.
_N_WEIGHT: Final = 2.0
_NEAREST: Final = 4
_LOOKED_AT: Final = 32  # columns, of which a few may lack a row
_AROUND: Final = 12  # pairs of n and k whose own errors tell the error here
_OWN_REACH: Final = 1.0  # without a table, a row of the user's counts fully up to here, in logarithms
# A card of one kind differs from another, and a flushed L2 from one that is not: the 80th percentile of |log(time /
# table)| of the 215 library products recorded on an H200 (bench/results/predict.md), by rows of x. Common to a call.
_MACHINE: Final = ((16, 0.21), (256, 0.07))
_MACHINE_OF_MANY: Final = 0.055
_COVERED: Final = 0.8  # of the cases lie inside the interval


class Near(NamedTuple):
    """A product of the table that a prediction rests on."""

    m: int
    n: int
    k: int
    us: float
    source: str


class Estimate(NamedTuple):
    """A product's predicted µs, how wrong that is, the nearest products of the table, and whether it lies outside.

    Both errors are half the width of the 80% interval in logarithms: `own` of this shape, `common` of all products of
    the card, which err together. It takes `least_us` at least.
    """

    us: float
    own: float
    common: float
    least_us: float
    nearest: tuple[Near, ...]
    extrapolated: bool

    @property
    def error(self) -> float:
        """Both errors together."""
        return hypot(self.own, self.common)


def roofline_us(shapes: NDArray[np.float64], peaks: Peaks) -> NDArray[np.float64]:
    """The least µs of products (m, n, k) [..., 3] in 16 bits: operations or bytes over the card's peak rates."""
    m, n, k = np.moveaxis(shapes, -1, 0)
    compute = 2 * m * n * k / peaks.flops_16bit
    memory = 2 * (m * k + n * k + m * n) / peaks.bandwidth
    roofline: NDArray[np.float64] = np.maximum(compute, memory) * 1e6
    return roofline


class Products:
    """Predicts products on one card from its table, and from a user's own rows, which win where they are nearer.

    Without a table `scaled` gives the µs of shapes by another rule, and `scaled_error` its error in logarithms.
    """

    def __init__(
        self,
        peaks: Peaks,
        table: Table | None,
        own: Table | None = None,
        scaled: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
        scaled_error: Callable[[int], float] | None = None,
    ) -> None:
        if table is None and (scaled is None or scaled_error is None):
            raise ValueError("neither a table nor a rule in its place")
        self._peaks, self._table, self._own = peaks, table, own
        self._scaled, self._scaled_error = scaled, scaled_error
        if table is not None:
            self.knots = np.unique(table.shapes[:, 0])
            self.pairs, which = np.unique(table.shapes[:, 1:], axis=0, return_inverse=True)
            self._shares = np.full((len(self.knots), len(self.pairs)), np.nan)
            limit = roofline_us(table.shapes.astype(float), peaks) + LAUNCH_US
            rows = np.searchsorted(self.knots, table.shapes[:, 0])
            self._shares[rows, which.reshape(-1)] = np.log(table.us / limit)

    def estimate(self, m: int, n: int, k: int) -> Estimate:
        """The time of x [m, k] · wᵀ [k, n]: never below the roofline, and never less than that of fewer rows."""
        knots = self._knots_with(m)
        logs = np.log(np.maximum(never_falling(self._times(knots, n, k)), self._least(knots, n, k)))
        us = float(np.exp(np.interp(np.log(m), np.log(knots), logs)))
        own, common, outside = self._errors(m, n, k)
        least = float(self._least(np.array([m]), n, k)[0])
        return Estimate(us, own, common, least, self._near(m, n, k), outside)

    def residuals(self) -> NDArray[np.float64]:
        """Log of predicted over measured for each of the table, its own n and k left out; nan where it has none."""
        return self._left_out

    # ---- the rule ----------------------------------------------------------------------------------------------------

    def _knots_with(self, m: int) -> NDArray[np.int64]:
        """The m at which times are predicted before they are made never to fall."""
        known = [np.array([1, m]) if self._table is None else self.knots]
        if self._own is not None:
            known.append(self._own.shapes[:, 0])
        found = np.unique(np.concatenate(known))
        if m > found[-1] or m < found[0]:  # as far from its roofline as the last one is from its own
            found = np.unique(np.r_[found, m])
        return found

    def _least(self, knots: NDArray[np.int64], n: int, k: int) -> NDArray[np.float64]:
        return roofline_us(_shapes(knots, n, k), self._peaks)

    def _times(self, knots: NDArray[np.int64], n: int, k: int) -> NDArray[np.float64]:
        """µs at each m, by the table or the rule in its place, corrected by the user's own rows nearby."""
        logs = self._base(knots, n, k)
        if self._own is not None:
            logs += self._correction(knots, n, k)
        return np.exp(logs)

    def _base(self, knots: NDArray[np.int64], n: int, k: int) -> NDArray[np.float64]:
        shapes = _shapes(knots, n, k)
        if self._table is None:
            assert self._scaled is not None
            return np.log(self._scaled(shapes))
        share = weighted_nearest(self._shares, self._distances(n, k))
        at = np.interp(np.log(knots), np.log(self.knots), share)
        based: NDArray[np.float64] = at + np.log(roofline_us(shapes, self._peaks) + LAUNCH_US)
        return based

    def _distances(self, n: int, k: int) -> NDArray[np.float64]:
        return np.hypot(_N_WEIGHT * np.log(self.pairs[:, 0] / n), np.log(self.pairs[:, 1] / k))

    def _correction(self, knots: NDArray[np.int64], n: int, k: int) -> NDArray[np.float64]:
        """What the nearest own row says the rule is wrong by; all of it where it is nearer than the table's rows."""
        assert self._own is not None
        wrong = self._own_wrong
        reach = _OWN_REACH if self._table is None else float(self._distances(n, k).min())
        found = np.zeros(len(knots))
        for index, m in enumerate(knots):
            steps = np.log(self._own.shapes / np.array([m, n, k])) * (1.0, _N_WEIGHT, 1.0)
            far = np.sqrt((steps**2).sum(axis=1))
            best = int(far.argmin())
            found[index] = wrong[best] * (1.0 if far[best] <= reach or far[best] == 0 else (reach / far[best]) ** 2)
        return found

    @cached_property
    def _own_wrong(self) -> NDArray[np.float64]:
        assert self._own is not None
        base = [self._base(np.array([m]), n, k)[0] for m, n, k in self._own.shapes.tolist()]
        wrong: NDArray[np.float64] = np.log(self._own.us) - np.array(base)
        return wrong

    # ---- its error ---------------------------------------------------------------------------------------------------

    @cached_property
    def _left_out(self) -> NDArray[np.float64]:
        found = np.full_like(self._shares, np.nan)
        for index, (n, k) in enumerate(self.pairs):
            far = self._distances(int(n), int(k))
            far[index] = np.inf
            found[:, index] = weighted_nearest(self._shares, far) - self._shares[:, index]
        return found

    def _errors(self, m: int, n: int, k: int) -> tuple[float, float, bool]:
        """The error of this shape, that of all on this card, and whether the shape lies outside the table's."""
        if self._own is not None and (self._own.shapes == (m, n, k)).all(axis=1).any():
            return self._own.spread, 0.0, False
        if self._table is None:
            assert self._scaled_error is not None
            return self._scaled_error(m), 0.0, True
        common = hypot(self._table.spread, machine_error(m))
        far = self._distances(n, k)
        outside = not (
            self.knots[0] <= m <= self.knots[-1]
            and self.pairs[:, 0].min() <= n <= self.pairs[:, 0].max()
            and self.pairs[:, 1].min() <= k <= self.pairs[:, 1].max()
        )
        if far.min() == 0 and m in self.knots and not np.isnan(self._shares[self.knots == m, far.argmin()]).any():
            return 0.0, common, False
        around = np.argsort(far, kind="stable")[:_AROUND]
        close = np.abs(np.log(self.knots / m)) <= max(np.log(2), np.abs(np.log(self.knots / m)).min())
        wrong = np.abs(self._left_out[np.ix_(close, around)])
        error = float(np.nanquantile(wrong, _COVERED))
        return (2 * error if outside else error), common, outside

    def _near(self, m: int, n: int, k: int) -> tuple[Near, ...]:
        found = []
        for table in (self._own, self._table):
            if table is not None:
                steps = np.log(table.shapes / np.array([m, n, k])) * (4.0, _N_WEIGHT, 1.0)
                far = (steps**2).sum(axis=1)
                for index in np.argsort(far, kind="stable")[:3]:
                    rows, columns, depth = table.shapes[index].tolist()
                    near = Near(m=rows, n=columns, k=depth, us=float(table.us[index]), source=table.source)
                    found.append((float(far[index]), near))
        return tuple(near for _, near in sorted(found, key=lambda each: each[0])[:3])


def machine_error(m: int) -> float:
    """How far products with m rows lie from a table of their kind of card on another machine, in logarithms."""
    return next((error for most, error in _MACHINE if m <= most), _MACHINE_OF_MANY)


def never_falling(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Times in order of m, where they fall replaced by the geometric mean of the run that does: pooled neighbours.

    Source: Barlow, Bartholomew, Bremner, Brunk 1972, the algorithm of pooled adjacent violators.
    """
    pools: list[tuple[float, int]] = []
    for log in np.log(times).tolist():
        total, count = log, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, many = pools.pop()
            total, count = total + before, count + many
        pools.append((total, count))
    pooled: NDArray[np.float64] = np.concatenate([np.full(count, total / count) for total, count in pools])
    return np.exp(pooled)


def weighted_nearest(values: NDArray[np.float64], distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean over the nearest columns of `values` [rows, columns], in each row those that are no nan; [rows].

    They weigh as the inverse square of their distance; one at none is all that counts.
    """
    order = np.argsort(distances, kind="stable")
    order = order[np.isfinite(distances[order])][:_LOOKED_AT]
    found = values[:, order]
    there = ~np.isnan(found)
    kept = there & (np.cumsum(there, axis=1) <= _NEAREST)
    weights = kept / (distances[order] + 1e-6) ** 2
    with np.errstate(invalid="ignore"):
        mean: NDArray[np.float64] = np.nansum(weights * found, axis=1) / weights.sum(axis=1)
    return mean


def _shapes(knots: NDArray[np.int64], n: int, k: int) -> NDArray[np.float64]:
    return np.stack([knots.astype(float), np.full(len(knots), float(n)), np.full(len(knots), float(k))], axis=1)
