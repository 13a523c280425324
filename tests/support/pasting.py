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
    re.compile(r"such as ([^,\s]+?)(?=[,.]? |\.$)"),
    re.compile(r"write (\$\w+)"),
    re.compile(r"try (SELECT .+?)\.$"),
    re.compile(r"from (\d+) to"),
    re.compile(r"did you mean ('(?:[^']|'')*'|\"[^\"]*\"|[^?]+)\?"),
    re.compile(r"(?:\bwrite|\bwritten|\bor|\bwith|\buse|\badd|\blike|:|;|,) (.+?)(?=(?:, or |, which |, from which|, with |"
               r", in place|, instead|, without | to find | instead of |"
               r" in place of |: |; | to ON| to WHERE| as a name| on private| for | of its type|, say\.|\. |\.$|$))"),
    re.compile(r"^(.+?)(?: would fit| counts | is | gives | answers | keeps |\.$)"),
)  # fmt: skip
_OPTION = re.compile(r"(\w+) = (.+)")
_ARGUMENT = re.compile(r"(\w+) => (.+)")
_INSTEAD = re.compile(r"write (.+?) (?:instead|in place) of (.+?)(?:[,:]|\.$|$)")
_JOINED = re.compile(r"add (.+) to (?:its )?(ON|WHERE|SELECT)\b")


def find_codes(hint: str) -> Iterator[str]:
    """Yield the texts of a hint that may be code."""
    seen = set()
    for pattern in _CODES:
        for start in range(len(hint)):
            found = pattern.match(hint, start) if pattern is not _CODES[-1] or start == 0 else None
            if found is not None and (code := found[1].strip()) not in {*seen, "there"}:
                seen.add(code)
                yield code


def paste(text: str, error: Error) -> Iterator[str]:
    """Yield the statements that following a hint may give, the most literal first."""
    hint = error.hint or ""
    start, end = error.span or (len(text), len(text))
    marked = text[start:end]
    # the mark may end before what it opens
    while marked.count("(") > marked.count(")") and ")" in text[end:]:
        end = text.index(")", end) + 1
        marked = text[start:end]
    if found := _INSTEAD.search(hint):
        yield _replace_word(text, found[2], found[1], (start, end))
    if found := _JOINED.search(hint):
        yield _add_condition(text, found[1].rpartition(", add ")[2], found[2], (start, end))
    if found := re.search(r"write (COUNT\(DISTINCT (.+?)\)) instead of the group", hint):
        yield _drop_group(text, found[2], found[1])
    if found := re.search(r"write (AS \S+) behind the subquery", hint):
        yield f"{text[: text.rindex(')') + 1]} {found[1]}{text[text.rindex(')') + 1 :]}"
    if found := re.search(r"write ([A-Z ]+) before ([A-Z ]+)\.", hint):
        at = text.upper().index(found[2])
        yield f"{text[:at]}{text[start:]} {text[at:start]}"
    if found := re.search(r"write (HAVING .+) after GROUP BY instead", hint):
        kept = re.sub(r"(?is)\bWHERE\b.*?(?=\bGROUP BY\b)", "", text, count=1)
        yield re.sub(
            r"(?is)(\bGROUP BY\b.*?)(?=\bORDER BY\b|\bLIMIT\b|\)|$)", rf"\g<1> {found[1]} ", kept, count=1
        )
    if found := re.search(r"call it (\w+) and", hint):
        called = re.sub(rf"(?i)\bFROM\s+{found[1][:-1]}\b", rf"\g<0> AS {found[1]}", text[start:], count=1)
        end += len(text[:start] + called) - len(text)
        text = text[:start] + called
    if found := _JOINED.search(hint):
        yield _add_condition(text, found[1], found[2], (start, end))
    if found := re.search(r"write (\(SELECT .+\)):", hint):
        opening, closing = text.rindex("(", 0, start), text.index(")", end) + 1
        yield text[:opening] + found[1] + text[closing:]
    if found := re.search(r"leave (\w+) out", hint):
        yield (
            _drop_argument(text, (start, end)) if found[1] in ("it", "them") else _drop_option(text, found[1])
        )
        if found[1] == "it":
            yield text[:start] + text[end:]
    if found := re.search(r"comma missing before (\w+)", hint):
        yield _replace_word(text, found[1], f", {found[1]}", (start, end))
    if found := re.search(r"at the end: (.+?),", hint):
        closing = end + 1 if text[end : end + 1] == ")" else end
        yield f"{text[:start]}{text[closing:]} {found[1]}"
    for code in find_codes(hint):
        yield text[:start] + code + text[end:]
        if code[:1] + code[-1:] == text[start - 1 : start] + text[end : end + 1] == "()":
            yield text[: start - 1] + code + text[end + 1 :]
        if (called := re.search(r"\w+\($", text[:start])) and text[end : end + 1] == ")":
            yield text[: called.start()] + code + text[end + 1 :]
        if name := re.match(r"\s*\w+(?=\s*[(=])", marked):
            yield text[:start] + code + marked[name.end() :] + text[end:]
        if " ... " in code and (
            source := re.search(r"(?is)\bFROM\b.*?(?=\bGROUP BY\b|\bORDER BY\b|\bHAVING\b|\)|$)", text)
        ):
            whole = code.replace(" ... ", f" {source[0].strip()} ")
            yield whole if whole.upper().startswith("SELECT") else f"SELECT {whole}"
        if re.match(r"(?i)(SELECT|WITH|SHOW|FROM|PIVOT|DECLARE|CREATE|EXPLAIN)\b", code):
            yield code
            if queries := re.match(r"(?is)WITH\b.*\)\s*(?=SELECT\b)", text):
                yield queries[0] + code
        if options := re.fullmatch(r"(?:SELECT WITH \w+ )?OPTIONS \((.+)\)(?: \.\.\.)?", code):
            yield _set_options(text, options[1])
            yield f"{text} OPTIONS ({options[1]})"
        elif "=>" in code:
            if argument := _ARGUMENT.fullmatch(code):
                yield _set_argument(text, argument[1], argument[2], (start, end))
        elif _OPTION.match(code):
            yield _set_options(text, code)
        if mode := re.match(r"(?i)SELECT (WITH \w+)", code):
            yield re.sub(r"(?i)\bSELECT\s+(?:WITH\s+\w+\s+)?", f"SELECT {mode[1]} ", text, count=1)


def _drop_option(text: str, name: str) -> str:
    """Take an option or a named argument out of its list."""
    value = rf"{name}\s*=>?\s*(\([^()]*\)|'[^']*'|[^,()\s]+)"
    for pattern in (
        rf"(?i),\s*{value}",
        rf"(?i){value}\s*,\s*",
        rf"(?i)\s*OPTIONS\s*\(\s*{value}\s*\)",
        rf"(?i){name}",
    ):
        if (dropped := re.sub(pattern, "", text, count=1)) != text:
            return dropped
    return text


def _replace_word(text: str, old: str, new: str, span: tuple[int, int]) -> str:
    """Replace the occurrence of a text that is nearest to the mark."""
    places = [found.start() for found in re.finditer(re.escape(old.strip()), text, re.IGNORECASE)]
    if not places:
        return text
    at = min(places, key=lambda place: abs(place - span[0]))
    return text[:at] + new + text[at + len(old.strip()) :]


def _add_condition(text: str, condition: str, clause: str, span: tuple[int, int]) -> str:
    if clause == "SELECT" and re.search(r"(?i)\bSELECT\s+FROM\b", text):
        return re.sub(r"(?i)\bSELECT\s+FROM\b", f"SELECT {condition} FROM", text, count=1)
    if clause == "SELECT":
        at = next(
            (found.start() for found in re.finditer(r"(?i)\sFROM\b", text) if found.start() >= span[0]),
            len(text),
        )
        return f"{text[:at]}, {condition}{text[at:]}"
    if clause == "ON":
        at = max((found.end() for found in re.finditer(r"(?i)\bON\b", text[: span[1]])), default=span[1])
        return f"{text[:at]} {condition} AND{text[at:]}"
    if found := re.search(r"(?i)\bWHERE\b", text[span[0] :]):
        at = span[0] + found.end()
        return f"{text[:at]} {condition} AND{text[at:]}"
    end = span[1]
    return f"{text[:end]} WHERE {condition}{text[end:]}"


def _drop_group(text: str, name: str, instead: str) -> str:
    """Write something in place of a column in the SELECT, and take it out of the groups."""
    qualified = rf"(?:\w+\.)?{re.escape(name)}"
    text = re.sub(rf"(?i)(\bSELECT\b.*?){qualified}(?!\w)", rf"\g<1>{instead}", text, count=1)
    head, found, tail = (*re.split(r"(?i)(\bGROUP BY\b)", text, maxsplit=1), "", "")[:3]
    rest = re.sub(rf"(?i)^\s*{qualified}(?!\w)\s*,|,\s*{qualified}(?!\w)", "", tail, count=1)
    if rest != tail:
        return head + found + rest
    return head + re.sub(rf"(?i)^\s*({qualified}(?!\w)|\d+\b)", "", tail, count=1)


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


def _plain(text: str) -> str:
    return " ".join(text.split()).lower()


def follow(text: str, error: Error, bind: Bind) -> tuple[str | None, bool]:
    """Follow hints until a statement is bound.

    Returns:
        The statement, None where there is none; and whether a hint led away and another one back.
    """
    return _follow(text, error, bind, {text}, (text,))


def _follow(
    text: str, error: Error, bind: Bind, seen: set[str], before: tuple[str, ...]
) -> tuple[str | None, bool]:
    later: list[tuple[str, Error]] = []
    back = False
    listed = (error.hint or "").startswith("there is ")  # a list leaves the choice to the analyst
    for pasted in paste(text, error):
        if pasted in seen:
            back = back or (not listed and _plain(pasted) in map(_plain, before[:-1]))
            continue
        seen.add(pasted)
        refused = bind(pasted)
        if refused is None:
            return pasted, False
        if isinstance(refused, dpsql.ParseError):
            continue
        if (refused.message, refused.span) != (error.message, error.span):
            later.append((pasted, refused))
    if len(before) < MOST_STEPS:
        for pasted, refused in later[:2]:
            found, circles = _follow(pasted, refused, bind, seen, (*before, pasted))
            if found is not None:
                return found, False
            back = back or circles
    return None, back
