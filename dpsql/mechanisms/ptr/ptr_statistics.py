"""What ``SELECT WITH PTR`` can release: IQR, QUANTILE_DISC, MODE, ARG_MAX of sums, MEDIAN with a proposed
sensitivity.

Each item takes a *values query*, SQL text that gives the column ``v`` (and the grouping columns) with one row
per row that counts, and builds its exact queries around it. The privacy unit's rows are bounded in that text
(one value per unit, or at most ``rows``); where a unit may own ``rows`` > 1 of them the radius is divided,
see ``stability.per_unit``. The query may contain the salt token: it is filled once per release, for all texts
of the item.

NULLs are missing; for ``floating`` values NaN and the infinities too, and -0.0 is 0.0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from dpsql.mechanisms.additive_noise import GaussianNoise, LaplaceNoise
from dpsql.mechanisms.base import Read, room_of, salted
from dpsql.mechanisms.order_statistics import (
    Key,
    key_rows,
    listed,
    order_queries,
    order_statistics,
    quoted,
    spacing,
)
from dpsql.mechanisms.ptr.iqr_stability import (
    GRID,
    from_steps,
    interquartile_range,
    reach,
    scale_radius,
    steps,
)
from dpsql.mechanisms.ptr.stability_radius import (
    argmax_radius,
    gap_radius,
    mode_radius,
    per_unit,
    quantile_radius,
    rank,
)
from dpsql.mechanisms.ptr.stability_test import Measured, Test
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import Event, compose

_FARTHEST = 1 << 60

Noise = LaplaceNoise | GaussianNoise
Radii = tuple[pa.DataType, Mapping[Key, Measured]]


def _present(query: str, keys: Sequence[str], floating: bool) -> str:
    """The values that are there, in their own type."""
    if floating:
        keep = "ABS(v) < CAST('Infinity' AS DOUBLE)"
        return f"SELECT {listed(keys)}v + 0.0 AS v FROM ({query}) AS given WHERE {keep}"
    return f"SELECT {listed(keys)}v FROM ({query}) AS given WHERE v IS NOT NULL"


def _intervals(
    name: str, rows: Sequence[tuple[float | None, float | None, float | None]]
) -> Mapping[str, pa.Array]:
    value, low, high = (pa.array([row[i] for row in rows], pa.float64()) for i in range(3))
    return {name: value, f"{name}__low": low, f"{name}__high": high}


@dataclass(frozen=True)
class Iqr:
    """``IQR(x)``: the interquartile range times 2 to the power of noise, if its magnitude is stable.

    Proposal: no neighbour's log2 IQR is 1 or more away. Tested by the Scale statistic
    (``scale.scale_radius``, a single test on the larger of two discretisations). Released on a grid of 1/1024
    of log2, where near pairs differ by at most 1025 steps, the sensitivity that ``noise`` must have
    (:func:`iqr_sensitivity`). A stable range of 0 is released as 0. What the noise makes wider than ``widest``, the
    distance of declared bounds, is shown as ``widest``: that changes what was released already, and reads nothing.
    Loss: test + noise.
    """

    name: str
    values: str
    test: Test
    noise: Noise
    rows: int = 1
    widest: Fraction | None = None

    @property
    def event(self) -> Event:
        return compose([self.test.event, self.noise.event])

    def queries(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        return order_queries(self.values, keys)

    def measure(self, read: Read, entropy: Entropy, keys: tuple[str, ...]) -> Radii:
        cap = (self.test.cap + 1) * self.rows
        quartiles = (Fraction(1, 4), Fraction(3, 4))
        found = order_statistics(
            salted(read, (self.values,), entropy), self.values, keys, quartiles, reach(cap + 1)
        )
        return pa.float64(), {
            key: Measured(per_unit(scale_radius(data, cap), self.rows), interquartile_range(data))
            for key, data in found.items()
        }

    def publish(
        self, exact: Sequence[float | None], type: pa.DataType, entropy: Entropy, confidence: float
    ) -> Mapping[str, pa.Array]:
        width = math.ceil(self.noise.half_width(confidence))
        noisy = self.noise.add([steps(v) if v else 0 for v in exact], entropy)
        rows: list[tuple[float | None, float | None, float | None]] = []
        for value, step in zip(exact, noisy, strict=True):
            if value is None:
                rows.append((None, None, None))
            elif value == 0:
                rows.append((0.0, 0.0, 0.0))
            else:
                s = int(step)
                value, low, high = (self._held(from_steps(step)) for step in (s, s - width, s + width))
                rows.append((value, low, high))
        return _intervals(self.name, rows)

    def _held(self, spread: float) -> float:
        if self.widest is None or spread <= self.widest:
            return spread
        return float(self.widest)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        held = (
            "No bounds are declared, so nothing else holds it."
            if self.widest is None
            else f"It is held to {float(self.widest):g}, the width of the declared bounds."
        )
        factor = 2 ** (self.noise.half_width(confidence) / GRID)
        return (
            f"{self.name}: proposed is that one unit changes the interquartile range by less than a factor "
            f"of 2; "
            f"{self.test.sentence()}.",
            f"{self.name}: then the range is released times 2 to the power of noise, within a factor of "
            f"{factor:.3g} at "
            f"{confidence:.0%}. A range of 0 is released as 0. {held}",
        )


def iqr_sensitivity() -> int:
    """Grid steps between the logarithms of near pairs: what the noise of :class:`Iqr` must be made for."""
    return GRID + 1


@dataclass(frozen=True)
class Quantile:
    """``QUANTILE_DISC(x, p)`` and ``MEDIAN(x)``: the value of rank max(1, ceil(p n)), exact, if it is stable.

    Any ordered type. Loss: the test's. With probability at most delta an unstable value gets out.
    """

    name: str
    values: str
    probability: Fraction
    test: Test
    rows: int = 1
    floating: bool = False

    @property
    def event(self) -> Event:
        return self.test.event

    def _text(self, query: str, keys: Sequence[str]) -> str:
        """Per group n, and for each value that may be the quantile its rank range."""
        p = self.probability
        part = f"PARTITION BY {', '.join(map(quoted, keys))}" if keys else ""
        kept = _present(query, keys, self.floating)
        counted = f"SELECT {listed(keys)}v, COUNT(*) AS c FROM ({kept}) AS found GROUP BY {listed(keys)}v"
        ranked = (
            f"SELECT {listed(keys)}v, SUM(c) OVER ({part}) AS n, c, SUM(c) OVER ({part} ORDER BY v) AS upto "
            f"FROM ({counted}) AS counted"
        )
        # the first value whose last rank reaches p n, in integers (for p n = 0 that is the first value)
        wanted = f"{p.numerator} * n"
        reached = f"{p.denominator} * upto >= {wanted} AND {p.denominator} * (upto - c) < {wanted}"
        if p == 0:
            reached = "upto = c"
        return (
            f"SELECT {listed(keys)}v, CAST(n AS BIGINT) AS n, CAST(upto - c AS BIGINT) AS below, "
            f"CAST(upto AS BIGINT) AS upto FROM ({ranked}) AS ranked WHERE {reached}"
        )

    @property
    def _counted(self) -> str:
        """How many values there are."""
        return f"SELECT COUNT(*) AS n FROM ({_present(self.values, (), self.floating)}) AS found"

    def _placed(self, at: float, place: int | None = None) -> str:
        """The value of a rank by the engine's own selection: ``at`` is (rank - 1/2) / n. The engine holds all values for it;
        where they are too many, ``place`` of them are passed over in a sort, which may spill.
        """
        kept = _present(self.values, (), self.floating)
        chosen = f"SELECT PERCENTILE_DISC({at!r}) WITHIN GROUP (ORDER BY v) AS q FROM ({kept}) AS found"
        if place is not None:
            chosen = f"SELECT v AS q FROM ({kept}) AS found ORDER BY v LIMIT 1 OFFSET {place}"
        return (
            f"SELECT q AS v, COUNT(*) FILTER (WHERE v < q) AS below, COUNT(*) FILTER (WHERE v <= q) AS upto "
            f"FROM ({kept}) AS found CROSS JOIN ({chosen}) AS chosen GROUP BY q"
        )

    def queries(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        if keys:
            return (self._text(self.values, keys),)
        return self._counted, self._placed(float(self.probability))

    def measure(self, read: Read, entropy: Entropy, keys: tuple[str, ...]) -> Radii:
        read = salted(read, (self.values,), entropy)
        cap = (self.test.cap + 1) * self.rows
        if keys:
            table = read(self._text(self.values, keys))
        else:
            n = int(read(self._counted).column("n")[0].as_py())
            # half a rank below the wanted one: no rounding of the engine's can move it to another
            at = (rank(n, self.probability) - 0.5) / n if n else 0.5
            place = rank(n, self.probability) - 1 if 0 < 2 * room_of(read) < n else None
            table = read(self._placed(at, place))
            table = table.append_column("n", pa.array([n] * table.num_rows, pa.int64()))
        columns = (table.column(name).to_pylist() for name in ("n", "below", "upto"))
        found = {}
        for key, v, n, below, upto in zip(key_rows(table, keys), table.column("v"), *columns, strict=True):
            radius = quantile_radius(int(n), int(below), int(upto), self.probability, cap=cap)
            found[key] = Measured(per_unit(radius, self.rows), v)
        return table.schema.field("v").type, found

    def publish(
        self, exact: Sequence[Any], type: pa.DataType, entropy: Entropy, confidence: float
    ) -> Mapping[str, pa.Array]:
        return {self.name: pa.array(exact, type)}

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return (
            f"{self.name}: the exact {float(self.probability):.4g} quantile, released if no table nearby "
            f"has another; "
            f"{self.test.sentence()}.",
        )


@dataclass(frozen=True)
class Mode:
    """``MODE(x)``: the most frequent value, exact, if it is stable; ties go to the smallest. Any type, no
    domain.
    """

    name: str
    values: str
    test: Test
    rows: int = 1
    floating: bool = False

    @property
    def event(self) -> Event:
        return self.test.event

    def _text(self, query: str, keys: Sequence[str]) -> str:
        kept = _present(query, keys, self.floating)
        part = f"PARTITION BY {', '.join(map(quoted, keys))} " if keys else ""
        counted = f"SELECT {listed(keys)}v, COUNT(*) AS c FROM ({kept}) AS found GROUP BY {listed(keys)}v"
        if not keys:
            leading = f"SELECT v, c FROM ({counted}) AS counted ORDER BY c DESC, v LIMIT 2"
        else:
            leading = (
                f"SELECT {listed(keys)}v, c FROM (SELECT {listed(keys)}v, c, ROW_NUMBER() OVER "
                f"({part}ORDER BY c DESC, v) "
                f"AS place FROM ({counted}) AS counted) AS placed WHERE place <= 2"
            )
        return (
            f"SELECT {listed(keys)}v, c, ROW_NUMBER() OVER ({part}ORDER BY c DESC, v) AS place, "
            f"ROW_NUMBER() OVER ({part}ORDER BY v) AS size FROM ({leading}) AS ahead"
        )

    def queries(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        return (self._text(self.values, keys),)

    def measure(self, read: Read, entropy: Entropy, keys: tuple[str, ...]) -> Radii:
        table = salted(read, (self.values,), entropy)(self._text(self.values, keys))
        columns = (table.column(name).to_pylist() for name in ("c", "place", "size"))
        leading: dict[Key, dict[int, tuple[Any, int, int]]] = {}
        for key, v, c, place, size in zip(key_rows(table, keys), table.column("v"), *columns, strict=True):
            leading.setdefault(key, {})[int(place)] = (v, int(c), int(size))
        found = {}
        for key, places in leading.items():
            value, top, size = places[1]
            second = places[2][1] if 2 in places else 0
            radius = mode_radius(top, second, 2 in places and size == 1)
            found[key] = Measured(per_unit(radius, self.rows), value)
        return table.schema.field("v").type, found

    def publish(
        self, exact: Sequence[Any], type: pa.DataType, entropy: Entropy, confidence: float
    ) -> Mapping[str, pa.Array]:
        return {self.name: pa.array(exact, type)}

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return (
            f"{self.name}: the most frequent value, exact, released if it leads by enough; "
            f"{self.test.sentence()}.",
        )


@dataclass(frozen=True)
class ArgMax:
    """The group with the largest sum, exact, if it is stable; ties go to the smallest key.

    Args:
        values: gives ``v``, the group, and ``amount``, an integer (grid steps) of at most ``bound`` in
            absolute value (clamped in that text); NULL groups and amounts are missing. COUNT is the sum of
            ones.
    """

    name: str
    values: str
    bound: int
    test: Test
    rows: int = 1

    @property
    def event(self) -> Event:
        return self.test.event

    def _text(self, query: str, keys: Sequence[str]) -> str:
        part = f"PARTITION BY {', '.join(map(quoted, keys))} " if keys else ""
        summed = (
            f"SELECT {listed(keys)}v, SUM(CAST(amount AS BIGINT)) AS total FROM ({query}) AS given "
            f"WHERE v IS NOT NULL AND amount IS NOT NULL GROUP BY {listed(keys)}v"
        )
        placed = (
            f"SELECT {listed(keys)}v, total, ROW_NUMBER() OVER ({part}ORDER BY total DESC, v) AS place "
            f"FROM ({summed}) AS summed"
        )
        return f"SELECT {listed(keys)}v, total, place FROM ({placed}) AS placed WHERE place <= 2"

    def queries(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        return (self._text(self.values, keys),)

    def measure(self, read: Read, entropy: Entropy, keys: tuple[str, ...]) -> Radii:
        table = salted(read, (self.values,), entropy)(self._text(self.values, keys))
        columns = (table.column(name).to_pylist() for name in ("total", "place"))
        leading: dict[Key, dict[int, tuple[Any, int]]] = {}
        for key, v, total, place in zip(key_rows(table, keys), table.column("v"), *columns, strict=True):
            leading.setdefault(key, {})[int(place)] = (v, int(total))
        found = {}
        for key, places in leading.items():
            second = places[2][1] if 2 in places else 0
            radius = argmax_radius(places[1][1], second, self.bound)
            found[key] = Measured(per_unit(radius, self.rows), places[1][0])
        return table.schema.field("v").type, found

    def publish(
        self, exact: Sequence[Any], type: pa.DataType, entropy: Entropy, confidence: float
    ) -> Mapping[str, pa.Array]:
        return {self.name: pa.array(exact, type)}

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return (
            f"{self.name}: the group with the largest sum, exact, released if it leads by enough; "
            f"{self.test.sentence()}.",
        )


@dataclass(frozen=True)
class ProposedMedian:
    """``MEDIAN(x, local_sensitivity => b)``: the lower median plus noise for sensitivity b, if no table
    nearby is worse.

    Values are rounded to ``step`` (monotone, so the median of the rounded is the rounded median), the
    median's local sensitivity is then an integer number of steps, and the radius is the distance to the
    nearest table where it exceeds ``bound`` (``stability.gap_radius``). A unit with up to ``rows`` rows moves
    the median by at most ``rows`` times the local sensitivity along the way: the proposal for one row is
    ``bound // rows``.

    Args:
        step: the grid, a power of two; see :func:`proposed_median` for one that fits.
        bound: the proposal for one unit, in steps; ``noise`` must have this sensitivity.

    Loss: test + noise.
    """

    name: str
    values: str
    step: Fraction
    bound: int
    test: Test
    noise: Noise
    rows: int = 1

    @property
    def event(self) -> Event:
        return compose([self.test.event, self.noise.event])

    def queries(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        return order_queries(self.values, keys)

    def measure(self, read: Read, entropy: Entropy, keys: tuple[str, ...]) -> Radii:
        cap = (self.test.cap + 1) * self.rows
        read = salted(read, (self.values,), entropy)
        found = {}
        for key, data in order_statistics(read, self.values, keys, (Fraction(1, 2),), cap + 3).items():
            n = data.n
            first, last = max(1, n // 2 - cap - 2), min(n, n // 2 + cap + 3)
            # held within 2**60 steps (monotone too), so that noisy values fit 64 bits
            places = (round(Fraction(float(v)) / self.step) for v in data.slice(first, last))
            near = [min(max(s, -_FARTHEST), _FARTHEST) for s in places]
            radius = gap_radius(n, first, near, self.bound // self.rows, cap)
            found[key] = Measured(per_unit(radius, self.rows), near[rank(n, Fraction(1, 2)) - first])
        return pa.float64(), found

    def publish(
        self, exact: Sequence[int | None], type: pa.DataType, entropy: Entropy, confidence: float
    ) -> Mapping[str, pa.Array]:
        width = math.ceil(self.noise.half_width(confidence))
        noisy = self.noise.add([v or 0 for v in exact], entropy)
        rows: list[tuple[float | None, float | None, float | None]] = []
        for value, step in zip(exact, noisy, strict=True):
            if value is None:
                rows.append((None, None, None))
            else:
                low, middle, high = (float((int(step) + w) * self.step) for w in (-width, 0, width))
                rows.append((middle, low, high))
        return _intervals(self.name, rows)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        bound = float(self.bound * self.step)
        width = float(self.step) * self.noise.half_width(confidence)
        return (
            f"{self.name}: proposed is that one unit moves the median by at most {bound:.6g}; "
            f"{self.test.sentence()}.",
            f"{self.name}: then the median is released with noise, within ±{width:.4g} at {confidence:.0%}.",
        )


def median_grid(sensitivity: Fraction, epsilon: Fraction) -> tuple[Fraction, int]:
    """Grid step and bound in steps for :class:`ProposedMedian`: fine against the noise, the bound rounded up.

    >>> median_grid(Fraction(2), Fraction(1))
    (Fraction(1, 512), 1024)
    """
    step = spacing(min(sensitivity, sensitivity / epsilon))
    return step, math.ceil(sensitivity / step)
