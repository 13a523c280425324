"""The catalog of the policy's tables, typed as the engine reports them.

Qualified names of tables, and of columns by their table, are replaced by the policy's names: by the policy's own name, part
by part, or by the common place in the database. Parts are compared whole: ``"a.b"`` is a name with a dot in it, never b of a.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from sqlglot import exp

from dpsql.binding.public_statement import (
    KeptResult,
)
from dpsql.binding.relations.relation import (
    CLAIMED,
    DETERMINES,
    PERSON,
    UNIT,
    Field,
    Names,
    Relation,
    SharedQueries,
    column,
    column_name,
    find_direct_unit,
    fold,
    list_claimed_columns,
    meets_exactly,
    moment_name,
    move_field,
    write_period,
)
from dpsql.binding.relations.scanned_periods import DAYS, Scan, write_days
from dpsql.binding.values.declared_values import declare_column
from dpsql.binding.values.sql_types import TEXT, TIMESTAMP, Bounds, Type, Typed, write_local_time
from dpsql.binding.values.total_expressions import make_total
from dpsql.engine.base import Engine
from dpsql.errors import BindError, EngineError, Error, PolicyError, Span, did_you_mean
from dpsql.language.dialect import bind_error, is_not_null, list_nodes, quote_path, span_of, to_sql
from dpsql.late_dataclass import dataclass
from dpsql.policy.model import Column, Policy, Table
from dpsql.policy.tables import Hop
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.privacy.periods import Days, widen_to_periods

if TYPE_CHECKING:
    from dpsql.mechanisms.subsample.blocks import RegisteredFunction

WIDE = 40
"""The most columns of a table that are written out whether or not a statement names them."""
_PERIODS = ("INTEGER", "TEXT", "DATE", "TIMESTAMP", "BOOLEAN")
"""Types that a period may have: their equal values are indistinguishable."""
_NO_UNITS = ("BIT", "TIME WITH TIME ZONE", "VARIANT")
"""Types without a proof that equal values are one unit."""
_BASE, _KEY, _FOUND = "base", "path_key", "path_unit"
Describe = Callable[[str], list[tuple[str, str]]]
"""Returns names and SQL types of a public query's columns, without private data."""


@dataclass
class Catalog:
    """Tables of the policy as relations. Schemas are read once and cached."""

    policy: Policy
    engine: Engine
    accountant: str
    functions: Mapping[str, RegisteredFunction] = field(default_factory=dict)
    delta_left: Callable[[], Fraction] | None = None
    """The delta left for mechanisms with a separate delta, for a refusal's hint; without it, the policy's."""
    kept: Mapping[str, KeptResult] = field(default_factory=dict)
    """Kept results, by folded name."""
    epsilon: Fraction | None = None
    """The epsilon of a statement that names none, replacing the policy's."""
    shared: SharedQueries = field(default_factory=WeakValueDictionary)
    """The queries that exact texts refer to by name, for the lifetime of a plan."""
    _schemas: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _fields: dict[str, tuple[Field, ...]] = field(default_factory=dict)
    """Fields by table. Their nodes are immutable: users copy them."""
    _named_as: dict[str, exp.Expr] = field(default_factory=dict)
    _names: dict[str, frozenset[str]] = field(default_factory=dict)
    """The result of :attr:`names`, which copies of a catalog share."""
    _places: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """The indices of each table's columns by folded name; those of an empty name are needed always."""

    def find(self, name: str, span: Span | None, whole: bool = True) -> Table:
        """Return the policy's table of that name; BindError if there is none. ``whole``: the name has one part."""
        if whole and (found := self.policy.tables.get(name)) is not None:
            return found
        known = [table.name for table in self.policy.tables.values()]
        hint = did_you_mean(name, known, quote_path) or "the policy names no tables yet."
        if "." in name and not hint.startswith("did you mean"):
            hint = did_you_mean(name.rpartition(".")[2], known, quote_path) or hint
        if fold(name).startswith("information_schema."):
            hint = "write SHOW TABLES for the tables, and DESCRIBE with a table's name for its columns."
        raise BindError(f"there is no table {name}.", span=span, hint=hint, sqlstate="42P01")

    def schema(self, table: Table) -> Mapping[str, str]:
        """Return a table's columns and their types, cached."""
        if table.name not in self._schemas:
            self._schemas[table.name] = self.engine.schema(table)
        return self._schemas[table.name]

    def is_current(self) -> bool:
        """Return whether the engine still reports the schemas that were read."""
        tables = self.policy.tables
        return all([*self.engine.schema(tables[n]).items()] == [*k.items()] for n, k in self._schemas.items())

    @property
    def has_rule(self) -> bool:
        """Whether the session's accountant adds up many small losses to less than their sum."""
        return self.rule_currency is not None

    @property
    def rule_currency(self) -> str | None:
        """The currency, rho or mu, in which it does so; None if it adds up epsilons."""
        kind = ACCOUNTANTS[self.accountant]
        return (kind.currency or "rho") if kind.has_rule else None

    @property
    def default_epsilon(self) -> Fraction | None:
        """The epsilon of a statement that names none; None if it must name one."""
        return self.policy.budget.default_epsilon if self.epsilon is None else self.epsilon

    @property
    def names(self) -> frozenset[str]:
        """The folded names of tables, columns and struct fields of the policy's data."""
        if "" not in self._names:
            self._names[""] = self._list_names()
        return self._names[""]

    def _list_names(self) -> frozenset[str]:
        found = set[str]()
        for table in self.policy.tables.values():
            schema = self.schema(table)
            parts = (part for kind in schema.values() for part in Type.parse(kind).walk())
            fields = (name for part in parts for name, _ in part.fields)
            found |= set(map(fold, (table.name, *schema, *fields)))
        return frozenset(found)

    def fields(self, table: Table, name: str, named: Collection[str] | None = None) -> tuple[Field, ...]:
        """Return the table's columns in the exact query, with declared bounds and values. ``named``: as for :meth:`relation`."""
        fields = self._all_fields(table)
        if named is not None:
            fields = tuple(fields[place] for place in self._find_read(table, named))
        return tuple(move_field(f, name) for f in fields)

    def _all_fields(self, table: Table) -> tuple[Field, ...]:
        if table.name not in self._fields:
            self._fields[table.name] = self._declared(table)
        return self._fields[table.name]

    def _find_read(self, table: Table, named: Collection[str]) -> list[int]:
        """Return the indices of the columns that a statement with these names may read, and of those about the unit."""
        fields = self._all_fields(table)
        places = self._places.get(table.name)
        if places is None:
            places = self._places[table.name] = {}
            for place, f in enumerate(fields):
                places.setdefault(fold(f.name), []).append(place)
                if f.tells_unit or f.key or f.is_period:
                    places.setdefault("", []).append(place)
            period = table.declared_period
            places.setdefault("", []).extend(
                places.get(fold(period.column), []) if period is not None else []
            )
        found = {place for name in ("", *named) for place in places.get(name, ())}
        return sorted(found) or [0]

    def _find_unread(self, texts: Sequence[str], sql_type: str) -> list[str]:
        """Return the texts that DuckDB can't cast to a type."""
        kind = exp.DataType.build(sql_type, dialect="duckdb")
        casts = (exp.TryCast(this=exp.Literal.string(text), to=kind.copy()) for text in texts)
        read = self.engine.apart(
            to_sql(exp.select(exp.Array(expressions=[c.is_(exp.null()) for c in casts]))), {}
        )
        return [text for text, unread in zip(texts, read.column(0)[0].as_py(), strict=True) if unread]

    def _declared(self, table: Table) -> tuple[Field, ...]:
        schema = self.schema(table)
        folded = {fold(name): name for name in schema}
        for name in table.columns:
            if fold(name) not in folded:
                what = f"the policy declares {table.name}.{name}, which the data do not have."
                raise PolicyError(what, hint=did_you_mean(name, schema))
        declared = {fold(name): item for name, item in table.columns.items()}
        unit = find_direct_unit(table)
        claims, start = list_claimed_columns(table), self._start(table, schema)
        keys = set() if table.public else self._keys(table)
        ends = self._public_ends(table, schema) if table.public else {}
        fields, orders = [], self.engine.orders(table)
        for place, (name, sql_type) in enumerate(schema.items()):
            item = declared.get(fold(name), Column())
            node, folded_name = column(column_name(place)), fold(name)
            where = f"{table.name}.{name}"
            typed = declare_column(item, node, sql_type, where, self.engine.lossless, self._find_unread)
            kind = typed.type
            bounds = typed.bounds if typed.bounds is not None else ends.get(name)
            order = orders.get(name) if kind == TEXT or kind.element == TEXT else None
            typed = replace(typed, bounds=bounds, order=order)
            if kind.zone:
                typed = replace(typed, twin=(node, column(moment_name(place))))
            key = folded_name in keys
            anchors = {anchor for start, anchor in claims if start == folded_name}
            anchors |= {(fold(table.name), folded_name)} if key else set()
            is_unit = unit is not None and folded_name == fold(unit)
            whole = table.period is not None and (key or (len(table.unit_path) > 1 and place == start))
            if kind.zone and (is_unit or anchors or place == start):
                raise PolicyError(
                    f"{table.name}.{name} leads to the privacy unit, so it can't be read as local times.",
                    hint=f"remove time_zone from {name}: different moments may show one local time.",
                )
            if is_unit and kind.sql in _NO_UNITS:
                hint = "name a view in the policy in which it is a VARCHAR."
                raise PolicyError(
                    f"{where} is the privacy unit, and values of {kind.sql} can't be one.", hint=hint
                )
            if is_unit and table.period is not None:  # a part of the unit, which its other periods share
                is_unit, anchors = False, {*anchors, CLAIMED, PERSON}
            if any(k in self.policy.tables[t].determining for t, k in anchors if t):
                anchors.add(DETERMINES)  # a path starts from the unit's determining column there
            key = key and DETERMINES not in anchors
            declares = item.bounds is not None
            made = Field(name, typed, is_unit, table.public, frozenset(anchors), key)
            fields.append(replace(made, is_period=whole, declared=declares))
        for needed in [*([unit] if unit is not None else []), *table.determining]:
            if fold(needed) not in folded:
                what = f"{needed}, which leads to the privacy unit, is not a column of {table.name}."
                from dpsql.policy.unit_guess import suggest_unit

                alone = needed == unit and len(table.unit_path) == 1
                raise PolicyError(what, hint=suggest_unit(needed, schema, alone))
        return tuple(fields)

    def _public_ends(self, table: Table, schema: Mapping[str, str]) -> dict[str, Bounds]:
        """Return the cached extremes of each numeric column of a public table, to which later values are clamped."""
        kinds = {name: Type.parse(kind) for name, kind in schema.items()}
        names = [name for name, kind in kinds.items() if kind.numeric]
        if not names or not self.engine.lossless:
            return {}
        numbers = []
        for name in names:
            node: exp.Expr = column(name, _BASE)
            if kinds[name].kind == "DOUBLE":
                there = exp.func("isfinite", node.copy(), dialect="duckdb")
                node = exp.Case(ifs=[exp.If(this=there, true=node)])
            numbers += [exp.Min(this=node), exp.Max(this=node.copy())]
        items = [exp.alias_(number, column_name(i)) for i, number in enumerate(numbers)]
        query = exp.Select(expressions=items).from_(self._named(table, _BASE), copy=False)
        try:
            row = self.engine.execute(to_sql(query)).to_pylist()[0]
        except EngineError:
            return {}
        found = list(row.values())
        pairs = zip(names, found[::2], found[1::2], strict=True)
        return {name: Bounds(Fraction(low), Fraction(high)) for name, low, high in pairs if low is not None}

    def _start(self, table: Table, schema: Mapping[str, str]) -> int | None:
        """Return the index of the column that a table's first path starts from."""
        starts = [fold(path[0].column) for path in table.unit_paths[:1]]
        return next((place for place, name in enumerate(schema) if fold(name) in starts), None)

    def _keys(self, table: Table) -> set[str]:
        """Return the columns of a table that declared paths lead to."""
        paths = (path for other in self.policy.tables.values() for path in other.unit_paths)
        hops = (hop for path in paths for hop in path[1:])
        return {fold(hop.key) for hop in hops if fold(hop.table) == fold(table.name)}

    def _spell(self, table: Table, name: str) -> tuple[str, Type]:
        for known, sql_type in self.schema(table).items():
            if fold(known) == fold(name):
                return known, Type.parse(sql_type)
        raise PolicyError(f"{name}, on a path to a privacy unit, is not a column of {table.name}.")

    def scan(
        self,
        node: exp.Expr,
        table: Table,
        alias: str,
        name: str,
        named: Collection[str] | None,
        today: datetime.date | None,
    ) -> tuple[Relation, Scan | None]:
        """Return a private table as a FROM item may read it, with its days; and its scan, if budgets are per period.

        Args:
            named: as for :meth:`relation`.
            today: in the policy's time zone, if budgets are per period.
        """
        if today is None:
            return self.relation(table, alias, name, named), None
        holder = self.policy.find_holder(table)
        period = holder.declared_period
        if period is None:
            return self.relation(table, alias, name, named), Scan(self.engine.relation(table), None)
        days: Days = node.meta.get(DAYS) or holder.find_days(today)
        text = " ".join(map(to_sql, self.within(holder, _BASE, days)))
        scan = Scan(text, widen_to_periods(days, period.part), holder.name, days)
        found, own = self.relation(table, alias, name, named, days), table.declared_period
        if own is None:
            return found, scan
        dated = (
            replace(f, typed=replace(f.typed, days=days, nullable=False))
            if fold(f.name) == fold(own.column)
            else f
            for f in found.fields
        )
        return replace(found, fields=tuple(dated)), scan

    def relation(
        self,
        table: Table,
        alias: str,
        name: str,
        named: Collection[str] | None = None,
        days: Days | None = None,
    ) -> Relation:
        """Return a base table under ``name`` in an exact FROM, and ``alias`` for the analyst; a private one has its unit.

        Args:
            named: the folded names in the statement. A wide table has only the columns of such names, and those about its
                unit. If it is None, all columns may be read.
            days: the only days of the units' periods whose rows are read; None for all.
        """
        schema = self.schema(table)
        named = named if len(schema) > WIDE else None
        fields, every = self.fields(table, name, named), [*schema]
        places = range(len(every)) if named is None else self._find_read(table, named)
        items = []
        for place, found in zip(places, fields, strict=True):
            node: exp.Expr = column(every[place], _BASE)
            if found.typed.type.zone:
                items.append(exp.alias_(node.copy(), moment_name(place)))
                node = write_local_time(node, found.typed.type.zone)
            items.append(exp.alias_(node, column_name(place)))
        kept = {*places}
        unread = () if named is None else [name for i, name in enumerate(every) if i not in kept]
        inner = exp.Select(expressions=items).from_(self._named(table, _BASE), copy=False)
        source = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(name)))
        if table.public:
            return Relation(alias, name, fields, source, private=False, unread=unread)
        if table.period is not None and not self.engine.lossless:
            what = f"{table.name} has a privacy period, which only DuckDB computes here."
            raise PolicyError(
                what, hint="query DuckDB instead, or leave the period out: whole units are protected then."
            )
        if table.row_level:
            return Relation(alias, name, fields, source, True, None, (table,), row_level=True, unread=unread)
        unit, _ = self._join_unit(inner, table, table.unit_path, _BASE, 0, table, days)
        inner.select(exp.alias_(unit, UNIT), copy=False)
        last = table.unit_path[-1]
        holder = self.find(last.table, None)
        kind = self._spell(holder, last.column)[1]
        period = None
        if holder.declared_period is not None:
            made = self._bind_period(holder, self.fields(holder, name))
            taken = self._spell(holder, holder.declared_period.column)[
                1
            ]  # periods of different columns never meet
            kind = Type.parse(f"STRUCT(person {kind.sql}, period {taken.sql})")
            period = made.node if holder is table else None
        return Relation(
            alias, name, fields, source, True, column(UNIT, name), (table,), unit_type=kind, period=period, unread=unread,
        )  # fmt: skip

    def _join_unit(
        self,
        query: exp.Select,
        holder: Table,
        path: Sequence[Hop],
        base: str,
        place: int,
        subject: Table,
        days: Days | None,
    ) -> tuple[exp.Expr, list[exp.Expr]]:
        """Join a query of a table with the rest of its path, in place, without rows that lack a unit; return unit and parts."""
        if len(path) > 1:
            unit: exp.Expr = column(_FOUND, _hop(place))
            parts, read = [unit], list[exp.Expr]()
            on = self._follows(path[0], path[1], base, place, subject)
            query.join(self._units_of_keys(path[1:], place, subject, days), on=on, copy=False)
        else:
            unit, parts = self._parted(holder, column(self._spell(holder, path[0].column)[0], base), base)
            read = self.within(holder, base, days)
        query.where(*map(is_not_null, parts), *read, copy=False)
        return unit, parts

    def _parted(self, table: Table, unit: exp.Expr, alias: str) -> tuple[exp.Expr, list[exp.Expr]]:
        """Return a table's unit, paired with its declared period if any, and the parts that must not be NULL.

        Both are columns of the row itself, so adding or removing a unit's row changes no other row's unit.
        """
        if table.declared_period is None:
            return unit, [unit]
        named = zip(self.schema(table), self.fields(table, alias), strict=True)
        fields = tuple(replace(f, typed=replace(f.typed, node=column(n, alias))) for n, f in named)
        period = self._bind_period(table, fields).node
        return exp.Anonymous(this="row", expressions=[unit.copy(), period.copy()]), [unit, period]

    def is_date(self, table: Table, name: str) -> bool:
        """Return whether a table's column is a DATE."""
        return self._spell(table, name)[1].sql == "DATE"

    def within(self, table: Table, alias: str, days: Days | None) -> list[exp.Expr]:
        """Return the condition that a scan of a table with a declared period reads some days only."""
        period = table.declared_period
        if days is None or period is None:
            return []
        name, kind = self._spell(table, period.column)
        return [write_days(days, column(name, alias), kind.sql)]

    def _bind_period(self, table: Table, fields: tuple[Field, ...]) -> Typed:
        """Return the period of a table's rows, bound as an analyst's expression.

        Raises:
            PolicyError: it is no function of these columns, or depends on a session's time zone.
        """
        period = table.declared_period
        assert period is not None
        scope = Names((Relation(table.name, table.name, fields, exp.Null(), private=True),))
        try:
            typed = make_total(write_period(period), scope)
        except Error as error:
            wrong = error.message
        else:
            taken = scope.find(column(period.column)).typed.type
            plain = taken.kind not in ("TIMESTAMP", "MOMENT") or (taken == TIMESTAMP and not taken.zone)
            if typed.type.kind in _PERIODS and plain:
                return typed
            wrong = f"{period.column} is {taken.sql}."
        raise PolicyError(
            f"the privacy period of {table.name}, {period}, can't be computed: {wrong}",
            hint="a period is made of a date, or of a timestamp without a time zone; or is a whole number or a text.",
        )

    def _units_of_keys(
        self, path: Sequence[Hop], place: int, subject: Table, days: Days | None
    ) -> exp.Subquery:
        """Return the units that a path finds by the keys of its first table: each pair of a key and a unit once.

        Each hop follows a foreign key to the row with more information about the unit. If a key occurs in several rows,
        the row that follows it counts once for each of their units, not once per row: every derived row belongs to one
        unit, and no unit has more of them than there are starting rows.
        """
        hop, base = path[0], f"{_BASE}{place}"
        holder = self.find(hop.table, None)
        key = column(self._spell(holder, hop.key)[0], base)
        query = exp.Select().from_(self._named(holder, base), copy=False)
        unit, parts = self._join_unit(query, holder, path, base, place + 1, subject, days)
        query = query.select(
            exp.alias_(key, _KEY, quoted=True), exp.alias_(unit, _FOUND, quoted=True), copy=False
        )
        if len(parts) > 1:  # DuckDB decomposes a row in GROUP BY
            query = query.distinct(copy=False)
        else:
            query = query.group_by(key.copy(), unit.copy(), copy=False)
        return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(_hop(place))))

    def _follows(self, hop: Hop, after: Hop, holder: str, place: int, subject: Table) -> exp.Expr:
        """Return the equality of a row with the next on its path; PolicyError if the two columns have different types."""
        start, here = self._spell(self.find(hop.table, None), hop.column)
        there = self._spell(self.find(after.table, None), after.key)[1]
        if not meets_exactly(here, there):
            raise PolicyError(
                f"{hop.table}.{hop.column} is {here.sql}, and {after.table}.{after.key} is {there.sql}: "
                f"the path to the privacy unit of {subject.name} needs the same type.",
                hint="give both columns one type in the data.",
            )
        return exp.EQ(this=column(start, holder), expression=column(_KEY, _hop(place)))

    def name_public_tables(self, query: exp.Expr) -> None:
        """Write the public tables of an exact query by the policy's names, in place, which the finisher uses."""
        public = [table for table in self.policy.tables.values() if table.public]
        names = {to_sql(self._named(table, _BASE)): table.name for table in public}
        for node in list(query.find_all(exp.Table)):
            if (name := names.get(to_sql(node))) is not None:
                node.replace(exp.Table(this=exp.to_identifier(name, quoted=True), alias=node.args["alias"]))

    def _named(self, table: Table, alias: str) -> exp.Expr:
        if table.name not in self._named_as:
            place = self.engine.place(table)
            catalog, schema, name = (exp.to_identifier(part, quoted=True) for part in place)
            self._named_as[table.name] = exp.Table(this=name, db=schema, catalog=catalog)
        return exp.alias_(self._named_as[table.name], alias, table=True, quoted=True)


def _hop(place: int) -> str:
    return f"hop{place}"


# -- names of tables --------------------------------------------------------------------------------------------

Path = tuple[str, ...]
"""The folded parts of a name, the table's last."""


def resolve_table_names(tree: exp.Expr, catalog: Catalog) -> None:
    """Replace qualified names of tables by the policy's, in place, and remove the qualifiers of columns.

    Raises:
        BindError: there is no such table; a CTE hides it.
    """
    nodes = list_nodes(tree)
    names = {fold(node.alias) for node in nodes if isinstance(node, exp.CTE)} | set(catalog.kept)
    plain = {fold(table.name) for table in catalog.policy.tables.values() if "." not in table.name}
    shown: set[Path] = set()
    for node in nodes:
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            continue
        path = tuple(fold(part.name) for part in node.parts)
        qualified = len(path) > 1
        if not qualified and (path[0] in names or path[0] in plain):
            table = None if path[0] in names else catalog.policy.tables.get(node.name)
        else:
            table = _find(path, catalog)
            if table is None and (qualified or "." in node.name):
                catalog.find(".".join(part.name for part in node.parts), span_of(node), whole=False)
            hidden = names - {fold(cte.alias) for cte in _around(node)}
            if table is not None and qualified and fold(table.name) in hidden:
                hint = f"give the named query or the kept result another name than {table.name}."
                raise bind_error(node, f"{node.name} is also the name of a relation of this statement.", hint)
            if table is not None:
                _rename(node, table)
        if table is not None and not node.alias_column_names and fold(node.alias_or_name) == path[-1]:
            shown |= {*_tails(path), *_tails(catalog.engine.path(table) or ())}
    for found in nodes:
        if not isinstance(found, exp.Column) or found.args.get("db") is None:
            continue
        if isinstance(found.parent, exp.Dot):
            continue
        qualifiers = [found.args.get(key) for key in ("catalog", "db", "table")]
        if tuple(fold(part.name) for part in qualifiers if part is not None) in shown:
            found.set("db", None)
            found.set("catalog", None)


def _around(node: exp.Expr) -> Iterator[exp.CTE]:
    """Yield the CTEs around a node, from the innermost. Except in a recursive one, their names are not defined inside."""
    while (found := node.find_ancestor(exp.CTE)) is not None:
        node = found
        if not (found.parent is not None and found.parent.args.get("recursive")):
            yield found


def _tails(path: Iterable[str]) -> set[Path]:
    parts = tuple(map(fold, path))
    return {parts[-count:] for count in (2, 3) if count <= len(parts)}


def _find(path: Path, catalog: Catalog) -> Table | None:
    """Return the table of a path, by the policy's name for it or else by its place in the database."""
    tables = catalog.policy.tables.values()
    for table in tables:
        if tuple(fold(table.name).split(".")) == path:
            return table
    for table in tables:
        place = tuple(map(fold, catalog.engine.path(table) or ()))
        home = tuple(map(fold, catalog.engine.home))
        if not place or path[-1] != fold(table.name).rpartition(".")[2]:
            continue
        # Of two parts, the first is a schema, or a catalog without its schema.
        meant = [(*home[: 3 - len(path)], *path)] + ([(path[0], home[1], path[1])] if len(path) == 2 else [])
        if home and place in meant:
            return table
    return None


def _rename(node: exp.Table, table: Table) -> None:
    """Give a FROM item the policy's name, with its alias or else its last name."""
    alias = node.args.get("alias") or exp.TableAlias()
    if alias.this is None:
        alias.set("this", exp.to_identifier(node.name, quoted=True))
    place = node.this.meta
    for key in ("db", "catalog"):
        node.set(key, None)
    made = exp.to_identifier(table.name, quoted=True)
    made.meta.update({key: place[key] for key in ("start", "end") if key in place})
    node.set("this", made)
    node.set("alias", alias)
