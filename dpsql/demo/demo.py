"""The command ``dpsql demo``: cells of the quick start with their displays, or a server with the same data (``--serve``)."""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from dpsql.demo import POLICY
from dpsql.errors import Error
from dpsql.late_dataclass import dataclass


@dataclass(frozen=True)
class Cell:
    """A cell of the quick start: its subject, its statement, and whether it shows an error."""

    about: str
    text: str
    refused: bool = False


CELLS = (
    Cell(
        "How many people are there in each plan? The plans are public, so all of them appear. An "
        "interval shows the error that the noise may cause.",
        """\
%%dpsql
SELECT WITH DP OPTIONS (epsilon = 0.2) plan, COUNT(DISTINCT person_id) AS people
FROM visits GROUP BY plan ORDER BY people DESC""",
    ),
    Cell(
        "Rows of a private table can't be shown. The error suggests another statement, and costs nothing.",
        """\
%%dpsql
SELECT * FROM visits""",
        refused=True,
    ),
    Cell(
        "Does care that is free make people see a doctor more often? First the price: --explain spends "
        "nothing.",
        """\
%%dpsql --explain
SELECT WITH DP OPTIONS (epsilon = 1) plan, AVG(doctor_visits) AS visits_per_year
FROM visits GROUP BY plan""",
    ),
    Cell(
        "It does.",
        """\
%%dpsql
SELECT WITH DP OPTIONS (epsilon = 1) plan, AVG(doctor_visits) AS visits_per_year
FROM visits GROUP BY plan ORDER BY visits_per_year DESC""",
    ),
    Cell(
        "And what does the care cost? The result of a private SELECT is public: any SQL may follow, "
        "here a join with a public table.",
        """\
%%dpsql
WITH spending AS (
  SELECT WITH DP OPTIONS (epsilon = 1) plan, AVG(medical_dollars) AS dollars FROM visits GROUP BY plan
)
SELECT plan, dollars, description FROM spending JOIN plans USING (plan) ORDER BY dollars DESC""",
    ),
    Cell(
        "The budget is finite. A statement that exceeds it is refused before any data are read.",
        """\
%%dpsql
SELECT WITH DP OPTIONS (epsilon = 2) COUNT(*) AS person_years FROM visits""",
        refused=True,
    ),
    Cell(
        "The same cell again is free: the stored answer is shown. So Restart and Run All costs nothing.",
        """\
%%dpsql
SELECT WITH DP OPTIONS (epsilon = 0.2) plan, COUNT(DISTINCT person_id) AS people
FROM visits GROUP BY plan ORDER BY people DESC""",
    ),
    Cell("Where did it go?", "%dpsql budget"),
)


def run_demo(ledger: Path) -> Iterator[str]:
    """Run the cells, and yield their displays piece by piece."""
    from dpsql.client.connect import connect_session
    from dpsql.notebook import sessions

    yield f"In:  %dpsql demo --ledger {ledger}"
    with connect_session(policy=POLICY, ledger=ledger) as session:
        yield sessions.summarise_session(session)
        for cell in CELLS:
            yield "\n" + textwrap.fill(cell.about, 100)
            yield "In:  " + cell.text.replace("\n", "\n     ")
            first, _, sql = cell.text.partition("\n")
            try:
                if "budget" in first:
                    yield session.budget_panel().text()
                elif "--explain" in first:
                    yield repr(session.explain(sql))
                else:
                    yield "\n".join(repr(result) for result in session.run(sql))
            except Error as error:
                if not cell.refused:
                    raise
                yield "\n".join(error.lines())
    yield (
        f"\nThe ledger is {ledger.resolve()}. Run this again and the answers are free; "
        "--ledger other.ledger starts anew."
    )


DEMO_ANALYST = "ada"
_QUESTION = (
    "SELECT WITH DP OPTIONS (epsilon = 0.5) plan, AVG(doctor_visits) AS visits FROM visits GROUP BY plan"
)


def prepare_served_demo(folder: Path) -> tuple[Path, str]:
    """Write an owner's files into a folder: a policy over the demo's data, an analyst, and a new token for them.

    Args:
        folder: created if missing, and private. The ledger of an earlier run stays.

    Returns:
        The policy file, and the token, which is also in the file ``ada.token``.
    """
    from dpsql.ledger.state_files import make_private_directory, write_private
    from dpsql.policy.model import Policy
    from dpsql.server.analyst_tokens import TokenFile

    make_private_directory(folder)
    text = POLICY.read_text(encoding="utf-8")
    for name in ("visits", "plans"):
        text = text.replace(f'"{name}.parquet"', f'"{POLICY.with_name(name).absolute()}.parquet"')
    policy = folder / "policy.toml"
    policy.write_text(
        f"{text}\n[analysts.{DEMO_ANALYST}]\nepsilon = {int(Policy.loads(text).budget.epsilon * 2 / 3)}\n",
        encoding="utf-8",
    )
    tokens = TokenFile(policy)
    known = {record.name for record in tokens.list()}
    token = tokens.rotate(DEMO_ANALYST) if DEMO_ANALYST in known else tokens.add(DEMO_ANALYST)
    write_private(folder / f"{DEMO_ANALYST}.token", token + "\n")
    return policy, token


def serve_demo(
    folder: Path,
    listen: str,
    out: TextIO = sys.stdout,
    *,
    postgres: str | None = None,
    console: str | None = None,
) -> int:
    """Serve the demo's data until the process ends, also for ``postgres`` and ``console``, and print how to ask."""
    from dpsql.ledger.state_files import place_ledger
    from dpsql.server.serve import run_server
    from dpsql.server.served import ServedFiles

    policy, token = prepare_served_demo(folder)
    places = [ServedFiles(policy, ":memory:", place_ledger(policy))]
    print(f"the token of {DEMO_ANALYST}, shown this once: {token}", file=out)
    print("once this listens, ask from another terminal in this folder:\n", file=out)
    file = shlex.quote(str(folder / f"{DEMO_ANALYST}.token"))
    unix = listen.startswith("unix:")
    url = f"grpc+unix://{Path(listen[5:]).absolute()}" if unix else f"grpc+tcp://{listen}"
    print(
        f"dpsql sql --server {url} --token-file {file} \\\n  {shlex.quote(_QUESTION)}\n", file=out, flush=True
    )
    if postgres is not None:
        host, _, port = postgres.rpartition(":")
        ask = shlex.quote("SELECT COUNT(*) AS n FROM visits")
        print(
            f"PGPASSWORD=$(cat {file}) psql -h {host} -p {port} -U {DEMO_ANALYST} policy -c {ask}\n", file=out
        )
    return run_server(places, listen, out=out, postgres=postgres, console=console)
