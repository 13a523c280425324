"""The strategy of several quantiles of one column: one by one, each with its share of epsilon, or all from one noisy tree.

The choice depends on public numbers alone: which quantiles are asked for, the points of the grid, epsilon and the caps. AUTO
takes the tree where its expected error in rank is smaller in each column of the answer, both for :data:`TYPICAL_ROWS` rows in a
group and for very many. It costs what the quantiles cost one by one: the epsilon that was asked for, and in the currency of the
session's accountant no more than these. The exponential mechanism costs little rho and mu, so under zcdp, gdp and rdp a tree
pays only for more quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import fmean

from dpsql.mechanisms.aggregation import Part, Together
from dpsql.mechanisms.kept_tree import MAX_KEPT_POINTS, KeptTree
from dpsql.mechanisms.mean_errors import TYPICAL_ROWS
from dpsql.mechanisms.quantile_errors import RankErrors, expect_plain, expect_tree
from dpsql.mechanisms.quantile_tree import QuantileTree, make_tree_of
from dpsql.mechanisms.quantiles import Quantiles
from dpsql.mechanisms.strategies import CLEARLY, EVEN, TREE, StrategyChoice
from dpsql.plan import StrategyVariant
from dpsql.privacy.amounts import SYMBOLS, Amount
from dpsql.privacy.events import Event
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.sql.dp.strategies import find_forced
from dpsql.sql.parse.options import Options
from dpsql.sql.relations.catalog import Binder

_FEWEST = 2
"""Quantiles of one column from which on a tree may be asked for."""
_MANY = 3
"""Quantiles of one column from which on AUTO compares the ways."""
_KEPT = "The tree is kept with the answer: other quantiles of these rows, asked alone at the same {}, are read from it for free."


def choose_quantiles(binder: Binder, name: str, options: Options, currency: str) -> bool:
    """Give a block of a plan the strategy that serves its quantiles best, or the one that is asked for.

    Args:
        binder: holds the plan's blocks.
        name: of the block.
        options: its options.
        currency: that it was asked in.

    Returns:
        Whether some of its quantiles could come from a tree, so that one may be asked for.
    """
    place = next(i for i, item in enumerate(binder.blocks) if item.name == name)
    item, word = binder.blocks[place], find_forced(options)
    operator = item.operator
    if type(operator) is not Together or word not in (None, EVEN, TREE):
        return False
    fewest = _FEWEST if word == TREE else _MANY
    quantiles = [p for p in operator.parts if type(p) is Quantiles]
    parts = [p for p in quantiles if len(p.ranks) >= fewest]
    if not quantiles or (word == EVEN and not parts):
        return False
    whole = item.asked if len(operator.parts) == 1 and operator.aggregation is None else None
    forced: dict[Part, Part] = {part: make_tree_within(part, (currency,), whole) for part in quantiles}
    if not parts:
        if word is None and isinstance(_swap(operator, forced), KeptTree):
            binder.blocks[place] = replace(item, variants=_list_variants(operator, quantiles, {}, forced))
        return False
    kind = ACCOUNTANTS[binder.catalog.accountant]
    own = (kind.currency or "rho",) if kind.has_rule and word != TREE else ()
    plain: RankErrors = {}
    told: RankErrors = {}
    chosen: dict[Part, Part] = {}
    for part in parts:
        tree = make_tree_within(part, (currency, *own), whole)
        even, errors = expect_plain(part, TYPICAL_ROWS), expect_tree(tree, TYPICAL_ROWS)
        better = _is_better(errors, even) and _is_better(expect_tree(tree, None), expect_plain(part, None))
        plain |= even
        told |= errors
        if word == TREE or (better and word is None):
            chosen[part] = tree
    best = TREE if chosen else EVEN
    shown = {EVEN: plain, TREE: told}
    if word is None and chosen:  # the others stay as they are
        shown[TREE] = expect_chosen(parts, chosen)
    choice = StrategyChoice(best, word is not None, tuple((w, tuple(e.items())) for w, e in shown.items()))
    many = max(len(part.ranks) for part in parts)
    said = (
        f"Up to {many} quantiles are asked of one column; the errors of strategies are in rows of rank, for {TYPICAL_ROWS:,} "
        "rows of a group, spread evenly."
    )
    dearer = [
        line
        for p in parts
        if p not in chosen and own and word is None
        for line in _say_dearer(p, currency, own[0])
    ]
    changed = _swap(operator, chosen)
    same = all(tree == forced[part] for part, tree in chosen.items())
    kept = (_KEPT.format(SYMBOLS[currency]),) if isinstance(changed, KeptTree) and same else ()
    variants = () if word else _list_variants(operator, parts, chosen, forced)
    sentences = (*item.sentences, said, *kept, *dict.fromkeys(dearer))
    binder.blocks[place] = replace(
        item, operator=changed, strategy=choice, sentences=sentences, variants=variants
    )
    return True


def expect_chosen(parts: Iterable[Quantiles], chosen: Mapping[Part, Part]) -> RankErrors:
    """Return the errors of quantiles by the way that was chosen for each part."""
    found: RankErrors = {}
    for part in parts:
        tree = chosen.get(part)
        if isinstance(tree, QuantileTree):
            found |= expect_tree(tree, TYPICAL_ROWS)
        else:
            found |= expect_plain(part, TYPICAL_ROWS)
    return found


def _say_dearer(part: Quantiles, asked: str, currency: str) -> Iterator[str]:
    """Yield what a tree of the same epsilon would be worth, and how much more of the session's own currency it would cost."""
    tree = make_tree_within(part, (asked,))
    errors, plain = expect_tree(tree, TYPICAL_ROWS), expect_plain(part, TYPICAL_ROWS)
    if asked == "epsilon" and _is_better(errors, plain):
        spent = Amount(currency, Fraction(1))
        times = float(spent.cost(tree.event) / spent.cost(part.event))
        mine, its = max(errors.values()), max(plain.values())
        yield (
            f"OPTIONS (strategy = TREE) would cost the same ε and have a root mean squared error of ±{mine:.4g} of these rows, "
            f"not ±{its:.4g}, but take {times:.3g} times as much {SYMBOLS[currency]}{'²' * (currency == 'mu')}."
        )


def _is_better(tree: RankErrors, plain: RankErrors) -> bool:
    return all(error < plain[name] * CLEARLY for name, error in tree.items())


def _list_variants(
    operator: Together, parts: Sequence[Quantiles], chosen: Mapping[Part, Part], forced: Mapping[Part, Part]
) -> tuple[StrategyVariant, ...]:
    """Return the block under other strategies: a stored answer by one of them serves the statement too."""
    best, found = expect_chosen(parts, chosen), []
    for word, others in ((TREE, forced), (EVEN, {})):
        errors = expect_chosen(parts, others)
        gain = math.exp(fmean(math.log(errors[name] / error) for name, error in best.items()))
        other = _swap(operator, others)
        if other != _swap(operator, chosen):
            found.append(StrategyVariant(word, other, gain))
    return tuple(found)


def _swap(operator: Together, others: Mapping[Part, Part]) -> Together:
    """Return a block with other parts; one tree over few enough points, which stands alone, is kept with its answers."""
    parts = tuple(others.get(part, part) for part in operator.parts)
    alone = parts[0] if len(parts) == 1 and operator.aggregation is None else None
    if isinstance(alone, QuantileTree) and alone.high - alone.low < MAX_KEPT_POINTS:
        return KeptTree(None, parts)
    return replace(operator, parts=parts)


def make_tree_within(part: Quantiles, currencies: Iterable[str], whole: Amount | None = None) -> QuantileTree:
    """Return the best tree for a part's quantiles that costs no more than they do one by one, in any of these currencies.

    Args:
        part: the quantiles.
        currencies: that they were asked in, and that the session counts in.
        whole: what they were asked to cost, where nothing else shares it: a tree of that serves other quantiles as well.
    """
    ruled = [word for word in dict.fromkeys(currencies) if word != "epsilon"]
    tree = make_tree_of(part, part.epsilon, 1 if ruled else 2)
    for word in ruled:
        if whole is not None and word == whole.currency:
            tree = replace(tree, epsilon=whole.find_epsilon(_price(tree)))
            continue
        most = Amount(word, Amount(word, Fraction(1)).cost(part.event))
        if not most.covers(tree.event):
            tree = replace(tree, epsilon=min(tree.epsilon, most.find_epsilon(_price(tree))))
    return tree


def _price(tree: QuantileTree) -> Callable[[Fraction], Event]:
    return lambda epsilon: replace(tree, epsilon=epsilon).event
