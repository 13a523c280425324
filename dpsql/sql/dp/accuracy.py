"""OPTIONS (error = x): the epsilon that an answer of this accuracy takes, found before or while it is released.

The interval of a count or of a sum is as wide as its noise, which is public: its epsilon is found here, and what more would be
asked for than the block has is refused before anything is paid. Where the width depends on private counts too, noise is
reduced step by step when it is released (:mod:`dpsql.mechanisms.noise_reduction`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import BindError, Error, PrivacyError
from dpsql.mechanisms.moments import Count, Output, Sum
from dpsql.numerics.exact_numbers import compute_root, round_significant, shorten, write_number
from dpsql.privacy.amounts import Amount
from dpsql.privacy.conversions import gaussian_epsilon, gaussian_mu
from dpsql.sql.dp.aggregates import Aggregate
from dpsql.sql.dp.noise_choice import NoiseMaker
from dpsql.sql.normalize import label_of
from dpsql.sql.parse.dialect import span_of
from dpsql.sql.parse.options import Options

_FARTHEST = 1 << 20
"""The greatest multiple of the block's epsilon that is tried for a hint."""


@dataclass(frozen=True)
class FittedOutputs:
    """The outputs of a block with the noise that an error asks for.

    Args:
        outputs: in the order of the aggregates.
        reduced: names of those whose noise is reduced while they are released.
        sentences: what EXPLAIN says of the others.
        is_gaussian: whether their noise is Gaussian, and takes a part of delta.
    """

    outputs: tuple[Output, ...]
    reduced: tuple[str, ...]
    sentences: tuple[str, ...]
    is_gaussian: bool = False


def check_fits(aggregates: Sequence[Aggregate]) -> None:
    """Refuse an error where it can't be had.

    Raises:
        BindError: shares of epsilon are named beside it. PrivacyError: an aggregate has no interval that it could narrow.
    """
    for a in aggregates:
        what, name = None, label_of(a.call)
        if a.share is not None:
            what, hint = f"error decides what {name} may take of epsilon.", "leave its own epsilon out."
            raise BindError(what, span=span_of(a.call.node), hint=hint)
        if a.formula is None:
            what = f"error is for counts, sums and means, and {name} has noise of another kind."
        elif a.shown is not None:
            what = f"error is for numbers, and {name} is none."
        if what is not None:
            raise PrivacyError(
                what, span=span_of(a.call.node), hint="leave error out, or ask for it by itself."
            )


def _is_public(output: Output) -> bool:
    """Say whether the width of an output's interval is known beforehand."""
    return isinstance(output, Count | Sum)


def fit_outputs(
    options: Options, aggregates: Sequence[Aggregate], epsilon: Fraction, delta: Fraction | None, maker: NoiseMaker
) -> FittedOutputs:  # fmt: skip
    """Return the outputs with the noise that the error asks for.

    Args:
        options: with the error.
        aggregates: checked by :func:`check_fits`.
        epsilon: what they may take together.
        delta: what Gaussian noise may take of all of them; None for Laplace noise.
        maker: makes the noise.

    Raises:
        PrivacyError: epsilon can't give the error; nothing is paid.
    """
    if delta is not None:
        return _fit_gaussian(options, aggregates, epsilon, delta, maker)

    def build(a: Aggregate, own: Fraction) -> Output:
        return maker.add_laplace([(a, Amount("epsilon", own))]).build(a)

    whole = [build(a, epsilon) for a in aggregates]
    needs = [_find_need(options, output) if _is_public(output) else Fraction(0) for output in whole]
    known = [need for need in needs if need is not None]
    open_ones = [output.name for output in whole if not _is_public(output)]
    taken = sum(known, Fraction(0))
    if len(known) < len(needs) or taken > 1 or (taken == 1 and open_ones):
        most = None if len(known) < len(needs) else taken * epsilon
        public = [output for output in whole if _is_public(output)]
        each = Fraction(1, len(public) + bool(open_ones))
        reach = max(_width_of(output, options.confidence)(each) for output in public)
        raise _refuse(options, most, epsilon, public, reach, bool(open_ones))
    rest = (1 - taken) / max(1, len(open_ones))
    parts = [need if _is_public(o) else rest for need, o in zip(known, whole, strict=True)]
    outputs = tuple(build(a, epsilon * part) for a, part in zip(aggregates, parts, strict=True))
    said = (
        _say(options, o.name, epsilon * part) for o, part in zip(outputs, parts, strict=True) if _is_public(o)
    )
    return FittedOutputs(outputs, tuple(open_ones), tuple(said))


def _fit_gaussian(
    options: Options, aggregates: Sequence[Aggregate], epsilon: Fraction, delta: Fraction, maker: NoiseMaker
) -> FittedOutputs:  # fmt: skip
    """Return counts and sums with Gaussian noise of one calibration.

    Each alone would take a mu for its error; squared mus add up, and epsilon is what their sum comes to at delta.
    """
    whole = []
    for a in aggregates:
        alone = [(a, Amount("epsilon", epsilon))]
        whole.append(maker.add_gaussian(alone, epsilon, delta).build(a))
    if not all(map(_is_public, whole)):
        what = "the noise of means is reduced step by step, which is proved for Laplace noise."
        raise options.refuse("noise", what, "leave noise out.", PrivacyError)
    needs = [_find_need(options, output) for output in whole]
    known = [gaussian_mu(epsilon * need, delta) ** 2 for need in needs if need is not None]
    taken = round_significant(
        gaussian_epsilon(shorten(compute_root(sum(known, Fraction(0)))), delta), 5, up=True
    )
    if len(known) < len(needs) or taken > epsilon:
        even = maker.add_gaussian([(a, Amount("epsilon", epsilon)) for a in aggregates], epsilon, delta)
        widths = (_width_of(even.build(a), options.confidence)(Fraction(1)) for a in aggregates)
        reach = 1.001 * max(widths)
        raise _refuse(options, taken if len(known) == len(needs) else None, epsilon, whole, reach)
    dealt = [(a, Amount("epsilon", squared)) for a, squared in zip(aggregates, known, strict=True)]
    noise = maker.add_gaussian(dealt, taken, delta)
    outputs = tuple(noise.build(a) for a in aggregates)
    return FittedOutputs(outputs, (), (_say(options, ", ".join(o.name for o in outputs), taken),), True)


def _say(options: Options, names: str, epsilon: Fraction) -> str:
    error = f"±{float(options.get('error')):g} at {options.confidence:.4g} confidence"
    return f"{names}: {error} takes ε={write_number(epsilon)}."


def _find_need(options: Options, output: Output) -> Fraction | None:
    return _find_factor(_width_of(output, options.confidence), float(options.get("error")))


def _width_of(output: Output, confidence: float) -> Callable[[Fraction], float]:
    def width(factor: Fraction) -> float:
        return next(iter(output.expect_errors(factor, confidence))).error

    return width


def _find_factor(width: Callable[[Fraction], float], error: float) -> Fraction | None:
    """Find the least factor of epsilon at which a width is within an error, rounded up; None where there is none near."""
    high = Fraction(1)
    while width(high) > error:
        high *= 2
        if high > _FARTHEST:
            return None
    low = high / 2
    while width(low) <= error and low > Fraction(1, 1 << 40):
        low, high = low / 2, low
    while high / low > Fraction(10001, 10000):
        middle = (low + high) / 2
        low, high = (low, middle) if width(middle) <= error else (middle, high)
    return round_significant(high, 5, up=True)


def _refuse(
    options: Options, needed: Fraction | None, epsilon: Fraction, outputs: Sequence[Output], reach: float,
    more: bool = False,
) -> Error:  # fmt: skip
    """Make the refusal.

    Args:
        options: with the error.
        needed: the epsilon that the error takes; None where none is enough.
        epsilon: what there is.
        outputs: those whose error it is.
        reach: the error that epsilon allows.
        more: whether there are others, which need some of it too.
    """
    names = ", ".join(o.name for o in outputs)
    given = write_number(epsilon, up=False)
    error = write_number(options.get("error"))
    if needed is None:
        hint = "write a larger error."
        return options.refuse("error", f"no epsilon gives {names} within ±{error}.", hint, PrivacyError)
    within = round_significant(Fraction(reach), 3, up=True)
    what = f"{names} within ±{error} takes ε={write_number(needed)}, and there is ε={given}."
    hint = f"write epsilon = {write_number(needed * (2 if more else 1))}, or error = {write_number(within)}."
    return options.refuse("error", what, hint, PrivacyError)
