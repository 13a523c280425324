"""Plans in Spark's SQL, without a Spark: every corpus statement is written, and what is not known is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.errors import BindError, PolicyError
from dpsql.exact.normal_form import normalise, write_parameters
from dpsql.language.statements import parse
from dpsql.mechanisms.base import SALT, fill_parameters
from dpsql.spark.spark_engine import SparkEngine, spark_sql
from dpsql.spark.spark_values import backquote, quote_text
from tests.support import inside
from tests.support.case_files import Case
from tests.support.corpora import CORPORA, POLICIES, queries

TABLE = {
    "t": [
        ("b", "BIGINT"),
        ("h", "HUGEINT"),
        ("d", "DOUBLE"),
        ("c", "DECIMAL(8,2)"),
        ("x", "VARCHAR"),
        ("u", "INTEGER"),
    ]
}


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Session]:
    with duckdb.connect() as con:
        con.execute((CORPORA / "schema.sql").read_text())
        with dpsql.connect(con, policy=POLICIES["usual"]) as opened:
            yield opened


PARTED = "date_trunc('month', day)"
"""The periods of units, which stand in one statement and are pairs in its exact query."""


@pytest.mark.parametrize("case", [c for c in queries() if PARTED not in c.text], ids=str)
def test_every_corpus_statement_can_be_written(case: Case, session: dpsql.Session) -> None:
    (statement,) = parse(case.text, case.params)
    plan = inside.bind(session, statement)
    tables = {
        t.name: list(inside.engine(session).schema(t).items()) for t in POLICIES["usual"].tables.values()
    }
    for block in plan.blocks:
        made = {b.name: b.columns for b in plan.blocks}
        lent = {i.name: inside.finisher(session).describe(i.sql, made, plan.public) for i in block.inputs}
        for query in getattr(block.operator, "checked", block.operator.queries):
            known = {**tables, **lent, **block.operator.provides}
            if query in getattr(block.operator, "apart", ()):
                continue
            names = {n: [c for c, _ in given] for n, given in {**lent, **block.operator.provides}.items()}
            text = inside.gate(session).exact(query, names)
            written = spark_sql(fill_parameters(text, {"salt": 5, "first": 0, "last": 3}), known)
            assert SALT not in written
            assert "hash(xor" not in written


def written(expression: str) -> str:
    text = spark_sql(f"SELECT {expression} AS v FROM t", TABLE)
    return text.removeprefix("SELECT ").removesuffix(" AS `v` FROM `t` AS `t`")


@pytest.mark.parametrize(
    ("text", "spark"),
    [
        ("b // 2", "(`t`.`b` div 2L)"),
        ("TRY(b + b)", "try_add(`t`.`b`, `t`.`b`)"),
        ("TRY_CAST(d AS INTEGER)", "try_cast(rint(`t`.`d`) AS INT)"),
        ("x = 'a''b\\c${d}'", r"(`t`.`x` = 'a\U00000027b\U0000005Cc\U00000024{d}')"),
        ("b IS DISTINCT FROM 1", "(NOT `t`.`b` <=> 1L)"),
        (
            "hash(xor(hash(u, x), CAST(7 AS UBIGINT)))",
            "xxhash64((xxhash64(`t`.`u`, `t`.`x`, (`t`.`u` IS NULL), (`t`.`x` IS NULL)) ^ 7L))",
        ),
        ("hash(b) // 6148914691236517206", "pmod(xxhash64(`t`.`b`), 3L)"),
        ("hash(b) % 8", "pmod(xxhash64(`t`.`b`), 8L)"),
        (
            "LEAST(GREATEST(h, 0), 10)",
            "CAST(least(greatest(`t`.`h`, CAST(0L AS DECIMAL(38,0))), CAST(10L AS DECIMAL(38,0))) AS BIGINT)",
        ),
        ("SUM(h)", "sum(CAST(`t`.`h` AS DECIMAL(38,0)))"),
        ("abs(h)", "greatest(`t`.`h`, (CAST(0L AS DECIMAL(38,0)) - `t`.`h`))"),
        ("-c", "try_cast((CAST(0L AS DECIMAL(8,2)) - `t`.`c`) AS DECIMAL(8,2))"),
        ("COUNT(*) FILTER (WHERE b > 1)", "count(1) FILTER (WHERE (`t`.`b` > 1L))"),
        ("x LIKE 'a\\%'", r"(`t`.`x` LIKE 'a\U0000005C\U0000005C%')"),
    ],
)  # fmt: skip
def test_rewrites(text: str, spark: str) -> None:
    assert written(text) == spark


def test_runs_can_be_cut_into_parts() -> None:
    assert "FROM range(100, 200) AS `runs`(`turn`)" in spark_sql(
        "SELECT turn FROM range(100, 200) AS runs(turn)", {}
    )


def test_a_sum_of_integers_is_three() -> None:
    assert written("SUM(b)").count("sum(") == 3
    assert written("SUM(CASE WHEN b > 0 THEN 1 END)").count("sum(") == 3
    assert written("SUM(1)") == "CAST(sum(1L) AS DECIMAL(38,0))"


def test_texts_in_normal_form_are_written_too() -> None:
    """Shapes that the normal form prints anew are written too: rows of values with names, quantiles with their order inside."""
    pairs = "SELECT t.u AS u FROM t AS t WHERE (t.u, t.b) IN (SELECT (s.u, s.b) AS o0 FROM t AS s)"
    assert "((`t`.`u`, `t`.`b`) IN (SELECT `s`.`u` AS `o0`, `s`.`b` AS `o1` FROM" in spark_sql(pairs, TABLE)
    within = "SELECT PERCENTILE_DISC(0.25) WITHIN GROUP (ORDER BY t.u) AS q FROM t AS t"
    text = spark_sql(write_parameters(normalise(within)), TABLE)
    assert "percentile" not in text
    assert " OVER (ORDER BY " in text


def test_the_first_groups_of_a_unit_are_numbered_within_it() -> None:
    query = "SELECT u FROM t QUALIFY lag(u, 3) OVER (ORDER BY u, hash(b)) IS DISTINCT FROM u"
    text = spark_sql(query, TABLE)
    assert "row_number() OVER (PARTITION BY `t`.`u` ORDER BY xxhash64(`t`.`b`) ASC NULLS LAST)" in text
    assert "lag" not in text
    assert "WHERE `dpsql_chosen`" in text


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT regexp_matches(x, 'a') AS v FROM t", "REGEXP_LIKE"),
        ("SELECT random() AS v FROM t", "RAND"),
        ("SELECT CAST(d AS VARCHAR) AS v FROM t", "DOUBLE to VARCHAR"),
        ("SELECT CAST(x AS INTEGER) AS v FROM t", "VARCHAR to INTEGER"),
        ("SELECT reverse(x) AS v FROM t", "reverse"),
        ("SELECT row(u, b) AS v FROM t", "the function row"),  # a unit and its period
        ("SELECT * FROM t NATURAL JOIN t AS s", "NATURAL"),
        ("SELECT * FROM t JOIN t AS s USING (u)", "USING in JOIN"),
        ("SELECT * FROM t LIMIT 3 OFFSET 1", "OFFSET in SELECT"),
        ("SELECT * FROM t USING SAMPLE 3", "SAMPLE"),
        ("SELECT u, COUNT(*) AS n FROM t GROUP BY ROLLUP (u)", "ROLLUP"),
        ("SELECT DISTINCT ON (u) b FROM t", "DISTINCT ON"),
        ("SELECT * EXCLUDE (u) FROM t", r"EXCEPT in \*"),
        ("SELECT [u] AS v FROM t", "ARRAY"),
        ("SELECT h // h AS v FROM t", "between HUGEINT"),
        ("SELECT * FROM read_parquet('x')", "in FROM"),
        ("SELECT * FROM nobody", "there is no relation nobody"),
        ("SELECT y FROM t", "there is no column y"),
        ("SELECT SUM(d) OVER (ORDER BY u) AS v FROM t", "SUM of DOUBLE here"),
        ('SELECT u AS "${x}" FROM t', "the name"),
        ("SELECT * FROM t ASOF JOIN t AS s ON t.u >= s.u OR t.b > s.b", "ASOF JOIN of this form"),
        ("SELECT * FROM t ASOF RIGHT JOIN t AS s ON t.u >= s.u", "ASOF RIGHT"),
        ("SELECT * FROM t RIGHT JOIN LATERAL (SELECT t.u + 1 AS y) AS l ON TRUE", "RIGHT JOIN"),
        ("SELECT * FROM t, UNNEST(t.u) AS l(y)", "UNNEST of INTEGER"),
        ("SELECT SUM(DISTINCT b) FILTER (WHERE u > 1) OVER () AS v FROM t", "this FILTER in a window"),
        ("SELECT strftime(CAST('2020-01-01' AS DATE), '%G') AS v FROM t", "strftime with %G"),
        ("SELECT ARG_MAX(x, b ORDER BY u) AS v FROM t", "this order of equals"),
        ("INSERT INTO t SELECT * FROM t", "INSERT"),
    ],
)
def test_what_is_not_known_is_refused_by_name(query: str, what: str) -> None:
    with pytest.raises(BindError, match=what):
        spark_sql(query, TABLE)


def test_names_and_texts_can_not_break_out() -> None:
    assert backquote("a`b") == "`a``b`"
    assert quote_text("\u20ac'\\\n$") == r"'\U000020AC\U00000027\U0000005C\U0000000A\U00000024'"


@pytest.mark.parametrize(("missing", "address"), [("pyspark", "local[1]"), ("grpc", "sc://127.0.0.1:9")])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, missing: str, address: str) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == missing else object())
    with pytest.raises(PolicyError) as refused:
        SparkEngine(address, POLICIES["usual"], Path())
    assert refused.value.hint.startswith("pip install")
