"""The proof: what was derived of a text is within what its operator charges.

Rows that come as one integer each are read out of its bits: the unit, the groups and the values. What is not SQL there is
checked here: that the topmost bits are the unit's, whole and of no other row's making; that each value is held to what its
bits can hold; and that an operator clamps what it adds up to no more than is charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dpsql.mechanisms import base
from dpsql.sql.lock import tree
from dpsql.sql.lock.facts import Facts, Kind, Number, Relation, Symbol, Symbols, Value, least, times
from dpsql.sql.lock.tree import Call, Cast, Expr, Literal, Ref, refuse


def prove(relation: Relation, claim: base.Claim, symbols: Symbols) -> None:
    """Compare.

    Raises:
        Unproved: the text may do more than its claim, or nothing says that it does not.
    """
    if isinstance(claim, base.RouteClaim) or relation.kind == Kind.PUBLIC:
        return
    if isinstance(claim, base.PublicClaim):
        refuse("a public text reads private rows")
    if relation.kind == Kind.OWN and isinstance(claim, base.BlocksClaim):
        return
    if relation.kind == Kind.OWN:
        refuse("rows of one block")
    if relation.private and relation.orphans:
        refuse("rows of nobody are read")
    match claim:
        case base.SumsClaim():
            _sums(relation, claim, symbols)
        case base.RowsClaim():
            _rows(relation, claim, symbols)
            if relation.kind == Kind.CELLS and claim.scores is None and not claim.any_function:
                _counts(relation, claim, symbols)
        case base.BlocksClaim():
            _blocks(relation, claim, symbols)
        case base.ParticipationClaim():
            if relation.kind != Kind.CELLS or [*relation.columns] != [Ref("", "most")] or relation.key:
                refuse("not a number of blocks")
        case base.PackingClaim():
            refuse("packed rows")


def _column(relation: Relation, name: str) -> Value:
    return relation.columns.get(Ref("", name)) or refuse("a column that the operator asks for is not there")


def _keys(relation: Relation, names: Iterable[str]) -> list[tuple[Facts, list[Symbol]]]:
    """Return the columns of each source by which the operator takes groups apart."""
    symbols = [_column(relation, name).symbol for name in names]
    if relation.kind != Kind.CELLS:
        return [(relation.facts, symbols)]
    if any(symbol not in relation.key for symbol in symbols):
        refuse("a group that others' rows decide about")
    return [
        (facts, [relation.key[symbol][place] for symbol in symbols])
        for place, facts in enumerate(relation.sources)
    ]  # fmt: skip


def _sums(relation: Relation, claim: base.SumsClaim, symbols: Symbols) -> None:
    if relation.kind != Kind.CELLS or not relation.single:
        refuse("a group may have several rows")
    if len(relation.sources) != 1:
        refuse("sums of several sources")
    by = relation.open | relation.key.keys() if claim.selected else relation.open
    if not all(symbols.decided(_column(relation, name).symbol, by) for name in claim.keys):
        refuse("a group that others' rows decide about")
    if not claim.selected and not relation.fixed and (claim.keys or relation.key):
        refuse("which groups there are is private" if claim.keys else "more groups than are known")
    keys = list(dict.fromkeys(source for (source,) in relation.key.values()))
    facts = relation.sources[0]
    groups = least(facts.groups_of(keys, symbols.made), relation.count)
    rows = facts.rows_of(keys, symbols.made)
    for name, charged in claim.columns:
        _compare(_column(relation, name), rows, groups, charged)


def _compare(value: Value, rows: Number, groups: Number, charged: base.SensitivityClaim) -> None:
    """Return whether one unit moves a sum by no more than is charged, in L1 and in L2.

    Raises:
        Unproved: it may.
    """
    each, total = times(value.weight, rows), value.total
    if value.halved:
        each = None if each is None else -(-each // 2)
        total = total // 2 if total is not None and value.odd == frozenset() else None
    each = least(each, total)
    if each is None:
        refuse("nothing bounds what one unit moves a sum by")
    whole = least(times(each, groups), total)
    if whole is None:
        refuse("nothing bounds the groups that one unit is in")
    squared = _most_squares(each, whole)
    if whole > charged.steps * charged.groups or squared > charged.steps**2 * charged.groups:
        refuse("one unit moves a sum by more than is charged")


def _most_squares(each: int, whole: int) -> int:
    """Return the largest sum of squares of whole numbers up to ``each`` that add up to ``whole`` at most.

    To move 1 from a smaller number to a larger one makes the sum of squares larger, so as many as can be are ``each``.
    """
    if not each:
        return 0
    rest = whole % each
    return (whole - rest) * each + rest * rest


def _rows(relation: Relation, claim: base.RowsClaim, symbols: Symbols) -> None:
    for facts, keys in _keys(relation, claim.keys):
        if claim.in_all:
            whole = facts.rows_of((), symbols.made)
            if whole is None or whole > claim.rows:
                refuse("more rows of one unit than are charged")
            continue
        rows, groups = facts.rows_of(keys, symbols.made), facts.groups_of(keys, symbols.made)
        if (rows is None or rows > claim.rows) and not _each(relation, claim, symbols):
            refuse("more rows of one unit than are charged")
        groups = least(groups, relation.count) if relation.kind == Kind.CELLS and relation.single else groups
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


def _counts(relation: Relation, claim: base.RowsClaim, symbols: Symbols) -> None:
    """Prove that each row counts in one cell alone, and that nothing but what is counted looks at a cell's rows.

    Raises:
        Unproved: one row may decide how often others' values are counted, or as which values.
    """
    if not claim.moves:
        refuse("nothing says how often a value is counted")
    moved, key = {name for name, _ in claim.moves}, frozenset(relation.key)
    for ref, value in relation.columns.items():
        if ref.name not in moved and not symbols.decided(value.symbol, key):
            refuse("a value that others' rows decide about")
    if not relation.single:
        refuse("a group may have several rows")


def _each(relation: Relation, claim: base.RowsClaim, symbols: Symbols) -> bool:
    """Return whether so many rows of a unit count for each public candidate, of which there may be many."""
    if claim.each is None or claim.keys:
        return False
    found = [facts.rows_of(keys, symbols.made) for facts, keys in _keys(relation, (claim.each,))]
    return all(rows is not None and rows <= claim.rows for rows in found)


def _blocks(relation: Relation, claim: base.BlocksClaim, symbols: Symbols) -> None:
    for facts, (key,) in _keys(relation, (claim.column,)):
        if claim.most is None:
            continue
        blocks = facts.groups_of((key,), symbols.made)
        if blocks is None or blocks > claim.most:
            refuse("one unit is in more blocks than are charged")
        if key not in symbols.secret:
            refuse("blocks that everybody can foresee")


# -- rows that come as one integer each -------------------------------------------------------------------------------

Evaluate = Callable[[Expr], Value]


def prove_packing(item: Expr | None, value: Evaluate, relation: Relation, claim: base.PackingClaim) -> None:
    """Compare.

    Args:
        item: the integer; None where nothing is packed beside the hash of a unit.
        value: what is known of a part of it.
        relation: its rows.
        claim: what the operator says of it.

    Raises:
        Unproved: the bits are not what the operator takes them for, or it is held to more than is charged.
    """
    if not relation.private or relation.orphans or not relation.owner:
        refuse("packed rows of nobody")
    terms = [] if item is None else [_term(term) for term in tree.addends(item)]
    units = [t for t in terms if _is_unit(t[0], value, relation)]
    if len(units) != (1 if claim.coded is None else 0):
        refuse("packed rows without one unit")
    codes = [t for t in terms if t not in units and _is_code(t[0])]
    values = [t for t in terms if t not in units and t not in codes]
    if len(codes) != claim.keys:
        refuse("packed groups of another number")
    if len(values) not in (0, len(claim.values)):
        refuse("packed values of another number")
    for (node, _), most in zip(values, claim.values, strict=False):
        held = value(node)
        if held.low is None or held.low < 0 or held.high is None or held.high > most or held.nullable:
            refuse("a packed value beyond its bits")
    if all(at for _, at in terms):
        top = None if claim.coded is not None else units[0][1]
        _apart([at for _, at in values], [at for _, at in codes], top, claim.values)
    if not claim.keys:
        tallies = dict(claim.tallies)
        for name, charged in claim.charged:
            if name not in tallies or tallies[name] > charged.steps:
                refuse("one unit moves a sum by more than is charged")


def _term(node: Expr) -> tuple[Expr, int]:
    """Return a value and its multiplier, 0 where that is filled in at release."""
    match node:
        case Call("*", (inner, tree.Parameter() | Cast(tree.Parameter()))):
            return inner, 0
        case Call("*", (inner, Literal(integer=int(at)) | Cast(Literal(integer=int(at))))) if at >= 1:
            return inner, at
    refuse("packed rows of another shape")


def _is_unit(node: Expr, value: Evaluate, relation: Relation) -> bool:
    """Return whether it is ``CAST(unit AS BIGINT) - least``."""
    match node:
        case Call("-", (Cast(Ref() as unit, "BIGINT") | (Ref() as unit), first)) if _fixed(first):
            found = value(unit)
            return found.symbol in relation.facts.units and found.whole
    return False


def _is_code(node: Expr) -> bool:
    """Return whether it is ``COALESCE(CAST(key AS BIGINT) - least + 1, 0)``, where 0 stands for NULL."""
    match node:
        case Call(
            "coalesce",
            (Call("+", (Call("-", (Cast() | Ref(), first)), Literal(integer=1))), Literal(integer=0)),
        ):
            return _fixed(first)
    return False


def _fixed(node: Expr) -> bool:
    inner = node.child if isinstance(node, Cast) else node
    varied = isinstance(inner, tree.Varied) and inner.whole
    return varied or isinstance(inner, tree.Parameter) or tree.integer(inner) is not None


def _apart(values: list[int], codes: list[int], top: int | None, limits: Sequence[int]) -> None:
    """Return whether each part has bits of its own, where the text itself says which.

    Without ``top`` the unit's code is put above them all once the rows are read, which checks that nothing stands there.
    """
    end = 1
    for at, most in zip(values, limits, strict=False):
        if at != end:
            refuse("packed values that share bits")
        end <<= most.bit_length()
    if any(at < end or at & (at - 1) for at in codes):
        refuse("packed groups that share bits with values")
    if top is not None and (top < max([end, *codes]) or top & (top - 1)):
        refuse("the unit shares bits with what is packed beside it")
