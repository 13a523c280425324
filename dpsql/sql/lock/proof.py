"""Whether what was derived of a text is within what its operator charges."""

from __future__ import annotations

from collections.abc import Iterable

from dpsql.mechanisms.base import (
    BlocksClaim,
    Claim,
    PackingClaim,
    ParticipationClaim,
    PublicClaim,
    RouteClaim,
    RowsClaim,
    SensitivityClaim,
    SumsClaim,
)
from dpsql.sql.lock.facts import CELLS, OWN, PRIVATE, PUBLIC, Facts, Number, Relation, Symbol, Symbols, Value
from dpsql.sql.lock.tree import refuse


def prove(relation: Relation, claim: Claim, symbols: Symbols) -> None:
    """Compares.

    Raises:
        Unproved: the text may do more than its claim, or nothing says that it does not.
    """
    if isinstance(claim, RouteClaim) or relation.kind == PUBLIC:
        return
    if isinstance(claim, PublicClaim):
        refuse("a public text reads private rows")
    if relation.kind == OWN:
        if isinstance(claim, BlocksClaim):
            return
        refuse("rows of one block")
    if relation.private and relation.orphans:
        refuse("rows of nobody are read")
    if isinstance(claim, SumsClaim):
        _sums(relation, claim, symbols)
    elif isinstance(claim, RowsClaim):
        _rows(relation, claim, symbols)
    elif isinstance(claim, BlocksClaim):
        _blocks(relation, claim, symbols)
    elif isinstance(claim, ParticipationClaim):
        _participates(relation)
    elif isinstance(claim, PackingClaim):
        refuse("packed rows")


def _column(relation: Relation, name: str) -> Value:
    found = relation.columns.get(name)
    if found is None:
        refuse("a column that the operator asks for is not there")
    return found


def _keys(relation: Relation, names: Iterable[str]) -> list[tuple[Facts, list[Symbol]]]:
    """The columns of each source by which the operator takes groups apart."""
    symbols = [_column(relation, name).symbol for name in names]
    if relation.kind != CELLS:
        return [(relation.facts, symbols)]
    if any(symbol not in relation.key for symbol in symbols):
        refuse("a group that others' rows decide about")
    return [
        (facts, [relation.key[symbol][place] for symbol in symbols])
        for place, facts in enumerate(relation.sources)
    ]  # fmt: skip


def _sums(relation: Relation, claim: SumsClaim, symbols: Symbols) -> None:
    if relation.kind != CELLS or not relation.single:
        refuse("a group may have several rows")
    if len(relation.sources) != 1:
        refuse("sums of several sources")
    for name in claim.keys:
        symbol = _column(relation, name).symbol
        if not (symbols.decided(symbol, relation.open) if not claim.selected else
                symbols.decided(symbol, frozenset(relation.key) | relation.open)):  # fmt: skip
            refuse("a group that others' rows decide about")
    if claim.keys and not claim.selected and not relation.fixed:
        refuse("which groups there are is private")
    if not claim.keys and relation.key and not claim.selected and not relation.fixed:
        refuse("more groups than the operator knows of")
    keys = list(dict.fromkeys(source for (source,) in relation.key.values()))
    facts = relation.sources[0]
    groups = _least(facts.groups_of(keys, symbols.made), relation.count)
    for name, charged in claim.columns:
        compare(_column(relation, name), facts, keys, groups, charged, symbols)


def compare(
    value: Value,
    facts: Facts,
    keys: list[Symbol],
    groups: Number,
    charged: SensitivityClaim,
    symbols: Symbols,
) -> None:
    """Whether one unit moves a sum by no more than is charged, in L1 and in L2.

    Raises:
        Unproved: it may.
    """
    rows = facts.rows_of(keys, symbols.made)
    each = None if value.weight is None or rows is None else value.weight * rows
    total = value.total
    if each is None and total is None:
        refuse("nothing bounds what one unit moves a sum by")
    if value.halved:
        even = value.odd == frozenset()
        each = None if each is None else -(-each // 2)
        total = None if total is None or not even else total // 2
    each = _least(each, total)
    if each is None:
        refuse("nothing bounds what one unit moves a sum by")
    if total is None and groups is None:
        refuse("nothing bounds the groups that one unit is in")
    whole = _least(None if groups is None else each * groups, total)
    squared = _least(
        None if groups is None else each * each * groups, None if total is None else total * total
    )
    assert whole is not None and squared is not None
    if whole > charged.steps * charged.groups or squared > charged.steps**2 * charged.groups:
        refuse("one unit moves a sum by more than is charged")


def _least(a: Number, b: Number) -> Number:
    return b if a is None else a if b is None else min(a, b)


def _rows(relation: Relation, claim: RowsClaim, symbols: Symbols) -> None:
    for facts, keys in _keys(relation, claim.keys):
        rows, groups = facts.rows_of(keys, symbols.made), facts.groups_of(keys, symbols.made)
        if (rows is None or rows > claim.rows) and not _each(relation, claim, symbols):
            refuse("more rows of one unit than are charged")
        groups = _least(groups, relation.count) if relation.kind == CELLS and relation.single else groups
        if groups is None or groups > claim.groups:
            refuse("one unit is in more groups than are charged")
    for name, most in claim.within:
        found = _column(relation, name).most
        if found is None or found > most:
            refuse("a value beyond its bounds")
    for name, most in claim.moves:
        weight = _column(relation, name).weight
        if weight is None or weight > most:
            refuse("one row moves a sum by more than is charged")


def _each(relation: Relation, claim: RowsClaim, symbols: Symbols) -> bool:
    """Whether so many rows of a unit count for each public candidate, of which there may be many."""
    if claim.each is None or claim.keys:
        return False
    found = [facts.rows_of(keys, symbols.made) for facts, keys in _keys(relation, (claim.each,))]
    return all(rows is not None and rows <= claim.rows for rows in found)


def _blocks(relation: Relation, claim: BlocksClaim, symbols: Symbols) -> None:
    for facts, (key,) in _keys(relation, (claim.column,)):
        blocks = facts.groups_of((key,), symbols.made)
        if claim.most is not None and (blocks is None or blocks > claim.most):
            refuse("one unit is in more blocks than are charged")
        if claim.most is not None and key not in symbols.secret:
            refuse("blocks that everybody can foresee")


def _participates(relation: Relation) -> None:
    if relation.kind != CELLS or list(relation.columns) != ["most"] or relation.key:
        refuse("not a number of blocks")


__all__ = ["PRIVATE", "compare", "prove"]
