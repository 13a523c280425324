"""The face of a session on a server is that of a session at hand: same answers, errors, notes and displays."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpsql
from dpsql.client.remote_session import RemoteSession
from dpsql.client.wire import READING, Message, WireError, decode, encode
from dpsql.errors import Error, ServerError
from dpsql.server import client_session
from tests.support.remote import NearChannel, connect_near
from tests.support.small import open_small

ROWS = """
INSERT INTO t
SELECT i // 2, ['a','b','c'][1 + i % 3], i % 5, i % 7 - 2, 1 + i % 7, i, i % 4 - 1.5, i % 2 = 0 FROM range(2000) v(i);
INSERT INTO r
SELECT i, ['a','b','c'][1 + i % 3], i % 5, i % 7 - 2, 1 + i % 7, i, i % 4 - 1.5, i % 2 = 0 FROM range(2000) v(i);
INSERT INTO s SELECT i, i % 4 FROM range(1000) v(i);"""


@pytest.fixture
def near() -> Iterator[tuple[dpsql.Session, RemoteSession, NearChannel]]:
    con, session = open_small()
    con.execute(ROWS)
    remote, channel = connect_near(session)
    yield session, remote, channel
    remote.close()
    session.close()


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dpsql.Session]:
    con, session = open_small(tmp_path_factory.mktemp("idle") / "small.ledger")
    con.execute(ROWS)
    with session:
        yield session


Near = tuple[dpsql.Session, RemoteSession, NearChannel]

ANSWERED = [
    "SELECT COUNT(*) AS n FROM t",
    "SELECT k, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY k ORDER BY k",
    "SELECT WITH DP OPTIONS (epsilon = 2) AVG(x) AS a, VARIANCE(d) FROM t",
    "SELECT p, COUNT(*) FROM t GROUP BY p ORDER BY 1",
    "SELECT MEDIAN(n) FROM r",
    "SELECT WITH STABLE OPTIONS (epsilon = 1) MEDIAN(n) AS m FROM r",
    "SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) IQR(n) AS spread FROM r",
    "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, bounds = (-1, 1)) CORR(x, n) AS r FROM r",
    "WITH c(v) AS (VALUES (1), (3), (5)) SELECT EXPMECH(COUNT(*) FILTER (WHERE n = v), epsilon => 1) OVER c FROM r",
    "WITH c(v) AS (VALUES (1), (3)) SELECT ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE n = v), 100, epsilon => 1) OVER c FROM r",
    "SELECT g.label, COUNT(t.x) AS n FROM t RIGHT JOIN g USING (k) GROUP BY g.label ORDER BY 1",
    "SELECT k, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS place FROM t GROUP BY k ORDER BY place",
    "SELECT HISTOGRAM(n, [1, 3]) AS h FROM r",
    "SELECT k, HISTOGRAM(n, [1, 3]) AS h, COUNT(*) AS c FROM t GROUP BY k ORDER BY k",
    "SELECT COUNT(DISTINCT k) FROM r",
    "SELECT * FROM g ORDER BY k",
    "SELECT 1 AS one, 'Delft''s' AS city, DATE '2024-02-29' AS day, 1.50 AS price, NULL AS nothing, [1, 2] AS l",
    "SELECT 170141183460469231731687303715884105727::HUGEINT AS big, INTERVAL 3 DAY AS i, 'infinity'::DATE AS d, 'x'::BLOB AS b",
    "SELECT COUNT(*) AS n FROM s WHERE y = 2; SELECT SUM(y) AS t FROM s",
    "out << SELECT k, COUNT(*) AS n FROM t GROUP BY k; SELECT SUM(n) AS total FROM out",
    "EXPLAIN SELECT COUNT(*) AS n FROM t",
    "EXPLAIN (FORMAT JSON) SELECT AVG(x) FROM t",
    "SHOW TABLES",
    "SHOW POLICY",
    "SHOW BUDGET",
    "SHOW TRADEOFF",
    "SHOW LEDGER LIMIT 3",
    "",
    "-- nothing",
]
REFUSED = [
    "SELEC 1",
    "SELECT * FROM t",
    "SELECT unit FROM t GROUP BY unit",
    "SELECT COUNT(*) FROM nowhere",
    "SELECT SUM(zz) FROM t",
    "SELECT SUM(p) FROM t",
    "SELECT WITH DP OPTIONS (epsilom = 1) COUNT(*) FROM t",
    "SELECT WITH DP OPTIONS (epsilon = 1e9) COUNT(*) FROM t",
    "SELECT COUNT(*) FROM t;\nSELECT MAX(no) FROM t",
    "SELECT COUNT(*) FROM t WHERE k = $city",
    "SELECT WITH alarm COUNT(*) FROM t",
    "CLOSE alarm",
    "INSERT INTO t VALUES (1)",
    "t << SELECT 1",
    "SELECT '\ud800'",
    "SHOW ME",
    "SELECT (SELECT 1",
    "SELECT sqrt(-COUNT(*)) FROM t",
]


def ask(session: Any, text: str) -> Any:
    """Return displays of all that a cell gives, or the lines of its error with what was answered before."""
    try:
        results = session.run(text)
    except Error as error:
        return type(error), error.lines(), [repr(result) for result in error.answered]
    return [
        (repr(r), r._repr_mimebundle_(), r.table.schema, repr(r.fetchall()), r.intervals, r.loss, r.notes, r.statement_id)
        for r in results
    ]  # fmt: skip


@pytest.mark.parametrize("text", ANSWERED + REFUSED)
def test_a_statement_is_the_same_in_process_and_over_the_wire(idle: dpsql.Session, text: str) -> None:
    session, (remote, channel) = idle, connect_near(idle)
    asked = ask(session, text)  # from now on it is stored
    assert isinstance(asked, list) or text in REFUSED
    assert ask(remote, text) == ask(session, text)
    assert channel.failures == []


def test_what_is_asked_first_on_the_server_is_charged_and_shown(near: Near) -> None:
    session, remote, channel = near
    result = remote.sql("SELECT COUNT(*) AS n FROM t")
    assert result.loss == "ε=1"
    assert result.event is not None
    assert result.cost_line.startswith("cost ε=1 · ε=999 of ε=1000 left")
    assert result.intervals["n"][0] is not None
    assert session.sql("SELECT COUNT(*) AS n FROM t").table.equals(result.table)
    assert remote.sql("SELECT COUNT(*) AS n FROM t", fresh=True).loss == "ε=1"
    assert remote.budget() == session.budget()
    assert remote.ledger() == session.ledger()
    assert remote.ledger(1) == session.ledger()[-1:]
    kinds = [message.head["kind"] for message in channel.arrived]
    assert kinds[2:5] == ["stage", "result", "end"]
    assert kinds.count("stage") == 2


def test_public_statements_and_stored_ones_read_nothing(near: Near) -> None:
    _, remote, channel = near
    remote.sql("SELECT COUNT(*) AS n FROM t")
    channel.arrived.clear()
    remote.sql("SELECT COUNT(*) AS n FROM t")
    remote.sql("SELECT 1")
    remote.explain("SELECT SUM(x) FROM t")
    assert "stage" not in {message.head["kind"] for message in channel.arrived}


def test_parameters_are_values(near: Near) -> None:
    session, remote, _ = near
    text = "SELECT COUNT(*) AS n FROM t WHERE k LIKE $k AND n IN $list AND x < $x"
    params = {"k": "a'; DROP TABLE t", "list": [1, 2], "x": 2.5}
    first = remote.sql(text, params)
    assert session.sql(text, params).table.equals(first.table)
    for wrong in (object(), {1: 2}, [[1]], float("nan")):
        told = []
        for one in (session, remote):
            with pytest.raises(dpsql.BindError) as caught:
                one.sql("SELECT COUNT(*) FROM t WHERE n = $x", {"x": wrong})
            told.append(caught.value.lines())
        assert told[0] == told[1]


def test_epsilon_of_a_cell(near: Near) -> None:
    from fractions import Fraction

    _, remote, _ = near
    assert remote.run("SELECT COUNT(*) FROM t", epsilon="0.25")[0].loss == "ε=0.25"
    assert remote.run("SELECT COUNT(*) FROM r", epsilon=Fraction(1, 8))[0].loss == "ε=0.125"


@pytest.mark.parametrize(
    "text", ["SELECT COUNT(*) AS n FROM t", "SELECT AVG(x) FROM t; SELECT 1", "SELECT MAX(no) FROM t"]
)
def test_explain_is_the_same(near: Near, text: str) -> None:
    def explain(one: Any) -> Any:
        try:
            explained = one.explain(text)
        except Error as error:
            return error.lines()
        same = explained == one.explain(text)
        return str(explained), explained.json(), explained.sql, explained.price, same

    session, remote, _ = near
    assert explain(remote) == explain(session)


def test_explain_takes_the_epsilon_of_a_cell(near: Near) -> None:
    session, remote, _ = near
    text = "SELECT COUNT(*) FROM t"
    for one in (session, remote):
        assert "ε=0.25" in one.explain(text, epsilon="0.25").price
        assert one.explain(text).price != one.explain(text, epsilon="0.25").price


def test_a_threshold_that_is_declared(near: Near) -> None:
    _, remote, channel = near
    opened = remote.sql("DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1, max_hits = 2)")
    assert opened.fetchall() == [("alarm", "open")]
    channel.arrived.clear()
    (told,) = remote.sql("SELECT WITH alarm COUNT(*) FROM t").fetchone() or ()
    assert told is True
    assert channel.arrived[0] == READING  # nothing is reserved for it, and private data are read
    assert remote.sql("CLOSE alarm").fetchall()[0][1].startswith("closed after 1 hit")


def test_a_plan_is_priced_together(near: Near) -> None:
    session, remote, _ = near
    with remote.plan() as plan:
        first = plan.sql("SELECT COUNT(*) AS n FROM t WHERE k = $k", {"k": "a"})
        second = plan.sql("SELECT SUM(x) AS s FROM t; SELECT SUM(n) AS s FROM t")
        assert repr(first) == "<declared: SELECT COUNT(*) AS n FROM t WHERE k = $k>"
        with pytest.raises(dpsql.BindError, match="declared, not run yet"):
            first.df()
        event = plan.event
        with pytest.raises(dpsql.BindError) as caught:
            plan.sql("SELECT MAX(no) FROM t")
        with pytest.raises(dpsql.BindError, match="only queries can be declared"):
            plan.sql("SHOW BUDGET")
    assert caught.value.excerpt()
    assert len(plan.results) == 3
    assert first.fetchall() == plan.results[0].fetchall()
    assert second.columns == ["s"]
    assert any("one of a declared plan" in note for note in second.notes)
    charged = session.ledger()[-1]
    assert charged.outcome == "released"
    assert charged.event == event
    assert first.statement_id == second.statement_id
    with pytest.raises(dpsql.BindError, match="has run already"):
        plan.sql("SELECT 1")


def test_results_are_kept_by_their_handles(near: Near) -> None:
    session, remote, channel = near
    result = remote.sql("SELECT k, COUNT(*) AS n FROM t GROUP BY k")
    remote.keep("Mine", result)
    assert remote.sql("SELECT COUNT(*) AS rows FROM mine").fetchall() == [(3,)]
    assert session.kept.keys() == {"mine"}
    assert ("Mine", "kept result") in [row[:2] for row in remote.tables().fetchall()]
    assert dict(remote.columns("mine")) == dict(session.columns("mine"))
    assert list(remote.schema()) == ["t", "s", "r", "g", "Mine"]
    sent = [message for action, message in channel.sent if action == "dpsql.keep"]
    assert [set(m.head) for m in sent] == [{"name", "result"}]
    assert not any(message.payload for message in sent)
    copy = pickle.loads(pickle.dumps(result))
    for foreign in (copy, pa.table({"a": [1]}), [1], session.sql("SELECT 1")):
        with pytest.raises(dpsql.BindError, match="only results of this session"):
            remote.keep("other", foreign)
    for name in ("t", "no word", ""):
        with pytest.raises(dpsql.BindError):
            remote.keep(name, result)
        with pytest.raises(dpsql.BindError):
            remote.check_name(name)


def test_whoever_types_does_not_wait_for_long(near: Near) -> None:
    _, remote, channel = near
    channel.timeouts.clear()
    remote.schema()
    assert all(timeout is not None and timeout < 5 for _, timeout in channel.timeouts)
    remote.tables()
    remote.sql("SELECT 1")
    assert [timeout for _, timeout in channel.timeouts[-2:]] == [None, None]


def test_a_notebook_does_not_wait_long_for_its_panel(near: Near) -> None:
    _, remote, channel = near
    channel.timeouts.clear()
    with remote.asking_briefly():
        remote.budget_panel()
        remote.explain("SELECT COUNT(*) AS n FROM t")
    remote.budget_panel()
    assert [timeout for _, timeout in channel.timeouts] == [2.0, 2.0, None]


def test_a_result_that_the_server_has_forgotten(near: Near) -> None:
    _, remote, _ = near
    first = remote.sql("SELECT 1 AS x")
    others = [remote.sql(f"SELECT {i} AS x") for i in range(client_session.MAX_REMEMBERED)]
    with pytest.raises(dpsql.BindError, match="has forgotten this result"):
        remote.keep("out", first)
    remote.keep("out", others[0])


def test_large_results_are_not_remembered(near: Near, monkeypatch: pytest.MonkeyPatch) -> None:
    _, remote, _ = near
    monkeypatch.setattr(client_session, "MAX_REMEMBERED_BYTES", 1 << 20)
    large = remote.sql("SELECT i, repeat('x', 20) AS t FROM range(100000) v(i)")
    assert large.shape == (100_000, 2)
    with pytest.raises(dpsql.BindError, match="has forgotten"):
        remote.keep("out", large)


def test_an_answer_that_is_too_large_is_paid_and_can_be_asked_smaller(
    near: Near, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, remote, _ = near
    monkeypatch.setattr(client_session, "MAX_RESULT", 100_000)
    with pytest.raises(dpsql.PostprocessingError, match="the server sends"):
        remote.sql("SELECT n, i FROM (SELECT COUNT(*) AS n FROM t), range(100000) v(i)")
    assert remote.sql("SELECT COUNT(*) AS n FROM t").loss == "no charge"


def test_what_is_too_long_is_refused_before_it_is_read(near: Near) -> None:
    _, remote, _ = near
    with pytest.raises(dpsql.ParseError, match="characters"):
        remote.sql("SELECT 1 --" + "x" * 70_000)
    with pytest.raises(dpsql.BindError, match=r"\$city has"):
        remote.sql("SELECT $city", {"city": "x" * (client_session.MAX_PARAMETER + 1)})
    with pytest.raises(dpsql.ParseError, match="the parameters have"):
        remote.sql("SELECT $city", {"city": b"x" * (client_session.MAX_PARAMETER + 1)})
    with pytest.raises(WireError, match="may have"):
        remote.sql("SELECT $city", {"city": "x" * (65 << 20)})


def test_what_can_not_be_remote_is_refused_by_name(near: Near) -> None:
    _, remote, _ = near
    with pytest.raises(ServerError, match="Python functions can't be registered"):
        remote.register("lasso", lambda x: x)
    with pytest.raises(ServerError, match="the owner runs dpsql report"):
        _ = remote.account


def test_it_has_all_that_a_session_at_hand_has() -> None:
    public = {name for name in dir(dpsql.Session) if not name.startswith("_")}
    theirs = {"kept", "relations", "open_thresholds", "forget"}  # for the worker that hosts a session
    assert public - theirs <= set(dir(RemoteSession))


def test_what_is_described_there_is_described_as_here(near: Near) -> None:
    session, remote, _ = near
    asked = [("SELECT COUNT(*) AS n FROM t", None), ("SELECT ? AS a", [1]), ("SELECT $a AS a, $b AS b", None)]
    for text, params in asked:
        assert remote.describe(text, params) == session.describe(text, params)
    assert remote.table_schemas() == session.table_schemas()
    with pytest.raises(dpsql.Error, match="nope"):
        remote.describe("SELECT nope FROM t")


def test_the_policy_that_is_told(near: Near) -> None:
    session, remote, _ = near
    assert remote.policy.tables.keys() == session.policy.tables.keys()
    assert remote.policy.budget == session.policy.budget
    assert repr(remote) == "<dpsql session of ann at near>"
    assert remote.answer_times == (0.25, 0.5)


def test_the_budget_looks_the_same(near: Near) -> None:
    session, remote, _ = near
    remote.sql("SELECT COUNT(*) AS n FROM t")
    assert remote.budget_panel().text() == session.budget_panel().text()
    assert remote.budget_panel().html() == session.budget_panel().html()


@pytest.mark.parametrize("what", ["budget", "tradeoff"])
def test_plots_are_drawn_here_of_numbers_from_there(near: Near, what: str) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    session, remote, _ = near
    remote.sql("SELECT COUNT(*) AS n FROM t")
    mine, theirs = remote.plot(what), session.plot(what)
    pairs = zip(mine.get_lines(), theirs.get_lines(), strict=True)
    assert all((a.get_xydata() == b.get_xydata()).all() for a, b in pairs)
    with pytest.raises(dpsql.BindError, match="no picture"):
        remote.plot("bugdet")


def test_a_closed_session_says_so(near: Near) -> None:
    _, remote, channel = near
    remote.close()
    remote.close()
    assert channel.closed
    assert [action for action, _ in channel.sent][-1] == "dpsql.close"
    for asking in (lambda: remote.sql("SELECT 1"), remote.budget, remote.tables, remote.plan):
        with pytest.raises(ServerError, match="closed"):
            asking()
    assert "(closed)" in repr(remote)


# -- a server that breaks, and one that lies


class Liar(NearChannel):
    """Answers every message but the first with a list of one's choice."""

    def __init__(self, session: Any, replies: list[Message]) -> None:
        super().__init__(session)
        self.replies = replies

    def _answer(self, operation: str, body: bytes) -> Iterator[Message]:
        return super()._answer(operation, body) if operation == "open" else iter(self.replies)


VALUES = [
    {},
    {"state": 1, "entries": [1], "columns": [1], "explanation": {}},
    {"count": 10**9},
    {"count": 0},
    {"pictures": 1, "count": "x", "charges": [[1, 2, 3, 4]], "notices": []},
]
LIES = [
    [],
    [Message({})],
    [Message({"kind": "rows"}, b"x")],
    [Message({"kind": "stage", "stage": 5})],
    [Message({"kind": "error"})],
    [Message({"kind": "result", "bytes": 10**15}, b"x")],
    *([Message({"kind": "value", **value}), Message({"kind": "end"})] for value in VALUES),
]


@pytest.mark.parametrize("replies", LIES, ids=range(len(LIES)))
def test_a_reply_that_is_none_is_a_wire_error(near: Near, replies: list[Message]) -> None:
    remote = RemoteSession(Liar(near[0], replies), "liar")
    asks = [
        lambda: remote.budget(), lambda: remote.ledger(), lambda: remote.columns("t"),
        lambda: remote.explain("SELECT 1"), lambda: remote.budget_panel(), lambda: remote._find_pictures("budget"),
        lambda: remote.plan().sql("SELECT 1"),
    ]  # fmt: skip
    for one in asks:
        with pytest.raises(WireError):
            one()


def test_no_server_moves_the_cursor(near: Near) -> None:
    error = {"kind": "error", "class": "BindError", "message": "no\x1b[2Jthing\u202e.", "hint": "a\nb"}
    remote = RemoteSession(Liar(near[0], [Message(error)]), "liar")
    with pytest.raises(dpsql.BindError) as caught:
        remote.sql("SELECT 1")
    assert caught.value.message == "no\ufffd[2Jthing\ufffd."
    assert caught.value.hint == "a\nb"


def test_unexpected_failures_have_one_sentence(near: Near, monkeypatch: pytest.MonkeyPatch) -> None:
    session, remote, channel = near

    def fail(*args: object, **kwargs: object) -> None:
        raise ValueError("/secret/path holds 42")

    monkeypatch.setattr(session, "explain", fail)
    with pytest.raises(Error) as caught:
        remote.explain("SELECT 1")
    assert "secret" not in str(caught.value)
    assert type(caught.value) is Error
    assert isinstance(channel.failures[0], ValueError)


@pytest.mark.parametrize("operation", sorted(client_session.OPERATIONS))
@pytest.mark.parametrize(
    "body", [b"", b"\x00", encode(Message({})), encode(Message({"text": 1, "table": [], "last": "x"}))]
)
def test_the_worker_answers_any_bytes(idle: dpsql.Session, operation: str, body: bytes) -> None:
    last = decode(list(client_session.ClientSession(idle, idle.policy.server).answer(operation, body))[-1])
    assert last.head["kind"] in ("end", "error")
    if last.head["kind"] == "error":
        assert last.head["class"] in ("Error", "WireError") or last.head["message"]


words = st.text(max_size=5) | st.sampled_from(["SELECT 1", "t", "budget"])
keys = st.sampled_from(["text", "int", "x"])
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
    max_leaves=4,
)
NAMES = ["text", "params", "epsilon", "fresh", "statements", "run", "last", "table", "name", "result", "what"]


@given(
    st.sampled_from(sorted(client_session.OPERATIONS)),
    st.dictionaries(st.sampled_from(NAMES), plain, max_size=4),
)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_worker_answers_any_message(idle: dpsql.Session, operation: str, head: dict[str, Any]) -> None:
    """Answer with an error of ours where it is none, and never by a failure that nobody foresaw."""
    failures: list[BaseException] = []
    try:
        body = encode(Message(head))
    except WireError:  # NaN
        return
    *before, last = map(
        decode,
        client_session.ClientSession(idle, idle.policy.server).answer(
            operation, body, report=failures.append
        ),
    )
    assert last.head["kind"] in ("end", "error")
    assert all(message.head["kind"] in ("value", "result") for message in before)
    assert failures == []


def test_an_answer_that_can_not_be_sent_is_an_error(near: Near, monkeypatch: pytest.MonkeyPatch) -> None:
    _, remote, _ = near
    monkeypatch.setattr(client_session, "list_pictures", lambda account, what: {"burn_down": float("inf")})
    with pytest.raises(Error, match="can't be sent"):
        remote._find_pictures("budget")


def test_an_operation_that_is_unknown(near: Near) -> None:
    (reply,) = near[2].near.answer("drop", encode(Message({})))
    assert decode(reply).head["kind"] == "error"


def test_several_threads_may_ask(near: Near) -> None:
    _, remote, _ = near
    answers: list[Any] = []

    def ask_some(number: int) -> None:
        for i in range(5):
            answers.append((number * 10 + i, remote.sql(f"SELECT {number * 10 + i} AS x").fetchall()))

    threads = [threading.Thread(target=ask_some, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == sorted((n * 10 + i, [(n * 10 + i,)]) for n in range(4) for i in range(5))


# -- another process goes on


def begin_again(channel: NearChannel) -> client_session.ClientSession:
    """Return a session that has the same engine and ledger, and of the first's state its journal alone."""
    session = channel.near.session
    made = dpsql.Session(session.policy, session._pipeline.engine, session.account)
    other = client_session.ClientSession(made, made.policy.server)
    other.restore(channel.near.read_journal())
    return other


def test_kept_results_are_made_again_from_stored_answers(near: Near) -> None:
    session, remote, channel = near
    cell = "a << SELECT k, COUNT(*) AS n FROM t WHERE x < $x GROUP BY k; b << SELECT SUM(n) AS s FROM a"
    remote.run(cell, {"x": 2})
    remote.keep("c", remote.sql("SELECT * FROM b"))
    expected = remote.sql("SELECT * FROM a, b, c").fetchall()
    spent = session.budget().spent_epsilon
    other = begin_again(channel)
    assert other.session.sql("SELECT * FROM a, b, c").fetchall() == expected
    assert session.budget().spent_epsilon == spent
    assert other.read_journal() == channel.near.read_journal()


def test_what_is_lost_is_told_once(near: Near) -> None:
    _, remote, channel = near
    remote.sql("DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1)")
    remote.sql("r1 << SELECT random() AS x")
    other = begin_again(channel)
    again, _ = connect_near(other)
    first, second = again.run("SELECT 1 AS x; SELECT 2 AS x")
    assert any("the threshold alarm is closed" in note for note in first.notes)
    assert any("the kept result r1 is lost" in note for note in first.notes)
    assert second.notes == ()
    other.restore(channel.near.read_journal())
    with pytest.raises(dpsql.Error) as caught:
        again.sql("SELECT WITH alarm COUNT(*) FROM t")
    assert "DECLARE it again" in str(caught.value.hint)


def test_a_journal_does_not_grow_without_bound(near: Near, monkeypatch: pytest.MonkeyPatch) -> None:
    _, remote, channel = near
    monkeypatch.setattr(client_session, "MAX_JOURNAL", 3)
    for i in range(6):
        remote.sql(f"r{i} << SELECT {i} AS x")
    assert len(channel.near.read_journal()) == 3
    remote.sql("r0 << SELECT $x AS x", {"x": "x" * client_session.MAX_JOURNAL_LINE})
    assert len(channel.near.read_journal()) == 2


def test_a_kept_result_that_would_be_another_one_is_not_made(near: Near) -> None:
    """Drop ``b``, which was made of an ``a`` that has another content since."""
    _, remote, channel = near
    remote.run("a << SELECT 1 AS x; b << SELECT x FROM a; a << SELECT 2 AS x")
    other = begin_again(channel)
    assert other.session.kept.keys() == {"a"}
    assert other.session.sql("SELECT x FROM a").fetchall() == [(2,)]


# -- what a client is made of

FRESH = """
import sys
import dpsql
from dpsql.client.remote_session import RemoteSession
from dpsql.client.wire import Message
class Echo:
    def call(self, action, message, session="", timeout=None):
        if action == "dpsql.open":
            yield Message({"kind": "value", "session": "s", "analyst": "a", "policy": "[budget]\\nepsilon = 1\\ndelta = 0\\n"})
        elif action == "dpsql.run":
            import pyarrow as pa
            from dpsql.session.result import Result
            from dpsql.client.wire import write_result
            yield write_result(Result(pa.table({"n": [1]}), intervals={"n": [(0.0, 2.0)]}, cost_line="cost"))
        yield Message({"kind": "end"})
    def close(self): pass
session = RemoteSession(Echo(), "echo")
print(session.sql("SELECT 1"))
session.policy
import dpsql.client.channel, dpsql.client.connect, dpsql.client.remote_session, dpsql.dbapi, pyarrow.flight
import dpsql.notebook.render, dpsql.notebook.magic, dpsql.notebook.plots, dpsql.notebook.sessions, dpsql.session.result
import dpsql.session.explanation, dpsql.privacy.records
far = ("dpsql.ledger", "dpsql.engine", "dpsql.session.session")
mine = {m for m in sys.modules if m in ("duckdb", "sqlite3") or m.startswith(far)}
assert not mine, mine
session.close()
"""


def test_a_client_has_no_engine_and_no_ledger() -> None:
    subprocess.run([sys.executable, "-c", FRESH], check=True, timeout=120)
