"""The functions that an exact query may call: each is a function of its arguments alone, in every version of DuckDB.

Whatever is not here is refused: a macro of the owner's, what reads files or settings, what is random or knows the time.
"""

from __future__ import annotations

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
to_quarters to_seconds to_timestamp to_weeks to_years to_centuries to_millennia translate trim trunc try_cast ucase
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
