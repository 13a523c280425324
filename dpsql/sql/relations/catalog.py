"""What names mean: the tables of the policy, with the column types that the engine reports without reading rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from sqlglot import exp

from dpsql.engine.base import Engine
from dpsql.errors import BindError, PolicyError, Span, did_you_mean
from dpsql.policy import Policy, Table
from dpsql.sql.bounds import Interval
from dpsql.sql.expressions.lines import declared as declared_bounds
from dpsql.sql.expressions.types import Type, Typed
from dpsql.sql.relations.relation import UNIT, Field, Relation, column, fold, meets_exactly

Describe = Callable[[str], list[tuple[str, str]]]
"""Names and SQL types of a public query's columns; runs over no private data."""


@dataclass
class Catalog:
    """Tables of the policy as relations. Schemas are read once and kept."""

    policy: Policy
    engine: Engine
    accountant: str
    functions: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    _schemas: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _fields: dict[tuple[str, str], tuple[Field, ...]] = field(default_factory=dict)
    """By table and alias. Nobody changes a field's nodes in place: they are copied where they are used."""
    _named_as: dict[str, exp.Expr] = field(default_factory=dict)

    def find(self, name: str, span: Span | None) -> Table:
        """The policy's table of that name.

        Raises:
            BindError: the policy names no such table: for the analyst it does not exist.
        """
        for table in self.policy.tables.values():
            if fold(table.name) == fold(name):
                return table
        known = [table.name for table in self.policy.tables.values()]
        hint = did_you_mean(name, known) or "the policy names no tables yet."
        if "." in name and not hint.startswith("did you mean"):
            hint = did_you_mean(name.rpartition(".")[2], known) or hint
        raise BindError(f"there is no table {name}.", span=span, hint=hint)

    def schema(self, table: Table) -> Mapping[str, str]:
        if table.name not in self._schemas:
            self._schemas[table.name] = self.engine.schema(table)
        return self._schemas[table.name]

    def fields(self, table: Table, alias: str) -> tuple[Field, ...]:
        """The table's columns under an alias, with the bounds and values that the policy declares."""
        if (table.name, alias) not in self._fields:
            if len(self._fields) > 500:
                self._fields.clear()
            self._fields[table.name, alias] = self._declared(table, alias)
        return self._fields[table.name, alias]

    def _declared(self, table: Table, alias: str) -> tuple[Field, ...]:
        schema = self.schema(table)
        folded = {fold(name): name for name in schema}
        for name in table.columns:
            if fold(name) not in folded:
                raise PolicyError(
                    f"the policy declares {table.name}.{name}, which the data do not have.",
                    hint=did_you_mean(name, schema),
                )
        declared = {fold(name): item for name, item in table.columns.items()}
        unit = _unit_column(table)
        path = table.unit_path
        start = {fold(path[0].column): (fold(path[1].table), fold(path[1].key))} if len(path) > 1 else {}
        keys = set() if table.public else self._keys(table)
        fields = []
        for name, sql_type in schema.items():
            item = declared.get(fold(name))
            kind = Type.parse(sql_type)
            given = item.bounds if item is not None else None
            bounds = declared_bounds(kind.kind, given, f"{table.name}.{name}")
            values = item.values if item is not None else None
            if (
                bounds is None
                and values
                and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
            ):
                numbers = [Fraction(v) for v in values if isinstance(v, int | float)]
                bounds = Interval(min(numbers), max(numbers))
            typed = Typed(column(name, alias), kind, bounds, False, values)
            folded_name = fold(name)
            key = folded_name in keys
            anchors = {start[folded_name]} if folded_name in start else set()
            anchors |= {(fold(table.name), folded_name)} if key else set()
            is_unit = unit is not None and folded_name == fold(unit)
            fields.append(Field(name, typed, is_unit, table.public, False, frozenset(anchors), key))
        if unit is not None and not any(f.is_unit for f in fields):
            raise PolicyError(f"the privacy unit {unit} is not a column of {table.name}.")
        return tuple(fields)

    def _keys(self, table: Table) -> set[str]:
        """Columns of a table that declared paths lead to."""
        hops = (hop for other in self.policy.tables.values() for hop in other.unit_path[1:])
        return {fold(hop.key) for hop in hops if fold(hop.table) == fold(table.name)}

    def _type(self, table: Table, name: str) -> Type:
        for known, sql_type in self.schema(table).items():
            if fold(known) == fold(name):
                return Type.parse(sql_type)
        raise PolicyError(f"{name}, on a path to a privacy unit, is not a column of {table.name}.")

    def relation(self, table: Table, alias: str) -> Relation:
        """A base table as it stands in an exact FROM; a private one carries its unit under the hidden name."""
        fields = self.fields(table, alias)
        if table.public:
            return Relation(alias, fields, self._named(table, alias), private=False)
        if table.row_level:
            return Relation(alias, fields, self._named(table, alias), True, None, (table,), row_level=True)
        inner = exp.Select()
        base = "dpsql_base"
        inner = inner.select(
            exp.Column(this=exp.Star(), table=exp.to_identifier(base, quoted=True)), copy=False
        )
        inner = inner.from_(self._named(table, base), copy=False)
        holder = base
        for hop, after in zip(table.unit_path, table.unit_path[1:], strict=False):
            # Each hop follows a foreign key to the row that knows more about the unit. Were a key to match several
            # rows, the row would count once for each of their units: every derived row still belongs to one unit.
            target = self.find(after.table, None)
            name = f"dpsql_hop_{after.table}"
            here, there = self._type(self.find(hop.table, None), hop.column), self._type(target, after.key)
            if not meets_exactly(here, there):
                raise PolicyError(
                    f"{hop.table}.{hop.column} is {here.sql}, and {after.table}.{after.key} is {there.sql}: "
                    f"the path to the privacy unit of {table.name} needs the same type.",
                    hint="give both columns one type in the data.",
                )
            on = exp.EQ(this=column(hop.column, holder), expression=column(after.key, name))
            inner = inner.join(self._named(target, name), on=on, copy=False)
            holder = name
        unit = column(table.unit_path[-1].column, holder)
        inner = inner.select(exp.alias_(unit, UNIT, quoted=True), copy=False)
        inner = inner.where(exp.Not(this=exp.Is(this=unit.copy(), expression=exp.Null())), copy=False)
        source = inner.subquery(exp.to_identifier(alias, quoted=True), copy=False)
        last = table.unit_path[-1]
        kind = self._type(self.find(last.table, None), last.column)
        return Relation(alias, fields, source, True, column(UNIT, alias), (table,), unit_type=kind)

    def _named(self, table: Table, alias: str) -> exp.Expr:
        if table.name not in self._named_as:
            text = self.engine.relation(table)
            self._named_as[table.name] = exp.maybe_parse(text, into=exp.Table, dialect=self.engine.dialect)
        return exp.alias_(self._named_as[table.name], alias, table=True, quoted=True)


def _unit_column(table: Table) -> str | None:
    """The column that holds the unit itself: the path's first, where every hop ends on the key that it starts from."""
    path = table.unit_path
    if not path or any(fold(hop.key) != fold(hop.column) for hop in path[1:]):
        return None
    return path[0].column
