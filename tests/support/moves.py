"""The reach of one privacy unit in the exact statistics of a plan's operators: the measure that noise is held against."""

from __future__ import annotations

import math
from typing import Any

import duckdb
import pyarrow as pa

from dpsql.mechanisms.aggregation import Aggregation, Part
from dpsql.mechanisms.auto_bounds import PLACES, AutoBounded
from dpsql.mechanisms.base import SALT, Reader
from dpsql.mechanisms.histograms import DistinctCount, DistinctSum, Histogram
from dpsql.mechanisms.inverse_sensitivity import InverseSensitivity
from dpsql.mechanisms.per_group import GaussianNoise, JointGaussianNoise, LaplaceNoise
from dpsql.mechanisms.quantiles import Quantiles
from dpsql.mechanisms.selection.exponential import MostFrequent
from dpsql.privacy.conversions import gaussian_mu

Noise = LaplaceNoise | GaussianNoise


def read(con: duckdb.DuckDBPyConnection, operator: Aggregation) -> dict[tuple[Any, ...], dict[str, int]]:
    """The exact statistics by group, under a fixed salt."""
    return rows_by_key(con, operator.query, operator.keys)


def make_reader(con: duckdb.DuckDBPyConnection, log: list[str] | None = None, room: int = 10**6) -> Reader:
    """Make a reader of exact statistics under a fixed salt, which adds the texts that it runs to a log."""

    def execute(sql: str, lent: Any) -> pa.Table:
        if log is not None:
            log.append(sql)
        for name, table in lent.items():
            con.register(name, table)
        try:
            return con.sql(sql.replace(SALT, "12345")).to_arrow_table()
        finally:
            for name in lent:
                con.unregister(name)

    return Reader(execute, {}, room)


def rows_by_key(
    con: duckdb.DuckDBPyConnection, query: str, keys: tuple[str, ...]
) -> dict[tuple[Any, ...], dict[str, int]]:
    found: dict[tuple[Any, ...], dict[str, int]] = {}
    for row in dicts(con, query.replace(SALT, "12345")):
        key = group_of(row, keys)
        assert key not in found, f"two rows of the group {key}"
        found[key] = {c: int(v or 0) for c, v in row.items() if c not in keys}
    return found


def group_of(row: dict[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    """The group of a row: NaN is one value, as in DuckDB and not as in Python."""
    values = (row[key] for key in keys)
    return tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in values)


def dicts(con: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    """Rows, without a detour over Arrow: these are small and many."""
    found = con.execute(query)
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def moved(before: dict[Any, dict[str, int]], after: dict[Any, dict[str, int]], column: str) -> list[int]:
    keys = before.keys() | after.keys()
    changes = (before.get(key, {}).get(column, 0) - after.get(key, {}).get(column, 0) for key in keys)
    return [abs(change) for change in changes if change]


def histogram(
    con: duckdb.DuckDBPyConnection, query: str, keys: tuple[str, ...], columns: tuple[str, str] = ("value", "count")
) -> dict[tuple[Any, ...], dict[Any, int]]:  # fmt: skip
    """Return the rows of each value, by group: what quantiles are chosen from, and what bins count."""
    value, count = columns
    found: dict[tuple[Any, ...], dict[Any, int]] = {}
    for row in dicts(con, query.replace(SALT, "12345")):
        found.setdefault(group_of(row, keys), {})[row[value]] = int(row[count] or 0)
    return found


def violations(
    operator: Aggregation, before: dict[Any, Any], after: dict[Any, Any], budgeted: bool
) -> list[str]:
    """List what moves more than the noise declares."""
    found = []
    budgeted = budgeted or " AS counted " in operator.query  # the unit's groups share its rows
    for statistic in operator.statistics:
        changes = moved(before, after, statistic.column)
        found += beyond(statistic.noise, changes, statistic.column, budgeted)
    if operator.selection is not None:
        changes = moved(before, after, operator.selection.column)
        if len(changes) > operator.selection.groups or max(changes, default=0) > 1:
            found.append(f"units move by {changes}")
    elif operator.keys and before.keys() != after.keys():
        found.append("public groups depend on the data")
    return found


def beyond(noise: Noise, changes: list[int], name: str, budgeted: bool) -> list[str]:
    found = []
    if not budgeted and len(changes) > noise.groups:
        found.append(f"{name} moves in {len(changes)} groups, not {noise.groups}")
    gaussian = isinstance(noise, GaussianNoise)  # of which the L2 distance is all that counts
    if not gaussian and max(changes, default=0) > noise.sensitivity:
        found.append(f"{name} moves by {max(changes)} in a group, not {noise.sensitivity}")
    if gaussian:
        if sum(c * c for c in changes) > noise.sensitivity**2 * noise.groups:
            found.append(f"{name} moves too far in L2")
    elif sum(changes) > noise.sensitivity * noise.groups:
        found.append(f"{name} moves too far in L1")
    return found


def loss_beyond(operator: Aggregation, before: dict[Any, Any], after: dict[Any, Any]) -> list[str]:
    """Return where the exact loss of all noisy numbers together is more than what they are declared with.

    From the scales of the noise itself: Laplace noise loses ``|moved| / scale`` for each number, which add up, and Gaussian noise
    of one calibration ``(moved / sigma)**2``, of which the sum is the squared mu of its pair at most.
    """
    lost, declared = 0.0, 0.0
    squares: dict[tuple[Any, ...], float] = {}
    for place, statistic in enumerate(operator.statistics):
        changes, noise = moved(before, after, statistic.column), statistic.noise
        if isinstance(noise, GaussianNoise):
            pair = (noise.epsilon, noise.delta, None if isinstance(noise, JointGaussianNoise) else place)
            squares[pair] = squares.get(pair, 0.0) + sum((c / float(noise.sigma)) ** 2 for c in changes)
        else:
            lost += sum(changes) / float(noise.scale)
            declared += float(noise.epsilon)
    found = [] if lost <= declared * (1 + 1e-9) else [f"Laplace noise loses {lost:g}, not {declared:g}"]
    for (epsilon, delta, _), squared in squares.items():
        mu = float(gaussian_mu(epsilon, delta))
        if squared > mu**2 * (1 + 1e-6):
            found.append(f"Gaussian noise has a mu of {math.sqrt(squared):g}, not {mu:g}")
    return found


def violations_of_part(part: Part, before: dict[Any, Any], after: dict[Any, Any]) -> list[str]:
    """The same for values that are counted, and for the rows that quantiles are chosen from."""
    if isinstance(part, DistinctCount):
        return beyond(part.noise, moved(before, after, "n"), "COUNT(DISTINCT)", part.in_all)
    if isinstance(part, DistinctSum):
        sums = ({key: {"sum": _distinct_sum(part, g)} for key, g in side.items()} for side in (before, after))
        return beyond(part.noise, moved(*sums, "sum"), "SUM(DISTINCT)", part.in_all)
    if isinstance(part, AutoBounded):
        return _violations_of_bounds(part, before, after)
    assert isinstance(part, Quantiles | InverseSensitivity | Histogram | MostFrequent)
    groups, most = (
        (part.groups, part.rows)
        if isinstance(part, Quantiles | InverseSensitivity | MostFrequent)
        else (part.noise.groups, part.noise.sensitivity)
    )
    changes = []
    for key in before.keys() | after.keys():
        here, there = before.get(key, {}), after.get(key, {})
        rows = sum(abs(here.get(value, 0) - there.get(value, 0)) for value in here.keys() | there.keys())
        changes += [rows] if rows else []
    return _rows_beyond(changes, groups, most, part.in_all)


def _rows_beyond(changes: list[int], groups: int, most: int, in_all: bool) -> list[str]:
    if in_all:
        return [f"{sum(changes)} rows move in all"] if sum(changes) > most else []
    if len(changes) > groups or max(changes, default=0) > most:
        return [f"the rows of a quantile or a histogram move by {changes}"]
    return []


def _violations_of_bounds(part: AutoBounded, before: dict[Any, Any], after: dict[Any, Any]) -> list[str]:
    """Return where what is counted on the rungs, and added up there, moves too far."""
    found, changes = [], []
    for key in before.keys() | after.keys():
        here, there = before.get(key, {}), after.get(key, {})
        rows = 0
        for rung in here.keys() | there.keys():
            pairs = zip(here.get(rung, (0, 0, 0)), there.get(rung, (0, 0, 0)), strict=True)
            n, *sums = (abs(a - b) for a, b in pairs)
            rows += n
            if any(moved > n << PLACES * power for power, moved in enumerate(sums, 1)):
                found.append(f"sums of a rung move by {sums} with {n} rows")
        changes += [rows] if rows else []
    return found + _rows_beyond(changes, part.groups, part.rows, part.in_all)


def rungs(con: duckdb.DuckDBPyConnection, query: str, keys: tuple[str, ...]) -> dict[tuple[Any, ...], Any]:
    """Return the rows, the totals and the squares of each sign and rung, by group: what bounds are found from."""
    found: dict[tuple[Any, ...], dict[Any, tuple[int, ...]]] = {}
    for row in dicts(con, query.replace(SALT, "12345")):
        sums = tuple(int(row.get(name) or 0) for name in ("n", "total", "squares"))
        found.setdefault(group_of(row, keys), {})[row["sign"], row["rung"]] = sums
    return found


def units_beyond(before: dict[Any, int], after: dict[Any, int]) -> list[str]:
    """Return a violation where one unit moves what a cap is found from more than once."""
    units = sum(abs(before.get(size, 0) - after.get(size, 0)) for size in before.keys() | after.keys())
    return [f"{units} units move by one"] if units > 1 else []


def _distinct_sum(part: DistinctSum, group: dict[int, int]) -> int:
    held = {min(max(value, part.low), part.high) for value, many in group.items() if many}
    return sum(held if part.values is None else held & {*part.values})


def literal(values: tuple[str, ...]) -> str:
    return f"({', '.join(values)})"


def fill(con: duckdb.DuckDBPyConnection, table: str, given: list[tuple[str, ...]]) -> None:
    con.execute(f"DELETE FROM {table}")
    if given:
        con.execute(f"INSERT INTO {table} VALUES {', '.join(map(literal, given))}")
