"""Random compositions of what rows of one unit can do together, and the cost of a unit of 100,000 rows in them."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import duckdb

import dpsql
from dpsql.errors import Error

ALARM, ROWS = 1_000_000, 100_000
POLICY = """
budget = { epsilon = 1e9, delta = 1e-2, accountant = "basic", default_epsilon = 1, default_delta = 1e-9 }
[tables]
visits = { privacy_unit = "patient_id", max_rows_per_group = 3, max_groups = 2 }
notes = { privacy_unit = "patient_id", max_rows_per_group = 3, max_groups = 2 }
other = { public = true }
wards = { public = true }
hundred = { public = true }
"""
_COLUMNS = "patient_id, v, x, d, s"
_EVERYBODY = (
    "SELECT i % 200 AS patient_id, i AS v, i % 10 AS x, DATE '2024-01-01' + (i % 300)::INTEGER AS d, "
    "'a note of ' || i AS s, [i % 7, i % 11] AS li FROM range(600) t(i)"
)
_ALARM = (
    f"SELECT {ALARM}, 10000 + i, i % 10, DATE '2024-01-01' + (i % 300)::INTEGER, 'a note of ' || i || repeat('z', 40), "
    "[i % 7, i % 11] FROM range({}) t(i)"
)


def tables(person: int) -> duckdb.DuckDBPyConnection:
    """Open a database in which one unit has this many rows in each private table."""
    con = duckdb.connect(config={"threads": 1})
    con.execute("CREATE TABLE hundred AS SELECT i FROM range(100) t(i)")
    con.execute("CREATE TABLE other AS SELECT i % 500 AS k, i AS y FROM range(20000) t(i)")
    con.execute("CREATE TABLE wards AS SELECT i AS k, i AS y FROM range(20) t(i)")
    for name in ("visits", "notes"):
        con.execute(f"CREATE TABLE {name} AS {_EVERYBODY}")
        if person:
            con.execute(f"INSERT INTO {name} {_ALARM.format(person)}")
    return con


class Composer:
    """Writes random statements; each relation in them has the columns patient_id, v, x, d and s."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ctes: list[str] = []
        self.names = 0

    def one(self, *of: str) -> str:
        return self.random.choice(of)

    def name(self) -> str:
        self.names += 1
        return f"r{self.names}"

    def statement(self, depth: int) -> tuple[str, str]:
        """Return a statement over composed rows, and the same over a table's own."""
        rows = self.rows(depth)
        with_ = f"WITH {', '.join(self.ctes)} " if self.ctes else ""
        a = self.name()
        asked = self.one(
            "COUNT(*) AS n", "COUNT(*) AS n", f"COUNT(DISTINCT {a}.v) AS n",
            "SUM(x, contribution_bounds_per_row => (0, 10)) AS n",
            "MEDIAN(x, contribution_bounds_per_row => (0, 10)) AS n", "AVG(x, contribution_bounds_per_row => (0, 10)) AS n",
            f"COUNT(DISTINCT {a}.patient_id) AS n", "SUM(x, contribution_bounds_per_group => (0, 10)) AS n",
        )  # fmt: skip
        groups = self.one("", "", "", "x", "s", "d")
        item, by = (f"{groups}, ", f" GROUP BY {groups}") if groups else ("", "")
        made = f"SELECT WITH DP {item}{asked} FROM {{}} AS {a}{by}"
        return with_ + made.format(rows), made.format("visits")

    def rows(self, depth: int) -> str:
        """Write a relation that may stand in FROM."""
        if depth == 0:
            return self.one("visits", "visits", "notes")
        made = self.random.choice([
            self.joined, self.joined, self.three, self.exists, self.member, self.scalar, self.window, self.window, self.per_unit,
            self.per_unit, self.per_group, self.lateral, self.fan_out, self.union, self.distinct, self.qualify, self.unnest,
            self.cte, self.asof, self.where,
        ])(depth - 1)  # fmt: skip
        return made if " " not in made else f"({made})"

    def also(self, a: str, b: str) -> str:
        return self.one("", "", f" AND {a}.x < {b}.x", f" AND {a}.d > {b}.d", f" AND {a}.d = {b}.d", f" AND {a}.v = {b}.v",
                        f" AND {a}.x + {b}.x > 7", f" AND {a}.s < {b}.s", f" AND {a}.v <> {b}.v")  # fmt: skip

    def less(self, depth: int) -> int:
        return self.random.randint(0, depth)

    def joined(self, depth: int) -> str:
        a, b = self.name(), self.name()
        kind = self.one("JOIN", "JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN")
        if kind in ("SEMI JOIN", "ANTI JOIN"):
            items = f"{a}.patient_id, {a}.v, {a}.x, {a}.d, {a}.s"
        else:
            items = f"{a}.patient_id, {self.one(a, b)}.v, {a}.x + {b}.x AS x, {self.one(a, b)}.d, {self.one(a, b)}.s"
        return (
            f"SELECT {items} FROM {self.rows(depth)} AS {a} {kind} {self.rows(self.less(depth))} AS {b} "
            f"ON {a}.patient_id = {b}.patient_id{self.also(a, b)}"
        )

    def three(self, depth: int) -> str:
        a, b, c = self.name(), self.name(), self.name()
        return (
            f"SELECT patient_id, {a}.v, {b}.x, {c}.d, {a}.s FROM {self.rows(self.less(depth))} AS {a} JOIN visits AS {b} "
            f"USING (patient_id) JOIN {self.one('visits', 'notes')} AS {c} USING (patient_id)"
        )

    def inner(self, depth: int, a: str, what: str) -> str:
        b = self.name()
        return (
            f"(SELECT {what.format(b)} FROM {self.rows(self.less(depth))} AS {b} WHERE {b}.patient_id = {a}.patient_id"
            f"{self.also(a, b)})"
        )

    def exists(self, depth: int) -> str:
        a = self.name()
        found = self.inner(depth, a, "1")
        return f"SELECT {_COLUMNS} FROM {self.rows(depth)} AS {a} WHERE {self.one('', 'NOT ')}EXISTS {found}"

    def member(self, depth: int) -> str:
        a, c = self.name(), self.one("x", "v", "d", "s")
        found = self.inner(depth, a, f"{{}}.{c}")
        return (
            f"SELECT {_COLUMNS} FROM {self.rows(depth)} AS {a} WHERE {a}.{c} {self.one('', 'NOT ')}IN {found}"
        )

    def scalar(self, depth: int) -> str:
        a = self.name()
        call = self.one(
            "COUNT(*)", "MAX({}.x)", "SUM({}.x)", "COUNT(DISTINCT {}.d)", "AVG({}.x)", "MEDIAN({}.x)"
        )
        found = self.inner(depth, a, call)
        return f"SELECT patient_id, v, {found} AS x, d, s FROM {self.rows(depth)} AS {a}"

    def window(self, depth: int) -> str:
        call = self.one(
            "SUM(x)", "COUNT(*)", "MAX(x)", "MIN(d)", "AVG(x)", "LAG(x)", "LEAD(x, 3)", "ROW_NUMBER()", "RANK()",
            "FIRST_VALUE(x)", "DENSE_RANK()", "PERCENT_RANK()", "MEDIAN(x)", "COUNT(DISTINCT x)",
            "LIST(x)", "STRING_AGG(s, ',')",
        )  # fmt: skip
        order = self.one(" ORDER BY d", " ORDER BY d, v", " ORDER BY s", "")
        frame = self.one("", "", " ROWS BETWEEN 5 PRECEDING AND CURRENT ROW", " ROWS BETWEEN 90000 PRECEDING AND 90000 FOLLOWING",
                         " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
                         " RANGE BETWEEN INTERVAL 30 DAY PRECEDING AND CURRENT ROW")  # fmt: skip
        column = self.one("v", "x")
        others = "v" if column == "x" else "x"
        return (
            f"SELECT patient_id, {others}, {call} OVER (PARTITION BY patient_id{order}{frame}) AS {column}, d, s "
            f"FROM {self.rows(depth)} AS {self.name()}"
        )

    def per_unit(self, depth: int) -> str:
        x = self.one("COUNT(*)", "SUM(x)", "MEDIAN(x)", "MODE(x)", "COUNT(DISTINCT v)", "len(LIST(x))", "QUANTILE_CONT(x, 0.9)",
                     "ARG_MAX(x, d)", "list_sum(LIST(x))", "STDDEV(x)")  # fmt: skip
        s = self.one("MAX(s)", "STRING_AGG(s, ',')", "MIN(s)", "MODE(s)", "ARG_MIN(s, v)", "'a'")
        return (
            f"SELECT patient_id, COUNT(v) AS v, {x} AS x, MAX(d) AS d, {s} AS s FROM {self.rows(depth)} AS {self.name()} "
            "GROUP BY patient_id"
        )

    def per_group(self, depth: int) -> str:
        by, x = (
            self.random.choice([("v", "x"), ("x", "v"), ("d", "x"), ("s", "x")]),
            self.one("COUNT(*)", "MAX(v)", "SUM(x)"),
        )
        items = {
            "v": "MAX(v) AS v",
            "x": "MAX(x) AS x",
            "d": "MAX(d) AS d",
            "s": "MAX(s) AS s",
            by[1]: f"{x} AS {by[1]}",
        }
        items[by[0]] = by[0]
        rows = f"{self.rows(depth)} AS {self.name()}"
        return f"SELECT patient_id, {', '.join(items.values())} FROM {rows} GROUP BY patient_id, {by[0]}"

    def lateral(self, depth: int) -> str:
        a, b = self.name(), self.name()
        public = self.one(
            f"other AS o WHERE o.k = {a}.v",
            f"wards AS o WHERE o.k > {a}.x",
            f"hundred AS o(y) WHERE o.y = {a}.x",
        )
        rows = f"{self.rows(depth)} AS {a}"
        return (
            f"SELECT patient_id, v, m AS x, d, s FROM {rows}, LATERAL (SELECT o.y AS m FROM {public}) AS {b}"
        )

    def fan_out(self, depth: int) -> str:
        a, b = self.name(), self.name()
        met = self.one(f", hundred AS {b}", f" JOIN hundred AS {b} ON {b}.i > {a}.x", f", range(50) AS {b}(i)",
                       f" JOIN (SELECT k, y AS i FROM other) AS {b} ON {b}.k = {a}.v",
                       f" LEFT JOIN (SELECT k, y AS i FROM wards) AS {b} ON {b}.i < {a}.x")  # fmt: skip
        return f"SELECT patient_id, v, {b}.i AS x, d, s FROM {self.rows(depth)} AS {a}{met}"

    def union(self, depth: int) -> str:
        a, b = self.name(), self.name()
        kind = self.one("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT")
        first, second = f"{self.rows(depth)} AS {a}", f"{self.rows(self.less(depth))} AS {b}"
        return f"SELECT {_COLUMNS} FROM {first} {kind} SELECT {_COLUMNS} FROM {second}"

    def distinct(self, depth: int) -> str:
        return f"SELECT DISTINCT {_COLUMNS} FROM {self.rows(depth)} AS {self.name()}"

    def qualify(self, depth: int) -> str:
        call = self.one("ROW_NUMBER()", "RANK()", "DENSE_RANK()", "COUNT(*)")
        by = self.one("patient_id", "patient_id, x", "patient_id, s")
        rows = f"{self.rows(depth)} AS {self.name()}"
        condition = f"{call} OVER (PARTITION BY {by} ORDER BY d, v) <= {self.one('3', '5000')}"
        return f"SELECT {_COLUMNS} FROM {rows} QUALIFY {condition}"

    def unnest(self, depth: int) -> str:
        return (
            f"SELECT patient_id, v, y AS x, d, s FROM visits AS {self.name()}, UNNEST(li) AS {self.name()}(y)"
        )

    def asof(self, depth: int) -> str:
        a, b = self.name(), self.name()
        rows, public = f"{self.rows(depth)} AS {a}", f"{self.one('other', 'wards')} AS {b}"
        return f"SELECT patient_id, v, {b}.y AS x, d, s FROM {rows} ASOF JOIN {public} ON {a}.v >= {b}.k"

    def cte(self, depth: int) -> str:
        made = self.rows(depth)
        name = f"c{len(self.ctes)}"
        self.ctes.append(f"{name} AS (SELECT {_COLUMNS} FROM {made} AS {self.name()})")
        a, b = self.name(), self.name()
        return self.one(
            name,
            f"SELECT patient_id, {a}.v, {b}.x, {a}.d, {b}.s FROM {name} AS {a} JOIN {name} AS {b} USING (patient_id)",
        )

    def where(self, depth: int) -> str:
        condition = self.one("x > 3", "s LIKE '%1%'", "d > '2024-03-01'", "v % 2 = 0", "length(s) > 3")
        return f"SELECT {_COLUMNS} FROM {self.rows(depth)} AS {self.name()} WHERE {condition}"


@dataclass
class Cost:
    """The cost of a unit to one statement: milliseconds of the processor, and MiB."""

    milliseconds: float
    mebibytes: int
    text: str


class Scales:
    """Two sessions, with the unit and without it, in which the same statements run."""

    def __init__(self, rows: int = ROWS) -> None:
        self.sessions = [dpsql.connect(tables(n), policy=dpsql.Policy.loads(POLICY)) for n in (0, rows)]
        self.plain: dict[str, float] = {}

    def answered(self, text: str) -> bool:
        """Return whether a statement is answered; that it is refused must not depend on the unit."""
        said = []
        for session in self.sessions:
            try:
                session.explain(text)
                said.append("")
            except Error as error:
                said.append(f"{type(error).__name__}: {error}")
        assert said[0] == said[1], f"{text}\n{said}"
        return not said[0]

    def cost(self, text: str, plain: str, enough: float) -> Cost:
        """Measure what the unit costs in a statement beyond what its 100,000 rows cost in the same over a table's own rows.

        Where it takes longer than ``enough`` it is measured again: what else runs on the machine must not count.
        """
        if plain not in self.plain:
            self.plain[plain] = max(0.0, min(self._added(plain)[0] for _ in range(3)))
        best = Cost(1e9, 10**9, text)
        for _ in range(6):
            milliseconds, mebibytes = self._added(text)
            best.milliseconds = min(best.milliseconds, milliseconds - self.plain[plain])
            best.mebibytes = min(best.mebibytes, mebibytes)
            if best.milliseconds <= enough and best.mebibytes <= 64:
                break
        return best

    def _added(self, text: str) -> tuple[float, int]:
        (away, less), (there, more) = (_run(session, text) for session in self.sessions)
        return 1000 * (there - away), more - less


def _run(session: dpsql.Session, text: str) -> tuple[float, int]:
    before, began = _forget(), time.process_time()
    try:
        session.sql(text, fresh=True).fetchall()
    except Error as error:
        raise AssertionError(f"{text}\n{error}") from error
    return time.process_time() - began, _memory("VmHWM") - before


def _memory(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith(name))


def _forget() -> int:
    """Let the process's highest memory count from here on; what it is now, in MiB."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _memory("VmRSS")
