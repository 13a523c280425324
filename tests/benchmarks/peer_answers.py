"""Answers four questions in another system: ``python peer_answers.py SYSTEM FILE``, in an environment that has this system.

:mod:`tests.benchmarks.peers` makes the environments and the file, runs this script in each, and compares what it prints: a
line of JSON for each question, with seconds, and answers as pairs of key and number. It imports nothing of dpsql.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

TIMES, ENOUGH = 3, 10
"""The most answers to each question, and the seconds after which there is no further one."""
EPSILON, DELTA = 1.0, 1e-6
GROUPS, ROWS = {"sums": 3, "keys": 5}, 20
"""The most groups of a person in a question by person, and the most rows in each."""
Answers = dict[str, Callable[[], list[tuple[Any, float]]]]
"""By question, a function that answers it: ``count`` and ``mean`` protect a row, ``sums`` and ``keys`` a person."""


def opendp(path: str) -> Answers:
    """OpenDP over polars. Sums over public groups and private groups need its lengths too, so these are paid for."""
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    margin, key, amount = dp.polars.Margin, pl.col, pl.col("amount").fill_nan(0.0).fill_null(0.0)

    def ask(by: list[str], made: Callable[[Any], Any]) -> Any:
        loss = dp.loss_of(epsilon=EPSILON, delta=DELTA) if by else dp.loss_of(epsilon=EPSILON)
        unit = dp.unit_of(contributions=1, **({"identifier": key("user_id")} if by else {}))
        margins = [margin(by=by, max_length=400_000, max_groups=100_000)]
        context = dp.Context.compositor(
            data=pl.scan_parquet(path),
            privacy_unit=unit,
            privacy_loss=loss,
            split_evenly_over=1,
            margins=margins,
        )
        query = context.query()
        if by:
            most = GROUPS["sums" if by == ["c10"] else "keys"]
            query = query.truncate_num_groups(most, by=by, keep="first")  # a sample fails in 0.16.0
            query = query.truncate_per_group(ROWS, by=by)
        return made(query).release().collect()

    def mean() -> list[tuple[Any, float]]:
        found = ask([], lambda query: query.select(amount.dp.sum((0.0, 100.0)), dp.len()))
        return [(None, found["amount"][0] / max(1, found["len"][0]))]

    def sums() -> list[tuple[Any, float]]:
        public = pl.LazyFrame({"c10": list(range(10))})
        found = ask(
            ["c10"], lambda query: query.group_by("c10").agg(amount.dp.sum((0.0, 100.0))).with_keys(public)
        )
        return list(zip(found["c10"].to_list(), found["amount"].to_list(), strict=True))

    def keys() -> list[tuple[Any, float]]:
        found = ask(["place"], lambda query: query.group_by("place").agg(dp.len()))
        return list(zip(found["place"].to_list(), found["len"].to_list(), strict=True))

    def count() -> list[tuple[Any, float]]:
        return [(None, ask([], lambda query: query.select(dp.len()))["len"][0])]

    return {"count": count, "mean": mean, "sums": sums, "keys": keys}


def smartnoise(path: str) -> Answers:
    """SmartNoise SQL over a frame of pandas."""
    import pandas as pd
    import snsql

    frame = pd.read_parquet(path)

    def ask(text: str, groups: int) -> list[tuple[Any, float]]:
        whole = {"type": "int"}
        columns = {
            "row_id": whole, "user_id": whole | {"private_id": groups > 0}, "place": whole, "c10": whole,
            "amount": {"type": "float", "lower": 0, "upper": 100},
        }  # fmt: skip
        table = {
            "row_privacy": not groups,
            "max_ids": groups or 1,
            "rows": len(frame),
            "censor_dims": "place" in text,
        }
        privacy = snsql.Privacy(epsilon=EPSILON, delta=DELTA)
        reader = snsql.from_df(frame, privacy=privacy, metadata={"": {"s": {"visits": table | columns}}})
        _, *rows = reader.execute(text)
        return [(row[0] if len(row) > 1 else None, float(row[-1])) for row in rows]

    return {
        "count": lambda: ask("SELECT COUNT(*) FROM s.visits", 0),
        "mean": lambda: ask("SELECT AVG(amount) FROM s.visits", 0),
        "sums": lambda: ask("SELECT c10, SUM(amount) FROM s.visits GROUP BY c10", GROUPS["sums"]),
        "keys": lambda: ask("SELECT place, COUNT(*) FROM s.visits GROUP BY place", GROUPS["keys"]),
    }


def diffprivlib(path: str) -> Answers:
    """Functions of numpy arrays, which have neither persons nor groups."""
    import numpy as np
    import pandas as pd
    from diffprivlib import tools

    amount = pd.read_parquet(path)["amount"].to_numpy()
    return {
        "count": lambda: [(None, float(tools.count_nonzero(np.ones(len(amount)), epsilon=EPSILON)))],
        "mean": lambda: [(None, float(tools.mean(amount, epsilon=EPSILON, bounds=(0, 100))))],
    }


def pipelinedp(path: str) -> Answers:
    """PipelineDP on its local backend."""
    import pandas as pd
    import pipeline_dp as dp

    rows = list(
        pd.read_parquet(path)[["row_id", "user_id", "c10", "place", "amount"]].itertuples(
            index=False, name=None
        )
    )

    def ask(metric: str, unit: int, key: int | None, public: list[int] | None, groups: int, each: int) -> Any:
        accountant = dp.NaiveBudgetAccountant(total_epsilon=EPSILON, total_delta=DELTA)
        take = dp.DataExtractors(
            privacy_id_extractor=lambda row: row[unit],
            partition_extractor=lambda row: 0 if key is None else row[key],
            value_extractor=lambda row: row[4],
        )
        asked = dp.AggregateParams(
            metrics=[getattr(dp.Metrics, metric)], max_partitions_contributed=groups, max_contributions_per_partition=each,
            min_value=0, max_value=100, noise_kind=dp.NoiseKind.LAPLACE,
        )  # fmt: skip
        found = dp.DPEngine(accountant, dp.LocalBackend()).aggregate(
            rows, asked, take, public_partitions=public
        )
        accountant.compute_budgets()
        return [(None if key is None else place, float(numbers[0])) for place, numbers in found]

    return {
        "count": lambda: ask("COUNT", 0, None, [0], 1, 1),
        "mean": lambda: ask("MEAN", 0, None, [0], 1, 1),
        "sums": lambda: ask("SUM", 1, 2, list(range(10)), GROUPS["sums"], ROWS),
        "keys": lambda: ask("COUNT", 1, 3, None, GROUPS["keys"], ROWS),
    }


def tumult(path: str) -> Answers:
    """Tumult Analytics on a local Spark."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession
    from tmlt import analytics as ta

    settings = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false", "spark.driver.memory": "4g"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    frame = spark.read.parquet(path)

    def ask(column: str | None, made: Callable[[Any], Any], keys: Any = None, delta: float = 0) -> Any:
        change = ta.AddRowsWithID("user_id") if column else ta.AddOneRow()
        budget = ta.ApproxDPBudget(EPSILON, delta) if delta else ta.PureDPBudget(EPSILON)
        session = ta.Session.from_dataframe(budget, "visits", frame, protected_change=change)
        query = ta.QueryBuilder("visits")
        if column:
            query = query.enforce(ta.MaxGroupsPerID(column, GROUPS["keys" if delta else "sums"]))
            query = query.enforce(ta.MaxRowsPerGroupPerID(column, ROWS))
        if delta:
            listed = ta.QueryBuilder("visits").enforce(ta.MaxRowsPerID(GROUPS["keys"])).get_groups([column])
            half = ta.ApproxDPBudget(EPSILON / 2, delta)
            session.create_view(query, "capped", cache=False)
            keys, budget = (
                ta.KeySet.from_dataframe(session.evaluate(listed, half)),
                ta.ApproxDPBudget(EPSILON / 2, 0),
            )
        found = session.evaluate(made(query if keys is None else query.groupby(keys)), budget).toPandas()
        place = found[column] if column else [None] * len(found)
        return [(key, float(number)) for key, number in zip(place, found.iloc[:, -1], strict=True)]

    ten = ta.KeySet.from_dict({"c10": list(range(10))})
    return {
        "count": lambda: ask(None, lambda query: query.count()),
        "mean": lambda: ask(None, lambda query: query.average("amount", 0, 100)),
        "sums": lambda: ask("c10", lambda query: query.sum("amount", 0, 100), ten),
        "keys": lambda: ask("place", lambda query: query.count(), delta=DELTA),
    }


def qrlew(path: str) -> Answers:
    """Qrlew's rewritten SQL, run by DuckDB; SQLite has the rows of which it reads the schema and the size."""
    import sqlite3
    import tempfile

    import duckdb
    import pyqrlew as qrl
    from sqlalchemy import create_engine

    rows = duckdb.connect()
    rows.execute(f"CREATE TABLE visits AS FROM '{path}'")
    folder = tempfile.mkdtemp()
    with sqlite3.connect(f"{folder}/visits.db") as copy:
        copy.execute(
            "CREATE TABLE visits (row_id INTEGER, user_id INTEGER, c10 INTEGER, place INTEGER, amount REAL)"
        )
        found = rows.execute("SELECT row_id, user_id, c10, place, amount FROM visits").fetchall()
        copy.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", found)
    data = qrl.Dataset.from_database(
        name="d", engine=create_engine(f"sqlite:///{folder}/visits.db"), schema_name=None
    )
    data = data.visits.amount.with_range(0.0, 100.0)

    def ask(text: str, unit: str, most: int) -> list[tuple[Any, float]]:
        relation = qrl.Relation.from_query(text, data)
        made = relation.rewrite_with_differential_privacy(
            data, [("visits", [], unit)], {"epsilon": EPSILON, "delta": DELTA}, max_multiplicity=float(most)
        )
        lines = rows.execute(made.relation().to_query(qrl.Dialect.PostgreSql)).fetchall()
        return [(line[0] if len(line) > 1 else None, float(line[-1])) for line in lines]

    row = "_PRIVACY_UNIT_ROW_"
    return {
        "count": lambda: ask("SELECT COUNT(*) AS n FROM visits", row, 1),
        "mean": lambda: ask("SELECT AVG(amount) AS a FROM visits", row, 1),
        "sums": lambda: ask(
            "SELECT c10, SUM(amount) AS s FROM visits GROUP BY c10", "user_id", GROUPS["sums"] * ROWS
        ),
        "keys": lambda: ask(
            "SELECT place, COUNT(*) AS n FROM visits GROUP BY place", "user_id", GROUPS["keys"] * ROWS
        ),
    }


SYSTEMS = {made.__name__: made for made in (opendp, smartnoise, tumult, pipelinedp, qrlew, diffprivlib)}


def time_answers(questions: Answers) -> None:
    """Print a line of JSON for each question."""
    for name, ask in questions.items():
        seconds, answers, failure = [], [], ""
        for _ in range(TIMES):
            start = time.perf_counter()
            try:
                answers.append(ask())
            except Exception as error:  # of another system: shown in the table's notes
                failure = f"{type(error).__name__}: {str(error)[:200]}"
                break
            seconds.append(time.perf_counter() - start)
            if sum(seconds) > ENOUGH:
                break
        print(
            json.dumps({"case": name, "seconds": seconds, "answers": answers, "failure": failure}), flush=True
        )


if __name__ == "__main__":
    time_answers(SYSTEMS[sys.argv[1]](sys.argv[2]))
