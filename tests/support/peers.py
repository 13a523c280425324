"""The cases of this folder: how they are read, asked of plain DuckDB, judged and compared (README.md)."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp

import dpsql
from tests.support import case_files

HERE = Path(__file__).parents[1] / "peers"
WRITE = os.environ.get("DPSQL_PEERS") == "write"
KEYS = {"case", "from", "plain", "seen", "extra", "params", "ties", "xfail", "slack", "reason"}
ANSWERED = "answered"
OWN_FAULT = "fault-duckdb"
"""The reason of a statement that plain DuckDB refuses as well."""
SLACK = 1e-3
"""The greatest relative distance of an answer from DuckDB's: the grids' steps and the noise at this epsilon."""
BUDGET = """
budget = { epsilon = 1e30, delta = 0.999, accountant = "basic", default_epsilon = 1e9, default_delta = 1e-9 }
"""


@dataclass
class Case(case_files.Case):
    """One statement of a suite: where it stands there, and what must come of it here."""

    @property
    def suite(self) -> str:
        return self.path.stem

    @property
    def verdict(self) -> str:
        return self.expected


def read(path: Path) -> Iterator[Case]:
    for case in case_files.read_cases(path, KEYS):
        assert {"case", "from"} <= set(case.keys), (
            f"{path.name}: case {case.index + 1} has no title or no provenance"
        )
        assert case.ruled or WRITE, f"{path.name}: {case.keys['case']} has no verdict"
        yield Case(**vars(case))


def reasons() -> dict[str, list[re.Pattern[str]]]:
    """The reasons that a refusal may cite, each with the patterns of its verdicts."""
    found: dict[str, list[re.Pattern[str]]] = {}
    key = ""
    for line in (HERE / "REASONS").read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            found[key].append(re.compile(line.strip()))
        elif line and not line.startswith("#"):
            key = line.partition(":")[0]
            assert key not in found, f"{key} is said twice"
            found[key] = []
    return found


def suites() -> list[Path]:
    return sorted(HERE.glob("*.sql"))


def cases() -> list[Case]:
    found = [case for path in suites() for case in read(path)]
    assert len({str(case) for case in found}) == len(found), "two cases of a suite have one title"
    return found


def policy_of(suite: str) -> dpsql.Policy:
    return dpsql.Policy.loads(BUDGET + (HERE / "data" / f"{suite}.toml").read_text(encoding="utf-8"))


def data_of(suite: str) -> str:
    return (HERE / "data" / f"{suite}.sql").read_text(encoding="utf-8")


def without_mode(text: str) -> str:
    """The text without mode clauses and their options."""
    mode = re.compile(
        r"\bWITH\s+(?:DIFFERENTIAL_PRIVACY|DP|ANONYMIZATION)\b(\s*OPTIONS\s*\()?", re.IGNORECASE
    )
    while found := mode.search(text):
        end = found.end()
        depth = 1 if found[1] else 0
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        text = text[: found.start()] + text[end:]
    return text


def plain_of(case: Case) -> str:
    """The statement that plain DuckDB is asked: what the case says, else the statement without all that is ours."""
    text = case.keys.get("plain") or case.text
    text = without_mode(text)
    text = re.sub(r"\s+CLAMPED\s+BETWEEN\s+\S+\s+AND\s+[^\s),]+", "", text, flags=re.IGNORECASE)
    text = re.sub(r"\bANON_(?=\w+\s*\()", "", text, flags=re.IGNORECASE)
    text = re.sub(r",\s*\w+\s*=>\s*(\([^()]*\)|[^\s,()]+)", "", text)
    text = re.sub(r"\bPERCENTILE_CONT(?=\s*\()", "QUANTILE_CONT", text, flags=re.IGNORECASE)
    if "plain" in case.keys and "seen" not in case.keys:
        return text
    tree = sqlglot.parse_one(text, dialect="duckdb")
    if "plain" not in case.keys:  # a sum of nothing is 0 here
        sums = list(tree.find_all(exp.Sum))
        if not sums and "seen" not in case.keys:
            return text
        for total in sums:
            whole = total.parent if isinstance(total.parent, exp.Filter) else total
            if not isinstance(whole.parent, exp.Window):
                whole.replace(exp.Coalesce(this=whole.copy(), expressions=[exp.Literal.number(0)]))
    if "seen" not in case.keys:
        return tree.sql(dialect="duckdb")
    select = tree if isinstance(tree, exp.Select) else tree.find(exp.Select)
    two = sqlglot.parse_one(f"COUNT(DISTINCT {case.keys['seen']}) > 1", dialect="duckdb")
    having = select.args.get("having")
    select.set("having", exp.Having(this=exp.and_(having.this, two) if having else two))
    return tree.sql(dialect="duckdb")


def near(ours: Any, theirs: Any, slack: float) -> bool:
    """Equal, or numbers that are no whole counts and no farther apart than the slack."""
    if isinstance(theirs, list | tuple) and isinstance(ours, list | tuple):
        return len(ours) == len(theirs) and all(near(a, b, slack) for a, b in zip(ours, theirs, strict=True))
    if isinstance(theirs, Decimal | float) and isinstance(ours, int | float | Decimal):
        return math.isclose(float(ours), float(theirs), rel_tol=slack, abs_tol=slack)
    return bool(ours == theirs)


Rows = list[tuple[Any, ...]]


def differs(ours: Rows, theirs: Rows, case: Case, ordered: bool) -> str | None:
    """Return what is wrong with these rows, or None."""
    slack = float(case.keys.get("slack", SLACK))
    if ordered and "extra" not in case.keys:
        if len(ours) == len(theirs) and all(near(a, b, slack) for a, b in zip(ours, theirs, strict=True)):
            return None
        if "ties" not in case.keys:
            return f"rows in this order\n{ours[:12]}\nand not\n{theirs[:12]}"
    left = list(ours)
    for row in theirs:
        same = next((mine for mine in left if near(mine, row, slack)), None)
        if same is None:
            return f"no row {row}\nbut {left[:12]}"
        left.remove(same)
    if len(left) != int(case.keys.get("extra", 0)):
        return f"{len(left)} rows too many: {left[:12]}"
    if any(
        isinstance(value, int) and not isinstance(value, bool) and value for row in left for value in row[1:]
    ):
        return f"rows of groups that are empty say that they are not: {left[:12]}"
    return None


def words(error: dpsql.Error) -> str:
    """The verdict of a refusal: the error's class and its first words."""
    said = " ".join(error.message.split()[:9])
    return f"refused: {type(error).__name__}: {said}"


@dataclass
class Came:
    """The outcome of a case: its verdict, and its fault, if there is one."""

    verdict: str
    fault: str | None = None


def judge(case: Case, session: dpsql.Session, con: duckdb.DuckDBPyConnection) -> Came:
    """Run a case on both sides."""
    try:
        ours = session.sql(case.text, params=case.params).fetchall()
    except dpsql.EngineError as error:
        return Came("crash", f"paid, and then: {error}")
    except dpsql.Error as error:
        if error.span is None and error.hint is None:
            return Came(words(error), f"a refusal without place or advice: {error.message}")
        if found := case_files.internal_names(str(error), case.text):
            return Came(words(error), f"a refusal with names of ours, {found}: {error}")
        return Came(words(error))
    except Exception as error:
        return Came("crash", f"{type(error).__name__}: {error}")
    plain = plain_of(case)
    try:
        theirs = con.execute(plain, case.params or {}).fetchall()
    except duckdb.Error as error:
        return Came("wrong", f"DuckDB refuses what is answered here: {str(error).splitlines()[0]}: {plain}")
    ordered = sqlglot.parse_one(plain, dialect="duckdb").args.get("order") is not None
    fault = differs(ours, theirs, case, ordered)
    return Came(ANSWERED if fault is None else "wrong", fault)


def is_cited_rightly(reason: str, verdict: str) -> bool:
    """Return whether a verdict is one that a reason speaks of; DuckDB itself is asked about its own."""
    said = verdict.removeprefix("refused: ")
    return said != verdict and (reason == OWN_FAULT or any(p.match(said) for p in reasons()[reason]))


def rewrite(case: Case, verdict: str) -> None:
    """Write the verdict that came into the case's file; a reason stays only beside a verdict of its kind."""
    chunks = case.path.read_text(encoding="utf-8").strip("\n").split("\n====\n")
    head = chunks[case.index].strip("\n").partition("\n----")[0]
    cited = case.keys.get("reason")
    if cited is not None and not is_cited_rightly(cited, verdict):
        head = head.replace(f"-- reason: {cited}\n", "", 1)
    chunks[case.index] = f"{head}\n----\n{verdict}"
    case.path.write_text("\n====\n".join(chunks) + "\n", encoding="utf-8")
