"""Random compositions of text functions over one row, and rows that are as bad as a text can be."""

from __future__ import annotations

import random
from dataclasses import dataclass

from sqlglot import exp

from dpsql.binding.values.declared_values import DEFAULT_MAX_LENGTH
from dpsql.binding.values.sql_types import Type, Typed
from dpsql.errors import BindError

TYPES = {
    "s": "VARCHAR",
    "s2": "VARCHAR",
    "li": "VARCHAR[]",
    "q": "BOOLEAN",
    "n": "INTEGER",
    "ts": "TIMESTAMP",
}


@dataclass
class Row:
    """A scope of one row whose texts have this public length."""

    length: int = DEFAULT_MAX_LENGTH

    def column(self, node: exp.Column) -> Typed:
        if node.name not in TYPES:
            raise BindError(f"there is no column {node.name}.")
        kind = Type.parse(TYPES[node.name])
        sized = kind.kind in ("TEXT", "LIST")
        return Typed(exp.column(node.name), kind, length=self.length if sized else None, unchecked=sized)


def worst(length: int) -> list[str]:
    """Texts of this length: each the worst for some function."""
    texts = [
        "a" * length, "ab" * length, "a" * (length // 2) + "b" * length, "x1 " * length, "😀" * length, "İ" * length,
        "\N{COMBINING GRAVE ACCENT BELOW}" * length,
        "\N{COMBINING ACUTE ACCENT}" * (length // 2) + "\N{COMBINING GRAVE ACCENT BELOW}" * length,
        "\N{MUSICAL SYMBOL EIGHTH NOTE}" * length, "\ufb2c" * length, "\N{REGIONAL INDICATOR SYMBOL LETTER A}" * length,
        "A,B;" * length, "0" * length, "".join(random.Random(1).choices("ab", k=length)),
        "".join(random.Random(2).choices("😀😁", k=length)),
    ]  # fmt: skip
    return [text[:length] for text in texts]


_WORDS = ("''", "'a'", "'ab'", "'xyz'", "'b'", "'😀'", "'0123456789'", "','")
_PATTERNS = (
    "a",
    "[^0-9]+",
    "\\s+",
    "a(b*c)?",
    "(a|b)+",
    "<[^>]*>",
    "(.)",
    "a*",
    "x{1,3}",
    "[ab]*a[ab]{12}",
    ".*b",
    "a.*?b|c",
    "",
)
_BY = ("''", "'x'", "'\\0\\0'", "'<\\1>'", "'long word'")
_LIKE = ("'%a%'", "'a%b'", "'%a%b%'", "'%a_b'", "'%a%_b%c'", "'_%a'", "'%'", "'%a%b%a%b%a%c'")
_GLOB = ("'*a*'", "'*a*b'", "'a?b*'", "'*[a-z]*c'")


class Composer:
    """Writes random expressions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, *of: str) -> str:
        return self.random.choice(of)

    def text(self, depth: int) -> str:
        if depth == 0 or self.random.random() < 0.1:
            return self.one(
                "s",
                "s2",
                "s",
                "'literal'",
                "CASE WHEN q THEN s ELSE 'xxxxxxxx' END",
                "coalesce(s, s2)",
                "li[1]",
            )
        x, y = self.text(depth - 1), self.text(depth - 2 if depth > 1 else 0)
        pattern = self.one(*(p for p in _PATTERNS if "(" in p))
        return self.one(
            f"lower({x})", f"upper({x})", f"reverse({x})", f"strip_accents({x})", f"nfc_normalize({x})", f"trim({x}, 'a')",
            f"ltrim({x})", f"left({x}, {self.one('3', '100', '5000', '-2')})", f"right({x}, {self.one('3', '-1')})",
            f"substring({x}, 2, {self.one('5', '100')})", f"substring({x}, 2)",
            f"replace({x}, {self.one(*_WORDS)}, {self.one(*_WORDS)})",
            f"replace({x}, {self.one(*_WORDS)}, '{'y' * self.random.choice((2, 30, 300))}')",
            f"translate({x}, 'abc', {self.one(*_WORDS)})", f"split_part({x}, {self.one(*_WORDS)}, 2)",
            f"regexp_extract({x}, '{self.one(*_PATTERNS)}')", f"regexp_extract({x}, '{pattern}', 1)",
            f"regexp_replace({x}, '{pattern}', {self.one(*_BY)})", f"regexp_replace({x}, '{pattern}', {self.one(*_BY)}, 'g')",
            f"regexp_replace({x}, '{self.one(*_PATTERNS)}', {self.one(*_BY[:3])}, 'g')",
            f"({x} || {y})", f"concat({x}, {y}, n, ts)", f"concat_ws({y}, {x}, 'and', s)", f"md5({x})", f"sha256({x})",
            f"greatest({x}, {y})", f"nullif({x}, 'a')", f"CASE WHEN {self.question(depth - 1)} THEN {x} ELSE {y} END",
            f"CAST(length({x}) AS VARCHAR)", "strftime(ts, '%A %Y-%m-%d %c')", f"if(q, {x}, {y})", "CAST(ts AS VARCHAR)",
        )  # fmt: skip

    def question(self, depth: int) -> str:
        x, y = self.text(max(0, depth - 1)), self.text(0)
        return self.one(
            f"{x} LIKE {self.one(*_LIKE)}", f"{x} ILIKE {self.one(*_LIKE)}", f"{x} GLOB {self.one(*_GLOB)}",
            f"{x} NOT LIKE {self.one(*_LIKE)}", f"{x} LIKE {self.one(*_LIKE)} ESCAPE '$'", f"contains({x}, {y})",
            f"strpos({x}, {y}) > 2", f"regexp_matches({x}, '{self.one(*_PATTERNS)}')", f"{x} SIMILAR TO '{self.one(*_PATTERNS)}'",
            f"levenshtein({x}, {self.one(*_WORDS)}) < 3", f"jaro_similarity({x}, {self.one(*_WORDS)}) < 0.5",
            f"length({x}) > 3", f"starts_with({x}, {y})", f"{x} < {y}", "list_contains(li, 'a')", f"{x} IS NULL",
        )  # fmt: skip
