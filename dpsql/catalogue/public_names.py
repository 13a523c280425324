"""The catalogue of functions above private blocks, over released numbers and public tables.

Row functions are among them. These need no bounds: a statement that fails there tells nothing about private rows.
"""

from __future__ import annotations

from dpsql.catalogue.row_names import DUCKDB_WORDS

_FURTHER = (
    # operators
    "! != !~ !~~ !~~* !~~~ % & && * ** + - -> ->> / // < <-> << <= <=> <> <@ = == > >= >> @ @> ^ ^@ __postfix add divide "
    "ilike_escape like_escape multiply not not_ilike_escape not_like_escape subtract | || ~ ~~ ~~* ~~~ "
    # conditions
    "between constant_or_null isnull notnull switch "
    # numbers
    "decimal_division equi_width_bins factorial fdiv fmod greatest_common_divisor is_histogram_other_bin "
    "least_common_multiple mround nextafter round_even roundbankers "
    # texts
    "array_to_string array_to_string_comma_default bar base64 bin chr damerau_levenshtein decode encode format format_bytes "
    "formatreadabledecimalsize formatreadablesize from_base64 from_binary from_hex hamming hex jaccard left_grapheme "
    "length_grapheme lpad md5_number md5_number_lower md5_number_upper mismatches octet_length overlay parse_dirname "
    "parse_dirpath parse_filename parse_formatted_bytes parse_path path_join pg_size_pretty position printf regexp_escape "
    "regexp_extract_all regexp_split_to_array repeat right_grapheme rpad split str_split str_split_regex string_split_regex "
    "string_to_array substring_grapheme to_base to_base64 to_binary to_hex unbin unhex url_decode url_encode "
    # bits
    "bit_position bitstring get_bit set_bit "
    # times
    "age ago current_date current_localtime current_localtimestamp current_time current_timestamp date_add datediff "
    "datetrunc days_in_month epoch_ms epoch_ns epoch_us get_current_time get_current_timestamp julian localtime "
    "localtimestamp make_time make_timestamp make_timestamp_ms make_timestamp_ns make_timestamptz nanosecond "
    "normalized_interval now strptime timezone timezone_hour timezone_minute to_centuries to_days to_decades to_hours "
    "to_microseconds to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks "
    "to_years today transaction_timestamp "
    # lists
    "aggregate apply array_aggr array_aggregate array_append array_apply array_cat array_concat array_contains "
    "array_cosine_distance array_cosine_similarity array_cross_product array_distance array_distinct array_dot_product "
    "array_extract array_filter array_grade_up array_has array_has_all array_has_any array_indexof array_inner_product "
    "array_intersect array_negative_dot_product array_negative_inner_product array_pop_back array_pop_front array_position "
    "array_prepend array_push_back array_push_front array_reduce array_resize array_reverse array_reverse_sort array_select "
    "array_sort array_transform array_unique array_value array_where array_zip element_at filter flatten generate_series "
    "generate_subscripts grade_up list_aggr list_aggregate list_any_value list_append list_apply list_approx_count_distinct "
    "list_avg list_bit_and list_bit_or list_bit_xor list_bool_and list_bool_or list_cat list_concat list_cosine_distance "
    "list_cosine_similarity list_count list_distance list_distinct list_dot_product list_element list_entropy list_extract "
    "list_filter list_first list_grade_up list_has list_has_all list_has_any list_histogram list_indexof list_inner_product "
    "list_intersect list_kurtosis list_kurtosis_pop list_last list_mad list_max list_median list_min list_mode "
    "list_negative_dot_product list_negative_inner_product list_pack list_position list_prepend list_product list_reduce "
    "list_resize list_reverse list_reverse_sort list_select list_sem list_skewness list_sort list_stddev_pop "
    "list_stddev_samp list_string_agg list_sum list_transform list_unique list_var_pop list_var_samp list_where list_zip "
    "range reduce repeat_row unnest unpivot_list "
    # structs, maps, unions and JSON
    "array_to_json cardinality from_json from_json_strict json json_array json_array_length json_contains json_exists "
    "json_extract json_extract_path json_extract_path_text json_extract_string json_group_array json_group_object "
    "json_group_structure json_keys json_merge_patch json_object json_pretty json_quote json_structure json_transform "
    "json_transform_strict json_type json_valid json_value map map_concat map_contains map_contains_entry "
    "map_contains_value map_entries map_extract map_extract_value map_from_entries map_keys map_values pg_typeof "
    "remap_struct row row_to_json struct_concat struct_contains struct_extract struct_extract_at struct_has struct_indexof "
    "struct_insert struct_keys struct_pack struct_position struct_update struct_values to_json typeof union_extract "
    "union_tag union_value "
    # chance and hashes
    "gen_random_uuid hash random uuid uuid_extract_version uuidv4 "
    # aggregates
    "any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null arg_max_nulls_last arg_min "
    "arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or bit_xor bitstring_agg bool_and bool_or corr "
    "count count_if count_star countif covar_pop covar_samp entropy favg first fsum geomean geometric_mean group_concat "
    "grouping histogram histogram_exact kahan_sum kurtosis kurtosis_pop last list listagg mad max max_by mean median min "
    "min_by mode product quantile quantile_cont quantile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 "
    "regr_slope regr_sxx regr_sxy regr_syy reservoir_quantile sem skewness stddev stddev_pop stddev_samp string_agg sum "
    "sum_no_overflow sumkahan var_pop var_samp variance wavg weighted_avg "
    # windows
    "cume_dist dense_rank fill first_value lag last_value lead nth_value ntile percent_rank rank rank_dense row_number "
)
PUBLIC_FUNCTIONS: frozenset[str] = DUCKDB_WORDS | frozenset(_FURTHER.split())
"""Every function that is allowed there."""
CONCATENATIONS: frozenset[str] = frozenset(("||", "concat", "concat_ws", "strftime"))
"""Functions whose result is as long as their arguments together."""
