"""Write the demo's two tables from a file of statsmodels; PROVENANCE.md describes the choices.

pip install statsmodels
python notebooks/make_demo.py            # writes visits.parquet and plans.parquet into dpsql/demo
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import pyarrow as pa

FOLDER = Path(__file__).parents[1] / "dpsql" / "demo"

PLANS = {
    "free": ("care is free", 0),
    "25%": ("the family pays a quarter, up to its yearly limit", 25),
    "50%": ("the family pays half, up to its yearly limit", 50),
    "95%": ("the family pays nearly all, up to its yearly limit", 95),
    "deductible": ("a deductible for each person's outpatient care", None),
}

RENAMED = {
    "zper": ("person_id", pa.int32()), "year": ("year", pa.int8()), "site": ("site", pa.int8()),
    "plan": ("plan_number", pa.int8()), "coins": ("coinsurance", pa.int8()),
    "time": ("share_of_year", pa.float64()), "xage": ("age", pa.float64()), "female": ("female", pa.bool_()),
    "child": ("child", pa.bool_()), "num": ("family_size", pa.int8()), "income": ("family_income", pa.float64()),
    "educdec": ("education", pa.float64()), "disea": ("disease_index", pa.float64()),
    "mhi": ("mental_health", pa.float64()), "ghindx": ("general_health", pa.float64()),
    "mdvis": ("doctor_visits", pa.int16()), "notmdvis": ("other_visits", pa.int16()),
    "mentvis": ("therapy_visits", pa.int16()), "totadm": ("admissions", pa.int8()),
    "outpdol": ("outpatient_dollars", pa.float64()), "drugdol": ("drug_dollars", pa.float64()),
    "suppdol": ("supply_dollars", pa.float64()), "mentdol": ("therapy_dollars", pa.float64()),
    "inpdol": ("inpatient_dollars", pa.float64()), "meddol": ("medical_dollars", pa.float64()),
}  # fmt: skip
"""Columns of the source, with their names and types here; floating columns are rounded to two decimals."""


def find_source() -> Path:
    """Return the path of the file in the installed statsmodels."""
    spec = importlib.util.find_spec("statsmodels")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("pip install statsmodels, or give the path of its datasets/randhie/src/randhie.csv")
    return Path(spec.submodule_search_locations[0]) / "datasets" / "randhie" / "src" / "randhie.csv"


def make_visits(csv: Path) -> pa.Table:
    """Return the person-years, in the order of the source."""
    import pyarrow.compute as pc
    from pyarrow import csv as reader

    raw = reader.read_csv(csv)
    columns = {}
    for old, (new, kind) in RENAMED.items():
        column = raw[old].cast(kind)
        columns[new] = pc.round(column, 2) if pa.types.is_floating(kind) else column
    share = pc.binary_join_element_wise(raw["coins"].cast(pa.string()), "%", "")
    share = pc.if_else(pc.equal(raw["coins"], 0), "free", share)
    columns["plan"] = pc.if_else(pc.equal(raw["idp"], 1), "deductible", share)
    health = "excellent"
    for flag, word in (("hlthg", "good"), ("hlthf", "fair"), ("hlthp", "poor")):
        health = pc.if_else(pc.equal(raw[flag], 1), word, health)
    columns["health"] = health
    order = [new for new, _ in RENAMED.values()]
    order.insert(order.index("plan_number"), "plan")
    order.insert(order.index("child") + 1, "health")
    return pa.table({name: columns[name] for name in order})


def make_plans() -> pa.Table:
    """Return the public table of plans."""
    texts, shares = zip(*PLANS.values(), strict=True)
    return pa.table({"plan": list(PLANS), "description": texts, "coinsurance": pa.array(shares, pa.int8())})


def write_tables() -> None:
    """Write both tables into a folder."""
    import pyarrow.parquet

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("csv", nargs="?", type=Path, help="randhie.csv; default: the one of statsmodels")
    parser.add_argument("--into", type=Path, default=FOLDER, help="folder to write to")
    given = parser.parse_args()
    tables = {"visits": make_visits(given.csv or find_source()), "plans": make_plans()}
    for name, table in tables.items():
        path = given.into / f"{name}.parquet"
        pyarrow.parquet.write_table(table, path, compression="zstd", compression_level=19)
        print(f"{path}: {table.num_rows} rows")


if __name__ == "__main__":
    write_tables()
