"""Completion of SQL by context, from the text before the cursor and from public names.

It reads no row and asks no engine. No parser reads unfinished SQL, so tokens, relations and columns are found by their texts
alone; no answer depends on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import NamedTuple

from dpsql.catalogue.aggregate_names import (
    AGGREGATE_OF_NAME,
    AGGREGATES,
    ALIASES,
    MECHANISMS,
    MODE_HELP,
    MODES,
    OFFERED_MODES,
    SqlName,
)
from dpsql.catalogue.option_names import ARGUMENT_NAMES, OPTION_NAMES, SHOW_WORDS, taken_by
from dpsql.late_dataclass import dataclass
from dpsql.notebook import guide

SHOWN = (*(word for word in SHOW_WORDS if word != "VALUES"), "TRADEOFF SPENT")
"""The words that may follow SHOW, except VALUES and a column."""
MAX_COMPLETED_TEXT = 65_536
"""The longest text that is completed; no statement is longer."""


class Offer(NamedTuple):
    """A completion: the text that replaces the word, its kind, and one line of help."""

    text: str
    kind: str
    help: str = ""


@dataclass(frozen=True)
class ColumnFacts:
    """The public facts of a column: its declared values as SQL literals, one line of help, whether it is declared, its type."""

    values: tuple[str, ...] = ()
    help: str = ""
    declared: bool = True
    type: str = ""


@dataclass(frozen=True)
class KnownNames:
    """The public names of a session: tables and kept results, names for ``$name`` with a line of help, open thresholds."""

    tables: Mapping[str, Mapping[str, ColumnFacts]] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    thresholds: tuple[str, ...] = ()


_AFTER_CREATE = ("RELEASE", "OR REPLACE RELEASE", "SYNTHETIC TABLE", "TABLE")
_BEGIN = {"comment": 2, "string": 1, "name": 1}
"""The signs that open what is not read as words, by their length."""
_COMPARE = frozenset(("=", "<>", "!=", "<", ">", "<=", ">=", "=="))


def complete_sql(text: str, at: int, known: KnownNames) -> tuple[int, list[Offer]]:
    """Return the start of the word at the cursor, and its completions."""
    if len(text) > MAX_COMPLETED_TEXT:
        return at, []
    before = scan(text[:at])
    last = before[-1] if before else None
    if last is not None and is_unfinished(last, text[:at]) and last.kind in _BEGIN:
        start = last.start + _BEGIN[last.kind]
        place = _Place(before[:-1], scan(text), at, known)
        typed = text[start:at]
        if last.kind == "string":
            closing = "" if text[at : at + 1] == "'" else "'"
            return start, [
                o._replace(text=o.text + closing) for o in _begin(typed, place.values(quoted=True))
            ]
        return start, _begin(typed, place.quoted_names()) if last.kind == "name" else []
    typed = ""
    if last is not None and last.end == at and last.kind in ("word", "parameter"):
        typed, before = last.text, before[:-1]
    start = at - len(typed)
    if before and before[-1].kind == "comment" and before[-1].end == at and not typed:
        return start, []
    if last is not None and last.kind == "number" and last.end == at:
        return at, []
    place = _Place(before, scan(text), start, known)
    if typed.startswith("$"):
        bound = [Offer(f"${name}", "parameter", help) for name, help in known.parameters.items()]
        return start, _begin(typed, bound)
    return start, _begin(typed, place.offers())


def _begin(typed: str, offers: Iterable[Offer]) -> list[Offer]:
    """Return the offers that begin with the typed word, each once; keywords follow its case."""
    chosen: dict[str, Offer] = {}
    for offer in offers:
        if offer.text.lower().startswith(typed.lower()):
            if offer.kind in ("keyword", "function") and typed.islower():
                offer = offer._replace(text=offer.text.lower())
            chosen.setdefault(offer.text, offer)
    return list(chosen.values())


def write_name(name: str) -> str:
    """Write an identifier, in double quotes unless it is a plain word.

    >>> write_name("ward"), write_name("Kunden Nr."), write_name("select")
    ('ward', '"Kunden Nr."', '"select"')
    """
    plain = re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and name.upper() not in guide.KEYWORDS
    return name if plain else '"' + name.replace('"', '""') + '"'


class _Place:
    """The cursor's place in a statement: the tokens before its word, those of the whole text, and the word's start."""

    def __init__(self, before: Sequence[Word], whole: Sequence[Word], at: int, known: KnownNames) -> None:
        said = [word for word in before if word.kind != "comment"]
        begin = max((i + 1 for i, word in enumerate(said) if word.text == ";"), default=0)
        self.before = said[begin:]
        start = said[begin - 1].end if begin else 0
        end = next((word.start for word in whole if word.text == ";" and word.start >= at), None)
        self.statement = [
            word
            for word in whole
            if word.kind != "comment" and start <= word.start != at and (end is None or word.start < end)
        ]
        self.known = known
        self.made = find_ctes(self.statement)
        self.relations = find_relations(self.statement, self.made)

    # -- the context --------------------------------------------------------------------------------------------

    def _back(self, steps: int = 1) -> str:
        return self.before[-steps].upper if len(self.before) >= steps else ""

    def _opened(self) -> int | None:
        """Return the index of the innermost parenthesis that is open."""
        depth = 0
        for i in range(len(self.before) - 1, -1, -1):
            depth += (self.before[i].text == ")") - (self.before[i].text == "(")
            if depth < 0:
                return i
        return None

    @property
    def mode(self) -> str:
        """The mode of the last SELECT, in capitals; empty without one."""
        for i in range(len(self.before) - 1, 0, -1):
            if self.before[i - 1].upper == "SELECT":
                follows = self.before[i].upper == "WITH" and i + 1 < len(self.before)
                return self.before[i + 1].upper if follows else ""
        return ""

    # -- completions -----------------------------------------------------------------------------------

    def offers(self) -> list[Offer]:
        """Return completions at the cursor, outside of quotes."""
        if not self.before:
            return [*_words(guide.STATEMENTS), *self._expressions("", "")]
        previous = self._back()
        if previous == ".":
            return self._columns_of(self.before[-2].name if len(self.before) > 1 else "")
        opened = self._opened()
        if opened is not None and opened and self.before[opened - 1].upper == "OPTIONS":
            return self._in_options(opened)
        if previous in ("FROM", "JOIN", "OVER") or (previous == "," and self._lists_relations()):
            return self._relations()
        if previous == "WITH" and self._back(2) == "SELECT":
            return [*_words(sorted(OFFERED_MODES, key=len)), *self._thresholds()]
        if previous in ("SHOW", "CLOSE", "EXPLAIN"):
            shown = [Offer(word, "keyword") for word in SHOWN]
            return {"SHOW": shown, "CLOSE": self._thresholds()}.get(previous, _words(guide.STATEMENTS))
        if len(self.before) == 1 and previous in ("CREATE", "REFRESH", "DROP"):
            return _words(_AFTER_CREATE if previous == "CREATE" else ("RELEASE",))
        if previous == "RELEASE" and self._back(2) in ("REFRESH", "DROP"):
            return self._relations()
        if previous == "TRADEOFF" and self._back(2) == "SHOW":
            return _words(("SPENT",))
        if previous == "=>":
            return [*_values_of(guide.ARGUMENT_VALUES, self._back(2).lower()), *self._columns()]
        call = "" if opened is None or not opened else self.before[opened - 1].upper
        return self._expressions(previous, call)

    def _expressions(self, previous: str, call: str) -> list[Offer]:
        """Return the beginnings of an expression, given the token before it and the function around it, in capitals."""
        arguments = self._arguments(call) if call and previous in ("(", ",") else []
        functions = [Offer(row.name, "function", row.help) for row in _list_functions(self.mode)]
        literals = self.values(quoted=False) if previous in _COMPARE | {"(", ",", "WHEN"} else []
        return [
            *literals,
            *self._columns(),
            *self._aliases(),
            *functions,
            *arguments,
            *_words(guide.KEYWORDS),
        ]

    def _lists_relations(self) -> bool:
        """Return whether a comma at the cursor separates relations of a FROM."""
        depth = 0
        for word in reversed(self.before):
            depth += (word.text == ")") - (word.text == "(")
            if depth < 0 or (not depth and word.upper in ("SELECT", "WHERE", "BY", "HAVING", "ON", "VALUES")):
                return False
            if not depth and word.upper == "FROM":
                return True
        return False

    def _relations(self) -> list[Offer]:
        made = [Offer(write_name(name), "common table expression") for name in self.made]
        return [*made, *(Offer(write_name(name), "table") for name in self.known.tables)]

    def _aliases(self) -> list[Offer]:
        return [Offer(write_name(name), "alias") for name in self.relations if name not in self.known.tables]

    def _thresholds(self) -> list[Offer]:
        return [Offer(name, "threshold", "an open threshold") for name in self.known.thresholds]

    def _columns_of(self, alias: str) -> list[Offer]:
        """Return the columns of an alias, a table or a CTE; of all relations if the text does not define it yet."""
        folded = {name.lower(): name for name in (*self.known.tables, *self.made)}
        of = {a.lower(): relation for a, relation in self.relations.items()}
        relation = of.get(alias.lower(), folded.get(alias.lower()))
        return self._columns() if relation is None else self._list_columns(relation)

    def _list_columns(self, relation: ShownRelation) -> list[Offer]:
        """Return the columns of a relation by its name, or of a query as read from its text."""
        names = relation if isinstance(relation, tuple) else self.made.get(relation)
        if names is not None:
            found = [Offer(write_name(name), "column") for name in names if not name.endswith("*")]
            wild = [name[:-1] for name in names if name.endswith("*")]
            return [*found, *(o for name in wild for o in self._list_columns(name) if name != relation)]
        table = next((t for t in self.known.tables if t.lower() == str(relation).lower()), None)
        columns = self.known.tables[table] if table is not None else {}
        return [Offer(write_name(name), "column", facts.help) for name, facts in columns.items()]

    def _columns(self) -> list[Offer]:
        """Return the columns in scope; all columns if the statement names no relation yet."""
        named = dict.fromkeys(self.relations.values())
        found = [offer for relation in named for offer in self._list_columns(relation)]
        return found or [offer for table in self.known.tables for offer in self._list_columns(table)]

    def quoted_names(self) -> list[Offer]:
        """Return tables and columns for open double quotes."""
        offers = self._relations() if self._back() in ("FROM", "JOIN") else self._columns()
        if self._back() == ".":
            offers = self._columns_of(self.before[-2].name if len(self.before) > 1 else "")
        return [o._replace(text=(o.text[1:-1] if o.text[0] == '"' else o.text) + '"') for o in offers]

    # -- options, arguments and values --------------------------------------------------------------------------

    def _in_options(self, opened: int) -> list[Offer]:
        inside = self.before[opened + 1 :]
        if inside and inside[-1].text == "=":
            option = inside[-2].text.lower() if len(inside) > 1 else ""
            if option == "privacy_unit_column":
                return [o for o in self._columns() if "privacy unit" in o.help]
            return _values_of(guide.OPTION_VALUES, option)
        if inside and inside[-1].text != ",":
            return []
        taken = {word.text.lower() for word, sign in pairwise(inside) if sign.text == "="}
        offered = list_options(self._declared() or self.mode)
        return [Offer(name, "option", guide.OPTIONS.get(name, "")) for name in offered if name not in taken]

    def _declared(self) -> str:
        """Return the statement's kind if it declares a threshold."""
        if self.before[0].upper != "DECLARE":
            return ""
        return "DECLARE STABLE" if any(w.upper == "STABLE" for w in self.before) else "DECLARE"

    def _arguments(self, call: str) -> list[Offer]:
        """Return the named arguments of a call."""
        offered = list_arguments(call, self.mode)
        return [Offer(f"{name} => ", "argument", guide.ARGUMENTS.get(name, "")) for name in offered]

    def values(self, quoted: bool) -> list[Offer]:
        """Return values at the cursor: the declared values of a compared column, or of an option.

        Args:
            quoted: whether the cursor is in open single quotes.
        """
        if quoted and self._back() in ("=", "=>") and len(self.before) > 1:
            named = {**guide.OPTION_VALUES, **guide.ARGUMENT_VALUES}.get(self._back(2).lower(), ())
            texts = [Offer(value[1:-1], "value") for value in named if value.startswith("'")]
            if texts:
                return texts
        offers = []
        for column in self._compared():
            for facts in self._find_facts(column):
                for value in facts.values:
                    text = value.startswith("'")
                    if text == quoted or not quoted:
                        offers.append(
                            Offer(value[1:-1] if quoted else value, "value", f"declared for {column}")
                        )
        return offers

    def _compared(self) -> list[str]:
        """Return the column that is compared with the value at the cursor: ``x = ``, ``x IN (``, ``CASE x WHEN ``."""
        words = self.before
        i = len(words) - 1
        if i >= 1 and words[i].text in _COMPARE:
            return [words[i - 1].name]
        if i >= 0 and words[i].text in ("(", ","):
            opened = self._opened()
            if opened is not None and opened >= 2 and words[opened - 1].upper == "IN":
                negated = words[opened - 2].upper == "NOT" and opened >= 3
                return [words[opened - 3 if negated else opened - 2].name]
        if i >= 2 and words[i].upper in ("WHEN", "LIKE", "ILIKE"):
            case = next((k for k in range(i, -1, -1) if words[k].upper == "CASE"), None)
            if words[i].upper == "WHEN" and case is not None and case + 1 < i:
                return [words[case + 1].name]
        return []

    def _find_facts(self, column: str) -> list[ColumnFacts]:
        named = [str(r).lower() for r in self.relations.values() if not isinstance(r, tuple)]
        tables = [c for t, c in self.known.tables.items() if t.lower() in named] or self.known.tables.values()
        return [
            facts for columns in tables for name, facts in columns.items() if name.lower() == column.lower()
        ]


def _words(words: Iterable[str]) -> list[Offer]:
    return [Offer(word, "keyword", MODE_HELP.get(word, "")) for word in words]


def _values_of(values: Mapping[str, tuple[str, ...]], name: str) -> list[Offer]:
    return [Offer(value, "value") for value in values.get(name, ())]


def _list_functions(mode: str) -> list[SqlName]:
    """Return the functions of a mode, each under all its names; without a mode those of DP and the choices."""
    wanted = mode if MODES.get(mode, "DP") != "DP" else ""
    rows = [r for r in AGGREGATES if r.help and (not wanted or wanted in r.modes)]
    rows.sort(key=lambda row: row.name in MECHANISMS and bool(wanted))
    spelled = [
        (row, name) for row in rows for name in (row.name, *(row.aliases if "DP" in row.modes else ()))
    ]
    return [row if name == row.name else SqlName(name, row.modes, help=row.help) for row, name in spelled]


def list_options(mode: str) -> tuple[str, ...]:
    """Return the options of a mode; without a mode those of DP, for a declared name all."""
    taker = mode if mode.startswith("DECLARE") else MODES.get(mode or "DP", "PROBE")
    taken = taken_by(taker, OPTION_NAMES)
    return tuple(name for name in guide.OPTIONS if name in taken)


def list_arguments(call: str, mode: str) -> tuple[str, ...]:
    """Return the named arguments of an aggregate or a mechanism, by its name in capitals; none for other functions."""
    taker = ALIASES.get(call, call)
    if taker in AGGREGATE_OF_NAME and taker not in MECHANISMS:
        taker = "PTR" if mode == "PTR" else "aggregates"
    taken = taken_by(taker, ARGUMENT_NAMES)
    return tuple(name for name in guide.ARGUMENTS if name in taken)


class Word(NamedTuple):
    """A token of a text: its kind is ``word``, ``name`` (in double quotes), ``string``, ``parameter``, ``number`` or ``sign``."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def name(self) -> str:
        """The identifier of the token; empty for other tokens."""
        if self.kind == "name":
            return self.text[1:-1].replace('""', '"')
        return self.text if self.kind == "word" else ""

    @property
    def upper(self) -> str:
        """The text in capitals, as keywords are compared."""
        return self.text.upper()


_SCAN = re.compile(
    r"(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))|(?P<string>'(?:''|[^'])*'?)|(?P<name>\"(?:\"\"|[^\"])*\"?)"
    r"|(?P<parameter>\$\w*)|(?P<number>\d[\w.]*|\.\d+)|(?P<word>[^\W\d]\w*)|(?P<sign>=>|<<|<=|>=|<>|!=|::|\|\||\S)",
    re.DOTALL,
)
_AFTER_RELATION = """
    WHERE GROUP HAVING ORDER LIMIT ON USING JOIN LEFT RIGHT FULL INNER OUTER CROSS NATURAL UNION EXCEPT INTERSECT SELECT SET
    WINDOW QUALIFY AS OFFSET WITH FROM LATERAL TABLESAMPLE SEMI ANTI ASOF POSITIONAL PIVOT UNPIVOT"""
_ENDS_RELATION = frozenset(_AFTER_RELATION.split())
"""Words that are no alias."""


def scan(text: str) -> list[Word]:
    """Return the tokens of a text, comments among them; one that is not closed reaches to the end."""
    return [Word(str(m.lastgroup), m[0], m.start(), m.end()) for m in _SCAN.finditer(text)]


def is_unfinished(word: Word, text: str) -> bool:
    """Return whether a comment or a quote is still open at the end of the text."""
    if word.end != len(text):
        return False
    if word.kind == "comment":
        return word.text.startswith("--") or not word.text.endswith("*/") or len(word.text) < 4
    return word.kind in ("string", "name") and word.text.count(word.text[0]) % 2 == 1


def ends_statement(text: str) -> bool:
    """Return whether a text ends with a semicolon outside quotes and comments; comments may follow it."""
    words = scan(text)
    if words and is_unfinished(words[-1], text) and not words[-1].text.startswith("--"):
        return False
    said = [word for word in words if word.kind != "comment"]
    return bool(said) and said[-1].text == ";"


ShownRelation = str | tuple[str, ...]
"""A relation by its name, or the columns of a query; ``t*`` means those of ``t``."""


def find_parenthesis_end(words: Sequence[Word], opened: int) -> int:
    """Return the index of the parenthesis that closes the one at an index; the number of words if there is none."""
    depth = 0
    for i in range(opened, len(words)):
        depth += (words[i].text == "(") - (words[i].text == ")")
        if not depth:
            return i
    return len(words)


def find_ctes(words: Sequence[Word]) -> dict[str, tuple[str, ...]]:
    """Return the common table expressions of a statement with the columns that their texts name."""
    found: dict[str, tuple[str, ...]] = {}
    for i, word in enumerate(words[:-1]):
        if not word.name or (i and words[i - 1].upper not in ("WITH", ",", "RECURSIVE")):
            continue
        columns: tuple[str, ...] = ()
        next_ = i + 1
        if words[next_].text == "(":
            end = find_parenthesis_end(words, next_)
            columns = tuple(w.name for w in words[next_ + 1 : end] if w.name)
            next_ = end + 1
        if next_ + 1 < len(words) and words[next_].upper == "AS" and words[next_ + 1].text == "(" and i:
            end = find_parenthesis_end(words, next_ + 1)
            found[word.name] = columns or _find_outputs(words[next_ + 2 : end])
    return found


def _find_outputs(words: Sequence[Word]) -> tuple[str, ...]:
    """Return the names of a query's columns, as far as its text says them."""
    start = next((i + 1 for i, w in enumerate(words) if w.upper == "SELECT"), None)
    if start is None:
        return ()
    if start + 1 < len(words) and words[start].upper == "WITH":
        start += 2
        if start + 1 < len(words) and words[start].upper == "OPTIONS":
            start = find_parenthesis_end(words, start + 1) + 1
    items: list[list[Word]] = [[]]
    depth = 0
    stop = len(words)
    for i in range(start, len(words)):
        word = words[i]
        if not depth and word.upper == "FROM":
            stop = i
            break
        depth += (word.text == "(") - (word.text == ")")
        if word.text == "," and not depth:
            items.append([])
        else:
            items[-1].append(word)
    tables = tuple(f"{r}*" for r in find_relations(words[stop:], {}).values() if isinstance(r, str))
    names: list[str] = []
    for item in items:
        if item and item[-1].text == "*":
            names += tables
        elif item and item[-1].name:
            names.append(item[-1].name)
    return tuple(names)


def find_relations(words: Sequence[Word], made: Mapping[str, tuple[str, ...]]) -> dict[str, ShownRelation]:
    """Return the relations that a statement reads, by alias or name."""
    found: dict[str, ShownRelation] = {}
    i, listing = 0, False
    while i < len(words):
        word = words[i]
        if word.upper in ("FROM", "JOIN") or (listing and word.text == ","):
            listing, i = True, i + 1
            relation, i = _read_relation(words, i)
            if relation is None:
                continue
            if i < len(words) and words[i].upper == "AS":
                i += 1
            alias = words[i].name if i < len(words) and words[i].upper not in _ENDS_RELATION else ""
            if alias:
                i += 1
            if isinstance(relation, tuple):
                found.update({alias: relation} if alias else {"": relation})
            else:
                exact = next((name for name in made if name.lower() == relation.lower()), relation)
                found[alias or relation] = exact
            continue
        listing = listing and word.upper not in _ENDS_RELATION - {"AS", "ON", "USING"} and word.text != ")"
        i += 1
    found.pop("", None)
    return found


def _read_relation(words: Sequence[Word], i: int) -> tuple[ShownRelation | None, int]:
    """Read a relation that begins at an index; return it, and where its alias may stand."""
    if i >= len(words):
        return None, i
    if words[i].text == "(":
        end = find_parenthesis_end(words, i)
        inner = words[i + 1 : end]
        return (_find_outputs(inner), end + 1) if inner and end < len(words) else (None, i + 1)
    if not words[i].name or words[i].upper in _ENDS_RELATION:
        return None, i
    name = words[i].name
    i += 1
    while i + 1 < len(words) and words[i].text == "." and words[i + 1].name:
        name, i = words[i + 1].name, i + 2
    return name, i
