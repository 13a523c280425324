"""The tree of an exact query, whatever parser read it: the few kinds of nodes that the second lock knows.

Both readers, of DuckDB's serialised tree and of Spark's text, give this, and refuse whatever has no place in it.

The functions that an exact query may call: each is a function of its arguments alone, in every version of DuckDB.

Whatever is not here is refused: a macro of the owner's, what reads files or settings, what is random or knows the time.

What the second lock is told beside a text: the policy's tables, public relations that are lent, and our own names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NoReturn

from dpsql.errors import PrivacyError


class Unproved(PrivacyError):
    """An exact query that could not be proved safe. ``why`` is for our own tests: no analyst sees a word of the query.

    Nothing was charged: the check comes before the payment.
    """

    def __init__(self, why: str) -> None:
        super().__init__(
            "this statement's exact query could not be proved safe, so it does not run.",
            hint="write it in a simpler way; and please report the statement: nothing was charged.",
        )
        self.why = why


def refuse(why: str) -> NoReturn:
    """Raise Unproved."""
    raise Unproved(why)


@dataclass(frozen=True, slots=True)
class Ref:
    """A column of a relation in FROM: always both names."""

    table: str
    name: str


@dataclass(slots=True)
class Literal:
    """A constant."""

    value: int | Fraction | float | str | bool | None

    @property
    def integer(self) -> int | None:
        """Return the integer that it is; a truth is none."""
        return self.value if isinstance(self.value, int) and not isinstance(self.value, bool) else None


@dataclass(slots=True)
class Parameter:
    """A named value that is filled in at release."""

    name: str


ANY, WHOLE = "any_value_", "any_integer_"
"""Beginnings of parameters that stand for values which a pattern leaves open; no text that is run has such ones."""


@dataclass(slots=True)
class Varied:
    """A number or a quoted text in a pattern; nothing else is known of it: :mod:`dpsql.lock.lock`."""

    name: str

    @property
    def whole(self) -> bool:
        """Return whether it is an integer, not below 0."""
        return self.name.startswith(WHOLE)


@dataclass(slots=True)
class Order:
    """One expression of an ORDER BY; ``how`` is direction and place of NULLs."""

    by: Expr
    how: str


@dataclass(slots=True)
class Call:
    """A function, an operator or an aggregate, by its name in lower case."""

    name: str
    args: tuple[Expr, ...]
    distinct: bool = False
    where: Expr | None = None
    order: tuple[Order, ...] = ()
    names: tuple[str, ...] = ()
    """The names of a struct's fields."""


@dataclass(slots=True)
class Cast:
    """A cast to a type, by its first word; ``attempt``: NULL where it fails. ``detail``: the type's digits or parts."""

    child: Expr
    type: str
    attempt: bool
    detail: str = ""


@dataclass(slots=True)
class Window:
    """A window function. ``start`` and ``end`` are DuckDB's words for the ends of the frame."""

    name: str
    args: tuple[Expr, ...]
    partition: tuple[Expr, ...]
    order: tuple[Order, ...]
    start: str
    end: str
    ends: tuple[Expr | None, Expr | None]
    where: Expr | None = None
    plain: bool = True
    """True where there is neither DISTINCT, IGNORE NULLS nor EXCLUDE."""


@dataclass(slots=True)
class Subquery:
    """``kind`` is EXISTS, NOT_EXISTS, ANY (with ``child`` among the rows) or SCALAR."""

    kind: str
    query: Query
    child: Expr | None = None


Expr = Ref | Literal | Parameter | Varied | Call | Cast | Window | Subquery


@dataclass(slots=True)
class Table:
    """A base table by its whole path, or a CTE or a lent relation by one name."""

    path: tuple[str, ...]
    alias: str


@dataclass(slots=True)
class Derived:
    """A subquery in FROM."""

    query: Query
    alias: str


@dataclass(slots=True)
class Values:
    """Rows that are written out."""

    rows: tuple[tuple[Expr, ...], ...]
    alias: str
    columns: tuple[str, ...]


@dataclass(slots=True)
class Made:
    """A table function."""

    name: str
    args: tuple[Expr, ...]
    alias: str
    columns: tuple[str, ...]


@dataclass(slots=True)
class Join:
    """``kind`` is INNER, LEFT, RIGHT, OUTER, SEMI or ANTI; without a condition it is a cross join."""

    left: Source
    right: Source
    kind: str
    on: Expr | None
    asof: bool


Source = Table | Derived | Values | Made | Join


@dataclass(slots=True)
class Select:
    """One SELECT. Every item has a name."""

    items: tuple[tuple[str, Expr], ...]
    source: Source | None
    ctes: tuple[tuple[str, Query], ...] = ()
    where: Expr | None = None
    groups: tuple[Expr, ...] = ()
    having: Expr | None = None
    qualify: Expr | None = None
    distinct: bool = False
    order: tuple[Order, ...] = ()
    limit: int | None = None
    """So many rows at most; -1 where that is filled in at release."""


@dataclass(slots=True)
class Union:
    """UNION, EXCEPT or INTERSECT, of all rows or of different ones."""

    kind: str
    parts: tuple[Query, ...]
    ctes: tuple[tuple[str, Query], ...] = ()
    limit: int | None = None


Query = Select | Union

# -- inside expressions ---------------------------------------------------------------------------------------------


def parts(node: Expr) -> Iterator[Expr]:
    """Yield the expressions inside, subqueries left out."""
    stack = [getattr(node, name) for name in reversed(node.__slots__)]
    while stack:
        part = stack.pop()
        if isinstance(part, tuple):
            stack.extend(reversed(part))
        elif isinstance(part, Order):
            yield part.by
        elif isinstance(part, Expr):
            yield part


def has(node: Expr, test: Callable[[Expr], bool]) -> bool:
    """Return whether some node of an expression, itself among them, passes a test."""
    return test(node) or any(has(part, test) for part in parts(node))


def looks_beyond(node: Expr) -> bool:
    """Return whether an expression looks at more than its own row: by a subquery or a window."""
    return has(node, lambda n: isinstance(n, Subquery | Window))


def aggregated(node: Expr) -> bool:
    """Return whether there is an aggregate in an expression; one with OVER is none."""
    return has(node, lambda n: isinstance(n, Call) and n.name in AGGREGATES)


def refs(node: Expr) -> Iterator[Ref]:
    """Yield the columns of an expression, those of its subqueries left out."""
    if isinstance(node, Ref):
        yield node
    for part in parts(node):
        yield from refs(part)


def named_sources(source: Source | None) -> Iterator[tuple[str, Source]]:
    """Yield the parts of a FROM by their aliases."""
    if isinstance(source, Join):
        yield from named_sources(source.left)
        yield from named_sources(source.right)
    elif source is not None:
        yield source.alias, source


def tables_of(given: object) -> set[str]:
    """Return the relations that the columns of a query name, those of its subqueries too."""
    if isinstance(given, Ref):
        return {given.table}
    if given.__class__.__module__ == __name__:
        given = tuple(getattr(given, name) for name in given.__slots__)  # type: ignore[attr-defined]
    return {name for part in given for name in tables_of(part)} if isinstance(given, tuple) else set()


def varied(given: object) -> set[str]:
    """Return the names of the constants that a query leaves open, those in its subqueries too."""
    if isinstance(given, Varied):
        return {given.name}
    if given.__class__.__module__ == __name__:
        given = tuple(getattr(given, name) for name in given.__slots__)  # type: ignore[attr-defined]
    return {name for part in given for name in varied(part)} if isinstance(given, tuple) else set()


def conjuncts(node: Expr | None) -> list[Expr]:
    """Return the conditions that must all hold."""
    match node:
        case None:
            return []
        case Call("and", args):
            return [part for arg in args for part in conjuncts(arg)]
    return [node]


def widened(node: Expr) -> Expr:
    """Return an expression without the casts around it that only make room for greater integers."""
    while isinstance(node, Cast) and node.type == "HUGEINT":
        node = node.child
    return node


def addends(node: Expr) -> list[Expr]:
    """Return the terms of a sum."""
    match widened(node):
        case Call("+", (left, right)):
            return [*addends(left), *addends(right)]
        case single:
            return [single]


def integer(node: Expr | None) -> int | None:
    """Return the integer that a literal is."""
    return node.integer if isinstance(node, Literal) else None


def present(node: Expr) -> Expr | None:
    """Return what IS NOT NULL is asked of."""
    match node:
        case Call("is not null", (inner,)) | Call("not", (Call("is null", (inner,)),)):
            return inner
    return None


_AGGREGATES = """
any_value arbitrary arg_max arg_max_null arg_min arg_min_null argmax argmin array_agg avg bit_and bit_or bit_xor
bool_and bool_or corr count count_if count_star countif covar_pop covar_samp entropy favg first fsum geomean
geometric_mean group_concat histogram kahan_sum kurtosis kurtosis_pop last list listagg mad max max_by mean median min
min_by mode product quantile quantile_cont quantile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2
regr_slope regr_sxx regr_sxy regr_syy sem skewness stddev stddev_pop stddev_samp string_agg sum sumkahan var_pop
var_samp variance approx_count_distinct approx_quantile
"""
_WINDOWS = "row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value first last"
_OPERATORS = """
+ - * / // % ** ^ & | << >> || ~ ~~ !~~ ~~* !~~* ~~~ @ ! = <> < > <= >= and or not in between case coalesce try nullif
"""
_SCALARS = """
abs acos acosh add age array_distinct array_extract array_length array_max array_min array_slice array_sort ascii asin
asinh atan atan2 atanh bit_count bit_length cast cbrt ceil ceiling century char_length character_length concat
concat_ws contains cos cosh cot date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc
day dayname dayofmonth dayofweek dayofyear decade degrees divide editdist3 ends_with epoch epoch_ms epoch_ns epoch_us
era even exp extract factorial fdiv floor fmod gamma gcd greatest hash hour if ifnull instr isfinite isinf isnan
isodow isoyear jaccard jaro_similarity jaro_winkler_similarity julian last_day lcase lcm least left len length
levenshtein lgamma like_escape list_avg list_contains list_distinct list_extract list_max list_median list_min
list_mode list_reverse_sort list_sort list_sum list_unique list_value ln log log10 log2 lower ltrim make_date
make_time make_timestamp md5 microsecond millennium millisecond minute mod month monthname multiply nfc_normalize
not_like_escape ord pi pow power prefix quarter radians regexp_extract regexp_full_match regexp_matches regexp_replace
replace reverse right round round_even row rtrim second sha1 sha256 sign signbit sin sinh split_part sqrt starts_with
strftime strip_accents strlen strpos struct_extract struct_pack substr substring subtract suffix tan tanh time_bucket
timezone_hour timezone_minute to_base to_days to_decades to_hours to_microseconds to_milliseconds to_minutes to_months
to_quarters to_seconds to_timestamp to_weeks to_years to_centuries to_millennia translate trim trunc try_cast
try_strptime ucase
unicode upper week weekday weekofyear xor year yearweek isoweek timetz_byte_comparable make_timestamp_ns
array_contains list_has array_has list_has_any list_has_all array_has_any array_has_all list_count array_count
list_concat list_cat array_concat array_cat list_position list_indexof array_position array_indexof list_slice
array_reverse list_reverse list_any_value list_first list_last list_stddev_samp list_var_samp list_product
list_string_agg list_bool_and list_bool_or array_to_string string_split str_split split string_to_array ilike_escape
not_ilike_escape regexp_escape hamming mismatches
"""

AGGREGATES = frozenset(_AGGREGATES.split())
WINDOWS = frozenset(_WINDOWS.split())
OPAQUE = "Function"
"""A function of its arguments alone, of which nothing else is known. No name that DuckDB's text gives has a capital."""
SCALARS = frozenset({*_OPERATORS.split(), *_SCALARS.split(), OPAQUE}) | {
    "is null",
    "is not null",
    "not in",
    "is distinct from",
    "is not distinct from",
}
TABLES = ("range", "generate_series", "unnest")


@dataclass(frozen=True)
class Hop:
    """One step of the way to a unit: a row of ``table`` whose ``key`` is equal, and the column of it that leads on."""

    table: tuple[str, ...]
    key: str
    column: str
    kind: str = ""
    """The SQL type of that column."""
    parted: bool = False
    """The unit is a pair of that column and of the row's period."""


@dataclass(frozen=True)
class Base:
    """A table of the policy.

    Args:
        columns: names and SQL types. unit: the column that holds the privacy unit, or that the path starts from.
        path: the hops from there, none where the column is the unit. kind: the unit's SQL type.
        period: a function, its part, and the column of the row that it takes: the unit is a pair of the column and of that.
    """

    columns: Mapping[str, str]
    public: bool = False
    unit: str | None = None
    path: tuple[Hop, ...] = ()
    kind: str = ""
    period: tuple[str, str, str] | None = None


@dataclass(frozen=True)
class Lent:
    """A public relation that is lent to the engine; ``count``: how many rows it has, where that is known."""

    columns: frozenset[str]
    count: int | None = None
    unique: str | None = None
    """A column in which no two rows agree."""


@dataclass(frozen=True)
class Known:
    """The meanings of names in a text.

    Args:
        tables: by catalog, schema and name. lent: by name. salt: the parameters that hold a secret.
        macros: functions that the owner's database has of its own.
    """

    tables: Mapping[tuple[str, ...], Base]
    lent: Mapping[str, Lent] = field(default_factory=dict)
    salt: frozenset[str] = frozenset({"salt"})
    macros: frozenset[str] = frozenset()
