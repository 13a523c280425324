"""The demo's data behind a server (``dpsql demo --serve``), with one analyst, so that one machine shows both sides."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TextIO

from dpsql.demo import POLICY
from dpsql.ledger.state_files import make_private_directory, place_ledger, write_private
from dpsql.policy.model import Policy
from dpsql.server.serve import run_server
from dpsql.server.served import ServedFiles
from dpsql.server.tokens import TokenFile

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


def serve_demo(folder: Path, listen: str, out: TextIO = sys.stdout) -> int:
    """Serve the demo's data until the process ends, and print how to ask from another terminal."""
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
    return run_server(places, listen, out=out)
