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
from dpsql.numerics.exact_numbers import round_significant, write_number
from dpsql.sql.dp.aggregates import Aggregate
from dpsql.sql.normalize import label_of
from dpsql.sql.parse.dialect import span_of
from dpsql.sql.parse.options import Options

_FARTHEST = 1 << 20
"""How many times the epsilon of the block is looked at for a hint."""


@dataclass(frozen=True)
class FittedOutputs:
    """The outputs of a block with the noise that an error asks for.

    Args:
        outputs: in the order of the aggregates.
        reduced: names of those whose noise is reduced while they are released.
        sentences: what EXPLAIN says of the others.
    """

    outputs: tuple[Output, ...]
    reduced: tuple[str, ...]
    sentences: tuple[str, ...]


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
    options: Options, aggregates: Sequence[Aggregate], epsilon: Fraction, build: Callable[[Aggregate, Fraction], Output]
) -> FittedOutputs:  # fmt: skip
    """Return the outputs with the noise that the error asks for.

    Args:
        options: with the error.
        aggregates: checked by :func:`check_fits`.
        epsilon: what they may take together.
        build: makes an output of an aggregate with its epsilon.

    Raises:
        PrivacyError: epsilon can't give the error; nothing is paid.
    """
    error, confidence = options.get("error"), options.confidence
    whole = [build(a, epsilon) for a in aggregates]
    needs: list[Fraction | None] = []
    for output in whole:
        width = _width_of(output, confidence)
        needs.append(_find_factor(width, float(error)) if _is_public(output) else Fraction(0))
    if options.get("noise") == "GAUSSIAN" and not all(map(_is_public, whole)):
        what = "the noise of means is reduced step by step, which is proved for Laplace noise."
        raise options.refuse("noise", what, "leave noise out.", PrivacyError)
    known = [need for need in needs if need is not None]
    open_ones = [output.name for output in whole if not _is_public(output)]
    taken = sum(known, Fraction(0))
    if len(known) < len(needs) or taken > 1 or (taken == 1 and open_ones):
        most = None if len(known) < len(needs) else taken * epsilon
        raise _refuse(options, most, epsilon, [o for o in whole if _is_public(o)], bool(open_ones))
    rest = (1 - taken) / max(1, len(open_ones))
    parts = [need if _is_public(o) else rest for need, o in zip(known, whole, strict=True)]
    outputs = tuple(build(a, epsilon * part) for a, part in zip(aggregates, parts, strict=True))
    said = (
        f"{o.name}: ±{float(error):g} at {confidence:.4g} confidence takes ε={write_number(epsilon * part)}."
        for o, part in zip(outputs, parts, strict=True)
        if _is_public(o)
    )
    return FittedOutputs(outputs, tuple(open_ones), tuple(said))


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
    options: Options, needed: Fraction | None, epsilon: Fraction, outputs: Sequence[Output], more: bool
) -> Error:
    names = ", ".join(o.name for o in outputs)
    given = write_number(epsilon, up=False)
    error = write_number(options.get("error"))
    if needed is None:
        hint = "write a larger error."
        return options.refuse("error", f"no epsilon gives {names} within ±{error}.", hint, PrivacyError)
    each = epsilon / (len(outputs) + more)
    reach = max(_width_of(o, options.confidence)(each / epsilon) for o in outputs)
    within = round_significant(Fraction(reach), 3, up=True)
    what = f"{names} within ±{error} takes ε={write_number(needed)}, and there is ε={given}."
    hint = f"write epsilon = {write_number(needed * (2 if more else 1))}, or error = {write_number(within)}."
    return options.refuse("error", what, hint, PrivacyError)
