"""``dpsql`` on the command line: demo, sql, explain, report, ledger, policy check and import.

Answers go to standard output; what they cost, and errors, go to standard error. The exit status is 0 for an
answer, 1 for an error of ours, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql import __version__
from dpsql.errors import Error, ParseError, PolicyError
from dpsql.privacy.filters import ACCOUNTANTS

if TYPE_CHECKING:
    from dpsql.result import Result
    from dpsql.session import Session

FORMATS = ("table", "csv", "json", "arrow")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the entry point of the ``dpsql`` script."""
    given = make_parser().parse_args(arguments)
    try:
        return int(given.run(given) or 0)
    except Error as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of a pipe went away: that is not our error
        sys.stderr.close()
        return 1


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(prog="dpsql", description="Differentially private answers to SQL.")
    top.add_argument("--version", action="version", version=f"dpsql {__version__}")
    commands = top.add_subparsers(required=True, metavar="command")

    demo = commands.add_parser("demo", help="private answers about real health records")
    demo.add_argument("--ledger", type=Path, default=Path("dpsql-demo.ledger"), help="where charges are kept")
    demo.set_defaults(run=_demo)

    sql = commands.add_parser("sql", help="answer SQL")
    _session_arguments(sql)
    _text_arguments(sql)
    sql.add_argument("--format", choices=FORMATS, default="table")
    sql.add_argument(
        "--fresh", action="store_true", help="pay for a new draw even if this was answered before"
    )
    sql.set_defaults(run=_sql)

    explain = commands.add_parser("explain", help="say what SQL would do and cost; spends nothing")
    _session_arguments(explain)
    _text_arguments(explain)
    explain.add_argument("--format", choices=("text", "json"), default="text")
    explain.set_defaults(run=_explain)

    report = commands.add_parser("report", help="the owner's report: what was asked, by whom, at what cost")
    report.add_argument("place", nargs="?", type=Path, metavar="LEDGER", help="the ledger to report on")
    report.add_argument("--ledger", type=Path, help="the same")
    report.add_argument("--policy", type=Path, help="report on the ledger beside this policy")
    report.add_argument("--accountant", choices=tuple(ACCOUNTANTS), help="what it would have cost there")
    report.add_argument(
        "--page", type=int, default=1, help="which statements: 1, the newest; the sums are of all"
    )
    report.add_argument("-o", "--output", type=Path, help="write to this file: .html, .csv, .json, else text")
    report.set_defaults(run=_report)

    ledger = commands.add_parser("ledger", help="for the data owner")
    deeds = ledger.add_subparsers(required=True, metavar="action")
    adopt = deeds.add_parser("adopt", help="let a ledger go on under the policy as it is now; it is logged")
    _session_arguments(adopt)
    adopt.add_argument(
        "--fresh", action="store_true", help="begin anew where the ledger is gone: a new budget"
    )
    adopt.set_defaults(run=_adopt)

    _ledger_actions(deeds)

    policy = commands.add_parser("policy", help="for the data owner")
    actions = policy.add_subparsers(required=True, metavar="action")
    check = actions.add_parser("check", help="what a policy declares, and what is missing; shows no rows")
    check.add_argument("policy", type=Path)
    check.add_argument("data", nargs="?", default=":memory:", help="the database that the policy speaks of")
    check.add_argument(
        "--data", dest="rows", action="store_true", help="count what does not fit, for the owner's eyes"
    )
    check.set_defaults(run=_policy_check)
    taken = actions.add_parser("import", help="make a policy of SmartNoise's metadata YAML")
    taken.add_argument("metadata", type=Path, help="the YAML file (or JSON)")
    taken.add_argument("-o", "--output", type=Path, help="write to this file, which must not exist")
    taken.add_argument("--epsilon", required=True, help="the whole budget, which metadata do not have")
    taken.add_argument("--delta", default="0", help="the whole delta; default 0")
    taken.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="TABLE=FILE",
        help="where a table's data are (repeatable)",
    )
    taken.set_defaults(run=_policy_import)
    return top


def _ledger_actions(actions: Any) -> None:
    """Add what an owner does to a ledger beside granting terms."""
    verify = actions.add_parser("verify", help="look at every row, text, checkpoint and stored answer")
    verify.set_defaults(run=_verify)
    backup = actions.add_parser("backup", help="copy the ledger while sessions run, and verify the copy")
    backup.add_argument("file", type=Path, help="the copy, which must not exist")
    backup.set_defaults(run=_backup)
    restore = actions.add_parser(
        "restore", help="put a backup in place; what was charged since is written off"
    )
    restore.add_argument("file", type=Path, help="the backup")
    restore.add_argument(
        "--spent", metavar="EPSILON", help="what was charged since, where that can't be read"
    )
    restore.add_argument("--spent-delta", metavar="DELTA", default="0", help="the delta of it; default 0")
    restore.set_defaults(run=_restore)
    forget = actions.add_parser("forget", help="blank texts and their stored answers; charges stay")
    forget.add_argument("--before", required=True, metavar="DATE", help="a day, as 2026-01-31 (UTC)")
    forget.set_defaults(run=_forget)
    upgrade = actions.add_parser("upgrade", help="upgrade an older ledger; a copy is kept beside it")
    upgrade.set_defaults(run=_upgrade)
    for command in (verify, backup, restore, forget, upgrade):
        command.add_argument("--policy", type=Path, help="the ledger beside this policy")
        command.add_argument("--ledger", type=Path, help="the ledger")


def _session_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--policy", required=True, type=Path, help="the policy file")
    command.add_argument(
        "--database", default=":memory:", help="a DuckDB database; default: the policy's sources"
    )
    command.add_argument("--ledger", type=Path, help="where charges are kept; default: beside the policy")
    command.add_argument("--analyst", help="whose share of the budget is used")


def _text_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("text", nargs="?", help="the SQL; - reads standard input")
    command.add_argument("--file", type=Path, help="read the SQL from a file")
    command.add_argument("--params", help="values of $name, as a JSON object")


def _text(given: argparse.Namespace) -> str:
    if (given.text is None) == (given.file is None):
        raise ParseError(
            "give the SQL, or --file, and not both.", hint='dpsql sql "SELECT ..." --policy policy.toml'
        )
    if given.file is None:
        return sys.stdin.read() if given.text == "-" else str(given.text)
    try:
        return str(given.file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise ParseError(f"the file {given.file} can't be read.") from None


def _params(given: argparse.Namespace) -> dict[str, Any] | None:
    if given.params is None:
        return None
    try:
        params = json.loads(given.params)
    except json.JSONDecodeError:
        params = None
    if not isinstance(params, dict):
        raise ParseError("--params takes a JSON object.", hint="""--params '{"city": "Delft"}'""")
    return params


def _open(given: argparse.Namespace) -> Session:
    from dpsql.session import open_session

    return open_session(given.database, policy=given.policy, ledger=given.ledger, analyst=given.analyst)


def _demo(given: argparse.Namespace) -> None:
    from dpsql.demo.demo import run_demo

    for piece in run_demo(given.ledger):
        print(piece, flush=True)


def _sql(given: argparse.Namespace) -> None:
    with _open(given) as session:
        for result in session.run(_text(given), _params(given), fresh=given.fresh):
            _write(result, given.format)


def _write(result: Result, style: str) -> None:
    if style == "table":
        print(result)
        return
    if style == "csv":
        import csv

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(result.columns)
        writer.writerows(result.fetchall())
    elif style == "json":
        print(json.dumps(to_json(result), ensure_ascii=False))
    else:
        import pyarrow as pa

        with pa.ipc.new_stream(sys.stdout.buffer, result.table.schema) as stream:
            stream.write_table(result.table)
    if result.cost_line:
        print(result.cost_line, file=sys.stderr)


def to_json(result: Result) -> dict[str, Any]:
    """Return a result for JSON: rows as objects, intervals by column, the cost. NaN becomes null."""
    return {
        "rows": [{name: _plain(value) for name, value in row.items()} for row in result.dicts()],
        "intervals": {
            column: [None if pair is None else [_plain(end) for end in pair] for pair in pairs]
            for column, pairs in result.intervals.items()
        },
        "confidence": result.confidence,
        "loss": result.loss,
        "cost": result.cost_line,
        "notes": list(result.notes),
        "statement_id": result.statement_id,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _explain(given: argparse.Namespace) -> None:
    with _open(given) as session:
        explained = session.explain(_text(given), _params(given))
        print(explained.json() if given.format == "json" else explained)


def _report(given: argparse.Namespace) -> None:
    from dpsql.ledger.ledger import Ledger
    from dpsql.report.pages import report_text, write_report

    place = given.place or given.ledger
    if (place is None) == (given.policy is None) or (given.place and given.ledger):
        raise ParseError(
            "give the ledger, or the policy that it lies beside.", hint="dpsql report x.ledger -o report.html"
        )
    with Ledger.read(place or _beside(given.policy)) as ledger:
        for warning in ledger.warnings:
            print(f"WARNING: {warning}", file=sys.stderr)
        if given.output is None:
            print(report_text(ledger, accountant=given.accountant, page=given.page), end="")
        else:
            where = write_report(ledger, None, given.output, accountant=given.accountant, page=given.page)
            print(f"written to {where}")


def _adopt(given: argparse.Namespace) -> None:
    from dpsql.engine.duckdb import DuckDBEngine
    from dpsql.ledger.ledger import Ledger
    from dpsql.policy.model import Policy

    policy = Policy.load(given.policy)
    engine = DuckDBEngine(given.database, policy, given.policy.parent)
    try:
        ledger = given.ledger or _beside(given.policy)
        changes = Ledger.adopt(ledger, policy, engine.dataset, fresh=given.fresh)
    finally:
        engine.close()
    print("\n".join(changes) if changes else "nothing had to change.")


def _ledger_of(given: argparse.Namespace) -> Path:
    if given.ledger is None and given.policy is None:
        raise ParseError("give the ledger, or the policy that it lies beside.", hint="--ledger visits.ledger")
    return Path(given.ledger) if given.ledger is not None else _beside(given.policy)


def _verify(given: argparse.Namespace) -> None:
    from dpsql.ledger.upkeep import verify_ledger

    print(verify_ledger(_ledger_of(given)).sentence())


def _backup(given: argparse.Namespace) -> None:
    from dpsql.ledger.upkeep import back_up

    made = back_up(_ledger_of(given), given.file)
    print(f"written to {given.file}; {made.sentence()}")


def _restore(given: argparse.Namespace) -> None:
    from dpsql.ledger.upkeep import restore_ledger
    from dpsql.policy.toml import parse_number

    try:
        spent = None if given.spent is None else (parse_number(given.spent), parse_number(given.spent_delta))
    except ValueError:
        raise ParseError(
            "--spent and --spent-delta are numbers.", hint="--spent 0.5 --spent-delta 1e-7"
        ) from None
    print("\n".join(restore_ledger(_ledger_of(given), given.file, spent)))


def _forget(given: argparse.Namespace) -> None:
    from datetime import date

    from dpsql.ledger.upkeep import forget_before

    try:
        before = date.fromisoformat(given.before)
    except ValueError:
        raise ParseError(f"{given.before!r} is not a day.", hint="--before 2026-01-31") from None
    print("\n".join(forget_before(_ledger_of(given), before)))


def _upgrade(given: argparse.Namespace) -> None:
    from dpsql.ledger.upkeep import upgrade

    print(upgrade(_ledger_of(given)))


def _beside(policy: Path) -> Path:
    return policy.with_name(policy.name + ".ledger")


def _policy_check(given: argparse.Namespace) -> int:
    from dpsql.policy.lint import check_policy

    if not given.policy.exists():
        raise PolicyError(f"there is no policy file {given.policy}.")
    findings = check_policy(given.policy, given.data, given.rows)
    for line in findings.lines():
        print(line)
    return 1 if findings.missing else 0


def _policy_import(given: argparse.Namespace) -> None:
    from fractions import Fraction

    from dpsql.policy.smartnoise import import_smartnoise

    try:
        text = given.metadata.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise PolicyError(f"the file {given.metadata} can't be read.") from None
    try:
        epsilon, delta = Fraction(given.epsilon), Fraction(given.delta)
    except (ValueError, ZeroDivisionError):
        raise PolicyError("--epsilon and --delta are numbers.", hint="--epsilon 1 --delta 1e-6") from None
    pairs = [item.partition("=") for item in given.source]
    if any(not name or not source for name, _, source in pairs):
        raise PolicyError("--source names a table and a file.", hint="--source visits=visits.parquet")
    made = import_smartnoise(text, epsilon, delta, {name: source for name, _, source in pairs})
    if given.output is None:
        print(made.text(), end="")
        return
    try:
        with given.output.open("x", encoding="utf-8") as file:
            file.write(made.text())
    except FileExistsError:
        raise PolicyError(f"{given.output} exists already; it is not overwritten.") from None
    except OSError:
        raise PolicyError(f"{given.output} can't be written.") from None
    for note in made.notes:
        print(f"  - {note}")
    print(f"written to {given.output}; read it, then: dpsql policy check {given.output}")


if __name__ == "__main__":
    sys.exit(main())
