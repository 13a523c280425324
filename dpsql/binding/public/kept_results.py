"""Kept results and releases: public relations of later statements, with their intervals.

Without a WITH of that name, a name means a kept result before a public table. A release is the kept result of a ledger, for all
of its sessions; no table or kept result has its name. Each kept result becomes a public CTE of
the statement, with its columns and its intervals' ends, which propagate like those of a private block's release. The
ends are also columns, ``n__low`` and ``n__high``, for statements that name them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlglot import exp

from dpsql.binding.relations.relation import column, fold
from dpsql.language.dialect import find_nodes, table_named
from dpsql.late_dataclass import dataclass

_CTE = "dpsql_kept_as_"
FORETOLD = "dpsql_foretold_"
"""Prefix of relations whose rows are not known yet: those of an earlier statement in the cell."""


@dataclass(frozen=True)
class KeptResult:
    """A kept result.

    Args:
        table: the relation's name, a digest of its content.
        ends: for those with intervals, the columns of the ends.
        bins: for columns of histograms, the half width of each count.
    """

    name: str
    table: str
    columns: tuple[str, ...]
    ends: tuple[tuple[str, str, str], ...] = ()
    confidence: float = 0.95
    bins: tuple[tuple[str, float], ...] = ()


def list_table_names(tree: exp.Expr) -> dict[str, exp.Expr]:
    """Return the folded names that a statement reads, of tables and of candidates, with the first node of each."""
    found: dict[str, exp.Expr] = {}
    for node in find_nodes(tree, exp.Table, exp.Window):
        alias = node.args.get("alias")
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not node.args.get("db"):
            found.setdefault(fold(node.name), node.this)
        elif isinstance(node, exp.Window) and isinstance(alias, exp.Identifier):
            found.setdefault(fold(alias.name), alias)
    return found


def kept_cte_name(name: str, taken: Collection[str]) -> str:
    """Return the name of a kept result's CTE, not among the names ``taken`` by a statement."""
    made = f"{_CTE}{fold(name)}"
    while made in taken:
        made += "_"
    return made


@dataclass(frozen=True)
class NamedResult:
    """A kept result that a statement names, and its CTE."""

    kept: KeptResult
    cte: exp.CTE


def name_kept_results(
    tree: exp.Expr, kept: Mapping[str, KeptResult], taken: Collection[str]
) -> list[NamedResult]:
    """Return the kept results that a statement names, and replace the names by their CTEs', in place.

    ``taken``: the names in the whole statement that resemble ours.
    """
    found: dict[str, KeptResult] = {}
    names = {name: kept_cte_name(name, taken) for name in kept}
    if kept:
        _visit(tree, frozenset(), kept, found, names)
    written = {fold(node.name) for node in tree.find_all(exp.Identifier)} if found else set()
    return [NamedResult(item, _as_cte(item, written, names[fold(item.name)])) for item in found.values()]


def prepend_kept_results(tree: exp.Expr, named: list[NamedResult]) -> None:
    """Prepend the CTEs that a statement still names, in place."""
    tables = {node.name for node in tree.find_all(exp.Table)} if named else set()
    made = [item.cte for item in named if item.cte.alias in tables]
    own = tree.args.get("with_")
    if made:
        rest = own.expressions if own is not None else []
        recursive = own.args.get("recursive") if own is not None else None
        tree.set("with_", exp.With(expressions=[*made, *rest], recursive=recursive))


def _visit(
    node: exp.Expr,
    hidden: frozenset[str],
    kept: Mapping[str, KeptResult],
    found: dict[str, KeptResult],
    names: Mapping[str, str],
) -> None:
    """Find the names that mean kept results; ``hidden`` are those that WITH redefines."""
    with_ = node.args.get("with_")
    for cte in with_.expressions if with_ is not None else ():
        after = hidden | {fold(cte.alias)}
        recursive = with_ is not None and with_.args.get("recursive")
        _visit(cte.this, after if recursive else hidden, kept, found, names)
        hidden = after
    for child in list(node.iter_expressions()):
        if child is not with_:
            _visit(child, hidden, kept, found, names)
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not node.args.get("db"):
        item = kept.get(fold(node.name)) if fold(node.name) not in hidden else None
        if item is not None:
            if not node.alias:
                node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name, quoted=True)))
            written = node.this
            node.set("this", exp.to_identifier(names[fold(item.name)], quoted=True))
            node.this.meta.update(written.meta)
            found[item.name] = item
    if isinstance(node, exp.Window) and isinstance(node.args.get("alias"), exp.Identifier):
        name = fold(node.args["alias"].name)
        if name in kept and name not in hidden:  # the candidates of a mechanism
            found[kept[name].name] = kept[name]


def _as_cte(item: KeptResult, named: set[str], name: str) -> exp.CTE:
    ends = [name for _, *pair in item.ends for name in pair if fold(name) in named]
    select = exp.Select(
        expressions=[exp.alias_(column(name), name, quoted=True) for name in (*item.columns, *ends)]
    )
    select.set("from_", exp.From(this=table_named(item.table)))
    alias = exp.TableAlias(this=exp.to_identifier(name, quoted=True))
    return exp.CTE(this=select, alias=alias)
