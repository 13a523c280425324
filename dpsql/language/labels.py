"""Labels of an ENUM above the private part: texts that compare, sort and have extremes by their type's order.

Exact queries read an ENUM as text. A release's column becomes an ENUM again for the SQL above it, of the released labels
alone: the others may be data, as the categories of a data frame are. Statements are bound with a type of one label of
ours, so that no message and no schema shows another. Answers have texts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

_LABEL_TYPE = re.compile(r"ENUM\('dpsql_labels_[0-9a-f]+'\)")
_TEXTS = (pa.string(), pa.large_string())
Orders = Sequence[tuple[str, tuple[str, ...]]]
"""Columns of a release, each with all labels of its type in order."""


def name_label_type(order: tuple[str, ...]) -> str:
    """Return the SQL type that a column of labels is bound with: one for each order."""
    return f"ENUM('dpsql_labels_{hashlib.sha256(repr(order).encode()).hexdigest()[:16]}')"


def is_label_type(kind: str) -> bool:
    """Return whether an SQL type is one of :func:`name_label_type`."""
    return _LABEL_TYPE.fullmatch(kind) is not None


def show_label_types(kind: str) -> str:
    """Return an SQL type as answers have it, with VARCHAR for labels."""
    return _LABEL_TYPE.sub("VARCHAR", kind)


def order_labels(relations: Mapping[str, pa.Table], orders: Mapping[str, Orders]) -> Mapping[str, pa.Table]:
    """Return releases with columns of labels as ordered dictionaries; declared values that are no labels come last."""
    found: dict[tuple[str, ...], set[str]] = {}
    for name, table in relations.items():
        for column, order in orders.get(name, ()):
            found.setdefault(order, set()).update(pc.unique(table.column(column)).drop_null().to_pylist())
    made = {}
    for name, table in relations.items():
        for column, order in orders.get(name, ()):
            places = {label: place for place, label in enumerate(order)}
            listed = sorted(found[order] or {""}, key=lambda label: (places.get(label, len(order)), label))
            shown = pa.array(listed, pa.string())
            codes = pc.index_in(table.column(column).cast(pa.string()), shown).combine_chunks()
            values = pa.DictionaryArray.from_arrays(codes, shown, ordered=True)
            table = table.set_column(table.column_names.index(column), column, values)
        made[name] = table
    return made


def list_ordered_columns(table: pa.Table) -> dict[str, list[str]]:
    """Return the labels of each ordered dictionary of texts in a table, in order."""
    found = {}
    for place, field in enumerate(table.schema):
        kind = field.type
        if pa.types.is_dictionary(kind) and kind.ordered and kind.value_type in _TEXTS:
            chunks = table.column(place).unify_dictionaries().chunks
            labels = chunks[0].dictionary.to_pylist() if chunks else []
            if labels and None not in labels and len(set(labels)) == len(labels):
                found[field.name] = labels
    return found


def spell_labels(table: pa.Table) -> pa.Table:
    """Return a table with texts in place of dictionaries, also within lists and structs."""
    for place, field in enumerate(table.schema):
        plain = _spell_type(field.type)
        if plain != field.type:
            column = _spell(table.column(place), plain)
            table = table.set_column(place, field.with_type(plain), column)
    return table


def _spell(column: pa.ChunkedArray, plain: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        return column.cast(plain)
    return pa.chunked_array([pa.array(chunk.to_pylist(), plain) for chunk in column.chunks], plain)


def _spell_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_list(kind):
        inner = _spell_type(kind.value_type)
        return kind if inner == kind.value_type else pa.list_(inner)
    if pa.types.is_struct(kind):
        fields = [field.with_type(_spell_type(field.type)) for field in kind]
        return kind if fields == list(kind) else pa.struct(fields)
    if pa.types.is_map(kind):
        parts = (_spell_type(kind.key_type), _spell_type(kind.item_type))
        return kind if parts == (kind.key_type, kind.item_type) else pa.map_(*parts)
    return kind
