"""Spellings of DuckDB and PostgreSQL, rewritten into plainer ones of equal meaning, so that binding needs to know one of
each.

``now()``, CURRENT_DATE and their like are constants of a statement, as in PostgreSQL. The time is read once for a text, in
UTC and to the second, before anything runs: no statement measures another one. Values that are computed from it alone, such
as ``date_trunc('month', now())``, become constants too, so that a statement is a new question only if such a value has
changed.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from sqlglot import exp

from dpsql.catalogue.date_units import DatePart, split_date_format
from dpsql.catalogue.row_names import CLOCKS
from dpsql.errors import BindError, Error
from dpsql.language.dialect import bind_error, is_not_null, name_called, span_of, to_sql
from dpsql.language.parameters import make_literal
from dpsql.mechanisms.queries import As, Select

_SUMS = ("fsum", "kahan_sum", "sumkahan")


def spell_plainly(nodes: Iterable[exp.Expr]) -> None:
    """Rewrite spellings of a query into plainer ones, in place.

    A row of values compared with others becomes comparisons of its parts. As in DuckDB, a NULL inside a row equals a NULL.
    Aggregates with a plainer form take it, under the output name that DuckDB gives to what was written.
    """
    for node in nodes:
        if (rewrite := _REWRITES.get(type(node))) is not None:
            rewrite(node)


def _group(group: exp.Group) -> None:
    """Remove the empty set of keys: ``GROUP BY ()`` is one group of all rows."""
    empty = [key for key in group.expressions if isinstance(key, exp.Tuple) and not key.expressions]
    others = any(value for key, value in group.args.items() if key != "expressions")
    select = group.parent
    if empty and len(empty) == len(group.expressions) and not others and isinstance(select, exp.Select):
        select.set("group", None)


def _row(node: exp.Expr) -> list[exp.Expr] | None:
    """Return the parts of a row of at least two values; None for other nodes."""
    node = node.unnest()
    called = isinstance(node, exp.Anonymous) and node.name.lower() == "row"
    if isinstance(node, exp.Tuple) or called:
        weak = exp.Binary | exp.Not | exp.Predicate
        parts = [exp.paren(part) if isinstance(part, weak) else part for part in node.expressions]
        return parts if len(parts) > 1 else None
    return None


def _equal(left: Sequence[exp.Expr], right: Sequence[exp.Expr]) -> exp.Expr:
    """Return the condition that two rows are equal, part by part."""
    pairs = zip(left, right, strict=True)
    parts = (exp.NullSafeEQ(this=a.copy(), expression=b.copy()) for a, b in pairs)
    return exp.paren(exp.and_(*parts), copy=False)


def _comparison(node: exp.Expr) -> None:
    """Write ``x = ANY (query)`` as IN, ``x <> ALL (query)`` as NOT IN, and rows of values as comparisons of their parts."""
    several, equals = node.expression, isinstance(node, exp.EQ)
    if isinstance(several, exp.Any if equals else exp.All):
        query = several.this.unnest()
        if isinstance(query, exp.Query):
            found = exp.In(this=node.this, query=query.subquery(copy=False))
            _put(node, found if equals else exp.Not(this=found))
        return
    left, right = _row(node.this), _row(node.expression)
    if left is None or right is None or len(left) != len(right):
        return
    equal = _equal(left, right)
    _put(node, equal if equals else exp.paren(exp.not_(equal, copy=False), copy=False))


def _order(node: exp.Binary) -> None:
    """Write the order of two rows of values by their parts; a NULL comes after all values."""
    left, right = _row(node.this), _row(node.expression)
    if left is not None and right is not None and len(left) == len(right):
        _put(node, _compare_rows(type(node), left, right))


def _compare_rows(kind: type[exp.Expr], left: list[exp.Expr], right: list[exp.Expr]) -> exp.Expr:
    if kind in (exp.GT, exp.LTE):
        left, right = right, left
    ways = []
    for i, (a, b) in enumerate(zip(left, right, strict=True)):
        less = exp.or_(
            exp.Is(this=b.copy(), expression=exp.null()), exp.LT(this=a.copy(), expression=b.copy())
        )
        before = [_equal(left[:i], right[:i])] if i else []
        ways.append(exp.and_(*before, is_not_null(a.copy()), less))
    found = exp.paren(exp.or_(*ways), copy=False)
    return found if kind in (exp.LT, exp.GT) else exp.paren(exp.not_(found, copy=False), copy=False)


def _between(node: exp.Between) -> None:
    rows = [_row(node.args[key]) for key in ("this", "low", "high")]
    value, low, high = rows
    if (
        value is not None
        and low is not None
        and high is not None
        and len({*map(len, (value, low, high))}) == 1
    ):
        both = _compare_rows(exp.GTE, value, low), _compare_rows(exp.LTE, value, high)
        _put(node, exp.paren(exp.and_(*both), copy=False))


def _membership(node: exp.In) -> None:
    left, rows = _row(node.this), [_row(item) for item in node.expressions]
    if node.find_ancestor(exp.Pivot, exp.Window, exp.Select) is not node.find_ancestor(exp.Select):
        return  # PIVOT's values, or candidates
    if left is None or not rows or any(node.args.get(key) for key in ("query", "unnest", "field")):
        return
    if all(row is not None and len(row) == len(left) for row in rows):
        made = exp.or_(*(_equal(left, row) for row in rows if row is not None))
        _put(node, exp.paren(made, copy=False))


def _interval(node: exp.Interval) -> None:
    """Write ``INTERVAL (1) DAY`` as ``INTERVAL 1 DAY``."""
    if node.this is None:
        return
    amount = node.this.unnest()
    negative = isinstance(amount, exp.Neg) and isinstance(amount.this, exp.Literal)
    if negative and not amount.this.is_string:
        amount = exp.Literal.string(f"-{amount.this.name}")
    if isinstance(amount, exp.Literal) and amount is not node.this:
        node.set("this", amount)


def _make_interval(node: exp.MakeInterval) -> None:
    """Write PostgreSQL's ``MAKE_INTERVAL(days => 3)`` as ``INTERVAL 3 DAY``."""
    units = exp.MakeInterval.arg_types
    given: list[tuple[str, exp.Expr]] = []
    for unit, value in node.args.items():
        if isinstance(value, exp.Kwarg | exp.PropertyEQ):
            word = value.this.name.lower().removesuffix("s")  # mins and secs are short
            given += [
                (next((name for name in units if word and name.startswith(word)), ""), value.expression)
            ]
        elif isinstance(value, exp.Expr):
            given += [(unit, value)]
    parts = [(unit, value) for unit, value in given if value != exp.Literal.number(0)] or given[:1]
    if len(parts) != 1 or not parts[0][0]:
        raise bind_error(node, "an interval is a whole number and a unit.", "write INTERVAL 3 DAY.")
    unit, amount = parts[0]
    whole = exp.Literal.string(to_sql(amount)) if isinstance(amount, exp.Literal | exp.Neg) else amount
    _name(node, exp.Interval(this=whole, unit=exp.var(unit.upper())))


def _regr_count(node: exp.RegrCount) -> None:
    """Write REGR_COUNT as the number of rows in which both values are known."""
    if node.expression is None:
        raise bind_error(
            node, "REGR_COUNT takes two values.", "write COUNT for the number of values of one column."
        )
    both = map(is_not_null, (node.this, node.expression))
    _put(node, exp.CountIf(this=exp.and_(*both, copy=False)))


def _count(node: exp.Count) -> None:
    """Count distinct rows of values as distinct texts, each part after its length, so that no two rows look alike."""
    distinct = node.this
    if not isinstance(distinct, exp.Distinct) or len(distinct.expressions) != 1:
        return
    parts = _row(distinct.expressions[0])
    if parts is None or any(part.is_star or part.find(exp.Query) for part in parts):
        return
    texts = [exp.cast(part.copy(), "VARCHAR", dialect="duckdb") for part in parts]
    pieces = [p for text in texts for p in (exp.Length(this=text.copy()), exp.Literal.string(":"), text)]
    made = exp.Distinct(expressions=[exp.Concat(expressions=pieces, safe=True, coalesce=True)])
    counted = exp.Count(this=made, big_int=True)
    counted.meta.update(node.meta)
    _put(node, counted)


def _anonymous(node: exp.Anonymous) -> None:
    """Write TO_DATE as TRY_STRPTIME, and the exact sums and means of floats as SUM and AVG, which are exact before the noise."""
    name = node.name.lower()
    if name == "to_date" and len(node.expressions) == 2:
        _read_by_format(node, *node.expressions)
    if len(node.expressions) != 1 or name not in (*_SUMS, "favg"):
        return
    made = (exp.Avg if name == "favg" else exp.Sum)(this=node.expressions[0].copy())
    made.meta.update(node.meta)
    _put(node, made)


def _chain(node: exp.Dot) -> None:
    """Write DuckDB's ``x.f(y)`` as ``f(x, y)``."""
    call = node.expression
    if isinstance(call, exp.Anonymous) and not isinstance(node.parent, exp.Dot):
        _put(node, _read_chain(node))


def _read_chain(node: exp.Expr) -> exp.Expr:
    if not isinstance(node, exp.Dot):
        return exp.column(node) if isinstance(node, exp.Identifier) else node.copy()
    if isinstance(node.expression, exp.Anonymous):
        name, given = node.expression.name, [item.copy() for item in node.expression.expressions]
        try:
            return exp.func(name, _read_chain(node.this), *given, dialect="duckdb")
        except ValueError:
            what = f"{name} does not take {len(given) + 1} argument{'s' * bool(given)}."
            raise bind_error(node.expression, what) from None
    parts = [part.copy() for part in node.flatten()]
    names = [part for part in parts if isinstance(part, exp.Identifier)]
    return exp.column(*reversed(names)) if len(names) == len(parts) else node.copy()


def _most_frequent(node: exp.ApproxTopK) -> None:
    """Write APPROX_TOP_K, alone in its SELECT, as the values of the largest groups that have rows."""
    item = node.parent if isinstance(node.parent, exp.Alias) else node
    select, count, number = item.parent, node.expression, exp.column("number")
    known = {"kind", "mode", "expressions", "from_", "joins", "where", "with_"}
    if not isinstance(select, exp.Select) or {key for key, part in select.args.items() if part} - known:
        return
    if len(select.expressions) != 1 or not isinstance(count, exp.Literal) or not count.name.isdigit():
        return
    written = node.this.sql(dialect="duckdb", comments=False, normalize_functions="lower")
    inner, tables = select.copy(), select.args.get("with_")
    counted = exp.Count(this=node.this.copy(), big_int=True)
    counted.meta.update(node.meta)
    inner.set("with_", None)
    inner.set("expressions", [exp.alias_(node.this.copy(), "value"), exp.alias_(counted, "number")])
    inner.set("group", exp.Group(expressions=[exp.Literal.number(1)]))
    largest = [exp.Ordered(this=number, desc=True, nulls_first=False)]
    listed = exp.ArrayAgg(this=exp.Order(this=exp.column("value"), expressions=largest))
    first = exp.Slice(this=exp.Literal.number(1), expression=count.copy())
    cut = exp.Bracket(this=listed, expressions=[first])
    shown = exp.alias_(cut, item.alias or f"approx_top_k({written}, {count.name})", quoted=True)
    made = exp.select(shown).from_(inner.subquery("counted")).where(number.copy() > 0)
    for key, part in (*dict.fromkeys(select.args).items(), *made.args.items(), ("with_", tables)):
        select.set(key, part)


def _windows(select: exp.Select) -> None:
    """Replace uses of named windows by their definitions."""
    named = {window.name.lower(): window for window in select.args.get("windows") or []}
    if not named:
        return
    used = [node for node in select.find_all(exp.Window) if node.find_ancestor(exp.Select) is select]
    for node in used:
        _open_window(node, named, len(named))
    select.set("windows", None)


def _open_window(node: exp.Window, named: dict[str, exp.Window], depth: int) -> None:
    alias = node.args.get("alias")
    base = named.get(alias.name.lower()) if alias is not None else None
    if base is None or base is node or depth < 0:
        return
    _open_window(base, named, depth - 1)
    node.set("alias", None)
    for key in ("partition_by", "order", "spec"):
        part = base.args.get(key)
        if part and not node.args.get(key):
            node.set(key, [item.copy() for item in part] if isinstance(part, list) else part.copy())


def _put(node: exp.Expr, made: exp.Expr) -> None:
    """Replace a node; an output that it is keeps its name."""
    item = isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
    if item and not isinstance(made, exp.Alias):
        name = node.sql(dialect="duckdb", comments=False, normalize_functions="lower")
        made = exp.alias_(made, name, quoted=True, copy=False)
    span: dict[str, object] = {key: node.meta[key] for key in ("start", "end") if key in node.meta}
    for part in made.walk() if span else ():
        if isinstance(part, exp.Func | exp.Binary):
            part.meta.update({**span, **part.meta})
    node.replace(made)


def _date_call(node: exp.Date) -> None:
    """Write ``DATE(x)`` as a cast."""
    if node.args.keys() & {"zone", "expressions"} and (node.args.get("zone") or node.expressions):
        return
    _name(node, exp.cast(node.this, "DATE", dialect="duckdb"))


def _to_char(node: exp.ToChar) -> None:
    """Write PostgreSQL's TO_CHAR as STRFTIME."""
    parts = _read_format(node.args.get("format"), node)
    _name(node, _join_parts([_write_part(part, node.this) for part in parts]))


def _read_format(given: exp.Expr | None, node: exp.Expr) -> list[DatePart]:
    if not isinstance(given, exp.Literal) or not given.is_string:
        raise bind_error(given, "a format must be a literal.", "write 'YYYY-MM-DD'.", around=node)
    try:
        return split_date_format(given.name, name_called(node).upper())
    except BindError as error:
        error.span = span_of(given) or span_of(node)
        raise


def _write_part(part: DatePart, moment: exp.Expr) -> exp.Expr:
    if part.unit:
        arguments = [exp.Literal.string(part.unit), moment.copy()]
        number: exp.Expr = exp.Anonymous(this="date_part", expressions=arguments)
        if part.unit == "dow":  # PostgreSQL's D counts from Sunday, 1
            number = exp.paren(exp.Add(this=number, expression=exp.Literal.number(1)), copy=False)
        return exp.cast(number, "VARCHAR", dialect="duckdb")
    if not part.moving:
        return exp.Literal.string(part.code.replace("%%", "%"))
    made: exp.Expr = exp.TimeToStr(this=moment.copy(), format=exp.Literal.string(part.code))
    if part.case:
        made = (exp.Upper if part.case == "upper" else exp.Lower)(this=made)
    if part.padded:
        made = exp.Anonymous(this="rpad", expressions=[made, exp.Literal.number(9), exp.Literal.string(" ")])
    return made


def _join_parts(parts: list[exp.Expr]) -> exp.Expr:
    whole = parts[0]
    for part in parts[1:]:
        whole = exp.DPipe(this=whole, expression=part, safe=True)
    return whole if len(parts) == 1 else exp.paren(whole, copy=False)


def _read_by_format(node: exp.Expr, text: exp.Expr, form: exp.Expr) -> None:
    """Write TO_DATE and TO_TIMESTAMP of a text as TRY_STRPTIME, and of a literal as the date or the timestamp."""
    called = name_called(node).upper()
    parts = _read_format(form, node)
    bad = next((part for part in parts if part.unit or part.case), None)
    if bad is not None or any(code in part.code for part in parts for code in ("%V", "%G", "%u")):
        what = f"{called} reads years, months, days and times."
        raise bind_error(form, what, "write 'YYYY-MM-DD'.", around=node)
    code = "".join(part.code.replace("%-", "%") for part in parts)
    kind = "DATE" if called == "TO_DATE" else "TIMESTAMP"
    if isinstance(text, exp.Literal) and text.is_string:
        try:
            read = datetime.datetime.strptime(text.name.strip(), code.replace("%g", "%f"))
        except ValueError:
            what = f"this text does not have the format {_quote_text(form.name)}."
            raise bind_error(text, what, around=node, sqlstate="22007") from None
        made = make_literal(read.date() if kind == "DATE" else read)
    else:
        made = exp.Anonymous(this="try_strptime", expressions=[text, exp.Literal.string(code)])
        made = exp.cast(made, "DATE", dialect="duckdb") if kind == "DATE" else made
    _name(node, made)


def _quote_text(text: str) -> str:
    return to_sql(exp.Literal.string(text))


def _unix_time(node: exp.UnixToTime) -> None:
    """Write ``TO_TIMESTAMP(text, format)``; sqlglot reads its format as the scale of a number."""
    form = node.args.get("scale")
    if form is not None and name_called(node) == "to_timestamp":
        _read_by_format(node, node.this, form)


def _name(node: exp.Expr, made: exp.Expr) -> None:
    """Replace a call by its other spelling; as an output it has the call's name, as in PostgreSQL."""
    if isinstance(node.parent, exp.Select) and node.arg_key == "expressions":
        made = exp.alias_(made, name_called(node), quoted=True, copy=False)
    _put(node, made)


_REWRITES: dict[type[exp.Expr], Callable[..., None]] = {
    exp.Group: _group, exp.EQ: _comparison, exp.NEQ: _comparison, exp.LT: _order, exp.LTE: _order, exp.GT: _order,
    exp.GTE: _order, exp.Between: _between, exp.In: _membership, exp.Interval: _interval,
    exp.MakeInterval: _make_interval, exp.RegrCount: _regr_count, exp.Count: _count, exp.Anonymous: _anonymous,
    exp.Select: _windows, exp.Dot: _chain, exp.ApproxTopK: _most_frequent, exp.Date: _date_call,
    exp.ToChar: _to_char, exp.UnixToTime: _unix_time,
}  # fmt: skip


_WORD = re.compile(rf"(?i)\b({'|'.join(CLOCKS)})\b")


def reads_clock(text: str, tree: exp.Expr | None) -> bool:
    """Return whether a statement of a text names the present time."""
    return tree is not None and _WORD.search(text) is not None and any(map(_name_clock, tree.walk()))


def find_now() -> datetime.datetime:
    """Return the present time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def fold_clocks(
    tree: exp.Expr,
    now: datetime.datetime,
    evaluate: Callable[[str], object],
    label: Callable[[exp.Expr], str],
) -> list[str]:
    """Replace the present time, and expressions of it alone, by constants, in place.

    Args:
        tree: a query.
        now: its time.
        evaluate: returns the value of a query of one constant, or raises an error.
        label: names an output without a name.

    Returns:
        The texts of the constants that change within an hour.
    """
    for query in list(tree.find_all(exp.Subquery)):
        if (scalar := _read_scalar(query)) is not None:
            query.replace(exp.paren(scalar, copy=False))
    clocks = [node for node in tree.walk() if _name_clock(node)]
    for select in tree.find_all(exp.Select) if clocks else ():
        for item in select.expressions:
            if not isinstance(item, exp.Alias) and any(map(_name_clock, item.walk())):
                item.replace(exp.alias_(item.copy(), label(item), quoted=True))
    found: list[str] = []
    left = [node for node in tree.walk() if _name_clock(node)]
    for node in left:
        if node.root() is not tree:
            continue  # part of a constant before it
        place = _find_constant(node)
        value: object = None
        if place is not node:
            try:
                value = evaluate(Select(As(to_sql(_write_clocks(place.copy(), now)), "value")).sql)
                made = _make_constant(value)
            except Error:
                place, value = node, None
        if value is None:
            place, made = node, _write_clock(_name_clock(node), now)
            value = now if CLOCKS[_name_clock(node)] != "DATE" else None
        if (span := span_of(place)) is not None:
            made.meta.update(start=span[0], end=span[1] - 1)
        place.replace(made)
        if isinstance(value, datetime.datetime) and value.time().replace(hour=0) != datetime.time():
            found.append(value.replace(tzinfo=None).isoformat(" "))
    return found


def _read_scalar(query: exp.Subquery) -> exp.Expr | None:
    """Return the one value of ``(SELECT now())``, a query of a constant computed from the time; None for another query."""
    inner = query.this.unnest() if isinstance(query.this, exp.Subquery) else query.this
    named = query.alias or isinstance(query.parent, exp.From | exp.Join | exp.In | exp.Exists | exp.Subquery)
    if named or not isinstance(inner, exp.Select) or len(inner.expressions) != 1:
        return None
    value: exp.Expr = inner.expressions[0].unalias()
    if any(part for key, part in inner.args.items() if key != "expressions"):
        return None
    constant = all(isinstance(part, _COMPUTED) for part in _walk_around(value))
    return value if constant and any(map(_name_clock, value.walk())) else None


def _name_clock(node: exp.Expr) -> str:
    """Return the name of a call of the present time; an empty text for another node."""
    if isinstance(node, exp.Anonymous):
        name, given = node.name.lower(), node.expressions
    elif isinstance(node, exp.Func):
        name, given = node.sql_name().lower(), [value for value in node.args.values() if value]
    else:
        return ""
    precise = all(isinstance(one, exp.Literal) and not one.is_string for one in given)
    return name if name in CLOCKS and precise and len(given) < 2 else ""


def _write_clock(name: str, now: datetime.datetime) -> exp.Expr:
    kind, local = CLOCKS[name], now.replace(tzinfo=None)
    texts = {"DATE": local.date().isoformat(), "TIME": local.time().isoformat()}
    text = texts.get(kind.split()[0], local.isoformat(" "))
    offset = "+00" if kind.endswith("ZONE") else ""
    return exp.cast(exp.Literal.string(text + offset), kind, dialect="duckdb")


def _write_clocks(node: exp.Expr, now: datetime.datetime) -> exp.Expr:
    holder = exp.Paren(this=node)
    for clock in [found for found in holder.walk() if _name_clock(found)]:
        made = _write_clock(_name_clock(clock), now)
        # sqlglot's writer refuses EXTRACT from a cast to a type with a zone
        clock.replace(exp.Paren(this=made) if isinstance(clock.parent, exp.Extract) else made)
    return holder


def _make_constant(value: object) -> exp.Expr:
    if isinstance(value, datetime.datetime) and value.utcoffset() is not None:
        local = value.astimezone(datetime.UTC).replace(tzinfo=None)
        return exp.cast(exp.Literal.string(f"{local.isoformat(' ')}+00"), "TIMESTAMPTZ", dialect="duckdb")
    if isinstance(value, tuple):  # an interval's months, days and nanoseconds
        raise BindError("an interval is no constant of one unit.")
    return make_literal(value, "now")


_COMPUTED = (
    exp.Literal, exp.Paren, exp.Interval, exp.Var, exp.DataType, exp.DataTypeParam, exp.Cast, exp.Add, exp.Sub, exp.Neg,
    exp.TimestampTrunc, exp.DateTrunc, exp.Extract, exp.AtTimeZone, exp.TimeToStr, exp.Upper, exp.Lower,
    exp.DPipe,
)  # fmt: skip


def _find_constant(node: exp.Expr) -> exp.Expr:
    """Return the largest expression around a call that is computed from it alone."""
    while node.parent is not None and isinstance(node.parent, _COMPUTED):
        if not all(isinstance(part, _COMPUTED) for part in _walk_around(node.parent)):
            break
        node = node.parent
    return node


def _walk_around(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of an expression without calls of the present time."""
    return (part for part in node.walk(prune=lambda n: bool(_name_clock(n))) if not _name_clock(part))
