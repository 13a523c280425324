"""The catalogue of row functions: for each one its name, the reason why it is total, its types and Spark's spelling.

A total function gives a value for all arguments, if need be in TRY, which turns errors into NULL. Others are refused:
functions that are volatile or read files, settings or metadata, since their answers aren't about the rows; functions
whose time or memory grows with a number; JSON, bit strings and unions, whose errors TRY doesn't catch; functions that
raise on purpose. Each has a public bound on the length of its result.

To add a function, add a row here: :mod:`dpsql.binding.values.row_functions` binds it by its signature.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dpsql.catalogue.aggregate_names import EXACT_AGGREGATES
from dpsql.catalogue.date_units import DATE_UNITS
from dpsql.late_dataclass import dataclass

_Range = tuple[int | None, int | None]
OWN = "own"
"""Functions with binders of their own, which are total for reasons stated there."""
_REAL, _FLOATS, _INTEGERS, _TEXT = "mathematics", "floats", "integers", "text"
FILLED = "fillings"
"""Texts filled up to a length."""
_COMPARED, _SIMILAR, _DIGEST, _LISTS, _MAPS, _JSON, _PARTS = (
    "comparisons",
    "similarity",
    "digests",
    "lists",
    "maps",
    "JSON",
    "parts of dates",
)

TOTALITY: dict[str, str] = {
    _REAL: "Mathematics on DOUBLE: outside the domain the answer is NaN or infinite, which count as missing. Some settings "
    "of a connection make that an error, which TRY catches.",
    _FLOATS: "Tests of a float's bits.",
    _INTEGERS: "Whole numbers, in TRY since the answer may not fit.",
    _TEXT: "Text: every text is valid UTF-8, and the answers have a public bound. Counts and positions are small literals, "
    "since the engine raises on positions above 32 bits.",
    _COMPARED: "Comparisons of two texts.",
    _SIMILAR: "Similarity to a literal: the cost is at most proportional to the product of both lengths.",
    _DIGEST: "Digests of a text, of fixed size; never of the privacy unit, which is no value here.",
    FILLED: "Texts filled up to a length that is a small literal, in TRY since an empty filling is an error on short texts.",
    _LISTS: "Lengths of lists.",
    _MAPS: "Keys and entries of maps, in TRY.",
    _JSON: "Parts of JSON at a literal path; a text that is none is NULL.",
}
"""The reasons why functions are total."""


@dataclass(frozen=True)
class RowName:
    """A function of a row's values.

    Args:
        name: DuckDB's name.
        total: a key of :data:`TOTALITY`, or :data:`OWN`.
        signature: its types, as in ``TEXT, 'INTEGER? -> TEXT``: an apostrophe marks a literal, a question mark an argument
            that may be missing. NUMBER is any type of numbers.
        node: its sqlglot class; other names are parsed into calls by name.
        parts: the keys of its values in sqlglot's node, in DuckDB's order.
        unit: the unit of time of a part of a date.
        spark: Spark's expression of its arguments, or ``=`` if Spark has it by this name; empty without an equivalent.
        bounds: the range of the result, or the name of a rule.
        longest: the longest text from arguments within their lengths, as a multiple of the first, or a rule.
        cut: the longest text from arguments of any length, or a rule.
        weight: characters in memory for each character of the result.
        steps: steps for one row, if more than a few per character: a fraction of the product of two texts' lengths.
        strict: whether it is NULL if an argument is NULL.
        chooses: whether its value is one of its arguments.
        of_day: whether it depends on the day of a time alone.
    """

    name: str
    total: str = OWN
    signature: str = ""
    node: str = ""
    aliases: tuple[str, ...] = ()
    parts: tuple[str, ...] = ("this", "expression")
    unit: str = ""
    spark: str = ""
    bounds: _Range | str | None = None
    longest: int | str = 1
    cut: int | str | None = None
    weight: int = 1
    steps: tuple[int, int] | None = None
    strict: bool = True
    of_day: bool = False
    chooses: bool = False


def _real(
    names: str, bounds: _Range | str | None = None, signature: str = "NUMBER -> DOUBLE", spark: str = "="
) -> Iterator[RowName]:
    """Yield functions of numbers; sqlglot's class of a name is written behind a colon."""
    for word in names.split():
        name, _, node = word.partition(":")
        yield RowName(name, _REAL, signature, node, spark=spark, bounds=bounds)


def _asks(names: str, spark: str, steps: tuple[int, int] | None = None) -> Iterator[RowName]:
    for word in names.split():
        name, _, node = word.partition(":")
        yield RowName(name, _COMPARED, "TEXT, TEXT -> BOOLEAN", node, spark=spark, steps=steps)


_LOGARITHM = (
    "(CASE WHEN {{0}} > 0D THEN {0}({{0}}) WHEN {{0}} = 0D THEN double('-Infinity') "
    "WHEN {{0}} < 0D THEN double('NaN') END)"
)
"""Written out for zero and below, for which Spark returns NULL."""
_NEGATIVE = (
    "coalesce({0} < 0D OR ({0} = 0D AND atan2({0}, -1D) < 0D), CASE WHEN {0} IS NOT NULL THEN FALSE END)"
)
_CODE: _Range = (-1, 0x10FFFF)
_FROM_ZERO: _Range = (0, None)

LIST_ENDS = ("list_any_value", "list_first", "list_last")
"""Functions whose value is one of a list's, by its place."""
_CHOOSERS = ("coalesce", "greatest", "least")

ROW_NAMES: tuple[RowName, ...] = (
    *_real("asinh:Asinh acosh:Acosh atanh:Atanh cot:Cot gamma lgamma even", spark=""),
    *_real("tan:Tan sinh:Sinh degrees:Degrees radians:Radians"),
    RowName("ln", _REAL, "NUMBER -> DOUBLE", "Ln", spark=_LOGARITHM.format("ln"), bounds="logarithm"),
    RowName("log2", _REAL, "NUMBER -> DOUBLE", spark=_LOGARITHM.format("log2"), bounds="logarithm to base 2"),
    RowName("log10", _REAL, "NUMBER -> DOUBLE", spark=_LOGARITHM.format("log10"), bounds="logarithm to base 10"),
    RowName("log", _REAL, "NUMBER, NUMBER -> DOUBLE", bounds="logarithm to any base"),
    *_real("sqrt:Sqrt", "square root"), *_real("cbrt:Cbrt", "cube root"), *_real("exp:Exp", "exponential"),
    *_real("sin:Sin cos:Cos tanh:Tanh", (-1, 1)), *_real("asin:Asin atan:Atan", (-2, 2)), *_real("acos:Acos", (0, 4)),
    *_real("cosh:Cosh", (1, None)), *_real("atan2:Atan2", (-4, 4), "NUMBER, NUMBER -> DOUBLE"),
    RowName("pow", _REAL, "NUMBER, NUMBER -> DOUBLE", "Pow", ("power",), spark="power({0}, {1})", bounds="power"),
    RowName("pi", _REAL, "-> DOUBLE", "Pi", parts=(), spark="pi()", bounds=(3, 4)),

    RowName("isnan", _FLOATS, "DOUBLE -> BOOLEAN", "IsNan", spark="({0} = double('NaN'))"),
    RowName("isinf", _FLOATS, "DOUBLE -> BOOLEAN", "IsInf", spark="(abs({0}) = double('Infinity'))"),
    RowName("isfinite", _FLOATS, "DOUBLE -> BOOLEAN", spark="(abs({0}) < double('Infinity'))"),
    RowName("signbit", _FLOATS, "DOUBLE -> BOOLEAN", spark=_NEGATIVE),

    RowName("gcd", _INTEGERS, "INTEGER, INTEGER -> BIGINT"), RowName("lcm", _INTEGERS, "INTEGER, INTEGER -> BIGINT"),
    RowName("bit_count", _INTEGERS, "INTEGER -> TINYINT", bounds=(0, 128)),

    RowName("lower", _TEXT, "TEXT -> TEXT", "Lower", ("lcase",), spark="="),
    RowName("upper", _TEXT, "TEXT -> TEXT", "Upper", ("ucase",), spark="="),
    RowName("reverse", _TEXT, "TEXT -> TEXT", "Reverse"),
    # A normalised text has at most three code points for each one; its marks are sorted one by one.
    RowName("strip_accents", _TEXT, "TEXT -> TEXT", longest=3),
    RowName("nfc_normalize", _TEXT, "TEXT -> TEXT", longest=3, steps=(2, 1)),
    RowName("trim", _TEXT, "TEXT, 'TEXT? -> TEXT"), RowName("ltrim", _TEXT, "TEXT, 'TEXT? -> TEXT"),
    RowName("rtrim", _TEXT, "TEXT, 'TEXT? -> TEXT"),
    RowName("length", _TEXT, "TEXT -> BIGINT", aliases=("char_length", "character_length"), bounds="characters"),
    RowName("strlen", _TEXT, "TEXT -> BIGINT", spark="CAST(octet_length({0}) AS BIGINT)", bounds="bytes"),
    RowName("bit_length", _TEXT, "TEXT -> BIGINT", "BitLength", spark="CAST(bit_length({0}) AS BIGINT)", bounds="bits"),
    RowName("substring", _TEXT, "TEXT, 'INTEGER, 'INTEGER? -> TEXT", "Substring", ("substr",), ("this", "start", "length"),
            cut="third argument"),
    RowName("left", _TEXT, "TEXT, 'INTEGER -> TEXT", "Left", cut="second argument"),
    RowName("right", _TEXT, "TEXT, 'INTEGER -> TEXT", "Right", cut="second argument"),
    RowName("replace", _TEXT, "TEXT, 'TEXT, 'TEXT -> TEXT", "Replace", parts=("this", "expression", "replacement"), spark="=",
            longest="replacements", steps=(1, 64)),
    RowName("translate", _TEXT, "TEXT, 'TEXT, 'TEXT -> TEXT", "Translate", parts=("this", "from_", "to"), spark="="),
    RowName("split_part", _TEXT, "TEXT, 'TEXT, 'INTEGER -> TEXT", "SplitPart", parts=("this", "delimiter", "part_index"),
            weight=5),
    RowName("strpos", _TEXT, "TEXT, TEXT -> BIGINT", "StrPosition", ("instr",), ("this", "substr"),
            spark="CAST(instr({0}, {1}) AS BIGINT)", bounds=_FROM_ZERO, steps=(1, 64)),
    RowName("ascii", _TEXT, "TEXT -> INTEGER", "Ascii", spark="=", bounds=_CODE),
    RowName("unicode", _TEXT, "TEXT -> INTEGER", "Unicode", spark="(CASE WHEN {0} = '' THEN -1 ELSE ascii({0}) END)",
            bounds=_CODE),
    RowName("ord", _TEXT, "TEXT -> INTEGER", bounds=_CODE),

    *_asks("starts_with:StartsWith prefix", "startswith({0}, {1})"), *_asks("ends_with:EndsWith suffix", "endswith({0}, {1})"),
    *_asks("contains:Contains", "=", (1, 64)),

    RowName("levenshtein", _SIMILAR, "TEXT, 'TEXT -> BIGINT", "Levenshtein", ("editdist3",), bounds=_FROM_ZERO, steps=(2, 1)),
    RowName("jaro_similarity", _SIMILAR, "TEXT, 'TEXT -> DOUBLE", bounds=(0, 1), steps=(1, 16)),
    RowName("jaro_winkler_similarity", _SIMILAR, "TEXT, 'TEXT -> DOUBLE", "JarowinklerSimilarity", bounds=(0, 1), steps=(1, 16)),

    RowName("md5", _DIGEST, "TEXT -> TEXT", "MD5", spark="=", cut=32),
    RowName("sha1", _DIGEST, "TEXT -> TEXT", "SHA", spark="=", cut=40),
    RowName("sha256", _DIGEST, "TEXT -> TEXT", "SHA2", parts=("this",), spark="sha2({0}, 256)", cut=64),
    RowName("lpad", FILLED, "TEXT, 'INTEGER, 'TEXT -> TEXT", cut="length"),
    RowName("rpad", FILLED, "TEXT, 'INTEGER, 'TEXT -> TEXT", cut="length"),
    RowName("len", _LISTS, "LIST -> BIGINT", "ArraySize", ("array_length",), bounds="characters"),

    *(RowName(unit.name.lower(), _PARTS, node=unit.node, unit=unit.name) for unit in DATE_UNITS if unit.called),
    *(RowName(unit.maker, node="ToDays" if unit.name == "DAY" else "", parts=("this",), strict=False)
      for unit in DATE_UNITS if unit.maker),
    RowName("dayofmonth", _PARTS, node="DayOfMonth", aliases=("day_of_month",), unit="DAY"),
    RowName("weekofyear", _PARTS, node="WeekOfYear", unit="WEEK"),

    *map(RowName, (
        "date_diff", "date_trunc", "epoch_ms", "extract", "make_date", "make_timestamp", "mod", "regexp_extract",
        "regexp_full_match", "regexp_matches", "regexp_replace", "strftime", "time_bucket", "timezone", "to_timestamp",
        "try_strptime", "xor",
    )),
    RowName("abs", node="Abs"), RowName("ceil", node="Ceil", aliases=("ceiling",)), RowName("epoch", node="TimeToUnix"),
    RowName("floor", node="Floor"), RowName("round", node="Round", parts=("this", "decimals")), RowName("sign", node="Sign"),
    RowName("trunc", node="Trunc", parts=("this", "decimals")), RowName("list_slice", strict=False),
    RowName("list_sum", aliases=("array_sum",), strict=False), RowName("list_unique", aliases=("array_unique",), strict=False),
    RowName("list_max", node="ArrayMax", aliases=("array_max",), parts=("this",), strict=False),
    RowName("list_min", node="ArrayMin", aliases=("array_min",), parts=("this",), strict=False),
    RowName("list_filter", node="ArrayFilter", aliases=("array_filter",), strict=False),
    RowName("list_transform", node="Transform", aliases=("list_apply", "array_transform", "array_apply"), strict=False),
    RowName("list_avg", strict=False), RowName("list_count", strict=False), *(RowName(name, strict=False) for name in LIST_ENDS),
    RowName("list_position", aliases=("array_position", "list_indexof", "array_indexof"), strict=False),
    RowName("list_has_all", strict=False), RowName("list_has_any", strict=False),
    RowName("array_slice", node="ArraySlice", parts=("this", "start", "end"), strict=False),
    RowName("date_part", aliases=("datepart",)), RowName("date_sub", aliases=("datesub",)),
    RowName("dayname", node="Dayname", of_day=True), RowName("last_day", node="LastDay", of_day=True),
    RowName("monthname", node="Monthname", of_day=True), RowName("string_split", node="Split"),
    RowName("strptime", node="StrToTime", parts=("this", "format")),
    RowName("width_bucket", node="WidthBucket", parts=("this", "min_value", "max_value", "num_buckets")),
    RowName("json_extract", _JSON, node="JSONExtract", aliases=("json_extract_path",), strict=False),
    RowName("json_extract_string", _JSON, node="JSONExtractScalar", aliases=("json_extract_path_text",), strict=False),
    RowName("map_keys", _MAPS, node="MapKeys", parts=("this",), strict=False),
    RowName("map_extract", _MAPS, aliases=("element_at",), strict=False),
    *(RowName(name, _MAPS, strict=False) for name in ("cardinality", "map_contains", "map_extract_value", "map_values")),
    *(replace(RowName(name), strict=False, chooses=name in _CHOOSERS) for name in (
        "coalesce", "concat", "concat_ws", "greatest", "if", "ifnull", "least", "list_contains", "list_value", "nullif",
    )),
)  # fmt: skip
"""The row functions."""
ROW_OF_NAME: dict[str, RowName] = {row.name: row for row in ROW_NAMES}
ROW_ALIASES: dict[str, str] = {alias: row.name for row in ROW_NAMES for alias in row.aliases}
ROW_WORDS: frozenset[str] = frozenset({*ROW_OF_NAME, *ROW_ALIASES})
DUCKDB_WORDS: frozenset[str] = ROW_WORDS - {
    "array_max",
    "array_min",
    "array_sum",
    "day_of_month",
    "extract",
    "width_bucket",
}
"""The names that DuckDB has too."""
CALLED_FUNCTIONS: frozenset[str] = frozenset(
    name for row in ROW_NAMES if row.signature or row.unit for name in (row.name, *row.aliases)
)
"""Functions bound by their signature or unit alone."""
FILLING_FUNCTIONS: frozenset[str] = frozenset(row.name for row in ROW_NAMES if row.total == FILLED)
"""Functions whose result has the length that a number gives."""
MAP_WORDS, JSON_WORDS = (
    frozenset(name for row in ROW_NAMES if row.total == total for name in (row.name, *row.aliases))
    for total in (_MAPS, _JSON)
)
"""Functions of a map, and of a part of JSON, their first argument."""
LIST_AGGREGATES: tuple[str, ...] = (
    "list_sum",
    "list_max",
    "list_min",
    "list_unique",
    "list_avg",
    "list_count",
    *LIST_ENDS,
)
"""Functions of a list alone."""
STRICT_CALLS: frozenset[str] = frozenset(
    name for row in ROW_NAMES if row.strict for name in (row.name, *row.aliases)
)
"""Functions that are NULL if one of their arguments is."""

REFUSED_NODES: dict[str, str] = {
    "Explode": "unnest",
    "Rand": "random",
    "GenerateSeries": "range",
    "CurrentDate": "current_date",
    "CurrentTimestamp": "current_timestamp",
    "CurrentTime": "current_time",
}
"""DuckDB's names of some refused calls, by sqlglot's class."""

_NO_ROWS = "its answer is not about the rows"
_COSTS = "its cost depends on the values"
SAMPLE_HINT = "aggregate all rows: no sample of them is drawn here."
CLOCK = "only a query has a time"
RANDOM_FUNCTIONS = ("random", "rand")
_MOMENTS = (
    "now current_timestamp get_current_timestamp transaction_timestamp statement_timestamp clock_timestamp"
)
CLOCKS: dict[str, str] = {
    **dict.fromkeys(("current_date", "today"), "DATE"),
    **dict.fromkeys(_MOMENTS.split(), "TIMESTAMP WITH TIME ZONE"),
    **dict.fromkeys(("localtimestamp", "current_localtimestamp"), "TIMESTAMP"),
    **dict.fromkeys(("current_time", "get_current_time"), "TIME WITH TIME ZONE"),
    **dict.fromkeys(("localtime", "current_localtime"), "TIME"),
}
"""The functions of the present time, with their types; a statement has one time."""
JSON = "it fails on text that is no JSON"
NOT_LISTED: dict[str, str] = {name: why for why, names in (
    (_NO_ROWS, (*RANDOM_FUNCTIONS, "uuid", "gen_random_uuid", "nextval", "currval", "setseed", "rowid", "getenv",
              "current_setting", "getvariable", "version", "typeof", "stats", "alias", "current_user", "session_user",
              "current_catalog", "current_database", "current_schema")),
    (CLOCK, tuple(CLOCKS)),
    ("it reads files", ("read_text", "read_blob", "read_csv", "read_parquet", "glob", "query", "query_table")),
    (_COSTS, ("repeat", "range", "generate_series", "list_resize", "format", "printf")),
    ("an error would be an answer without noise", ("error", "assert_true")),
    ("time would be an answer without noise", ("sleep_ms", "pg_sleep")),
    ("it fails on far dates while the engine still plans; epoch doesn't", ("epoch_ns", "epoch_us")),
    ("it differs between versions; md5 of a text doesn't", ("hash",)),
    ("it means several columns; name each", ("columns",)),
    (JSON, ("json_value", "json_exists", "json_contains", "json_array_length", "json_keys", "json_type", "from_json")),
    ("it makes rows of a row; in FROM it may stand, behind the table and a comma", ("unnest",)),
) for name in names}  # fmt: skip
"""Reasons why some well-known functions are missing."""

_FURTHER = """
add age array_cat array_concat array_contains array_distinct array_extract array_has array_has_all array_has_any
array_reverse array_sort array_to_string date_add datediff datetrunc divide epoch_ns
epoch_us factorial fdiv fmod hamming hash ilike_escape jaccard julian like_escape list_bool_and
list_bool_or list_cat list_concat list_distinct list_extract list_has
list_median list_mode list_product list_reverse list_reverse_sort
list_sort list_stddev_samp list_string_agg list_var_samp make_time make_timestamp_ns
mismatches multiply not_ilike_escape not_like_escape regexp_escape round_even row split str_split string_to_array
struct_extract struct_pack subtract timezone_hour timezone_minute to_base to_centuries to_millennia
"""
EXACT_ONLY: frozenset[str] = frozenset(
    (
        "array_count",
        "cast",
        "extract",
        "isoweek",
        "timetz_byte_comparable",
        "try_cast",
    )
)
"""Spellings that only exact queries use."""
EXACT_CALLS: frozenset[str] = EXACT_ONLY | frozenset(_FURTHER.split())
"""Further functions of their arguments alone, for exact queries: spellings by DuckDB and by the binder."""

# -- functions above private blocks, over released numbers and public tables, row functions among them. These need no bounds:
# -- a statement that fails there tells nothing about private rows.

_ABOVE_BLOCKS = (
    # operators
    "! != !~ !~~ !~~* !~~~ % & && * ** + - -> ->> / // < <-> << <= <=> <> <@ = == > >= >> @ @> ^ ^@ __postfix not | || ~ ~~ "
    "~~* ~~~ "
    # conditions
    "between constant_or_null isnull notnull switch "
    # numbers
    "decimal_division equi_width_bins greatest_common_divisor is_histogram_other_bin least_common_multiple mround nextafter "
    "roundbankers "
    # texts
    "array_to_string_comma_default bar base64 bin chr damerau_levenshtein decode encode format format_bytes "
    "formatreadabledecimalsize formatreadablesize from_base64 from_binary from_hex hex left_grapheme length_grapheme "
    "md5_number md5_number_lower md5_number_upper octet_length overlay parse_dirname parse_dirpath parse_filename "
    "parse_formatted_bytes parse_path path_join pg_size_pretty position printf regexp_extract_all regexp_split_to_array "
    "repeat right_grapheme str_split_regex string_split_regex substring_grapheme to_base64 to_binary to_hex unbin unhex "
    "url_decode url_encode "
    # bits
    "bit_position bitstring get_bit set_bit "
    # times
    "ago current_date current_localtime current_localtimestamp current_time current_timestamp days_in_month get_current_time "
    "get_current_timestamp localtime localtimestamp make_timestamp_ms make_timestamptz nanosecond normalized_interval now "
    "today transaction_timestamp "
    # lists
    "aggregate apply array_aggr array_aggregate array_append array_apply array_cosine_distance array_cosine_similarity "
    "array_cross_product array_distance array_dot_product array_filter array_grade_up array_inner_product array_intersect "
    "array_negative_dot_product array_negative_inner_product array_pop_back array_pop_front array_prepend array_push_back "
    "array_push_front array_reduce array_resize array_reverse_sort array_select array_transform array_value "
    "array_where array_zip element_at filter flatten generate_series generate_subscripts grade_up list_aggr list_aggregate "
    "list_append list_apply list_approx_count_distinct list_bit_and list_bit_or list_bit_xor list_cosine_distance "
    "list_cosine_similarity list_distance list_dot_product list_element list_entropy list_filter list_grade_up list_histogram "
    "list_inner_product list_intersect list_kurtosis list_kurtosis_pop list_mad list_negative_dot_product "
    "list_negative_inner_product list_pack list_prepend list_reduce list_resize list_select list_sem list_skewness "
    "list_stddev_pop list_transform list_var_pop list_where list_zip range reduce repeat_row unnest unpivot_list "
    # structs, maps, unions and JSON
    "array_to_json cardinality from_json from_json_strict json json_array json_array_length json_contains json_exists "
    "json_extract json_extract_path json_extract_path_text json_extract_string json_group_array json_group_object "
    "json_group_structure json_keys json_merge_patch json_object json_pretty json_quote json_structure json_transform "
    "json_transform_strict json_type json_valid json_value map map_concat map_contains map_contains_entry map_contains_value "
    "map_entries map_extract map_extract_value map_from_entries map_keys map_values pg_typeof remap_struct row_to_json "
    "struct_concat struct_contains struct_extract_at struct_has struct_indexof struct_insert struct_keys struct_position "
    "struct_update struct_values to_json typeof union_extract union_tag union_value "
    # chance and hashes
    "gen_random_uuid random uuid uuid_extract_version uuidv4 "
    # aggregates
    "approx_top_k arg_max_nulls_last arg_min_nulls_last bitstring_agg grouping histogram_exact reservoir_quantile "
    "sum_no_overflow wavg weighted_avg "
    # windows
    "cume_dist dense_rank fill first_value lag last_value lead nth_value ntile percent_rank rank rank_dense row_number "
)
PUBLIC_FUNCTIONS: frozenset[str] = (
    DUCKDB_WORDS | EXACT_CALLS - EXACT_ONLY | EXACT_AGGREGATES | frozenset(_ABOVE_BLOCKS.split())
)
"""Every function that is allowed there."""

END_CALLS = {"INTERVAL_LOW": 0, "INTERVAL_HIGH": 1}
"""The calls for an end of an interval."""


_CHANGING = (
    "age current_date current_localtime current_localtimestamp current_time current_timestamp gen_random_uuid "
    "get_current_time get_current_timestamp localtime localtimestamp now random today transaction_timestamp uuid "
    "uuidv4 uuidv7"
)
CHANGING_FUNCTIONS: frozenset[str] = frozenset(_CHANGING.split())
"""Functions, and names read as calls, that may return something else each time: chance and the clock."""
CONCATENATIONS: frozenset[str] = frozenset(("||", "concat", "concat_ws", "strftime"))
"""Functions whose result is as long as their arguments together."""
