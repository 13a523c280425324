"""The code in hints, pasted back into the statements that were refused.

A hint is executable where its code can be taken out and put where it says: over the marked text, in place of the clause or the
option that it names, or as an argument of the marked call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import dpsql
from dpsql.errors import Error

Bind = Callable[[str], Error | None]
"""Binds a statement and returns its refusal; None where it is bound."""
MOST_STEPS = 4
"""Hints that are followed one after the other."""
_CODES = (
    re.compile(r"did you mean ('(?:[^']|'')*'|\"[^\"]*\"|[^?]+)\?"),
    re.compile(r"(?:\bwrite|\bwritten|\bor|\bwith|\buse|\badd|\blike|:|;|,) (.+?)(?=(?:, or |, which |, from which|, with |, in place|, instead| instead of |"
               r" in place of |: |; | to ON| to WHERE| as a name| on private| for | of its type|, say\.|\. |\.$|$))"),
    re.compile(r"^(.+?)(?: would fit| counts | is | gives | answers | keeps |\.$)"),
)  # fmt: skip
_OPTION = re.compile(r"(\w+) = (.+)")
_ARGUMENT = re.compile(r"(\w+) => (.+)")
_INSTEAD = re.compile(r"write (.+?) (?:instead|in place) of (.+?)(?:[,:]|\.$|$)")
_JOINED = re.compile(r"add (.+) to (ON|WHERE)\b")


def find_codes(hint: str) -> Iterator[str]:
    """Yield the texts of a hint that may be code."""
    seen = set()
    for pattern in _CODES:
        for start in range(len(hint)):
            found = pattern.match(hint, start) if pattern is not _CODES[2] or start == 0 else None
            if found is not None and (code := found[1].strip()) not in seen:
                seen.add(code)
                yield code


def paste(text: str, error: Error) -> Iterator[str]:
    """Yield the statements that following a hint may give, the most literal first."""
    hint, span = error.hint or "", error.span
    if span is None:
        span = (len(text), len(text))
    if found := _INSTEAD.search(hint):
        yield _replace_word(text, found[2], found[1], span)
    if found := _JOINED.search(hint):
        yield _add_condition(text, found[1], found[2], span)
    if "leave it out" in hint or "leave out" in hint:
        yield text[: span[0]] + text[span[1] :]
        yield _drop_argument(text, span)
    for code in find_codes(hint):
        yield text[: span[0]] + code + text[span[1] :]
        if re.match(r"(?i)(SELECT|WITH|SHOW|FROM|PIVOT|DECLARE|CREATE|EXPLAIN)\b", code):
            yield code
        if options := re.fullmatch(r"(?:SELECT WITH \w+ )?OPTIONS \((.+)\)(?: \.\.\.)?", code):
            yield _set_options(text, options[1])
        elif "=>" in code:
            if argument := _ARGUMENT.fullmatch(code):
                yield _set_argument(text, argument[1], argument[2], span)
        elif _OPTION.match(code):
            yield _set_options(text, code)
        if mode := re.match(r"(?i)SELECT (WITH \w+)", code):
            yield re.sub(r"(?i)\bSELECT\s+(?:WITH\s+\w+\s+)?", f"SELECT {mode[1]} ", text, count=1)


def _replace_word(text: str, old: str, new: str, span: tuple[int, int]) -> str:
    """Replace the occurrence of a text that is nearest to the mark."""
    places = [found.start() for found in re.finditer(re.escape(old.strip()), text, re.IGNORECASE)]
    if not places:
        return text
    at = min(places, key=lambda place: abs(place - span[0]))
    return text[:at] + new + text[at + len(old.strip()) :]


def _add_condition(text: str, condition: str, clause: str, span: tuple[int, int]) -> str:
    if clause == "ON":
        return f"{text[: span[1]]} AND {condition}{text[span[1] :]}"
    if found := re.search(r"(?i)\bWHERE\b", text[span[0] :]):
        at = span[0] + found.end()
        return f"{text[:at]} {condition} AND{text[at:]}"
    end = span[1]
    return f"{text[:end]} WHERE {condition}{text[end:]}"


def _drop_argument(text: str, span: tuple[int, int]) -> str:
    before, after = text[: span[0]].rstrip(), text[span[1] :].lstrip()
    if before.endswith(","):
        return before[:-1] + after
    return before + after[1:] if after.startswith(",") else before + after


def _set_argument(text: str, name: str, value: str, span: tuple[int, int]) -> str:
    """Set a named argument: where it stands, or as the last one of the marked call."""
    if found := re.search(rf"(?i)\b{name}\s*=>?\s*(\([^()]*\)|'[^']*'|[^,()\s]+)", text):
        return f"{text[: found.start()]}{name} => {value}{text[found.end() :]}"
    close = span[1] - 1 if text[span[1] - 1 : span[1]] == ")" else text.find(")", span[1])
    return f"{text[:close]}, {name} => {value}{text[close:]}" if close >= 0 else text


def _set_options(text: str, options: str) -> str:
    """Set options: where they stand, or beside those that are there, or in a new clause."""
    for given in re.findall(r"\w+ = (?:\([^()]*\)|'[^']*'|[^,()\s]+)", options):
        name = given.partition(" =")[0]
        if found := re.search(rf"(?i)\b{name}\s*=\s*(\([^()]*\)|'[^']*'|[^,()\s]+)", text):
            text = text[: found.start()] + given + text[found.end() :]
        elif found := re.search(r"(?i)\bOPTIONS\s*\(", text):
            rest = text[found.end() :]
            text = f"{text[: found.end()]}{given}{'' if rest.startswith(')') else ', '}{rest}"
        elif found := re.search(r"(?i)\bSELECT\s+WITH\s+\w+", text):
            text = f"{text[: found.end()]} OPTIONS ({given}){text[found.end() :]}"
        else:
            text = re.sub(r"(?i)\bSELECT\b", f"SELECT WITH DP OPTIONS ({given})", text, count=1)
    return text


def follow(text: str, error: Error, bind: Bind) -> str | None:
    """Follow hints until a statement is bound, and return it; None where none is.

    A hint that leads to the same refusal, or back to a statement that was refused before, ends a way.
    """
    return _follow(text, error, bind, {text}, MOST_STEPS)


def _follow(text: str, error: Error, bind: Bind, seen: set[str], steps: int) -> str | None:
    later: list[tuple[str, Error]] = []
    for pasted in paste(text, error):
        if pasted in seen:
            continue
        seen.add(pasted)
        refused = bind(pasted)
        if refused is None:
            return pasted
        if refused.message != error.message and not isinstance(refused, dpsql.ParseError):
            later.append((pasted, refused))
    if steps > 1:
        for pasted, refused in later[:2]:
            if (found := _follow(pasted, refused, bind, seen, steps - 1)) is not None:
                return found
    return None
