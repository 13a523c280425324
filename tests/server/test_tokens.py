"""Tokens: 256 bits that are shown once, kept as salted hashes, compared in constant time; and the slow door for wrong ones."""

from __future__ import annotations

import json
import math
import os
import re
import stat
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dpsql.cli import main
from dpsql.client.channel import find_token
from dpsql.errors import PolicyError
from dpsql.server import analyst_tokens
from dpsql.server.analyst_tokens import TokenFile
from dpsql.server.connections import shorten_address
from tests.support.own_process import run_python
from tests.support.served import try_until

POLICY = '[budget]\nepsilon = 3\n[tables.visits]\nprivacy_unit = "id"\n[analysts.ada]\nepsilon = 1\n[analysts.bob]\nepsilon = 1\n'


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


def test_a_token_is_known_and_nothing_in_the_file_tells_it(policy: Path) -> None:
    held = TokenFile(policy)
    ada, bob = held.add("ada"), held.add("bob", 5)
    assert re.fullmatch(r"dpsql_[\w-]{43}", ada)
    found = held.identify(ada)
    assert found is not None
    assert (found.name, found.paused) == ("ada", "")
    assert held.identify(bob) is not None
    assert timedelta(days=4) < held.identify(bob).expires - datetime.now(UTC) < timedelta(days=5)  # type: ignore[union-attr]
    written = held.path.read_text()
    assert held.path == policy.with_name("policy.toml.analysts")
    assert stat.S_IMODE(held.path.stat().st_mode) == 0o600
    for token in (ada, bob):
        assert token not in written
        assert token.removeprefix("dpsql_") not in written
    salts = [item["salt"] for item in json.loads(written)["analysts"]]
    assert len(set(salts)) == 2
    assert all(len(salt) == 32 for salt in salts)


@pytest.mark.parametrize(
    "wrong", ["", "dpsql_", "x" * 49, "dpsql_" + "A" * 43, "dpsql_" + "é" * 43, "\0", "a" * 10**6, "\ud800"]
)
def test_other_texts_are_nobodys(policy: Path, wrong: str) -> None:
    held = TokenFile(policy)
    held.add("ada")
    assert held.identify(wrong) is None


def test_one_letter_decides(policy: Path) -> None:
    held = TokenFile(policy)
    token = held.add("ada")
    for place in range(6, len(token)):
        other = "A" if token[place] != "A" else "B"
        assert held.identify(token[:place] + other + token[place + 1 :]) is None
    assert held.identify(token + "A") is None
    assert held.identify(token) is not None


def test_rotating_and_removing_end_a_token_in_every_process(policy: Path) -> None:
    held, other = TokenFile(policy), TokenFile(policy)
    first = held.add("ada")
    assert other.identify(first) is not None
    before = other.version
    second = held.rotate("ada")
    assert other.version != before
    assert other.identify(first) is None
    assert other.identify(second) is not None
    held.remove("ada")
    assert other.identify(second) is None
    for wrong in (held.rotate, held.remove, held.resume):
        with pytest.raises(PolicyError, match="ada has no token"):
            wrong("ada")
    with pytest.raises(PolicyError, match="has a token already"):
        held.add("bob"), held.add("bob")


def test_a_pause_outlasts_a_rotation_and_ends_by_the_owners_word(policy: Path) -> None:
    held = TokenFile(policy)
    held.add("ada")
    held.pause("ada", "three failures")
    held.pause("ada", "another reason")
    token = held.rotate("ada")
    found = held.identify(token)
    assert found is not None
    assert found.paused.startswith("three failures (20")
    assert held.resume("ada").startswith("three failures")
    assert held.identify(token).paused == ""  # type: ignore[union-attr]
    assert held.resume("ada") == ""


def test_an_expired_token_is_nobodys(policy: Path) -> None:
    held = TokenFile(policy)
    token = held.add("ada", 1)
    body = json.loads(held.path.read_text())
    body["analysts"][0]["expires"] = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    held.path.write_text(json.dumps(body))
    assert held.identify(token) is None
    assert [record.has_expired() for record in held.list()] == [True]
    for days in (0, -1, 4000, True, 1.5):
        with pytest.raises(PolicyError, match="1 to 3650 days"):
            held.rotate("ada", days)  # type: ignore[arg-type]
    assert held.identify(held.rotate("ada", 1)) is not None


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"format": 1}', '{"format": 2, "analysts": []}', '{"format": 1, "analysts": [{"name": "ada"}]}',
     '{"format": 1, "analysts": [{"name":1,"salt":"","hash":"","made":"","expires":"","paused":""}]}', "\xff"],
)  # fmt: skip
def test_a_file_that_is_none_lets_nobody_in(policy: Path, content: str) -> None:
    held = TokenFile(policy)
    token = held.add("ada")
    held.path.write_bytes(content.encode("latin-1"))
    with pytest.raises(PolicyError, match=r"not a file of tokens|another version"):
        held.identify(token)
    with pytest.raises(PolicyError):
        held.add("bob")
    assert held.path.read_bytes() == content.encode("latin-1")  # nothing was overwritten


def test_a_file_that_others_may_read_lets_nobody_in(policy: Path) -> None:
    held = TokenFile(policy)
    token = held.add("ada")
    held.path.chmod(0o640)
    with pytest.raises(PolicyError, match="open to other users") as caught:
        held.identify(token)
    assert caught.value.hint == f"chmod 600 {held.path}"


def test_two_processes_add_at_once_and_lose_nothing(policy: Path) -> None:
    code = (
        "import sys; from dpsql.server.analyst_tokens import TokenFile\n"
        "held = TokenFile(sys.argv[1])\n"
        "for i in range(25): held.add(f'{sys.argv[2]}{i}')"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(policy), name]) for name in "ab"]
    assert [process.wait() for process in running] == [0, 0]
    assert len(TokenFile(policy).list()) == 50
    assert not list(policy.parent.glob(".*analysts.[0-9]*"))  # no drafts are left


def test_a_reader_never_sees_half_a_file(policy: Path) -> None:
    held = TokenFile(policy)
    token = held.add("ada")
    stop = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        while not stop.is_set():
            TokenFile(policy).pause("ada", "x")
            TokenFile(policy).resume("ada")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(300):
            if TokenFile(policy).identify(token) is None:
                failed.append(AssertionError())
    finally:
        stop.set()
        thread.join()
    assert not failed


def test_time_does_not_tell_where_a_token_stops_being_right(policy: Path) -> None:
    """The last letter and the first one take the same time, and so does the token of the first and of the last analyst."""
    held = TokenFile(policy)
    token = held.add("ada")
    for i in range(40):
        held.add(f"a{i}")
    first, last = token[:6] + ("A" if token[6] != "A" else "B") + token[7:], token[:-1] + "A"
    quickest = dict.fromkeys((first, last, token), math.inf)

    def measure() -> float:
        """Look at each some more times; return how far the least times are apart."""
        for _ in range(100):
            for given in quickest:
                start = time.perf_counter()
                held.identify(given)
                quickest[given] = min(quickest[given], time.perf_counter() - start)
        return max(quickest.values()) / min(quickest.values())

    try_until(measure, lambda ratio: ratio < 1.5)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.7:51312", "10.0.0.7"),
        ("ipv6:[2001:db8:1:2:3::9]:50000", "2001:db8:1:2"),
        ("ipv6:%5B::1%5D:50000", "0:0:0:0"),
        ("ipv6:[::ffff:10.0.0.7]:50000", "10.0.0.7"),
        ("ipv6:[fe80::1%25eth0]:50000", "fe80:0:0:0"),
        ("ipv6:nonsense", "ipv6"),
        ("unix:", "unix"),
        ("unix:@" + "x" * 500, "unix"),
        ("", ""),
    ],
)
def test_addresses(peer: str, address: str) -> None:
    assert shorten_address(peer) == address


# -- the command line -------------------------------------------------------------------------------------------------


def test_the_owners_commands(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--policy", str(policy)]
    assert main(["analyst", "add", "ADA", *where]) == 0
    shown = capsys.readouterr()
    token = shown.out.strip()
    assert shown.out == token + "\n"  # the token alone
    assert token not in shown.err
    held = TokenFile(policy)
    assert held.identify(token).name == "ada"  # type: ignore[union-attr]
    assert main(["analyst", "add", "ada", *where]) == 1
    assert f"dpsql analyst rotate ada --policy {policy}" in capsys.readouterr().err
    assert main(["analyst", "rotate", "ada", "--days", "7", *where]) == 0
    # the policy as an argument, as long as before
    assert main(["analyst", "rotate", "ada", str(policy)]) == 0
    told = capsys.readouterr()
    assert told.err.count("token holds for 7 days") == 2
    assert main(["analyst", "rotate", "ada", "--days", "0", *where]) == 1
    assert "1 to 3650 days" in capsys.readouterr().err
    another = told.out.split()[-1]
    assert held.identify(token) is None
    held.pause("ada", "twenty overruns")
    assert main(["analyst", "list", *where]) == 0
    listed = capsys.readouterr().out
    assert re.search(r"ada +paused +20\d\d-\d\d-\d\d +twenty overruns", listed)
    assert re.search(r"bob +no token", listed)
    assert another not in listed
    assert main(["analyst", "resume", "ada", *where]) == 0
    assert "was paused: twenty overruns" in capsys.readouterr().err
    assert main(["analyst", "pause", "ada", "--why", "asked\nfor  it", *where]) == 0
    assert "ada is paused" in capsys.readouterr().err
    assert held.list()[0].paused.startswith("asked for it (20")
    assert main(["analyst", "resume", "ada", *where]) == 0
    for order in (["--session", "1a2b3c4d"], ["--statement", "17"]):
        assert main(["analyst", "end", "ada", *order, *where]) == 0
    assert held.list()[0].list_ended() == ["1a2b3c4d", "#17"]
    assert main(["analyst", "end", "ada", "--session", "all", *where]) == 1
    assert "is no session" in capsys.readouterr().err
    assert main(["analyst", "pause", "eve", *where]) == 1
    assert "eve has no token" in capsys.readouterr().err
    policy.write_text(POLICY.replace("[analysts.ada]\nepsilon = 1\n", ""))
    assert main(["analyst", "list", *where]) == 0
    assert "not in the policy" in capsys.readouterr().out
    assert main(["analyst", "remove", "ada", *where]) == 0
    assert held.list() == []


@pytest.mark.parametrize("command", ["add", "rotate"])
def test_a_file_that_a_token_is_printed_into_is_its_owners_alone(policy: Path, command: str) -> None:
    """Clients take no token from a file that others may read."""
    if command == "rotate":
        TokenFile(policy).add("ada")
    file = policy.with_name("ada.token")
    with file.open("w") as out:
        file.chmod(0o664)
        line = [sys.executable, "-m", "dpsql.cli", "analyst", command, "ada", "--policy", str(policy)]
        subprocess.run(
            line, stdout=out, check=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert find_token(None, file)


def test_a_missing_share_is_told_with_the_lines_to_paste(
    policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyst", "add", "cy", "--policy", str(policy)]) == 1
    error = capsys.readouterr().err
    assert "policy.toml has no analyst cy." in error
    lines = error[error.index("[analysts.cy]") :]
    assert "# half of the whole" in lines
    policy.write_text(POLICY + lines)
    assert main(["analyst", "add", "cy", "--policy", str(policy)]) == 0


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_can_read_no_token(policy: Path) -> None:
    TokenFile(policy).add("ada")
    for part in (policy.parent, *policy.parent.parents):
        part.chmod(part.stat().st_mode | 0o055) if str(part).startswith("/tmp/pytest") else None
    code = f"import os; os.setgid(65534); os.setuid(65534); open({str(TokenFile(policy).path)!r}).read()"
    run = run_python("-c", code)
    assert "PermissionError" in run.stderr


def test_an_order_to_end_something_ends_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = TokenFile(tmp_path / "policy.toml")
    held.add("ada")
    held.end("ada", "1a2b3c4d")
    now = time.time()
    monkeypatch.setattr(analyst_tokens.time, "time", lambda: now + 50)
    held.end("ada", "#3")
    assert held.list()[0].list_ended() == ["1a2b3c4d", "#3"]
    monkeypatch.setattr(analyst_tokens.time, "time", lambda: now + 70)
    assert held.list()[0].list_ended() == ["#3"]
    held.end("ada", "#4")
    assert "1a2b3c4d" not in held.path.read_text()
