"""Rows of one privacy unit: the unit's description, and how many of them count in joins.

If a unit's own rows are joined with each other (joins of private tables, correlated subqueries) or with several public
rows, each side is cut to a public number of the unit's rows, chosen by a secret hash of the row. A unit then has at
most ``max_unit_rows`` pairs, and fewer if these are sorted or stored. Rows in a window's frame are cut likewise. The
cut depends only on the unit's own rows, and all mentions of a table in one query are cut alike. A unit below the number
loses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from sqlglot import exp

from dpsql.binding.plan import ProtectedUnit
from dpsql.binding.public_statement import Env, inner_queries
from dpsql.binding.relations.catalog import Catalog
from dpsql.binding.relations.fan_out import choose_rows, floor_root, keep_first, max_unit_rows, replace_source
from dpsql.binding.relations.relation import Field, From, Names, Relation, find_least, fold
from dpsql.binding.traced_columns import read_frame_end
from dpsql.binding.values.declared_values import length_of
from dpsql.binding.values.sql_types import BLOB, SMALL_INTEGERS, TEXT, make_call, make_cast
from dpsql.language.dialect import MOVING_CLASSES
from dpsql.language.options import is_private_call
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import SALT


@dataclass(frozen=True)
class RowCaps:
    """Caps on the rows of one privacy unit, with the tight L1 and L2 bounds that follow; None means no cap.

    A unit has ``c(g)`` rows that count in group g. Up to three caps bound them: ``in_all`` the sum of all ``c(g)``,
    ``per_group`` each of them, and ``groups`` the number of positive ones. If one row moves a number by at most 1, the unit
    moves it by at most ``c(g)`` in group g: the distances between answers of neighbouring data are the norms of the vector c.

    * L1: the sum of ``c(g)`` is at most ``total = min(in_all, per_group * groups)``, which is attained.
    * L2: let ``each = min(per_group, total)``. The sum of squares is convex, so over ``0 <= c(g) <= each`` with a sum of at
      most ``total`` it is largest at a vertex: ``total // each`` groups have ``each`` rows, and one has the rest. Since
      ``total <= per_group * groups``, these are at most ``groups`` groups, so the cap on groups is met.

    A text that bounds ``c(g)`` by ``each`` and their sum by ``total`` has both distances, whatever the number of groups:
    groups are dropped only if their number itself is counted, see :class:`~dpsql.exact.exact_query.Exact`.

    Args:
        in_all: rows of one unit that count in total (``max_rows``, ``max_rows_contributed``).
        per_group: its rows that count in one group (``max_rows_per_group``).
        groups: its groups that count (``max_groups``, ``max_groups_contributed``), or the number of all groups.
    """

    in_all: int | None
    per_group: int | None = None
    groups: int | None = 1

    @property
    def total(self) -> int | None:
        """The most rows of one unit that count in total; None if unbounded."""
        product = None if self.per_group is None or self.groups is None else self.per_group * self.groups
        return find_least(self.in_all, product)

    @property
    def each(self) -> int | None:
        """The most rows of one unit that count in one group; None if unbounded."""
        return find_least(self.per_group, self.total)

    @property
    def binds_total(self) -> bool:
        """Whether the cap on all rows is lower than what the other two imply."""
        if self.in_all is None or self.groups == 1:
            return False
        return self.per_group is None or self.groups is None or self.in_all < self.per_group * self.groups

    @property
    def squared(self) -> int:
        """The square of the L2 distance, in rows."""
        total, each = self.bounds
        full, rest = divmod(total, each)
        return full * each**2 + rest**2

    @property
    def bounds(self) -> tuple[int, int]:
        """The total and each, which must be bounded."""
        assert self.total is not None and self.each is not None, "rows per unit are unbounded"
        return self.total, self.each

    def reach(self, gaussian: bool) -> tuple[int, int]:
        """Return rows r and groups g such that noise for r rows in each of g groups covers the caps.

        Laplace noise covers ``r * g``, Gaussian noise ``r * sqrt(g)``. If ``each`` divides ``total``, one pair has
        exactly the L1 and the L2 distance. Otherwise each kind of noise has its own exact pair: all rows in one group,
        or one row in each of ``squared`` groups.
        """
        total, each = self.bounds
        if total % each == 0:
            return each, total // each
        return (1, self.squared) if gaussian else (total, 1)

    def say(self, grouped: bool) -> str:
        """Return the caps as a clause, such as "1 row in one group and 5 rows in all"; empty if there are none."""
        if self.total is None and self.each is None:
            return ""
        if not grouped:
            return f"{_count(self.total, 'row')} in all"
        parts = []
        if self.each is not None and self.each != self.total:
            parts.append(f"{_count(self.each, 'row')} in one group")
        if self.total is not None:
            parts.append(f"{_count(self.total, 'row')} in all")
        return " and ".join(parts)


def _count(number: int | None, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def has_whole_unit(relation: Relation) -> bool:
    """Return whether units are integers that fit BIGINT, by type."""
    return relation.unit_type is not None and relation.unit_type.sql in SMALL_INTEGERS


def find_unit_holder(bound: From) -> Relation:
    """Return the private relation with the widest unit type: after an outer join, any of them may provide a row's unit."""
    private = [relation for relation in bound.relations if relation.private]
    return next((relation for relation in private if not has_whole_unit(relation)), private[0])


def advise_one_unit(left: list[Relation], right: list[Relation]) -> str:
    """Return the declaration that would equate two sides' units of different names or types."""
    tables = [[t for r in side for t in r.tables if t.unit_path] for side in (left, right)]
    hint = "ask the owner to give the privacy units one name and one type"
    made = {
        kind
        for r in (*left, *right)
        for name, kind in (r.unit_type.fields if r.unit_type else ())
        if name == "period"
    }
    if len({t.period and t.period.kind for side in tables for t in side}) > 1 or len(made) > 1:
        return "their periods differ: query the tables one at a time, or ask the owner for the same period of one type in both."
    if not all(tables):
        return f"{hint}."
    (one, *_), (other, *_) = tables
    ends = [f"{table.name} has {table.unit_path[-1].column}" for table in (one, other)]
    if len({r.unit_type.kind for r in (*left, *right) if r.unit_type is not None}) > 1:
        return f"{' and '.join(ends)}: {hint}."  # no path leads between keys of different kinds
    path = f"{other.unit_path[0].column} -> {one.name}.{one.unit_path[0].column}, {one.unit_path[-1].column}"
    return (
        f'{" and ".join(ends)}: {hint}, or to lead one to the other, privacy_unit = "{path}" in {other.name}.'
    )


def describe_protection(
    bound: From, caps: RowCaps | None, grouped: bool = True, groups: int = 1
) -> tuple[ProtectedUnit]:
    """Return the sentence on the privacy unit, its rows that count, and that rows without a unit are left out.

    ``caps``: the caps on rows in force; None if they are found privately. ``groups``: the cap on groups.
    """
    if bound.row_level:
        return (ProtectedUnit(f"Each row of {bound.subject} is protected.", "row", groups=groups),)
    units = bound.unit_columns
    said = "" if caps is None else caps.say(grouped)
    counted = f", with at most {said}" if said else ""
    nobody = f"; rows whose {units if ' and ' not in units else 'privacy unit'} is NULL count nowhere"
    text, unit = f"Each {units} in {bound.subject} is protected{counted}{nobody}.", units
    if bound.period is not None:
        text = f"One {units}'s rows {bound.period.words} in {bound.subject} are protected{counted}{nobody}."
        unit = ""
    limits = () if caps is None else (caps.total, caps.each if grouped else None)
    return (ProtectedUnit(text, unit, max((n for n in limits if n is not None), default=1), groups),)


def aggregates(select: exp.Select) -> bool:
    """Return whether a SELECT aggregates: by GROUP BY, or by an aggregate or mechanism in its projections."""
    items = (n for item in select.expressions for n in item.walk(prune=lambda n: isinstance(n, exp.Query)))
    return bool(select.args.get("group") or select.args.get("having")) or any(map(is_private_call, items))


def is_shown_alone(select: exp.Select) -> bool:
    """Return whether the statement only shows the rows of this SELECT DISTINCT: its values are groups then, as without it."""
    distinct = select.args.get("distinct")
    return distinct is not None and distinct.args.get("on") is None and _is_shown(select.parent)


def _is_shown(held: exp.Expr | None) -> bool:
    """Return whether a subquery or a CTE is all that the SELECT around it reads, and that is the statement or shown itself."""
    outer = held.find_ancestor(exp.Select) if isinstance(held, exp.CTE | exp.Subquery) else None
    if held is None or outer is None or aggregates(outer) or outer.args.get("joins"):
        return False
    source = outer.args["from_"].this
    named = (
        isinstance(held, exp.CTE) and isinstance(source, exp.Table) and fold(source.name) == fold(held.alias)
    )
    return (source is held or named) and (outer.parent is None or _is_shown(outer.parent))


def meeting_of(
    select: exp.Select, outer: Names | None, env: Env, catalog: Catalog, held: frozenset[str] | None
) -> UnitMeeting:
    """Return a SELECT's use of joined rows; if it aggregates, its windows are over released rows.

    Args:
        outer: the scope of the outer row, if the SELECT is correlated.
        held: the result of :func:`~dpsql.binding.public_statement.find_held_columns` for the statement.
    """
    frames = () if aggregates(select) else frames_of(select)
    return UnitMeeting(levels_of(select, outer, env, catalog), frames, held)


SORTED_ROWS = 50_000
"""The most joined rows of a unit to sort or store, for rows, groups and windows: about 1 µs and 100 bytes each."""


SORTED_CHARACTERS = 2**25
"""The most characters of texts in joined rows of one unit that are then sorted or stored."""


FRAMED_ROWS = 25_000
"""The most rows of one unit in window frames: the engine takes some microseconds for each."""


FEW_ROWS = 100
"""Cuts below this number of a unit's rows are told beside the answer, and not in EXPLAIN alone."""

_UNCUT_ROWS = 100_000
"""The most rows of one unit without a cut if they join few public rows and are only counted: cutting takes as long."""


def secret_hash(names: Iterable[str]) -> str:
    """Return a number that orders rows by these values unpredictably.

    The salt is mixed in between two hashes: DuckDB combines the hashes of several arguments by multiplication and
    exclusive or, which would leave the order similar under every salt.
    """
    return f"hash(xor(hash({', '.join(names)}), CAST({SALT} AS UBIGINT)))"


def _looks(field: Field) -> list[exp.Expr]:
    """Return all observable expressions of a column: its value, and those that distinguish equal values."""
    node, kind = field.typed.node, field.typed.type.kind
    if kind == "OTHER" and field.typed.type != BLOB:  # only whether there is a value
        return [exp.Is(this=exp.Paren(this=node.copy()), expression=exp.Null())]
    if field.typed.type.zone and (moment := field.typed.moment) is not None:
        return [moment.copy()]  # several may show one local time
    if kind == "DOUBLE":
        return [node.copy(), make_call("signbit", node.copy())]
    return [node.copy(), make_cast(node.copy(), TEXT)] if kind == "INTERVAL" else [node.copy()]


def cut_unit_rows(
    relation: Relation, source: exp.Expr, rows: int, keys: Sequence[Field] = (), short: Collection[Field] = ()
) -> exp.Expr:
    """Return the source with at most ``rows`` rows per unit (and key), chosen by a secret hash of the row's own values.

    Rows equal in all columns are interchangeable, so any of them may be kept. Texts of the columns ``short`` that
    exceed the policy's length are NULL.
    """
    assert relation.unit is not None
    seen = [relation.unit.copy(), *(value for f in relation.fields for value in _looks(f))]
    salt = exp.cast(exp.Placeholder(this=SALT[1:]), "UBIGINT", dialect="duckdb")
    secret = make_call("hash", exp.BitwiseXor(this=make_call("hash", *seen), expression=salt))
    by = [relation.unit, *(key.typed.node for key in keys)]
    return choose_rows(relation, source, keep_first(rows, by, [secret]), short)


def cut_block_rows(relation: Relation, sides: int) -> tuple[exp.Expr, str]:
    """Return the rows with a public number of each unit's, and a sentence on it; ``sides``: mentions that may meet in a block."""
    total = max_unit_rows(relation.tables)
    least = floor_root(min(total, SORTED_ROWS), sides)
    known = relation.max_rows or relation.max_rows_per_group or 0
    rows = min(floor_root(total, sides), max(least, known))
    limit = (
        f"If a unit's rows are joined in a block, {rows:,} rows of each table are used, chosen by a secret hash "
        f"(max_unit_rows = {total:,})."
    )
    return cut_unit_rows(relation, relation.source, rows), limit


@dataclass(frozen=True)
class UnitMeeting:
    """The way a SELECT uses joined rows of one unit.

    ``levels`` is the number of joined queries over rows of one unit. ``frames`` are the lengths of its windows' moving
    frames, 0 for an unbounded one. ``held`` are the folded names of the columns read, if the statement later sorts or
    stores rows (None if it only counts; ``*`` means all).
    """

    levels: int = 1
    frames: tuple[int, ...] = ()
    held: frozenset[str] | None = frozenset({"*"})

    def texts(self, relation: Relation) -> list[Field]:
        """Return the texts of a relation that are sorted or stored; the unit's columns are never changed."""
        held = self.held or frozenset()
        return [
            f
            for f in relation.fields
            if f.typed.type.kind == "TEXT"
            and f.typed.type.sql != "ENUM"
            and not (f.is_unit or f.anchors)
            and ("*" in held or fold(f.name) in held)
        ]


def limit_own(bound: From, meeting: UnitMeeting) -> tuple[str, ...]:
    """Cut each side of a join of a unit's own rows, so that no unit has more rows than the policy allows.

    The notes for the answer are returned: that a cut leaves a unit fewer than FEW_ROWS rows.
    """
    sides = [r for r in bound.sides if r.unit is not None]
    several = [r for r in sides if not r.per_unit and r.name not in bound.keys]
    alone = len(sides) == 1 and meeting.levels == 1
    met = bound.met
    if bound.row_level or not sides or (alone and not meeting.frames and met == 1):
        return ()
    found = [r for r in sides if not r.per_unit and r.name in bound.keys]
    for relation in found:
        keys = bound.keys[relation.name]
        replace_source(bound, relation, lambda source: cut_unit_rows(relation, source, 1, keys))  # noqa: B023
    if found:
        bound.notes.append(
            "Where a key finds several rows of one unit, one of them counts, chosen by a secret hash."
        )
    one = len(several) == 1 and meeting.levels == 1
    if not several or (one and not meeting.frames and met == 1):
        return ()
    total = max_unit_rows(table for r in sides for table in r.tables)
    rows = _rows_of_each_side(met if one else bound.fan_out, several, meeting, total)
    if one and not meeting.frames and rows >= _UNCUT_ROWS:
        return ()
    for relation in several:
        short = [] if one else meeting.texts(relation)
        replace_source(bound, relation, lambda source: cut_unit_rows(relation, source, rows, (), short))  # noqa: B023
    counted = f"Where a unit's rows meet, {rows:,} of each table's count"
    if one:
        passed = "a window's frame passes over a unit's rows"
        what = passed if meeting.frames else "a unit's rows meet public rows"
        counted = f"Where {what}, {rows:,} of them count"
    bound.notes.append(f"{counted}, chosen by a secret hash (max_unit_rows = {total:,}).")
    few = "per unit are used in a window" if one and meeting.frames else "per unit and table are joined"
    return (f"only {rows} rows {few}",) if rows < FEW_ROWS else ()


def _rows_of_each_side(fan_out: int, several: list[Relation], meeting: UnitMeeting, total: int) -> int:
    """Return each side's limit on a unit's rows, below the policy's max_rows only if max_unit_rows requires it."""

    def each(most: int) -> int:
        return floor_root(floor_root(max(1, most // fan_out), meeting.levels), len(several))

    if any(meeting.frames):
        # Each row is processed with the others of its frame, at most all of its unit's.
        total = max(total // max(meeting.frames), floor_root(total, 2))
    rows = each(total)
    fewest = total
    if meeting.frames:
        fewest = min(total, FRAMED_ROWS // len(meeting.frames))
    elif meeting.held is not None:
        fewest = min(total, SORTED_ROWS)
    if len(several) > 1 or meeting.levels > 1:
        width = sum(length_of(f.typed) for relation in several for f in meeting.texts(relation))
        fewest = min(fewest, SORTED_CHARACTERS // max(1, width))
    declared = max((r.max_rows or r.max_rows_per_group or 0 for r in several), default=0)
    return min(rows, max(each(fewest), declared))


def frames_of(select: exp.Select) -> tuple[int, ...]:
    """Return the lengths of the moving frames of a SELECT's windows and ordered aggregates; 0 for an unbounded one."""
    lengths = []
    places = [
        *select.expressions,
        *(select.args[key] for key in ("where", "qualify") if select.args.get(key)),
    ]
    for place in places:
        for node in place.walk(prune=lambda n: isinstance(n, exp.Query)):
            if not isinstance(node, exp.Window):
                continue
            spec, function = node.args.get("spec"), node.this
            while isinstance(function, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
                function = function.this
            if spec is not None:
                ends = [abs(read_frame_end(spec, key) or 0) for key in ("start", "end")]
                lengths.append(0 if math.inf in ends else 1 + sum(map(int, ends)))
            elif node.args.get("order") is not None and isinstance(function, MOVING_CLASSES):
                lengths.append(0)
    return tuple(lengths)


def levels_of(select: exp.Select, outer: Names | None, env: Env, catalog: Catalog) -> int:
    """Return the number of nested joins of one unit's rows; inner queries with equalities alone are found by a hash."""
    around = len(list(outer.scopes())) if outer is not None and _compares_rows(select) else 0
    return 1 + around + _deepest(select, env, catalog)


def _deepest(select: exp.Select, env: Env, catalog: Catalog) -> int:
    inner = (found for query in inner_queries(select) for found in query.find_all(exp.Select))
    depths = [
        _deepest(query, env, catalog) + (_compares_rows(query) and _reads_units(query, env, catalog))
        for query in inner
        if query.parent_select is select
    ]
    return max(depths, default=0)


def _reads_units(query: exp.Select, env: Env, catalog: Catalog) -> bool:
    private = {fold(name) for name, table in catalog.policy.tables.items() if not table.public}
    private |= {name for name, cte in env.items() if cte.private is not None}
    return any(fold(table.name) in private for table in query.find_all(exp.Table))


def _compares_rows(query: exp.Select) -> bool:
    """Return whether a subquery may compare columns of two tables other than for equality."""
    parts = list(query.expressions)
    for place in (query.args.get("where"), *(join.args.get("on") for join in query.args.get("joins") or [])):
        whole = place.this if isinstance(place, exp.Where) else place
        while whole is not None:
            last = whole.expression if isinstance(whole, exp.And) else whole
            parts += [last.this, last.expression] if isinstance(last, exp.EQ) else [last]
            whole = whole.this if isinstance(whole, exp.And) else None
    return any(_mixes(part) for part in parts)


def _mixes(part: exp.Expr) -> bool:
    columns = [node for node in part.find_all(exp.Column) if not isinstance(node.this, exp.Star)]
    tables = {fold(node.table) for node in columns}
    return len(tables) > 1 or (len(columns) > 1 and tables == {""})
