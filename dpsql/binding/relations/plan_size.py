"""Limits on the size of a plan, and CTEs that are written once however often they are read.

A CTE over private rows is bound once. If it is small, its exact query is copied to every reading; otherwise it gets a
name, a digest of its content, and exact texts refer to it. So the text grows with the statement, not with the number of
readings. The engine's work may grow with it, so the size of a plan counts each reading.

A plan keeps the queries that its texts refer to alive; the others are dropped.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpsql.binding.public_statement import NAME_PARTS, from_items, inner_queries
from dpsql.binding.relations.relation import From, Relation, SharedQueries, SharedQuery, fold
from dpsql.errors import BindError, Span
from dpsql.exact.normal_form import strip_values
from dpsql.language.dialect import (
    bind_error,
    has_more_nodes,
    list_nodes,
    parse_fragment,
    privacy_error,
    to_sql,
)
from dpsql.language.tokens import MAX_INTEGER
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import SHARED_PREFIX

MAX_WRITTEN_SIZE = 250_000
"""The most characters of a statement's exact SQL: writing, proving, planning and running them takes some 12 seconds."""
MAX_CELL_SIZE = 375_000
"""The most characters of exact SQL of a cell's statements: that of the most small counts takes some 5 seconds."""
SMALL_STATEMENT = 750
"""The least characters that a statement counts in a cell, for its other work."""
MAX_PUBLIC_SIZE = 500_000
"""The most characters of SQL above private blocks, with interval ends: binding and running them takes some 12 seconds."""
MAX_PLAN_SIZE = 2_000_000
"""The most characters of exact SQL if each CTE counts as often as it is read."""
MAX_JOINED_RELATIONS = 64
"""The most relations joined in one FROM, including those of its subqueries: the engine's time grows with the fourth power."""
JOINING_PER_CHARACTER = 128
"""Fourth powers of joined relations that take an engine at most the time of one character of exact SQL.

Engines compare each condition with every other: DuckDB 1.5 takes up to 2.6 s to plan 64 relations joined on one key,
DuckDB 2.0 up to 0.6 s, and a text is planned twice.
"""
CANDIDATE_NUMBERS_PER_CHARACTER = 72
"""Numbers of candidates (their columns, order and terms) that cost as much as one character: 18 million need some 800 MB."""
TERM_CHARACTERS = 1_500
"""Additional cost of each term of a utility in characters: its routes' texts are written and proved."""
BLOCK_RESULTS_PER_CHARACTER = 6
"""Results of subsample blocks that take the time of one character, if one query returns them all."""
BLOCK_CHARACTERS = 160
"""Additional cost of one block's query in characters; four of these cost one of exact SQL."""
MAX_REMEMBERED_SHAPE = 30_000
"""The most characters of a text whose shape is cached with its tree's joins."""
MAX_GROUP_KEYS = 64
"""The most keys of one GROUP BY: the engine's time grows with their third power."""
MAX_COUNTED_ROWS = 2**62
"""The most rows of one unit, after joins and UNION ALL, by the bounds of the policy and the query."""
MAX_REPEATED_NODES = 50_000
"""The most nodes of a SELECT's aliases, each counted as often as it is read."""
INLINE_NODES = 400
"""The most nodes of an exact query that is copied to every reading."""
_MENTION = re.compile(rf"\b{SHARED_PREFIX}[0-9a-f]{{32}}\b")
_WITHOUT_NAMES = frozenset({"expressions", "with_", "from_", "joins", "laterals"})
"""The parts of a SELECT that read no aliases, and the items themselves."""
_HINT = "ask for fewer numbers, or read fewer named queries twice; keep an answer under a name for other statements."


def refuse_size(size: int, most: int, place: exp.Expr | None = None) -> None:
    """Raise BindError if a plan is too large."""
    if size > most:
        what = f"the statement's exact SQL would have {size:,} characters; the limit is {most:,}."
        raise bind_error(place, what, _HINT)


def refuse_written(size: int, place: exp.Expr | None = None) -> None:
    """Raise BindError if the known characters of a text are already too many."""
    refuse_size(size, MAX_WRITTEN_SIZE, place)


def refuse_cell(sizes: Sequence[int], place: Span) -> None:
    """Raise BindError at ``place``, the last statement, if a cell's statements are too large together."""
    size = sum(max(one, SMALL_STATEMENT) for one in sizes)
    if size > max([MAX_CELL_SIZE, *sizes]):  # a single statement has other limits
        what = f"the statements up to here count as {size:,} characters of exact SQL together"
        hint = f"run them in several cells; each counts as {SMALL_STATEMENT} or more."
        raise BindError(f"{what}; the limit is {MAX_CELL_SIZE:,}.", span=place, hint=hint)


def refuse_repeated_names(nodes: Iterable[exp.Expr]) -> None:
    """Raise BindError if items read aliases too often, as ``c AS a, a + a AS b, b + b AS d``: engines expand each."""
    for select in nodes:
        if not isinstance(select, exp.Select):
            continue
        sizes: dict[str, int] = {}
        total = 0
        clauses = (part for part in select.iter_expressions() if part.arg_key not in _WITHOUT_NAMES)
        for item in (*select.expressions, *clauses):
            size = 0
            for node in list_nodes(item):
                size += 1
                if isinstance(node, exp.Column) and not node.table:
                    repeated = sizes.get(fold(node.name), 0)
                    size, total = size + repeated, total + repeated
                    if total > MAX_REPEATED_NODES:
                        what = f"this SELECT has more than {MAX_REPEATED_NODES:,} parts, once its names are written out."
                        raise bind_error(node, what, NAME_PARTS)
            if isinstance(item, exp.Alias):
                sizes[fold(item.alias)] = size


def refuse_rows(bound: From, place: exp.Expr) -> None:
    """Raise PrivacyError if a unit may have more rows in a FROM than can be counted."""
    if bound.most_rows is not None and bound.most_rows > MAX_COUNTED_ROWS:
        what = "joined, these relations may have more rows of one privacy unit than can be counted."
        hint = "make one row of each unit first, by groups in a subquery."
        raise privacy_error(bound.source, what, hint, around=place)


def refuse_keys(count: int, place: exp.Expr) -> None:
    """Raise BindError if a GROUP BY has too many keys."""
    if count > MAX_GROUP_KEYS:
        what = f"a GROUP BY may have at most {MAX_GROUP_KEYS} keys."
        raise bind_error(place, what, "group by fewer, or release the answer in several statements.")


def refuse_joined(joined: int, place: exp.Expr) -> None:
    """Raise BindError if a FROM joins too many relations."""
    if joined > MAX_JOINED_RELATIONS:
        what = f"{joined} relations meet in this FROM; the limit is {MAX_JOINED_RELATIONS}."
        raise bind_error(
            place, what, "join the public ones in a statement before, and keep its answer under a name."
        )


def count_joined(source: exp.Expr, known: SharedQueries) -> int:
    """Return the relations joined in a FROM item; in a set operation, those of its largest part."""
    if is_shared(source):
        found = known.get(source.name)
        return 1 if found is None else found.joined
    if isinstance(source, exp.Subquery):
        return count_joined(source.this, known)
    if isinstance(source, exp.Select):
        return sum(count_joined(item, known) for item in from_items(source))
    sides = _list_sides(source) if isinstance(source, exp.SetOperation) else ()
    return max((count_joined(side, known) for side in sides), default=1)


def _list_sides(query: exp.Expr) -> list[exp.Expr]:
    """Return the queries that a set operation combines: a chain of any length, and others in it as they are."""
    found = []
    while isinstance(query, exp.SetOperation):
        found.append(query.right)
        query = query.left
        if query.args.get("with_"):
            break
    return [*found, query]


def share(
    relation: Relation, known: SharedQueries, place: exp.Expr | None = None
) -> tuple[Relation, SharedQuery | None]:
    """Return a relation, by name if its source is large, and the query of that name; BindError if the plan is too large."""
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
    """Yield the queries that a text refers to, once per reference."""
    for name in _MENTION.findall(text) if SHARED_PREFIX in text else ():
        found = known.get(name)
        if found is not None:
            yield found


def write_shared(text: str, known: SharedQueries) -> str:
    """Return a self-contained exact text: with the queries it refers to, in order of dependency."""
    found: dict[str, SharedQuery] = {}
    waiting = [(item, False) for item in dict.fromkeys(_mentioned(text, known))]
    while waiting:
        item, ready = waiting.pop()
        if ready:
            found.setdefault(item.name, item)
        if ready or item.name in found:
            continue
        waiting.append((item, True))
        waiting += [(inner, False) for inner in dict.fromkeys(item.mentions)]
    if not found:
        return text
    listed = ", ".join(f"{item.name} AS ({item.text})" for item in found.values())
    rest = text.removeprefix("WITH ")
    return f"WITH {listed}{' ' if rest is text or rest == text else ', '}{rest}"


@dataclass
class WrittenTexts:
    """The exact texts of one statement, and their cost for an engine, in characters.

    Relations joined in one query cost extra: their fourth power by :data:`JOINING_PER_CHARACTER`. Subqueries in
    conditions are joined with the query around them, and so is each reading of a CTE; relations read per row (LATERAL,
    UNNEST and subqueries as values) count twice. In a set operation parts are not joined with each other, so that a
    wide UNION ALL of small queries costs the sum of its parts.
    """

    characters: int = 0
    joining: int = 0
    """The fourth powers, over all texts with parsed trees."""
    joined: int = 1
    """The most relations joined in one of these."""
    other: int = 0
    """Other work, as an equivalent number of characters."""
    _waiting: list[str] = field(default_factory=list)
    """Texts that are small by their words alone, so that their trees were not needed."""
    _rough: int = 0

    def add(self, texts: Sequence[str], known: SharedQueries) -> None:
        """Add the texts of a block; BindError if they are too large with the previous ones, or join too many relations."""
        for text in texts:
            whole = write_shared(text, known)
            self.characters += len(whole)
            refuse_written(self.characters)
            self._waiting.append(whole)
            self._rough += _join_at_most(whole) ** 4
        refuse_size(sum(item.size for text in texts for item in _mentioned(text, known)), MAX_PLAN_SIZE)
        if self._weigh(self.joining + self._rough) > MAX_WRITTEN_SIZE:
            self._look()

    def add_candidates(self, count: int, columns: int, terms: int, span: Span | None) -> None:
        """Add ``count`` candidates of a utility; BindError if these and the previous additions are too many."""
        numbers = 1 + columns + terms
        candidates, routes = count * numbers // CANDIDATE_NUMBERS_PER_CHARACTER, terms * TERM_CHARACTERS
        self.other += candidates + routes
        what = f"{count:,} candidates with {numbers} numbers each are too many for one statement"
        hint = "choose a range among few candidates first, and then within it."
        if routes > candidates:
            what = f"utilities of {terms:,} terms are too many for one statement"
            hint = "take fewer terms, or choose in several statements."
        self._refuse_other(what, hint, span)

    def add_blocks(self, count: int, outputs: int, query: str | None, span: Span | None) -> None:
        """Add subsample blocks, with a ``query`` per block unless one serves all; BindError if the total is too large."""
        self.other += count * outputs // BLOCK_RESULTS_PER_CHARACTER
        what = f"{count:,} blocks of {outputs} outputs are too many for one statement"
        hint = "take fewer blocks."
        if query is not None:
            joined, apart = _count_met(parse_fragment(query), {})
            length = BLOCK_CHARACTERS + len(query) + (joined**4 + apart) // JOINING_PER_CHARACTER
            self.other += count * length // 4
            what = f"{count:,} blocks are too many for a query of {len(query):,} characters on each of them"
            hint = "write fewer blocks, or aggregate without ORDER BY, LIMIT and subqueries, so that one query serves all."
        self._refuse_other(what, hint, span)

    def _refuse_other(self, what: str, hint: str, span: Span | None) -> None:
        size = self._weigh(self.joining)
        if size > MAX_WRITTEN_SIZE:
            told = f"with the rest they take as long as {size:,} characters of exact SQL"
            raise BindError(f"{what}: {told}; the limit is {MAX_WRITTEN_SIZE:,}.", span=span, hint=hint)

    @property
    def size(self) -> int:
        """The cost in characters, with the joins of parsed trees."""
        return self._weigh(self.joining)

    def _weigh(self, joining: int) -> int:
        return self.characters + self.other + joining // JOINING_PER_CHARACTER

    def _look(self) -> None:
        """Count the joins in the trees of pending texts, which is slower than counting words."""
        for text in self._waiting:
            joined, apart = _count_written(text)
            self.joining += joined**4 + apart
            self.joined = max(self.joined, joined)
            size = self._weigh(self.joining)
            if size > MAX_WRITTEN_SIZE:
                what = (
                    f"the statement's exact queries would take the engine as long as {size:,} characters of SQL; the "
                    f"limit is {MAX_WRITTEN_SIZE:,}. Up to {self.joined} relations meet in one of them."
                )
                hint = "join the public ones in a statement before, and keep its answer under a name; or ask for fewer numbers."
                raise bind_error(None, what, hint)
        self._waiting.clear()
        self._rough = 0


def _count_written(text: str) -> tuple[int, int]:
    """Return :func:`_count_met` of a whole text, cached by shape, since values don't change it."""
    with suppress(SqlglotError):
        if len(text) <= MAX_REMEMBERED_SHAPE:
            return _count_shape(strip_values(text)[0])
    return _count_met(parse_fragment(text), {}, outermost=True)


@lru_cache(maxsize=128)
def _count_shape(shape: str) -> tuple[int, int]:
    return _count_met(parse_fragment(shape), {}, outermost=True)


def write_public(query: exp.Expr) -> str:
    """Return the text of a public query, whose planning takes an engine as long as an exact one's.

    Raises:
        BindError: it joins too many relations, is too long with its columns' intervals, or has an integer too large for
            a fixed-size type.
    """
    nodes = list_nodes(query)
    if any(isinstance(node, exp.Select | exp.Join | exp.Lateral | exp.Unnest) for node in nodes[1:]):
        refuse_public_joins(query)
    for node in nodes:
        digits = node.name if isinstance(node, exp.Literal) and not node.is_string else ""
        if digits.isascii() and digits.isdigit() and int(digits) >= MAX_INTEGER:
            raise bind_error(node, "this integer does not fit 128 bits.", "write a DOUBLE: 1e40.")
    text = to_sql(query)
    if len(text) > MAX_PUBLIC_SIZE:
        what = f"the SQL above the private part would have {len(text):,} characters with its intervals"
        hint = "ask for fewer columns, or keep an answer under a name, and go on with it."
        raise bind_error(None, f"{what}; the limit is {MAX_PUBLIC_SIZE:,}.", hint)
    return text


def refuse_public_joins(query: exp.Expr) -> None:
    """Raise BindError if a public query joins too many relations."""
    joined, apart = _count_met(query, {})
    if (joined**4 + apart) // JOINING_PER_CHARACTER > MAX_WRITTEN_SIZE:
        most = math.isqrt(math.isqrt(MAX_WRITTEN_SIZE * JOINING_PER_CHARACTER))
        what = f"up to {joined} relations meet above the private part; a subquery in place of a value counts twice"
        hint = "join instead of reading single values by subqueries, or keep an answer under a name and query that."
        raise bind_error(None, f"{what}; the limit is about {most}.", hint)


_MET = re.compile(r"\b(?:JOIN|UNNEST|LATERAL|UNION|EXCEPT|INTERSECT)\b|\((?:SELECT|WITH|VALUES)\b")
_DERIVED = re.compile(r"(?:(DISTINCT|\(\w+) )?\b(?:FROM|JOIN) \((?:SELECT|WITH|VALUES)\b")
"""A derived table; with the group, the FROM of an operator or a function, whose subquery is a value."""


def _join_at_most(text: str) -> int:
    """Return an upper bound on the relations joined in a query of a text, from its words alone.

    A query of one relation adds none to the query whose derived table it is. Our own CTEs are read at most three times,
    an analyst's any number of times.
    """
    reads = 1 if "WITH " not in text else 4 if SHARED_PREFIX not in text else 1 << 10
    reads *= 2 if "(SELECT" in text or "LATERAL" in text or "UNNEST" in text else 1
    return reads * (1 + len(_MET.findall(text)) - _DERIVED.findall(text).count(""))


def _count_met(
    query: exp.Expr, ctes: Mapping[str, tuple[int, int]], outermost: bool = False
) -> tuple[int, int]:
    """Return the number of relations joined in a query, and the fourth powers of separate joins.

    Args:
        ctes: the counts of the CTEs it may name.
        outermost: whether it is not in a condition: the sides of a LEFT JOIN, public groups and totals, are then separate.
    """
    with_ = query.args.get("with_")
    if with_ is not None:
        ctes = dict(ctes)
        for cte in with_.expressions:
            ctes[cte.alias] = _count_met(cte.this, ctes)
    if isinstance(query, exp.Table):
        return ctes.get(query.name, (1, 0))
    if isinstance(query, exp.Lateral | exp.Unnest):
        return _count_per_row(query.this if isinstance(query, exp.Lateral) else query, ctes)
    if isinstance(query, exp.Subquery):
        return _count_met(query.this, ctes)
    if isinstance(query, exp.Select):
        parts = [_count_met(item, ctes) for item in from_items(query)]
        parts += [
            (_count_met if _is_membership(inner) else _count_per_row)(inner, ctes)
            for inner in inner_queries(query)
        ]
        conditions = any(query.args.get(key) for key in ("where", "having", "qualify"))
        if (
            outermost
            and not conditions
            and all(join.side == "LEFT" for join in query.args.get("joins") or [])
        ):
            return _stay_apart(parts)
        return max(1, sum(joined for joined, _ in parts)), sum(apart for _, apart in parts)
    sides = _list_sides(query) if isinstance(query, exp.SetOperation) else ()
    return _stay_apart([_count_met(side, ctes) for side in sides])


def _is_membership(query: exp.Expr) -> bool:
    """Return whether a query is the argument of IN or EXISTS."""
    around = query.parent.parent if isinstance(query.parent, exp.Subquery) else query.parent
    return isinstance(around, exp.In | exp.Exists)


def _count_per_row(query: exp.Expr, ctes: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Count twice the relations that are read for each row of others: 40 correlated subqueries take DuckDB 2 s to plan."""
    joined, apart = (1, 0) if isinstance(query, exp.Unnest) else _count_met(query, ctes)
    return 2 * joined, 16 * apart


def _stay_apart(parts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    most = max((joined for joined, _ in parts), default=1)
    return most, max(0, sum(apart + joined**4 for joined, apart in parts) - most**4)
