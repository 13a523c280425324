"""The sources of block results: rows are assigned to blocks, and a query or a Python function runs on each block.

A query is lifted if possible, otherwise it runs block by block. A session checks a Python function when it is registered.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from fractions import Fraction

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from dpsql.binding.modes.block_queries import BLOCK, Lifter, PerBlockQuery, conditions_of
from dpsql.binding.public_statement import Env, Released
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.relation import Field, From, Names, Relation, column, column_name
from dpsql.binding.relations.unit_rows import find_unit_holder, has_whole_unit
from dpsql.binding.values import total_expressions
from dpsql.binding.values.coercion import refuse_moment
from dpsql.binding.values.fixed_point import come_back, find_exit_type, hold_to_38_digits, leave, unify_zeros
from dpsql.binding.values.sql_types import BIGINT, BOOLEAN, DOUBLE, TEXT, Type, Typed, list_of
from dpsql.errors import BindError, PolicyError, PrivacyError
from dpsql.language.dialect import bind_error, privacy_error, to_sql
from dpsql.language.options import Options
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.queries import ROW_COUNT, As, Join, Select, Source, Subquery, Union
from dpsql.mechanisms.subsample.blocks import (
    RUNS_RELATION,
    BlockQueries,
    BlockSource,
    LiftedBlocks,
    Participation,
    PythonBlocks,
    RegisteredFunction,
    ReturnKind,
    ReturnType,
    fingerprint,
    write_block_number,
)


@dataclass
class Blocks:
    """Rows in blocks by a secret hash of their unit, independent of other rows; ``rounds`` partitions of all units."""

    blocks: int
    rounds: int = 1
    together: int | None = field(default=None, init=False)
    """The number of runs processed together; None for all."""

    @property
    def total(self) -> int:
        """The number of runs."""
        return self.blocks * self.rounds

    def unit(self, relation: Relation, unit: exp.Expr | None) -> str:
        """Return the expression that determines a row's block: its privacy unit or, for rows that are units, all its columns."""
        if unit is not None:
            return to_sql(unit)
        return f"hash({', '.join(to_sql(f.typed.node) for f in relation.fields)})"

    def hashed(self, relation: Relation, unit: exp.Expr | None) -> str:
        """Return that expression in one type: DuckDB's hashes of -5 in 32 and in 64 bits differ, but the unit is one."""
        made = self.unit(relation, unit)
        return f"CAST({made} AS BIGINT)" if unit is not None and has_whole_unit(relation) else made

    def unit_of(self, bound: From) -> tuple[str, str]:
        """Return the SQL that identifies the privacy units of a FROM, and the rows to read them from."""
        return self.hashed(find_unit_holder(bound), bound.unit), bound.sql

    def turns(self, source: Source, relation: Relation, unit: exp.Expr | None) -> Source:
        """Return the source with every row repeated, with the numbers of the rounds."""
        return Join(source, As(f"range({self.rounds})", "turns(turn)")) if self.rounds > 1 else source

    def number(self, relation: Relation, unit: exp.Expr | None) -> str:
        """Return the SQL of a row's block."""
        key, blocks = self.unit(relation, unit), self.blocks
        whole, turn = unit is not None and has_whole_unit(relation), "turns.turn" if self.rounds > 1 else None
        block = write_block_number(key, blocks, turn, whole, unit is None)
        return f"turns.turn * {blocks} + {block}" if turn else block

    def participation(self, found: list[tuple[str, str]]) -> Participation | None:
        """Return the check that no unit of ``found`` (keys, with their sources) is in too many runs, if random."""
        return None

    @property
    def sentence(self) -> str:
        """EXPLAIN's sentence about the blocks."""
        rounds = f", in {self.rounds} rounds" if self.rounds > 1 else ""
        return f"The query runs on {self.blocks} blocks of privacy units{rounds}."


_PAIRS_TOGETHER = 10_000_000
"""About the most pairs of a unit and a run processed at once."""


@dataclass
class IndependentRuns(Blocks):
    """Independent random subsamples, each unit in each with probability ``q``; EXPLAIN estimates them before they run."""

    q: Fraction = field(kw_only=True)
    runs: int = field(kw_only=True)
    units: int = field(kw_only=True)
    """The public number of units."""

    sentence = "The query runs on independent random subsamples of the privacy units, as in the textbook."

    def __post_init__(self) -> None:
        self.together = max(1, _PAIRS_TOGETHER // max(1, self.units))

    @property
    def total(self) -> int:
        return self.runs

    def _drawn(self, source: Source, key: str) -> Join:
        """Return a join with the runs of a unit, by one hash per pair."""
        coin = As(f"hash(xor(hash(runs.turn), CAST({SALT} AS UBIGINT)))", "coin")
        runs = Subquery(Select(("runs.turn", coin), RUNS_RELATION), "turns")
        drawn = f"(hash(xor(hash({key}), turns.coin)) >> 2) < {math.floor(self.q * 2**62)}"
        return Join(source, runs, drawn)

    def turns(self, source: Source, relation: Relation, unit: exp.Expr | None) -> Source:
        """Return the join with the runs of a row's unit."""
        return self._drawn(source, self.hashed(relation, unit))

    def number(self, relation: Relation, unit: exp.Expr | None) -> str:
        """Return the SQL of the run that a row was repeated for."""
        return "turns.turn"

    def participation(self, found: list[tuple[str, str]]) -> Participation:
        units = (Select(As(key, "k"), source, f"{key} IS NOT NULL", distinct=True) for key, source in found)
        ids = Subquery(Union(tuple(units), distinct=True), "ids")
        counted = Select(("ids.k", ROW_COUNT), self._drawn(ids, "ids.k"), group="ids.k")
        return Participation(Select(As("MAX(n)", "most"), Subquery(counted, "c")).sql, self.q, self.total)


# -- queries and functions on blocks ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockedQuery:
    """A source of block results, and its outputs."""

    source: BlockSource
    fields: tuple[Field, ...]
    units: list[tuple[str, str]]
    """Keys of privacy units, with the sources to read them from."""
    bound: tuple[From, ...] = ()
    """Every FROM over private rows, if the query was lifted."""

    def leave(self, numbers: Sequence[bool]) -> BlockedQuery:
        """Return a query whose outputs leave the engine in a supported form: as numbers, or as values that are compared."""
        alias, source = "leaving", self.source
        typed = [replace(f.typed, node=column(column_name(i), alias)) for i, f in enumerate(self.fields)]
        for item in typed:
            refuse_moment(replace(item, place=None))
        wide = [find_exit_type(t.type) != t.type for t in typed]
        if not any(wide) or not isinstance(source, LiftedBlocks | BlockQueries):
            return self
        outs = [
            t if not far else hold_to_38_digits(t) if number else leave(t)
            for t, number, far in zip(typed, numbers, wide, strict=True)
        ]
        items = [As(to_sql(out.node), column_name(i)) for i, out in enumerate(outs)]
        fields = tuple(Field(f.name, out) for f, out in zip(self.fields, outs, strict=True))
        if isinstance(source, LiftedBlocks):
            items.insert(0, As(f"{alias}.{BLOCK}", BLOCK))
        query = Select(tuple(items), Subquery(source.query, alias)).sql
        return replace(self, source=replace(source, query=query), fields=fields)

    def come_back(self, released: Released) -> exp.Expr:
        """Return a released column in the type of its output in the query, unless it is a number with noise."""
        own = {f.name: f.typed.type for f in self.fields}
        node, kind = column(released.name), own.get(released.name)
        if kind is None or released.type == "DOUBLE":
            return node
        return come_back(node, kind, released.type)


@dataclass
class SourceBinder:
    """Binds the query of a SUBSAMPLE, or the call of a registered function, on blocks."""

    binder: Binder
    select: exp.Select
    env: Env
    options: Options
    blocks: Blocks

    def bind(self, registered: tuple[str, exp.Expr] | None) -> BlockedQuery:
        """Return a Python function, or the query: lifted if possible, else block by block."""
        if registered is not None:
            return self._call(*registered)
        inputs, limits = dict(self.binder.lent_inputs), len(self.binder.limits)
        try:
            return self._lift()
        except (BindError, PrivacyError) as error:
            if isinstance(error, BindError) and error.decided:
                raise
            refused = error
        del self.binder.limits[limits:]
        self.binder.lent_inputs.clear()
        self.binder.lent_inputs.update(inputs)
        query = PerBlockQuery(self.binder, self.env, self.blocks.number, self.blocks.turns)
        try:
            sql, fields = query.rewrite(self.select)
        except (BindError, PrivacyError) as error:
            raise (refused if isinstance(refused, BindError) else error) from None
        for relation in query.private:
            Names((relation,)).check_unit(self.options, ", ".join(t.name for t in relation.tables))
        source = BlockQueries(tuple(query.rows), sql, tuple(f.name for f in fields), self.blocks.total)
        return BlockedQuery(
            source, fields, [(self.blocks.hashed(r, r.unit), to_sql(r.source)) for r in query.private]
        )

    def _lift(self) -> BlockedQuery:
        lifter = Lifter(self.binder, self.blocks.number, self.blocks.turns, self.blocks.total)
        lifted = lifter.lift(self.select, self.env)
        for bound in lifter.bound:
            bound.names.check_unit(self.options, bound.subject)
        names = tuple(f.name for f in lifted.fields)
        source = LiftedBlocks(lifted.query.sql, names, self.blocks.total, self.blocks.together)
        return BlockedQuery(
            source, lifted.fields, [self.blocks.unit_of(b) for b in lifter.bound], tuple(lifter.bound)
        )

    def _call(self, name: str, call: exp.Expr) -> BlockedQuery:
        for key in ("group", "having", "qualify", "distinct", "limit", "windows", "sample"):
            if self.select.args.get(key):
                what = f"a Python function takes rows as they are, without {key.upper()}."
                raise privacy_error(call, what, "filter with WHERE, or do it in the function.")
        bound = self.binder.private_from(self.select, self.env)
        names, private = bound.names, find_unit_holder(bound)
        names.check_unit(self.options, bound.subject)
        typed = [total_expressions.make_total(place, names) for place in call.expressions]
        if not typed:
            hint = f"write {call.name}(age, income)."
            raise bind_error(call, f"{call.name} needs columns.", hint)
        block, values = (
            self.blocks.number(private, bound.unit),
            (As(_argument(t), f"x{i}") for i, t in enumerate(typed)),
        )
        as_text = (f"x{i}" for i, t in enumerate(typed) if t.type.two_faced and t.type.kind != "DOUBLE")
        key, source = self.blocks.unit_of(bound)
        repeated, where = (
            self.blocks.turns(source, private, bound.unit),
            conditions_of(bound.unit, self.select, names),
        )
        text = Select((As(block, "block"), *values), repeated, where).sql
        own = call.name.lower()
        function = self.binder.catalog.functions[own]
        made = PythonBlocks(
            text,
            tuple(f"x{i}" for i in range(len(typed))),
            self.blocks.total,
            own,
            name,
            function.function,
            fingerprint(function.function),
            tuple(as_text),
            function.returns,
        )
        kind = DOUBLE if self.options.get("bounds") is not None else TEXT
        if function.returns is not None:
            kind = sql_type(function.returns)
        elif kind is DOUBLE:
            self.binder.notes.append(
                f"the type that {own} returns is not declared: a result that is not one number counts as the middle of the "
                "bounds; register the function with returns=... to have its results checked"
            )
        return BlockedQuery(made, (Field(name, Typed(column(name), kind)),), [(key, source)])


def _argument(typed: Typed) -> str:
    """Return an argument in numpy's types: numbers above 64 bits and exact decimals become doubles."""
    if typed.type.kind == "DOUBLE":  # one zero, one NaN: the rows of a block are sorted, and ties are not
        return to_sql(unify_zeros(typed).node)
    wide = typed.type.kind == "DECIMAL" or typed.type.sql in ("HUGEINT", "UHUGEINT")
    return f"CAST({to_sql(typed.node)} AS DOUBLE)" if wide else to_sql(typed.node)


# -- registered functions -----------------------------------------------------------------------------------------------

_PYTHON: dict[object, Type] = {float: DOUBLE, int: BIGINT, str: TEXT, bool: BOOLEAN}
_TYPES: dict[ReturnKind, Type] = {"DOUBLE": DOUBLE, "BIGINT": BIGINT, "VARCHAR": TEXT, "BOOLEAN": BOOLEAN}
_KINDS: dict[str, ReturnKind] = {str(kind.kind): name for name, kind in _TYPES.items()}
_KINDS["DECIMAL"] = "DOUBLE"
_LONGEST = 1000
_SQL_FUNCTIONS = frozenset(DuckDB.Parser.FUNCTIONS) | frozenset(DuckDB.Parser.FUNCTION_PARSERS)
"""Names that always mean SQL's own functions, whatever was registered."""
_HINT = "write returns='DOUBLE', 'BIGINT', 'VARCHAR' or 'BOOLEAN', or a list of these such as 'VARCHAR[]'."


def registered(
    name: str, function: Callable[..., object], returns: object, length: int | None
) -> RegisteredFunction:
    """Return the function given to ``session.register``.

    Raises:
        PolicyError: the name can't be a function's.
        BindError: no function, the name of a SQL function, or a type or length that results can't have.
    """
    if not name.isidentifier():
        raise PolicyError(f"{name!r} can't be the name of a function.")
    if not callable(function):
        what = f"{name} must be a function: {type(function).__name__} objects can't be called."
        raise BindError(what, hint=f"session.register('{name}', function)")
    if name.upper() in _SQL_FUNCTIONS:
        hint = f"choose another name, such as my_{name}."
        raise BindError(f"SQL has a function {name} already.", hint=hint)
    if returns is None:
        if length is not None:
            hint = "write returns='DOUBLE', length=3."
            raise BindError("a length needs the type of the elements.", hint=hint)
        return RegisteredFunction(function)
    kind = _type_of(returns)
    element = kind.element if kind is not None and kind.kind == "LIST" else kind
    known = _KINDS.get(element.kind) if element is not None else None
    if kind is None or known is None:
        raise BindError(f"{name} can't return {returns!r}.", hint=_HINT)
    if length is not None and (type(length) is not int or not 1 <= length <= _LONGEST):
        raise BindError(f"the length of a result must be between 1 and {_LONGEST}.", hint="write length=3.")
    return RegisteredFunction(function, ReturnType(known, kind.kind == "LIST" or length is not None, length))


def _type_of(returns: object) -> Type | None:
    if isinstance(returns, str):
        return Type.parse(returns)
    if typing.get_origin(returns) in (list, tuple):
        inside = [part for part in typing.get_args(returns) if part is not Ellipsis]
        element = _PYTHON.get(inside[0]) if len(set(inside)) == 1 else None
        return list_of(element) if element is not None else None
    return _PYTHON.get(returns) if isinstance(returns, type) else None


def sql_type(returns: ReturnType) -> Type:
    """Return the SQL type of a declared result."""
    element = _TYPES[returns.kind]
    return list_of(element) if returns.many else element
