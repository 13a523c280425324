"""The catalogue of functions above private blocks, over released numbers and public tables.

Row functions are among them. These need no bounds: a statement that fails there tells nothing about private rows.
"""

from __future__ import annotations

from dpsql.catalogue.aggregate_names import EXACT_AGGREGATES
from dpsql.catalogue.row_names import DUCKDB_WORDS, EXACT_CALLS, EXACT_ONLY

_FURTHER = (
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
    DUCKDB_WORDS | EXACT_CALLS - EXACT_ONLY | EXACT_AGGREGATES | frozenset(_FURTHER.split())
)
"""Every function that is allowed there."""
CONCATENATIONS: frozenset[str] = frozenset(("||", "concat", "concat_ws", "strftime"))
"""Functions whose result is as long as their arguments together."""
