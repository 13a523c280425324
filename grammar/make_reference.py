"""Writes REFERENCE.md from the grammar, the tables that the binder reads, and docstrings.

python grammar/make_reference.py

A test compares the file with what this writes, so that it can't drift.
"""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import dpsql
from dpsql import cli, errors
from dpsql.binding.dp import aggregates
from dpsql.binding.modes import choice as selection
from dpsql.binding.modes import ptr as ptr
from dpsql.catalogue.aggregate_names import AGGREGATES, SqlName
from dpsql.catalogue.option_names import OPTION_NAMES, taken_by
from dpsql.catalogue.row_names import ROW_NAMES, TOTALITY
from dpsql.mechanisms.selection.exponential import CHOICE_METHODS
from dpsql.notebook import guide
from dpsql.policy import model
from dpsql.privacy.filters import ACCOUNTANTS

HERE = Path(__file__).resolve().parent
_RULE = re.compile(
    r"^(\w+)\s*= (.*?) ;[ \t]*(?:\(\*(?P<beside>[^\n]*?)\*\)[ \t]*)?\n\s+\(\*(?P<example>.*?)\*\)$",
    re.M | re.S,
)
_HEAD = re.compile(r"^\(\* ---- (.*?) ---- \*\)$", re.M)


def reference() -> str:
    """The whole text."""
    parts = [
        "# Language reference",
        "Written by `make_reference.py` from [dpsql.ebnf](dpsql.ebnf), the tables that the binder reads, and docstrings; a test "
        "keeps it so. Everything that is not here is DuckDB's SQL.",
        "## Options\n\nWritten `OPTIONS (name = value, ...)` after the mode; literals only. Which mode takes which:",
        _options(),
        "## Named arguments\n\nWritten `name => value` inside a call:",
        _arguments(),
        "## Aggregates and mechanisms\n\n"
        "`%dpsql mechanisms` shows this list, and `%dpsql mechanisms median` a part of it. CHOICE is a choice among candidates, "
        "`OVER` a relation.",
        _aggregates(),
        "## Functions of rows\n\nWhat may be computed from private rows before they are aggregated: a function is here "
        "when it gives a value whatever the data are. Over released numbers, every function of DuckDB may be used.",
        *(
            f"* {why} {_words(row.name for row in ROW_NAMES if row.total == total)}"
            for total, why in TOTALITY.items()
        ),
        "Besides: `+ - * / // %`, comparisons, `AND OR NOT`, `BETWEEN`, `IN`, `LIKE`, `CASE`, `COALESCE`, `NULLIF`, `GREATEST`, "
        "`LEAST`, `CAST` and `TRY_CAST`, and the parts and arithmetic of dates and times.",
        "## The policy",
        *(
            _fields(kind)
            for kind in (
                model.Budget,
                model.Table,
                model.Column,
                model.Format,
                model.Analyst,
                model.LedgerRules,
                model.ServerRules,
            )
        ),
        "### Accountants",
        _table(("name", "sums"), ((f"`{a.name}`", a.summary) for a in ACCOUNTANTS.values())),
        "## The magic",
        _table(("command", "effect"), ((f"`%dpsql {name}`", text) for name, text in guide.COMMANDS.items())),
        "Flags of `%%dpsql` and `%dpsql SELECT ...`:",
        _flags(guide.RUN_FLAGS),
        "Flags of `%dpsql connect`:",
        _flags(guide.CONNECT_FLAGS),
        "## In Python",
        _signature("dpsql.connect", dpsql.connect),
        *(_class(kind) for kind in (dpsql.Session, dpsql.Result)),
        "## Errors\n\n```\n" + _tree() + "\n```",
        "## The command line\n\n```\n" + _commands() + "\n```",
        *_rules(),
    ]
    return "\n\n".join(parts) + "\n"


def _aggregates() -> str:
    """The aggregates and mechanisms; names that give the same, in the same modes, share a line."""
    same: dict[tuple[str, tuple[str, ...]], list[SqlName]] = {}
    for row in AGGREGATES:
        if row.help:
            same.setdefault((row.help, tuple(row.modes)), []).append(row)
    lines = (
        (
            _words(row.name for row in rows),
            gives,
            ", ".join(modes),
            f"`{rows[0].example}`" * bool(rows[0].example),
        )
        for (gives, modes), rows in same.items()
    )
    return _table(("name", "result", "modes", "example"), lines)


def _rules() -> Iterator[str]:
    """The grammar's rules, section by section, each with its example."""
    text = (HERE / "dpsql.ebnf").read_text(encoding="utf-8")
    heads = [(0, "a cell"), *((m.start(), m[1]) for m in _HEAD.finditer(text)), (len(text), "")]
    for (start, title), (end, _) in itertools.pairwise(heads):
        yield f"## Grammar: {title}"
        for rule in _RULE.finditer(text, start, end):
            body = re.sub(r"\n\s+", "\n    ", rule[2].strip())
            example, _, note = re.sub(r"\s*\n\s*", " ", rule["example"].strip()).partition("     ")
            said = [f"**{rule[1]}**", *(filter(None, [(rule["beside"] or "").strip(), note.strip()]))]
            shown = example.replace("( * )", "(*)")
            yield " · ".join(said) + f"\n\n```\n{body}\n```\n\nfor example `{shown}`"


def _options() -> str:
    shown = {"DECLARE STABLE": "DECLARE ... STABLE", "PROBE": "a question to a declared threshold"}
    takers = (
        "DP",
        "PTR",
        "STABLE",
        "SUBSAMPLE",
        "DECLARE",
        "DECLARE STABLE",
        "PROBE",
        "CREATE SYNTHETIC TABLE",
    )
    modes = {shown.get(taker, taker): taken_by(taker, OPTION_NAMES) for taker in takers}
    names = list(dict.fromkeys(name for taken in modes.values() for name in taken if name != "rows"))
    rows = (
        (
            f"`{name}`",
            guide.OPTIONS[name],
            ", ".join(mode for mode, taken in modes.items() if name in taken),
        )
        for name in names
    )
    return _table(("option", "meaning", "modes"), rows)


def _arguments() -> str:
    calls = {
        "aggregates": aggregates.NAMED_ARGUMENTS,
        "PTR": ptr.PTR_ARGUMENTS,
        **selection.SELECTION_ARGUMENTS,
    }
    names = list(dict.fromkeys(name for readers in calls.values() for name in readers))
    choices = {"method": ": " + ", ".join(map(repr, CHOICE_METHODS))}
    rows = (
        (
            f"`{name}`",
            guide.ARGUMENTS[name] + choices.get(name, ""),
            ", ".join(call for call, readers in calls.items() if name in readers),
        )
        for name in names
    )
    return _table(("argument", "meaning", "of"), rows)


def _flags(flags: Iterable[guide.Flag]) -> str:
    return _table(
        ("flag", "effect"), ((f"`{f.name}{' ' + f.value if f.value else ''}`", f.help) for f in flags)
    )


def _class(kind: type) -> str:
    said = [f"### {kind.__name__}\n\n{_first(kind)}"]
    rows = []
    ours = [base for base in reversed(kind.__mro__) if base.__module__.startswith("dpsql")]
    members = {name: vars(base)[name] for base in ours for name in vars(base)}
    for name, member in members.items():
        if (
            name.startswith("_")
            or not (callable(member) or isinstance(member, property))
            or isinstance(member, classmethod)
            or not inspect.getdoc(getattr(kind, name))
        ):
            continue
        shown = name if isinstance(member, property) else f"{name}{_parameters(member)}"
        rows.append((f"`{shown}`", _first(member)))
    return "\n\n".join([*said, _table(("", ""), rows)])


def _fields(kind: type) -> str:
    doc = inspect.getdoc(kind) or ""
    listed = re.findall(r"^    (\w+(?:, \w+)*): (.*(?:\n {8,}.*)*)", doc, re.M)
    said = f"### {kind.__name__}\n\n{_first(kind)}"
    if not listed:
        return said
    keys = ((f"`{name}`", _plain(text)) for name, text in listed)
    return f"{said}\n\n" + _table(("key", "meaning"), keys)


def _signature(name: str, thing: object) -> str:
    return f"### {name}\n\n`{name}{_parameters(thing)}`\n\n{_first(thing)}"


def _parameters(thing: object) -> str:
    parameters = [p for p in inspect.signature(thing).parameters.values() if p.name != "self"]  # type: ignore[arg-type]
    shown, starred = [], False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        default = "" if p.default is p.empty else f"={p.default!r}"
        shown.append(("*" if p.kind is p.VAR_POSITIONAL else "") + p.name + default)
    return f"({', '.join(shown)})"


def _first(thing: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return _plain((inspect.getdoc(thing) or "").split("\n\n")[0])


def _plain(text: str) -> str:
    """One line of Markdown of what is written for docstrings."""
    return re.sub(r":\w+:`~?([^`]*)`", r"`\1`", " ".join(text.replace("``", "`").split()))


def _tree() -> str:
    found = re.search(r"\n\n(    Error .*?)\n\n", errors.__doc__ or "", re.S)
    assert found is not None
    return inspect.cleandoc(found[1])


def _commands() -> str:
    parser = cli.make_parser()
    lines = []
    for action in parser._subparsers._group_actions:  # type: ignore[union-attr]  # argparse has no other way in
        for choice in action._choices_actions:  # type: ignore[attr-defined]
            lines.append(f"dpsql {choice.dest:<10} {choice.help}")
    return "\n".join(lines)


def _words(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(set(names)))


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    listed = [list(heads), *(list(row) for row in rows)]
    listed.insert(1, ["---"] * len(listed[0]))
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in listed)


def main() -> None:
    (HERE / "REFERENCE.md").write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
