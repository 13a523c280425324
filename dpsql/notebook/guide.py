"""The magic's first line (flags, a name for the result, in a line magic the SQL), and the texts of its help.

The parser, the help text and completion read one table of flags.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.catalogue.aggregate_names import AGGREGATES, SqlName
from dpsql.catalogue.option_names import ARGUMENT_NAMES, OPTION_NAMES, help_of, values_of
from dpsql.errors import BindError, Error, ParseError, did_you_mean
from dpsql.late_dataclass import dataclass

if TYPE_CHECKING:  # editors colour by these tables alone: no table library is loaded for them
    from IPython.core.interactiveshell import InteractiveShell

    from dpsql.notebook.render import Panel
    from dpsql.report.tables import Sheet


@dataclass(frozen=True)
class Flag:
    """A flag: the value it takes (None for a switch) and one line of help."""

    name: str
    value: str | None
    help: str


RUN_FLAGS = (
    Flag("-o", "name", "keep the result as a variable and a relation, show only its cost"),
    Flag("--show", None, "with -o: show the table as well"),
    Flag("--explain", None, "show the plan, the price and the expected errors; spends nothing"),
    Flag("--dry-run", None, "another name of --explain"),
    Flag("--params", "dict", "values of $name: a JSON object, or $variable holding a dict"),
    Flag("--plan", None, "price all statements of the cell together before the first is run"),
    Flag("--epsilon", "E", "the cost of this cell's statements that name none"),
    Flag("--fresh", None, "pay for a new draw even if an answer is stored"),
    Flag("--session", "name", "ask another open session"),
    Flag("--file", "path", "read the SQL from a file"),
    Flag("--format", None, "lay the cell's SQL out in lines; runs nothing"),
    Flag("--help", None, "show this"),
)
CONNECT_FLAGS = (
    Flag("--policy", "path", "the policy file that the data owner wrote"),
    Flag("--database", "path", "a DuckDB database, or a variable; also the first word of the line"),
    Flag("--ledger", "path", "the file of charges; default: in the policy's folder"),
    Flag("--analyst", "name", "whose share of the budget is used"),
    Flag("--session", "name", "name of the session; default: main"),
    Flag(
        "--token-file", "path", "of a server: a file with the token; default: DPSQL_TOKEN, or a hidden prompt"
    ),
    Flag("--tls-ca", "path", "of a server: the certificate of its owner's authority"),
    Flag("--tls-client-cert", "path", "of a server that requires it: your certificate, instead of a token"),
    Flag("--tls-client-key", "path", "the key of your certificate; default: in the same file"),
)
INIT_FLAGS = (
    Flag("--database", "path", "a DuckDB database, as the source"),
    Flag("--unit", "column", "the column that identifies the person, or ROW; default: a guess from names"),
    Flag("-o", "file", "write to this file, which must not exist"),
)
CHECK_FLAGS = (
    Flag(
        "--database", "path", "a DuckDB database, or a variable; default: the sources that the policy names"
    ),
    Flag("--data", None, "count rows and values that do not fit; must not be published"),
)


@dataclass(frozen=True)
class CellOptions:
    """The flags of one cell. ``name`` takes the result; ``silent`` if it was written ``name <<``."""

    name: str | None = None
    silent: bool = False
    show: bool = False
    explain: bool = False
    params: str | None = None
    fresh: bool = False
    plan: bool = False
    epsilon: str | None = None
    session: str | None = None
    file: str | None = None
    format: bool = False
    help: bool = False
    policy: str | None = None
    database: str | None = None
    ledger: str | None = None
    analyst: str | None = None
    token_file: str | None = None
    tls_ca: str | None = None
    tls_client_cert: str | None = None
    tls_client_key: str | None = None
    rest: tuple[str, ...] = field(default=())


_WORDS = """
    SELECT WITH FROM VALUES PIVOT UNPIVOT EXPLAIN SHOW DESCRIBE DESC SUMMARIZE SET RESET DECLARE CLOSE CREATE
    REFRESH DROP"""
STATEMENTS = tuple(_WORDS.split())
"""Words that a statement begins with."""

_KEYWORDS = """
    SELECT WITH DIFFERENTIAL_PRIVACY DP PTR STABLE SUBSAMPLE OPTIONS FROM WHERE GROUP BY HAVING ORDER LIMIT
    JOIN LEFT RIGHT USING ON AS AND OR NOT IN IS NULL CASE WHEN THEN ELSE END OVER FILTER VALUES EXPLAIN
    SHOW DESCRIBE SUMMARIZE SET RESET DECLARE CLOSE CREATE SYNTHETIC TABLE ROWS DISTINCT BETWEEN LIKE"""
KEYWORDS = tuple(_KEYWORDS.split())
"""Words of SQL that completion offers."""

_FIELDS = {"-o": "name", "--dry-run": "explain"}
"""Fields of :class:`CellOptions` with other names than their flags."""
_TAKEN = re.compile(r"((?:\s|--[^\n]*\n|/\*.*?\*/)*)(([A-Za-z_]\w*)\s*<<(?!<)[^\S\n]*)", re.DOTALL)
_TEMPLATE = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_WORD = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|\S)+)""")


def parse_cell_line(line: str) -> CellOptions:
    """Parse the line of ``%%dpsql``: flags in any order, and at most one name, with or without ``<<``.

    >>> parse_cell_line("--fresh out <<").name, parse_cell_line("out").silent
    ('out', False)
    """
    options = parse_flags(line, RUN_FLAGS)
    rest = options.rest
    if rest and rest[-1] == "<<":
        options, rest = replace(options, silent=True), rest[:-1]
    elif rest and rest[-1].endswith("<<"):
        options, rest = replace(options, silent=True), (*rest[:-1], rest[-1][:-2])
    if not rest:
        if options.silent:
            raise ParseError("<< needs a name before it.", hint="%%dpsql out <<")
        return replace(options, rest=())
    if len(rest) > 1 or not rest[0].isidentifier():
        raise ParseError(
            f"the line of %%dpsql takes flags and a name for the result, not {' '.join(rest)!r}.",
            hint="put the SQL on the next line; %%dpsql --help lists the flags.",
        )
    return replace(options, name=rest[0], rest=())


def parse_statement_line(line: str) -> tuple[CellOptions, str]:
    """Parse the line of ``%dpsql``: flags first, then the unchanged SQL."""
    at = 0
    while found := _WORD.match(line, at):
        flag = _flag(found[1], RUN_FLAGS)
        if flag is None:
            break
        at = found.end()
        if flag.value and (value := _WORD.match(line, at)):
            at = value.end()
    return parse_flags(line[:at], RUN_FLAGS), line[at:].strip()


def split_name(text: str) -> tuple[str | None, str]:
    """Split ``out << SELECT ...``, also below comments. Blanks replace the name, so that carets stay right.

    >>> split_name("out << SELECT 1")
    ('out', '       SELECT 1')
    """
    found = _TAKEN.match(text)
    if not found:
        return None, text
    blanks = re.sub(r"[^\n]", " ", found[2])
    return found[3], found[1] + blanks + text[found.end() :]


def parse_flags(line: str, flags: tuple[Flag, ...]) -> CellOptions:
    """Parse the flags and words of a line of the magic, as :func:`parse_words`."""
    rest, given = parse_words(line, flags)
    known = {flag.name: name_field(flag) for flag in flags}
    fields: dict[str, Any] = {known[name]: value for name, value in given.items()}
    return CellOptions(**fields, rest=rest)


def name_field(flag: Flag) -> str:
    """Return the field of :class:`CellOptions` that has a flag's value."""
    return _FIELDS.get(flag.name, flag.name.lstrip("-").replace("-", "_"))


def parse_words(line: str, flags: tuple[Flag, ...]) -> tuple[tuple[str, ...], dict[str, str | bool]]:
    """Parse a line into its words and its flags with their values, True for a switch; ParseError names the nearest flag."""
    try:
        tokens = shlex.split(line)
    except ValueError:
        raise ParseError("a quote on this line is not closed.", text=line) from None
    given: dict[str, str | bool] = {}
    rest: list[str] = []
    queue = iter(tokens)
    for token in queue:
        flag = _flag(token, flags)
        if flag is None:
            rest.append(token)
            continue
        name, glued, value = token.partition("=")
        if flag.value is None:
            given[name] = True
            continue
        if not glued:
            value = next(queue, "")
        if not value:
            raise ParseError(f"{name} needs a value.", hint=f"{name} {flag.value}: {flag.help}")
        given[name] = value
    return tuple(rest), given


def _flag(token: str, flags: tuple[Flag, ...]) -> Flag | None:
    """Return the flag that a word names; None for other words, such as SQL comments."""
    if not re.match(r"-{1,2}[A-Za-z]", token):
        return None
    name = token.partition("=")[0]
    known = {flag.name: flag for flag in flags}
    if name not in known:
        raise ParseError(f"there is no flag {name}.", hint=did_you_mean(name, known))
    return known[name]


COMMANDS = {
    "connect": "open a session: %dpsql connect [data.duckdb] --policy policy.toml, or %dpsql connect grpc+tls://host:31337",
    "demo": "open a session on the demo's health records",
    "budget": "the remaining budget, and the cost of each cell",
    "why": "the last answer or refusal explained: protection, parts of the cost, cheaper statements",
    "ledger": "all charges: time, analyst, cell, loss, outcome (also: %dpsql log)",
    "log": "another name of ledger",
    "tables": "the tree of the policy's tables and kept results, with their columns",
    "keep": "the last result, or a variable's, as a relation of later cells: %dpsql keep out",
    "columns": "the columns of a table: %dpsql columns visits",
    "policy": "the data owner's declarations; %dpsql policy init SOURCE -o policy.toml, %dpsql policy check policy.toml",
    "mechanisms": "every way to get an answer, with an example; %dpsql mechanisms WORD: those with that word",
    "format": "SQL laid out in lines: %dpsql format SELECT ...; %%dpsql --format replaces its cell",
    "sessions": "the open sessions; %dpsql sessions name makes one current",
    "session": "the open session as a Python object: session = %dpsql session",
    "report": "the owner's report: %dpsql report [file.html]",
    "close": "close the session: %dpsql close [name]",
    "help": "this list; %dpsql help WORD explains a word of the language, a table or a column",
}


_MODES = (
    ("WITH PTR", "a precise value if the data are stable", "SELECT WITH PTR IQR(age) FROM t"),
    (
        "WITH STABLE",
        "as near as the data allow, without delta or NULL",
        "SELECT WITH STABLE IQR(age), TRIMMED_MEAN(x, 0.1) FROM t",
    ),
    ("WITH SUBSAMPLE", "any query, run on blocks and combined", "SELECT WITH SUBSAMPLE CORR(a, b) FROM t"),
    (
        "DECLARE ... STABLE",
        "exact answers, paid only if blocks disagree",
        "DECLARE alarm STABLE OPTIONS (epsilon = 1, delta = 1e-6)",
    ),
    (
        "CREATE SYNTHETIC TABLE",
        "rows that look like private ones, free to ask afterwards",
        "CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 1) ward, urgent FROM t",
    ),
    (
        "CREATE RELEASE",
        "an answer that every analyst reads as a table, and that REFRESH RELEASE draws again",
        "CREATE RELEASE daily AS SELECT WITH DP OPTIONS (epsilon = 0.1) ward, COUNT(*) AS n FROM t GROUP BY ward",
    ),
)

OPTIONS = help_of(OPTION_NAMES)
"""Options of the modes and of DECLARE."""
ARGUMENTS = help_of(ARGUMENT_NAMES)
"""Named arguments of aggregates and mechanisms, written ``name => value``."""
OPTION_VALUES = values_of(OPTION_NAMES)
"""The words that options take, if they are listed."""
ARGUMENT_VALUES = values_of(ARGUMENT_NAMES)
"""The words that named arguments take, if they are listed."""

NO_SESSION = "%dpsql connect --policy policy.toml   (none yet? %dpsql policy init; or %dpsql demo)"


def show_mechanisms(word: str = "") -> Sheet:
    """List every way to get an answer, or those with a word; names that give the same share a line.

    Raises:
        BindError: none has the word.
    """
    from dpsql.notebook.render import make_sheet

    same: dict[str, list[SqlName]] = {}
    for row in AGGREGATES:
        if row.help:
            same.setdefault(row.help, []).append(row)
    lines = [(", ".join(row.name for row in rows), gives, rows[0].example) for gives, rows in same.items()]
    found = [line for line in [*lines, *_MODES] if word.lower() in " ".join(line).lower()]
    if not found:
        names = [name for line in [*lines, *_MODES] for name in line[0].split(", ")]
        raise BindError(f"no mechanism has the word {word}.", hint=did_you_mean(word.upper(), names))
    return make_sheet(("mechanism", "result", "example"), found)


def write_help(table: str | None, default: bool = False) -> Panel:
    """Return short help with an example that runs, on ``table`` if a session is open."""
    from dpsql.notebook.render import Panel

    lines = [
        "Ask questions in SQL; every answer is differentially private, and shows its error and its cost.",
        "",
    ]
    if table is None:
        lines += [f"  {NO_SESSION}"]
    else:
        options = "" if default else " WITH DP OPTIONS (epsilon = 0.1)"
        lines += ["  %%dpsql", f"  SELECT{options} COUNT(*) AS n FROM {table}"]
    shown = {f"%dpsql {name}": text for name, text in COMMANDS.items() if name not in ("log", "help")}
    lines += ["", *(f"  {command:<18} {text}" for command, text in shown.items())]
    lines += ["", "%%dpsql --explain shows the price first. %dpsql? lists every flag."]
    return Panel("\n".join(lines))


def _flags(flags: tuple[Flag, ...]) -> str:
    return "\n".join(f"  {f.name + (' ' + f.value if f.value else ''):<18} {f.help}" for f in flags)


USAGE = f"""Differentially private answers to SQL.

    %%dpsql [name] [flags]        SQL below; only comments may stand above %%dpsql in its cell
    out << SELECT ...             as first words of the SQL: keep the result, show nothing; SELECT ... FROM out reads it
    %dpsql [flags] SELECT ...     one line;  x = %dpsql SELECT ...  keeps the result
    %dpsql <command>              {", ".join(name for name in COMMANDS)}

Flags:
{_flags(RUN_FLAGS)}

%dpsql connect [database, or address of a server] takes
{_flags(CONNECT_FLAGS)}

Values from Python: write $city in the SQL and it is bound to the variable city, as a value, never as text.

Running a cell again shows the stored answer at no cost. Each fresh answer is paid: the mean of twenty answers costs
twenty times as much, and one answer with twenty times the epsilon is more exact.

Settings: %config DpsqlMagic, or [tool.dpsql] in pyproject.toml.  %alias_magic sql dpsql makes %%sql an alias,
which editors colour as SQL.
"""


def says_anything(text: str) -> bool:
    """Return whether a text is more than comments, blanks and semicolons; unreadable text is."""
    from dpsql.language.tokens import tokenize

    try:
        return any(token.text != ";" for token in tokenize(text))
    except Error:
        return True


def read_sql_file(path: str | Path) -> str:
    """Return the text of a file of SQL; ParseError if it can't be read."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, RuntimeError, ValueError):  # RuntimeError: ~name of an unknown user
        raise ParseError(f"the file {path} can't be read.") from None


def refuse_templates(text: str) -> None:
    """Raise ParseError for ``{{city}}``, which SQL would read as a plain string if it is in quotes."""
    found = _TEMPLATE.search(text)
    if found:
        raise ParseError(
            "text is never inserted into SQL, so {{...}} has no meaning here.",
            span=found.span(),
            hint=f"write ${found[1]} without quotes: it is bound to the variable {found[1]}, as a value.",
            text=text,
        )


def is_ours(shell: InteractiveShell, kind: str, name: str) -> bool:
    """Return whether a magic is ours, by its name or by an alias (``%alias_magic sql dpsql``)."""
    from IPython.core.magic import MagicAlias

    found = shell.magics_manager.magics[kind].get(name)
    return name == "dpsql" or (isinstance(found, MagicAlias) and found.magic_name == "dpsql")
