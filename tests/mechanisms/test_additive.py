"""Aggregations: what a release shows, in which order, with which intervals; and nothing else."""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.base import SALT, Operator, Read, Reader
from dpsql.mechanisms.moments import Count, Mean, Output, Sum, Variance
from dpsql.mechanisms.per_group import GaussianNoise, GroupSelector, LaplaceNoise, Statistic
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import compose_events
from tests.support.goodness import fixed
from tests.support.operator_contract import OperatorContract

STILL = LaplaceNoise(Fraction(10**6), 1)
NOISY = LaplaceNoise(Fraction(1, 10), 1)
N, S, Q = Statistic("n", STILL), Statistic("s", STILL), Statistic("q", STILL)
ALL: tuple[Output, ...] = (
    Count("n", N),
    Sum("s", S, Fraction(4)),
    Mean("m", S, N, Fraction(4), Fraction(10), (Fraction(0), Fraction(20))),
    Variance("v", Q, S, N, Fraction(4), Fraction(10), (Fraction(0), Fraction(20)), "var_pop"),
)


def reading(table: pa.Table) -> Read:
    return lambda query: table


def released(
    outputs: tuple[Output, ...],
    data: dict[str, Any],
    keys: tuple[str, ...] = (),
    entropy: Entropy | None = None,
    **more: Any,
) -> pa.Table:
    operator = Aggregation("SELECT 1", keys, outputs, **more)
    return operator.release(reading(pa.table(data)), entropy or Entropy()).table


def test_a_large_epsilon_gives_the_exact_answer() -> None:
    rows = [3.0, 4.25, 19.5, 20.0]
    steps = [round(4 * (x - 10)) for x in rows]
    data = {"n": [len(rows)], "s": [sum(steps)], "q": [sum(x * x for x in steps)]}
    (row,) = released(ALL, data).to_pylist()
    assert row["n"] == 4
    assert row["s"] == sum(steps) / 4
    assert row["m"] == pytest.approx(np.mean(rows), rel=1e-15)
    assert row["v"] == pytest.approx(np.var(rows), rel=1e-12)
    for name in "nsmv":
        assert row[f"{name}__low"] <= row[name] <= row[f"{name}__high"]
        assert row[f"{name}__high"] - row[f"{name}__low"] < 1e-6


def test_the_release_has_exactly_the_promised_columns_and_types() -> None:
    table = released((Count("n", N), Sum("s", S)), {"k": ["a"], "n": [1], "s": [2], "secret": [7]}, ("k",))
    assert table.schema == pa.schema(
        [
            ("k", pa.string()), ("n", pa.int64()), ("n__low", pa.float64()), ("n__high", pa.float64()),
            ("s", pa.int64()), ("s__low", pa.float64()), ("s__high", pa.float64()),
        ]
    )  # fmt: skip


@pytest.mark.parametrize("data", [{"n": [None], "s": [None], "q": [None]}, {"n": [], "s": [], "q": []}])
def test_null_and_nothing_are_zero_and_have_no_mean(data: dict[str, list[int | None]]) -> None:
    typed = {k: pa.array(v, type=pa.int64()) for k, v in data.items()}
    (row,) = released(ALL, typed).to_pylist()
    assert (row["n"], row["s"], row["m"], row["v"]) == (0, 0.0, None, None)
    assert (row["m__low"], row["m__high"]) == (0.0, 20.0)  # its bounds: nothing is known


def test_an_empty_grouped_relation_gives_typed_nothing() -> None:
    data = {"k": pa.array([], type=pa.date32()), "n": pa.array([], type=pa.int64())}
    table = released((Count("n", N),), data, ("k",))
    assert table.num_rows == 0
    assert table.schema.field("k").type == pa.date32()


def test_rows_come_by_key_whatever_the_engine_did() -> None:
    keys = [2, None, 1, 3]
    order = np.random.default_rng(1).permutation(4)
    data = {"k": [keys[i] for i in order], "j": ["x"] * 4, "n": [10 * (keys[i] or 0) for i in order]}
    table = released((Count("n", N),), data, ("k", "j"))
    assert table.column("k").to_pylist() == [1, 2, 3, None]
    assert table.column("n").to_pylist() == [10, 20, 30, 0]


KEYS: list[list[Any]] = [
    [True, False],
    ["b", "a"],
    [datetime.date(2024, 1, 2), datetime.date(2023, 1, 1)],
    [datetime.datetime(2024, 1, 2), datetime.datetime(2023, 1, 1)],
    [datetime.time(5), datetime.time(4)],
    [Decimal("1.50"), Decimal("1.25")],
    [1.5, -2.0],
    [b"b", b"a"],
    [[2], [1]],
    [{"a": 2}, {"a": 1}],
]


@pytest.mark.parametrize("keys", KEYS, ids=lambda k: type(k[0]).__name__)
def test_keys_of_any_type_pass_through_in_order(keys: list[Any]) -> None:
    table = released((Count("n", N),), {"k": keys, "n": [1, 2]}, ("k",))
    assert table.column("k").to_pylist() == keys[::-1]
    assert table.column("n").to_pylist() == [2, 1]


def test_enumerations_keep_their_type() -> None:
    keys = pa.array(["b", "a"]).dictionary_encode()
    table = released((Count("n", N),), {"k": keys, "n": [1, 2]}, ("k",))
    assert table.column("k").to_pylist() == ["a", "b"]
    assert pa.types.is_dictionary(table.schema.field("k").type)


@pytest.mark.parametrize("noise", [NOISY, GaussianNoise.calibrate(Fraction(1, 10), Fraction(1, 10**6), 1, 1)])
def test_every_statistic_gets_fresh_noise(noise: LaplaceNoise | GaussianNoise) -> None:
    outputs = Count("a", Statistic("a", noise)), Count("b", Statistic("b", noise))
    table = released(outputs, {"k": list(range(200)), "a": [5] * 200, "b": [5] * 200}, ("k",))
    a, b = (np.array(table.column(c).to_pylist()) for c in "ab")
    assert len(set(a.tolist())) > 20
    assert (a != b).mean() > 0.8
    again = released(outputs, {"k": list(range(200)), "a": [5] * 200, "b": [5] * 200}, ("k",))
    assert (np.array(again.column("a").to_pylist()) != a).mean() > 0.8


def test_a_statistic_of_two_outputs_is_released_once_and_charged_once() -> None:
    shared = Statistic("n", NOISY)
    operator = Aggregation("q", (), (Count("a", shared), Count("b", shared)))
    assert operator.event == compose_events([NOISY.event])
    (row,) = operator.release(reading(pa.table({"n": [3]})), Entropy()).table.to_pylist()
    assert row["a"] == row["b"]
    apart = Aggregation(
        "q", (), (Count("a", shared), Count("b", Statistic("n", LaplaceNoise(Fraction(1, 5), 1))))
    )
    assert apart.event == compose_events([NOISY.event, LaplaceNoise(Fraction(1, 5), 1).event])


def test_the_count_of_a_mean_shows_whether_a_group_has_rows() -> None:
    """The mean's total adds only noise to that; a total without a count is all that a sum has."""
    noisy_count, noisy_total = Statistic("n", NOISY), Statistic("s", NOISY)
    mean = Mean("m", noisy_total, noisy_count, Fraction(4), Fraction(10), (Fraction(0), Fraction(20)))
    operator = Aggregation("q", ("k",), (mean,))
    assert operator.presence == (noisy_count,)
    assert Aggregation("q", ("k",), (Sum("a", noisy_total, Fraction(4)),)).presence == (noisy_total,)
    data = {"k": [1, 2], "n": [0, 10_000], "s": [100_000, 0]}  # no database has this first group
    release = operator.release(reading(pa.table(data)), Entropy())
    found = operator.find_filled(release, ("k",), 1e-9)
    assert dict(zip(release.table.column("k").to_pylist(), found.tolist(), strict=True)) == {
        1: False,
        2: True,
    }


def test_event_is_known_beforehand_and_is_what_was_used() -> None:
    selection = GroupSelector("u", Fraction(1), Fraction(1, 10**6), 2)
    operator = Aggregation("q", ("k",), ALL, selection)
    assert isinstance(operator, Operator)
    assert operator.queries == ("q",)
    assert operator.event == compose_events([*(s.noise.event for s in (N, S, Q)), selection.event])
    empty = pa.table({name: pa.array([], type=pa.int64()) for name in ("k", "u", "n", "s", "q")})
    assert operator.release(reading(empty), Entropy()).event == operator.event


def test_selection_drops_rare_groups_and_its_column() -> None:
    selection = GroupSelector("u", Fraction(1), Fraction(1, 10**9))
    data = {"k": [4, 3, 2, 1], "u": [1, 1000, 0, 1000], "n": [1, 2000, 50, 3000]}
    table = released((Count("n", N),), data, ("k",), selection=selection)
    assert table.column_names == ["k", "n", "n__low", "n__high"]
    assert table.column("k").to_pylist() == [1, 3]
    assert table.column("n").to_pylist() == [3000, 2000]


def test_wide_integers_stay_exact() -> None:
    huge = 10**37 + 1
    data = {"s": pa.array([Decimal(huge)], type=pa.decimal128(38, 0))}
    table = released((Sum("s", S), Count("c", S)), data)
    assert table.schema.field("s").type == pa.decimal128(38, 0)
    assert table.column("s").to_pylist() == [Decimal(huge)]
    assert table.column("c").to_pylist() == [2**63 - 1]
    low, high = table.column("s__low")[0].as_py(), table.column("s__high")[0].as_py()
    assert Fraction(low) < huge < Fraction(high)
    small = released((Sum("s", S),), {"s": pa.array([Decimal(-7)], type=pa.decimal128(38, 0))})
    assert small.schema.field("s").type == pa.int64()
    assert small.column("s").to_pylist() == [-7]
    unsigned = released((Sum("s", S),), {"s": pa.array([2**64 - 1], type=pa.uint64())})
    assert unsigned.column("s").to_pylist() == [Decimal(2**64 - 1)]


def test_floats_never_reach_the_noise() -> None:
    with pytest.raises(TypeError, match="integer"):
        released((Count("n", N),), {"n": [1.0]})


def test_one_row_without_keys() -> None:
    with pytest.raises(ValueError, match="one row"):
        released((Count("n", N),), {"n": [1, 2]})


def test_the_salt_is_filled_in_anew() -> None:
    seen: list[str] = []

    def read(query: str) -> pa.Table:
        seen.append(query)
        return pa.table({"n": [1]})

    operator = Aggregation(f"SELECT hash({SALT}) AS n", (), (Count("n", N),))
    operator.release(read, Entropy())
    operator.release(read, Entropy())
    assert all(SALT not in query for query in seen)
    assert seen[0] != seen[1]
    assert operator.queries == (f"SELECT hash({SALT}) AS n",), "the plan itself has no secret"


def coverage(
    outputs: tuple[Output, ...], data: dict[str, int], truth: dict[str, float], shrink: float = 1.0
) -> dict[str, float]:
    """Return the share of 4000 groups with the same data in which each output's interval holds the exact value."""
    copies = 4000
    groups = {"k": list(range(copies)), **{c: [v] * copies for c, v in data.items()}}
    table = released(outputs, groups, ("k",), fixed(f"coverage {data}"))
    found = {}
    for name, true in truth.items():
        low, high = (np.array(table.column(f"{name}__{end}").to_pylist()) for end in ("low", "high"))
        middle, half = (low + high) / 2, (high - low) / 2 * shrink
        found[name] = float(((middle - half <= true) & (true <= middle + half)).mean())
    return found


@pytest.mark.parametrize("whole", [1, 1 << 20], ids=["of rows", "of parts of rows"])
def test_intervals_cover_the_exact_value(whole: int) -> None:
    n, s, q = (
        Statistic(c, LaplaceNoise(Fraction(1, 5), d * whole)) for c, d in (("n", 1), ("s", 40), ("q", 1600))
    )
    bounds, centre, steps = (Fraction(0), Fraction(20)), Fraction(10), Fraction(4)
    outputs: tuple[Output, ...] = (
        Count("count", n), Sum("sum", s, steps * whole), Mean("mean", s, n, steps, centre, bounds, whole),
        Variance("var", q, s, n, steps, centre, bounds, "var_samp", whole=whole),
        Variance("dev", q, s, n, steps, centre, bounds, "stddev_pop", whole=whole),
    )  # fmt: skip
    rows = np.random.default_rng(5).integers(-40, 41, 300)
    data = {"n": 300 * whole, "s": int(rows.sum()) * whole, "q": int((rows**2).sum()) * whole}
    truth = {
        "count": 300 * whole, "sum": rows.sum() / 4, "mean": 10 + rows.mean() / 4,
        "var": float(np.var(rows / 4, ddof=1)), "dev": float(np.std(rows / 4)),
    }  # fmt: skip
    found = coverage(outputs, data, truth)
    assert all(c > 0.95 - 0.018 for c in found.values()), found
    assert all(c > 0.962 for name, c in found.items() if name in ("mean", "var", "dev")), (
        "conservative where noises meet"
    )
    narrow = coverage(outputs, data, {k: truth[k] for k in ("count", "sum")}, shrink=0.7)
    assert all(c < 0.95 - 0.018 for c in narrow.values()), "the control must fail"


def test_outputs_stay_in_bounds_and_are_never_nan() -> None:
    n, s, q = (Statistic(c, LaplaceNoise(Fraction(1, 100), d)) for c, d in (("n", 1), ("s", 40), ("q", 1600)))
    bounds = Fraction(0), Fraction(20)
    outputs: list[Output] = [Count("n", n), Mean("m", s, n, Fraction(4), Fraction(10), bounds)]
    outputs += [
        Variance(k, q, s, n, Fraction(4), Fraction(10), bounds, k)
        for k in ("var_pop", "var_samp", "stddev_pop", "stddev_samp")
    ]
    data = {"k": list(range(2000)), "n": [2] * 2000, "s": [0] * 2000, "q": [4] * 2000}
    table = released(tuple(outputs), data, ("k",))
    ceilings = {"m": 20, "var_pop": 100, "var_samp": 200, "stddev_pop": 10, "stddev_samp": 200**0.5}
    for name, most in ceilings.items():
        for column in (name, f"{name}__low", f"{name}__high"):
            values = np.array([v for v in table.column(column).to_pylist() if v is not None], dtype=float)
            assert len(values) == len(data["k"]) or column == name, "an interval is always there"
            assert np.isfinite(values).all()
            assert values.min() >= 0
            assert values.max() <= most * (1 + 1e-6)
    rows = table.to_pylist()
    for name, fewest in (("var_pop", 1), ("stddev_pop", 1), ("var_samp", 2), ("stddev_samp", 2)):
        assert all((row[name] is None) == (row["n"] < fewest) for row in rows), name
        absent = [row for row in rows if row[name] is None]
        assert all(row[f"{name}__low"] == 0.0 for row in absent)
        assert all(row[f"{name}__high"] == pytest.approx(ceilings[name]) for row in absent)
    nothing = [row for row in rows if row["n"] <= 0]
    assert 500 < len(nothing) < 1500
    assert all((row["m"], row["m__low"], row["m__high"]) == (None, 0.0, 20.0) for row in nothing)
    assert all(row["m"] is not None for row in rows if row["n"] > 0)


def test_weighed_moments_are_those_of_rows() -> None:
    """The same numbers in parts of a row, 16 to each: the same answers, and a mean over half a row is that of half a row."""
    noise = LaplaceNoise(Fraction(10**9), 1)
    n, s, q = (Statistic(c, noise) for c in "nsq")
    shape = (Fraction(4), Fraction(10), (Fraction(0), Fraction(20)))
    given = {"k": [0, 1], "n": [50, 1], "s": [-120, 4], "q": [9000, 16]}
    plain = released((Mean("m", s, n, *shape), Variance("v", q, s, n, *shape, "var_samp")), given, ("k",))
    weighed = released(
        (Mean("m", s, n, *shape, 16), Variance("v", q, s, n, *shape, "var_samp", whole=16)),
        {"k": [0, 1], **{c: [16 * v for v in given[c]] for c in "nsq"}}, ("k",),
    )  # fmt: skip
    assert weighed.select(["m", "v"]) == plain.select(["m", "v"])
    half = released((Mean("m", s, n, *shape, 16),), {"n": [8], "s": [16 * 4]})
    assert half.column("m").to_pylist() == [12.0]
    less = released((Mean("m", s, n, *shape, 16),), {"n": [7], "s": [0]})  # nothing, and a little noise
    assert [less.column(c).to_pylist() for c in ("m", "m__low", "m__high")] == [[None], [0.0], [20.0]]
    told = Mean("m", s, n, *shape, 16).sentences(0.9)
    assert "scale 1.5625e-11 " in told[0]
    assert "scale 6.25e-11 " in told[1]


class TestParts:
    """A query that is read part by part, as groups are selected."""

    @staticmethod
    def released(parts: list[pa.Table]) -> pa.Table:
        sure = GroupSelector("n", Fraction(60), Fraction(1, 10**6))
        operator = Aggregation("q", ("k",), (Count("n", N), Sum("s", S)), sure)
        reader = Reader(lambda sql, lent: parts[0], {}, 0, lambda sql, lent: iter(parts))
        return operator.release(reader, Entropy()).table

    def test_parts_are_one_table(self) -> None:
        kind = pa.decimal128(38, 0)
        one, other = pa.array([Decimal(7), Decimal(-8)], kind), pa.array([Decimal(9)], kind)
        parts = [
            pa.table({"k": [3, 1], "n": [50, 50], "s": one, "more": ["x", "y"]}),
            pa.table({"k": [2], "n": [60], "s": other, "more": ["z"]}),
        ]
        table = self.released(parts)
        assert table.select(["k", "n", "s"]).to_pylist() == [
            {"k": 1, "n": 50, "s": -8}, {"k": 2, "n": 60, "s": 9}, {"k": 3, "n": 50, "s": 7}
        ]  # fmt: skip
        assert table.schema.field("s").type == pa.int64()
        assert "more" not in table.column_names

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_an_integer_of_128_bits_in_one_part_only(self, order: tuple[int, int]) -> None:
        kind = pa.decimal128(38, 0)
        parts = [
            pa.table({"k": [1], "n": [50], "s": pa.array([Decimal(2**70)], kind)}),
            pa.table({"k": [2], "n": [60], "s": pa.array([Decimal(9)], kind)}),
        ]
        assert self.released([parts[i] for i in order]).column("s").to_pylist() == [2**70, 9]


class TestAggregation(OperatorContract):
    count = Statistic("n", NOISY)
    operator = Aggregation("SELECT k, n", ("k",), (Count("n", count), Sum("s", Statistic("s", NOISY))))

    def exact(self, text: str) -> pa.Table:
        return pa.table({"k": ["b", "a"], "n": [3, 5], "s": [30, -50]})
