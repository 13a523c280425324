"""Releases: what is published is paid, stays until it is replaced, is read by all and changed by those who may."""

from __future__ import annotations

import datetime
import re
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.cli import main
from dpsql.ledger import answers
from dpsql.ledger.state_files import place_side_file
from dpsql.ledger.upkeep import forget_before, verify_ledger
from dpsql.session import releases
from dpsql.session.pipeline import Pipeline

POLICY = """
[budget]
epsilon = 10
delta = 1e-6
accountant = "basic"
default_epsilon = 1
[tables.visits]
source = "visits.parquet"
privacy_unit = "person"
max_rows = 1
columns.ward.values = ["A", "B"]
[tables.wards]
source = "wards.parquet"
public = true
[analysts.ada]
epsilon = 10
releases = true
[analysts.bob]
epsilon = 5
"""
COUNT = "SELECT WITH DP ward, COUNT(*) AS n FROM visits GROUP BY ward"
DAILY = f"CREATE RELEASE daily AS {COUNT}"
Open = Callable[..., dpsql.Session]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_visits(folder, 400)
    pq.write_table(pa.table({"ward": ["A", "B"], "beds": [10, 20]}), folder / "wards.parquet")
    return folder


def write_visits(folder: Path, count: int) -> None:
    people = range(count)
    table = pa.table({"person": list(people), "ward": ["AB"[n % 2] for n in people]})
    pq.write_table(table, folder / "visits.parquet")


@pytest.fixture
def folder(data: Path, tmp_path: Path) -> Path:
    for name in ("visits.parquet", "wards.parquet"):
        shutil.copy(data / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "l.ledger"


@pytest.fixture
def opened(folder: Path, path: Path) -> Iterator[Open]:
    made: list[dpsql.Session] = []

    def connect(
        analyst: str | None = None, policy: str = POLICY, ledger: Path | None = path
    ) -> dpsql.Session:
        rules = dpsql.Policy.loads(policy, base=folder)
        made.append(dpsql.connect(policy=rules, ledger=ledger, analyst=analyst))
        return made[-1]

    yield connect
    for session in made:
        session.close()


def spent(session: dpsql.Session) -> float:
    state = session.budget()
    return float((state.whole or state).spent_epsilon)


def rows(session: dpsql.Session, text: str) -> list[Any]:
    return sorted(map(tuple, session.sql(text).fetchall()))


def test_it_is_drawn_once_and_read_by_every_later_session(opened: Open) -> None:
    first = opened()
    made = first.sql(DAILY)
    assert made.columns == ["ward", "n"]
    assert "published as daily, which every analyst reads at no cost" in made.notes
    for analyst in (None, "ada", "bob"):
        session = opened(analyst)
        read = session.sql("FROM daily ORDER BY ward")
        assert [tuple(row) for row in read] == sorted(map(tuple, made.fetchall()))
        assert read.intervals["n"] == made.intervals["n"]
        assert read.loss == ""
        assert spent(session) == 1
        joined = session.sql("SELECT ward, n / beds AS a FROM DAILY AS d JOIN wards USING (ward)")
        assert len(joined) == 2
        assert rows(session, "WITH daily AS (SELECT 1 AS one) FROM daily") == [(1,)]
        assert dict(session.columns("daily")) == {"ward": "VARCHAR", "n": "BIGINT"}
        assert ("daily", "release") in [(row["table"], row["kind"]) for row in session.tables().dicts()]
        assert "daily" in session.table_schemas()


def test_a_refresh_pays_for_what_is_new_alone(opened: Open, folder: Path) -> None:
    session = opened()
    before = session.sql(DAILY).fetchall()
    assert session.sql("REFRESH RELEASE daily").fetchall() == before
    assert spent(session) == 1
    session.sql("REFRESH RELEASE daily", fresh=True)
    assert spent(session) == 2
    assert session.sql("FROM daily").fetchall() == session.sql(COUNT).fetchall()
    assert "Would cost nothing" in str(session.sql("EXPLAIN REFRESH RELEASE daily"))
    write_visits(folder, 500)
    assert "ε=1" in str(session.explain("REFRESH RELEASE daily"))
    assert session.sql("SHOW RELEASES").dicts()[0]["next_refresh"] == "ε=1"
    assert sum(row[1] for row in session.sql("FROM daily").fetchall()) < 450
    assert spent(session) == 2
    assert sum(row[1] for row in session.sql("REFRESH RELEASE daily").fetchall()) > 450
    assert spent(session) == 3


def test_what_a_cell_makes_its_later_statements_see(opened: Open) -> None:
    session = opened()
    results = session.run(
        f"DROP RELEASE IF EXISTS daily; {DAILY}; CREATE RELEASE double AS SELECT ward, 2 * n AS m FROM daily;"
        "SELECT SUM(m) AS s FROM double; REFRESH RELEASE daily; DROP RELEASE double"
    )
    assert tuple(results[0].fetchall()[0]) == ("daily", "was not there")
    assert tuple(results[5].fetchall()[0]) == ("double", "dropped")
    assert results[3].item() == 2 * sum(row[1] for row in results[1])
    assert [row["release"] for row in session.sql("SHOW RELEASES").dicts()] == ["daily"]
    assert spent(session) == 1


def test_show_says_what_the_next_refresh_costs(opened: Open, folder: Path) -> None:
    session = opened()
    session.sql(f"{DAILY}; CREATE RELEASE total AS SELECT SUM(n) AS n FROM daily")
    daily, total = session.sql("SHOW RELEASES").dicts()
    shown = ("statement", "rows", "next_refresh", "more_refreshes")
    assert [daily[name] for name in shown] == [COUNT, 2, "nothing", 9]
    assert [total[name] for name in shown] == ["SELECT SUM(n) AS n FROM daily", 1, "nothing", None]
    session.sql(
        f"SELECT WITH DP OPTIONS (epsilon = 7) COUNT(*) FROM visits; DROP RELEASE daily; {DAILY.replace(' n ', ' m ')}"
    )
    total, daily = session.sql("SHOW RELEASES").dicts()
    assert daily["more_refreshes"] == 2
    assert total["next_refresh"].startswith("refused: ")
    with pytest.raises(dpsql.BindError, match="column"):
        session.sql("REFRESH RELEASE total")
    assert session.sql("FROM total").shape == (1, 1), "the earlier answer stays"


def test_the_default_cost_of_its_session_stays_with_it(opened: Open) -> None:
    opened().run(DAILY, epsilon="0.25")
    session = opened()
    session.sql("REFRESH RELEASE daily", fresh=True)
    assert spent(session) == 0.5


def test_the_present_time_is_that_of_the_refresh(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened()
    session.sql("CREATE RELEASE at AS SELECT now() AS t")
    first = session.sql("FROM at").item()
    monkeypatch.setattr("dpsql.language.statements.find_now", lambda: first.replace(year=2031))
    assert session.sql("REFRESH RELEASE at").item().year == 2031


REFUSED = [
    (DAILY, "BindError", "already exists"),
    ("CREATE RELEASE visits AS SELECT 1 AS a", "BindError", "visits is a table"),
    ("CREATE OR REPLACE RELEASE WARDS AS SELECT 1 AS a", "BindError", "WARDS is a table"),
    ('CREATE RELEASE "a b" AS SELECT 1 AS a', "BindError", "a word"),
    (f"CREATE RELEASE {'x' * 64} AS SELECT 1 AS a", "BindError", "63 letters"),
    ("CREATE RELEASE \"x'; DROP TABLE visits; --\" AS SELECT 1 AS a", "BindError", "a word"),
    ("CREATE RELEASE r AS SELECT a FROM mine", "BindError", "only this session has"),
    ("CREATE RELEASE mine AS SELECT 1 AS a", "BindError", "kept result"),
    ("CREATE OR REPLACE RELEASE daily AS SELECT * FROM daily", "BindError", "can't read itself"),
    ("CREATE RELEASE r AS SELECT COUNT(*) FROM visits WHERE ward = $w", "ParseError", "no parameters"),
    ("DECLARE d ABOVE_THRESHOLD 9 OPTIONS (epsilon = 1); CREATE RELEASE r AS SELECT WITH d COUNT(*) FROM visits",
     "BindError", "declared threshold"),
    ("CREATE RELEASE r AS SHOW BUDGET", "ParseError", "of a query's answer"),
    ("CREATE RELEASE r AS REFRESH RELEASE daily", "ParseError", "of a query's answer"),
    ("CREATE RELEASE r AS SELECT ward FROM visits", "PrivacyError", "ward"),
    ("CREATE OR REPLACE RELEASE IF NOT EXISTS r AS SELECT 1", "ParseError", "exclude each other"),
    ("r << CREATE RELEASE q AS SELECT 1", "ParseError", "a name already"),
    ("CREATE RELEASE r", "ParseError", "AS and a query"),
    ("CREATE RELEASE AS SELECT 1", "ParseError", "AS and a query"),
    ("REFRESH RELEASE", "ParseError", "needs a name"),
    ("REFRESH RELEASE dayly", "BindError", "no release dayly"),
    ("DROP RELEASE dayly", "BindError", "no release dayly"),
    ("DROP RELEASE daily now", "ParseError", "nothing may follow"),
    ("EXPLAIN DROP RELEASE daily", "ParseError", "for queries"),
    ("EXPLAIN CREATE RELEASE IF NOT EXISTS daily AS SELECT 1", "BindError", "nothing is drawn"),
    ("REFRESH MATERIALIZED VIEW daily", "ParseError", "REFRESH VIEW is not a statement"),
    ("CREATE OR REPLACE VIEW v AS SELECT 1", "ParseError", "CREATE VIEW is not a statement"),
]  # fmt: skip


def test_it_is_refused_before_anything_is_paid(opened: Open) -> None:
    session = opened()
    kept = session.sql(DAILY).fetchall()
    session.keep("mine", session.sql("SELECT 1 AS a"))
    for text, kind, said in REFUSED:
        with pytest.raises(dpsql.Error, match=re.escape(said)) as caught:
            session.sql(text, {"w": "A"} if "$w" in text else None)
        assert type(caught.value).__name__ == kind, text
        assert caught.value.hint or "nothing may follow" in said or "queries" in said, text
        assert caught.value.excerpt() or "threshold" in said, text
    assert spent(session) == 1
    assert session.sql("FROM daily").fetchall() == kept
    assert session.account.list_releases() == ["daily"]


def test_only_those_who_may_change_it_and_it_is_asked_each_time(opened: Open) -> None:
    bob, ada = opened("bob"), opened("ada")
    unless = "CREATE RELEASE IF NOT EXISTS daily AS SELECT 1 AS a"
    for text in (DAILY, unless, "DROP RELEASE IF EXISTS daily"):
        with pytest.raises(dpsql.PrivacyError, match="bob may not") as caught:
            bob.sql(text)
        assert "[analysts.bob] releases = true" in str(caught.value.hint)
    ada.sql(DAILY)
    assert len(bob.sql("FROM daily")) == 2
    for text in ("REFRESH RELEASE daily", "DROP RELEASE daily"):
        with pytest.raises(dpsql.PrivacyError, match="bob may not"):
            bob.sql(text)
    assert spent(ada) == 1
    assert bob.budget().spent_epsilon == 0
    with pytest.raises(dpsql.PrivacyError, match="bob may not"):
        bob.account.publish("daily", "x", None)  # the ledger asks too, whatever a session did


def test_a_right_that_ends_while_it_is_drawn(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    ada = opened("ada")
    before = ada.sql(DAILY).fetchall()
    asked = iter([True, False])
    monkeypatch.setattr(dpsql.Policy, "may_publish", lambda policy, analyst: next(asked))
    with pytest.raises(dpsql.PrivacyError, match="ada may not") as caught:
        ada.sql("REFRESH RELEASE daily", fresh=True)
    assert "What was paid is stored" in str(caught.value.hint)
    assert spent(ada) == 2, "it was drawn, and is stored"
    assert ada.sql("FROM daily").fetchall() == before
    assert ada.sql(COUNT).loss == "no charge"


def test_the_right_is_no_term_of_the_budget() -> None:
    with_, without = dpsql.Policy.loads(POLICY), dpsql.Policy.loads(POLICY.replace("releases = true\n", ""))
    assert with_.fingerprint == without.fingerprint
    assert dpsql.Policy.loads(with_.dumps()) == with_
    assert with_.may_publish("ADA")
    assert with_.may_publish(None)
    assert not with_.may_publish("eve")


def test_two_sessions_at_once(opened: Open) -> None:
    one, other = opened(), opened()
    one.sql(DAILY)
    errors: list[BaseException] = []

    def refresh(session: dpsql.Session) -> None:
        try:
            session.sql("REFRESH RELEASE daily", fresh=True)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=refresh, args=(session,)) for session in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert spent(one) == 3
    assert one.sql("FROM daily").fetchall() == other.sql("FROM daily").fetchall()


def test_the_second_of_two_refreshes_at_once_waits_and_pays_nothing(
    opened: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened()
    first.sql(DAILY)
    write_visits(folder, 500)
    both = threading.Barrier(2)
    draw = Pipeline.release

    def release(*given: Any) -> None:
        with suppress(threading.BrokenBarrierError):  # only those who draw at once meet here
            both.wait(1)
        draw(*given)

    monkeypatch.setattr(Pipeline, "release", release)
    sessions, losses = [opened(), opened()], list[str]()
    threads = [
        threading.Thread(target=lambda s=s: losses.append(s.sql("REFRESH RELEASE daily").loss))
        for s in sessions
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(losses) == ["no charge", "ε=1"]
    assert spent(first) == 2


def test_an_error_about_a_name_underlines_the_name(opened: Open) -> None:
    session = opened()
    session.sql(DAILY)
    visits = "CREATE RELEASE visits AS SELECT 1 AS a"
    for text in ("REFRESH RELEASE dayly", "DROP RELEASE dayly", DAILY, visits):
        name = text.split()[2]
        with pytest.raises(dpsql.BindError) as caught:
            session.sql(f"SELECT 1 AS a; {text}")
        assert caught.value.excerpt()[-1].count("^") == len(name), text


def test_what_changes_meanwhile_is_not_overwritten(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = opened(), opened()
    one.sql(DAILY)
    told = releases.Releases.publish

    def late(*given: Any) -> None:
        monkeypatch.setattr(releases.Releases, "publish", told)
        other.sql("CREATE OR REPLACE RELEASE daily AS SELECT 7 AS seven")
        told(*given)

    monkeypatch.setattr(releases.Releases, "publish", late)
    with pytest.raises(dpsql.BindError, match="changed or dropped meanwhile"):
        one.sql("REFRESH RELEASE daily")
    assert rows(one, "FROM daily") == [(7,)]
    monkeypatch.setattr(releases.Releases, "publish", late)
    with pytest.raises(dpsql.BindError, match="meanwhile"):
        one.sql("DROP RELEASE daily; CREATE RELEASE daily AS SELECT 8 AS eight")


def test_a_policy_that_changed(opened: Open, folder: Path) -> None:
    opened().sql(DAILY)
    changed = opened(policy=POLICY.replace('["A", "B"]', '["A", "B", "C"]'))
    assert len(changed.sql("FROM daily")) == 2
    assert len(changed.sql("REFRESH RELEASE daily")) == 3
    unbounded = opened(policy=POLICY.replace("max_rows = 1\n", ""))
    with pytest.raises(dpsql.PrivacyError, match="a limit on the groups"):
        unbounded.sql("REFRESH RELEASE daily")
    assert len(unbounded.sql("FROM daily")) == 3, "the earlier answer stays"
    shadowing = POLICY + "[tables.daily]\nsource = 'wards.parquet'\npublic = true"
    place = folder / "p.toml"
    place.write_text(shadowing)
    assert main(["ledger", "adopt", "--policy", str(place), "--ledger", str(folder / "l.ledger")]) == 0
    shadowed = opened(policy=shadowing)
    assert rows(shadowed, "FROM daily") == [("A", 10), ("B", 20)]
    assert [row["table"] for row in shadowed.tables().dicts()].count("daily") == 1
    assert len(shadowed.sql("SHOW RELEASES")) == 1


def test_answers_of_ones_own_budget(opened: Open) -> None:
    """Where each analyst's share pays for stored answers, a release is free: publishing is what the right is for."""
    own = POLICY.replace('accountant = "basic"', 'accountant = "basic"\nanswers = "own"')
    opened("ada", own).sql(DAILY)
    bob = opened("bob", own)
    assert len(bob.sql("FROM daily")) == 2
    assert bob.budget().spent_epsilon == 0
    bob.sql(COUNT)
    assert bob.budget().spent_epsilon == 1, "the same question of one's own is debited"


def test_no_room_is_made_of_it(opened: Open, path: Path) -> None:
    none = POLICY + "[ledger]\nkeep_answers_mb = 0"
    session = opened(policy=none)
    session.sql(DAILY)
    assert len(opened(policy=none).sql("FROM daily")) == 2
    held = sqlite3.connect(place_side_file(path, "answers")).execute("SELECT bytes FROM held").fetchone()[0]
    assert held == 0


def test_forgetting_takes_the_old_ones_along(
    opened: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened()
    session.sql(f"{DAILY}; CREATE RELEASE other AS SELECT 1 AS a")
    session.close()
    monkeypatch.setattr("dpsql.ledger.log_file.format_now", lambda: "2999-01-01T00:00:00.000000+00:00")
    opened().sql("REFRESH RELEASE daily")
    forget_before(path, datetime.date(2998, 1, 1))
    again = opened()
    assert again.account.list_releases() == ["daily"]
    assert len(again.sql("FROM daily")) == 2
    assert verify_ledger(path).rows > 4


def test_an_edited_one_is_noticed(opened: Open, path: Path) -> None:
    session = opened()
    session.sql(
        f"{DAILY}; CREATE RELEASE other AS {COUNT.replace('ward', '1 + 1 AS ward', 1).replace('GROUP BY ward', '')}"
    )
    session.close()
    with sqlite3.connect(place_side_file(path, "answers")) as raw:
        ((found,),) = raw.execute("SELECT release FROM answers WHERE key = 'released daily'").fetchall()
        raw.execute("UPDATE answers SET release = ? WHERE key = 'released daily'", (found + b" ",))
        raw.execute("UPDATE answers SET key = 'released moved' WHERE key = 'released other'")
    raw.close()
    for name in ("daily", "other"):
        again = opened()
        with pytest.raises(dpsql.LedgerError, match="does not fit") as caught:
            again.sql(f"FROM {name}")
        assert "DROP RELEASE" in str(caught.value.hint)
    with pytest.raises(dpsql.LedgerError, match="does not fit"):
        verify_ledger(path)
    again.sql("DROP RELEASE IF EXISTS daily; CREATE OR REPLACE RELEASE other AS SELECT 2 AS b")
    assert again.account.list_releases() == ["other"]


def test_a_ledger_in_memory_has_them_too(opened: Open) -> None:
    session = opened(ledger=None)
    session.sql(DAILY)
    assert session.sql("SELECT COUNT(*) AS c FROM daily").item() == 2


def test_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder / "p.toml"
    place.write_text(POLICY)
    assert main(["refresh", "--policy", str(place)]) == 0
    big = f"CREATE RELEASE big AS {COUNT.replace('DP', 'DP OPTIONS (epsilon = 5)')}"
    assert main(["sql", "--policy", str(place), f"{DAILY}; {big}"]) == 0
    capsys.readouterr()
    assert main(["refresh", "--policy", str(place)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split(" · ")[0] for line in said] == ["daily: 2 rows", "big: 2 rows"]
    assert all("no charge" in line for line in said)
    write_visits(folder, 401)
    assert main(["refresh", "--policy", str(place)]) == 3
    told = capsys.readouterr()
    assert told.out.startswith("daily: 2 rows · cost ε=1")
    assert "big" not in told.out
    assert "big: not refreshed" in told.err
    assert "This query costs ε=5" in told.err
    assert main(["refresh", "nightly", "daily", "--policy", str(place), "--analyst", "ada"]) == 1
    assert capsys.readouterr().out.startswith("daily: 2 rows")


# -- data that grow ---------------------------------------------------------------------------------------------------

NIGHTLY = """
[budget]
epsilon = 1
delta = 1e-6
accountant = "basic"
per_period = true
[tables.visits]
source = "nights/*.parquet"
privacy_unit = "person"
privacy_period = "date_trunc('day', day)"
data_from = 2025-01-01
data_until = {until}
closed_before = {closed}
max_rows = 1
columns = { person = { type = "INTEGER" }, day = { type = "DATE" } }
"""
BY_DAY = "SELECT WITH DP OPTIONS (epsilon = 0.6) day, COUNT(*) AS n FROM visits GROUP BY day"


def test_each_night_pays_for_its_own_day(folder: Path, path: Path) -> None:
    (folder / "nights").mkdir()
    answers: list[dict[Any, Any]] = []
    for night in range(1, 5):
        day = datetime.date(2025, 1, night)
        rows_of_day = {"person": list(range(100 * night)), "day": [day] * (100 * night)}
        pq.write_table(pa.table(rows_of_day), folder / "nights" / f"{day}.parquet")
        policy = dpsql.Policy.loads(
            NIGHTLY.replace("{until}", str(day)).replace("{closed}", str(day + datetime.timedelta(1))),
            base=folder,
        )
        with dpsql.connect(policy=policy, ledger=path) as session:
            session.sql(f"CREATE RELEASE daily AS {BY_DAY}" if night == 1 else "REFRESH RELEASE daily")
            answers.append(dict(map(tuple, session.sql("FROM daily").fetchall())))
            (shown,) = session.sql("SHOW RELEASES").dicts()
            assert [float(one.spent_epsilon) for one in session.budget().stretches] == [0.6], (
                "each day pays once"
            )
            assert shown["paid_until"] == str(day)
            assert shown["next_refresh"] == "nothing"
    assert [len(found) for found in answers] == [1, 2, 3, 4]
    assert all(abs(answers[-1][datetime.date(2025, 1, night)] - 100 * night) < 30 for night in range(1, 5))


def test_a_put_that_fails_leaves_the_earlier_answer(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened()
    before = session.sql(DAILY).fetchall()
    real = answers.AnswerStore.put

    def put(store: answers.AnswerStore, kept: Any, number: int) -> None:
        if any(key.startswith("released ") for key in kept):
            raise dpsql.LedgerError("The disk is full.")
        real(store, kept, number)

    monkeypatch.setattr(answers.AnswerStore, "put", put)
    with pytest.raises(dpsql.LedgerError, match="disk is full") as caught:
        session.sql("REFRESH RELEASE daily", fresh=True)
    assert "what was paid is stored" in str(caught.value.hint).lower()
    assert session.sql("FROM daily").fetchall() == before
    monkeypatch.undo()
    session.sql("REFRESH RELEASE daily")
    assert spent(session) == 2
