"""A Pygments lexer: dpsql's SQL, with or without the magic's own first line. It is a module of its own for its entry point.

``pygmentize -l dpsql`` knows it through its entry point. For nbconvert:
``c.HighlightMagicsPreprocessor.languages = {"%%dpsql": "dpsql"}``.
"""

from __future__ import annotations

import re
from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups, default, words  # type: ignore[import-untyped]
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text  # type: ignore[import-untyped]

from dpsql.catalogue.aggregate_names import WORDS
from dpsql.notebook.guide import ARGUMENTS, KEYWORDS, OPTIONS

_MORE = """
    ASC DESC INNER OUTER CROSS UNION ALL EXCEPT INTERSECT QUALIFY WINDOW PARTITION INTERVAL CAST TRUE FALSE ANY EXISTS
    ROLLUP CUBE GROUPING SETS OFFSET RECURSIVE NATURAL FULL BUDGET LEDGER POLICY TABLES TRADEOFF SPENT GROUPS ACCOUNTANTS CLOSE
    RELEASE RELEASES REFRESH DROP REPLACE IF"""
MORE = tuple(_MORE.split())
"""Words of SQL that completion does not offer."""


class DpsqlLexer(RegexLexer):  # type: ignore[misc]  # Pygments has no types
    """DuckDB SQL with modes, mechanisms and their options."""

    name = "dpsql"
    aliases: ClassVar = ["dpsql"]
    filenames: ClassVar = ["*.dpsql"]
    url = ""
    flags = re.IGNORECASE

    tokens: ClassVar = {
        "root": [(r"(%%?)(\w+)([^\n]*)", bygroups(Operator, Keyword, Text), "sql"), default("sql")],
        "sql": [
            (r"\s+", Text),
            (r"--[^\n]*", Comment.Single),
            (r"/\*", Comment.Multiline, "comment"),
            (r"'(''|[^'])*'", String.Single),
            (r'"(""|[^"])*"', Name),
            (r"\$[A-Za-z_]\w*", Name.Variable),
            (r"(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", Number),
            (r"([A-Za-z_]\w*)(\s*)(<<)", bygroups(Name.Variable, Text, Operator)),
            (words(sorted(WORDS), suffix=r"(?=\s*\()"), Name.Function),
            (words(sorted({*OPTIONS, *ARGUMENTS}), prefix=r"\b", suffix=r"\b(?=\s*=)"), Name.Attribute),
            (words(sorted({*KEYWORDS, *MORE}), prefix=r"\b", suffix=r"\b"), Keyword),
            (r"[A-Za-z_]\w*", Name),
            (r"=>|::|<=|>=|<>|!=|\|\||[-+*/%<>=^&|~!@#?:]", Operator),
            (r"[();,.\[\]{}]", Punctuation),
            (r".", Text),
        ],
        "comment": [(r"\*/", Comment.Multiline, "#pop"), (r"[^*]+|\*", Comment.Multiline)],
    }
