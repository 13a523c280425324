"""Write what later versions are compared with: released bits under a fixed entropy, and a ledger with stored answers."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import dpsql
from dpsql.demo import POLICY
from dpsql.errors import Error
from dpsql.noise.entropy import Entropy
from tests.support import inside

HERE = Path(__file__).parents[1] / "earlier_version"
STATEMENTS = (HERE / "statements.sql").read_text(encoding="utf-8").splitlines()
BITS, LEDGER, ANSWERS = HERE / "released_bits.json", HERE / "ledger.sqlite", HERE / "answers.json"


def fixed(text: str) -> Entropy:
    """Return an entropy whose words follow from the statement alone."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return Entropy(np.random.Generator(np.random.Philox(seed)).bytes)


def policy() -> dpsql.Policy:
    """Return the demo's policy with a budget that all statements fit into."""
    text = POLICY.read_text(encoding="utf-8")
    text = text.replace("epsilon = 3\n", "epsilon = 300\n", 1).replace("delta = 1e-6", "delta = 1e-3", 1)
    text = text.replace("max_epsilon_per_query = 2", "max_epsilon_per_query = 50")
    for name in ("visits", "plans"):
        text = text.replace(f'source = "{name}.parquet"', 'version = "1993"')
    return dpsql.Policy.loads(text)


def connect(ledger: Path | None = None) -> dpsql.Session:
    """Return a session over the demo's tables in memory: wherever the checkout lies, they are the same data set."""
    tables = {name: pq.read_table(POLICY.parent / f"{name}.parquet") for name in ("visits", "plans")}
    return dpsql.connect(tables, policy=policy(), ledger=ledger)


def released(text: str, rows: list[dict[str, object]]) -> str:
    """Return a digest of an answer's rows, in no order."""
    return hashlib.sha256("\n".join([text, *sorted(map(repr, rows))]).encode()).hexdigest()[:24]


def bits() -> dict[str, str]:
    """Return the digest of each statement's release under a fixed entropy, or the class of its refusal."""
    found = {}
    with connect() as session:
        for text in STATEMENTS:
            inside.use_entropy(session, fixed(text))
            try:
                found[text] = released(text, session.sql(text, fresh=True).dicts())
            except Error as error:
                found[text] = f"{type(error).__name__}: {error}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ledger", action="store_true", help="the ledger and its answers, beside the bits")
    BITS.write_text(json.dumps(bits(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if not parser.parse_args().ledger:
        return
    LEDGER.unlink(missing_ok=True)
    answers = {}
    with connect(LEDGER) as session:
        for text in STATEMENTS:
            try:
                answers[text] = session.sql(text).dicts()
            except Error:
                continue
        spent = str(session.budget())
    ANSWERS.write_text(
        json.dumps({"answers": answers, "budget": spent}, indent=1, default=str, ensure_ascii=False) + "\n",
        encoding="utf-8",
    )
    for extra in HERE.glob(f"{LEDGER.name}-*"):
        shutil.rmtree(extra) if extra.is_dir() else extra.unlink()


if __name__ == "__main__":
    main()
