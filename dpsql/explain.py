"""EXPLAIN: the plan in numbered sentences, its price, and the exact SQL. Nothing is spent, no private data are read."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa

from dpsql.ledger.ledger import Ledger
from dpsql.plan import Plan
from dpsql.result import Result


@dataclass(frozen=True)
class Explanation:
    """A plan in words. ``str()`` is the text; ``.sql`` the exact queries; ``.json()`` all of it for programs."""

    sentences: tuple[str, ...]
    price: str
    sql: tuple[str, ...]
    finish: str
    as_json: bool = False

    def __str__(self) -> str:
        rows = [f"{i}. {sentence}" for i, sentence in enumerate(self.sentences, 1)]
        rows.append(self.price)
        rows += [f"Exact SQL:  {text}" for text in self.sql]
        return "\n".join(rows)

    __repr__ = __str__

    def json(self) -> str:
        """The same as a JSON object: sentences, price, sql, finish."""
        return json.dumps(
            {"sentences": self.sentences, "price": self.price, "sql": self.sql, "finish": self.finish},
            indent=2,
        )

    def result(self) -> Result:
        """As a relation of one column, which is how ``EXPLAIN`` shows in SQL."""
        lines = [self.json()] if self.as_json else str(self).splitlines()
        return Result(pa.table({"plan": lines}), cost_line="nothing was spent")


def explain_plan(plan: Plan, ledger: Ledger, as_json: bool = False) -> Explanation:
    """The explanation of a plan, priced in the session's accountant."""
    sentences = [s for block in plan.blocks for s in block.explain()]
    event = plan.event
    if event is None:
        price = "It reads nothing private and costs nothing."
        sentences = ["This statement reads public data only."]
    else:
        state = ledger.state()
        price = f"Would cost {event.sentence()}; {state.sentence}. Nothing has been spent and no private data were read."
    queries = tuple(dict.fromkeys(q for block in plan.blocks for q in block.operator.queries))
    return Explanation(tuple(dict.fromkeys(sentences)), price, queries, plan.finish, as_json)
