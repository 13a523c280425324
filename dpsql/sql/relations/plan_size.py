"""The size of a plan, which is limited, and CTEs that are written once however often they are read.

A CTE over private rows is bound once. Where it is small its exact query stands wherever it is read; else it gets a name,
made of its content, and exact texts refer to it by that name. So what is written grows with the statement, and not with
how often its CTEs are read. What the engine may have to do does: the size of a plan counts each reading.

A plan holds the queries that its texts refer to; what no plan holds any more is forgotten.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from dpsql.mechanisms.base import SHARED_PREFIX
from dpsql.sql.normalize import from_items
from dpsql.sql.parse.dialect import bind_error, privacy_error, to_sql
from dpsql.sql.relations.relation import From, Relation

MAX_WRITTEN_SIZE = 250_000
"""Characters of a statement's exact SQL. To write, prove, plan and run so many takes some 12 seconds."""
MAX_PLAN_SIZE = 2_000_000
"""The same, where each CTE counts as often as it is read."""
MAX_JOINED_RELATIONS = 64
"""Relations that meet in one FROM, with those of the subqueries in it: the engine's time grows with their fourth power."""
MAX_GROUP_KEYS = 64
"""Keys of one GROUP BY: the engine's time grows with their third power."""
MAX_COUNTED_ROWS = 2**62
"""Rows of one unit, after joins and UNION ALL, by what the policy and the query say."""
MAX_EXPRESSION_NODES = 10_000
"""Nodes of an expression in which names stand for other items of the SELECT."""
INLINE_NODES = 400
"""Nodes of an exact query that still stands wherever it is read."""
_MENTION = re.compile(rf"\b{SHARED_PREFIX}[0-9a-f]{{32}}\b")
_HINT = "ask for fewer numbers, or read fewer CTEs twice; several statements may: out << SELECT ... keeps an answer."


@dataclass(frozen=True, eq=False)
class SharedQuery:
    """An exact query that texts refer to by a name; ``size`` counts what it refers to as often as it does.

    ``joined`` is the number of relations that meet in it.
    """

    name: str
    text: str
    mentions: tuple[SharedQuery, ...]
    size: int
    joined: int = 1


SharedQueries = MutableMapping[str, SharedQuery]


def refuse_size(size: int, most: int, place: exp.Expr | None = None) -> None:
    """Refuse a plan that is too large.

    Raises:
        BindError: it is.
    """
    if size > most:
        what = f"the statement's exact SQL would have {size:,} characters, and {most:,} are the most."
        raise bind_error(place, what, _HINT)


def refuse_written(size: int, place: exp.Expr | None = None) -> None:
    """Refuse what is too much to write, where so many characters of it are known already.

    Raises:
        BindError: it is.
    """
    refuse_size(size, MAX_WRITTEN_SIZE, place)


def refuse_growth(node: exp.Expr, place: exp.Expr) -> None:
    """Refuse an expression that is too large, after names in it were replaced by what they stand for.

    Raises:
        BindError: it is.
    """
    if has_more_nodes(node, MAX_EXPRESSION_NODES):
        what = (
            f"this expression has more than {MAX_EXPRESSION_NODES:,} parts, once its names are written out."
        )
        raise bind_error(place, what, "name the parts in a subquery: FROM (SELECT ... AS a).")


def refuse_rows(bound: From, place: exp.Expr) -> None:
    """Refuse a FROM in which one unit may have more rows than can be counted.

    Raises:
        PrivacyError: it may.
    """
    if bound.max_rows is not None and bound.max_rows > MAX_COUNTED_ROWS:
        what = "where these relations meet, one privacy unit may have more rows than can be counted."
        hint = "make one row of each unit first: SELECT id, COUNT(*) AS n ... GROUP BY id, in a subquery."
        raise privacy_error(bound.source, what, hint, around=place)


def refuse_keys(count: int, place: exp.Expr) -> None:
    """Refuse a GROUP BY of too many keys.

    Raises:
        BindError: it has them.
    """
    if count > MAX_GROUP_KEYS:
        what = f"{MAX_GROUP_KEYS} keys are the most that a GROUP BY may have."
        raise bind_error(place, what, "group by fewer, or release the answer in several statements.")


def refuse_joined(joined: int, place: exp.Expr) -> None:
    """Refuse a FROM in which too many relations meet.

    Raises:
        BindError: they do.
    """
    if joined > MAX_JOINED_RELATIONS:
        what = f"{joined} relations meet in this FROM, and {MAX_JOINED_RELATIONS} are the most."
        raise bind_error(place, what, "join the public ones first: out << SELECT ... keeps the answer.")


def count_joined(source: exp.Expr, known: SharedQueries) -> int:
    """Return how many relations meet in a FROM item; of a set operation, in the part in which the most do."""
    if is_shared(source):
        found = known.get(source.name)
        return 1 if found is None else found.joined
    if isinstance(source, exp.Subquery):
        return count_joined(source.this, known)
    if isinstance(source, exp.Select):
        return sum(count_joined(item, known) for item in from_items(source))
    most = 1
    while isinstance(source, exp.SetOperation):
        most = max(most, count_joined(source.right, known))
        source = source.left
        if not isinstance(source, exp.SetOperation):
            most = max(most, count_joined(source, known))
    return most


def has_more_nodes(node: exp.Expr, most: int) -> bool:
    """Return whether a tree has more nodes; no more of them are looked at."""
    return any(count >= most for count, _ in enumerate(node.walk()))


def share(
    relation: Relation, known: SharedQueries, place: exp.Expr | None = None
) -> tuple[Relation, SharedQuery | None]:
    """Return a relation whose source is large by its name, and the query that has the name; a small one as it is.

    Raises:
        BindError: the plan is too large.
    """
    source = relation.source
    if not isinstance(source, exp.Subquery) or not has_more_nodes(source.this, INLINE_NODES):
        return relation, None
    text = to_sql(source.this)
    mentions = tuple(_mentioned(text, known))
    size = len(text) + sum(item.size for item in mentions)
    refuse_size(size, MAX_PLAN_SIZE, place)
    name = SHARED_PREFIX + hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]
    held = known.get(name)
    if held is None:
        held = known[name] = SharedQuery(name, text, mentions, size, count_joined(source, known))
    alias = exp.TableAlias(this=exp.to_identifier(relation.name))
    return replace(relation, source=exp.Table(this=exp.to_identifier(name), alias=alias)), held


def is_shared(node: exp.Expr) -> bool:
    """Return whether a node refers to a query by its name."""
    return isinstance(node, exp.Table) and node.name.startswith(SHARED_PREFIX)


def _mentioned(text: str, known: SharedQueries) -> Iterator[SharedQuery]:
    """Yield the queries that a text refers to, as often as it does."""
    for name in _MENTION.findall(text) if SHARED_PREFIX in text else ():
        found = known.get(name)
        if found is not None:
            yield found


def write_shared(text: str, known: SharedQueries) -> str:
    """Return an exact text that stands alone: with the queries that it refers to, each after those that it needs."""
    found: dict[str, SharedQuery] = {}
    waiting = [(item, False) for item in dict.fromkeys(_mentioned(text, known))]
    while waiting:
        item, ready = waiting.pop()
        if item.name in found:
            continue
        if ready:
            found[item.name] = item
            continue
        waiting.append((item, True))
        waiting += [(inner, False) for inner in dict.fromkeys(item.mentions)]
    if not found:
        return text
    listed = ", ".join(f"{item.name} AS ({item.text})" for item in found.values())
    rest = text.removeprefix("WITH ")
    return f"WITH {listed}{' ' if rest is text or rest == text else ', '}{rest}"


def refuse_texts(texts: Sequence[str], known: SharedQueries, taken: int = 0) -> int:
    """Return the characters of exact texts, and of those before them.

    Raises:
        BindError: they are too many together.
    """
    written = taken + sum(len(write_shared(text, known)) for text in texts)
    refuse_written(written)
    refuse_size(sum(item.size for text in texts for item in _mentioned(text, known)), MAX_PLAN_SIZE)
    return written
