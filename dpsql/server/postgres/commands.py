"""Commands that PostgreSQL's clients send around their queries, as far as they are harmless: settings and transactions.

Nothing here changes an answer. There are no transactions, since what was charged stays charged: their commands are taken
without effect. A setting is kept and shown; one that would change how values are written is refused unless it says what holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dpsql.errors import BindError, Error, PrivacyError

SERVER_VERSION = "15.0"
"""The version of PostgreSQL whose questions to the catalogue are understood."""
FIXED = {
    "server_encoding": ("UTF8", "UNICODE", "UTF-8"),
    "client_encoding": ("UTF8", "UNICODE", "UTF-8"),
    "standard_conforming_strings": ("on", "true", "1", "yes"),
    "intervalstyle": ("postgres",),
    "bytea_output": ("hex",),
    "integer_datetimes": ("on",),
}
"""ClientSettings that decide how values are written: what they are, and other spellings of that."""
_DEFAULTS = {
    "datestyle": "ISO, MDY", "timezone": "UTC", "search_path": '"$user", public', "transaction_isolation": "read committed",
    "default_transaction_isolation": "read committed", "transaction_read_only": "on", "default_transaction_read_only": "on",
    "transaction_deferrable": "off", "is_superuser": "off", "in_hot_standby": "off", "application_name": "",
    "client_min_messages": "notice", "extra_float_digits": "1", "statement_timeout": "0", "max_identifier_length": "63",
    "max_index_keys": "32", "lc_collate": "C", "lc_ctype": "C", "row_security": "on", "wal_level": "replica",
    "default_table_access_method": "heap", "default_tablespace": "", "lock_timeout": "0", "max_connections": "100",
    "idle_in_transaction_session_timeout": "0", "enable_seqscan": "on", "work_mem": "4MB", "ssl": "off", "log_statement": "none",
    "quote_all_identifiers": "off", "synchronous_commit": "on", "temp_tablespaces": "", "block_size": "8192",
}  # fmt: skip
REPORTED = {
    "application_name": "application_name", "client_encoding": "client_encoding", "datestyle": "DateStyle",
    "integer_datetimes": "integer_datetimes", "intervalstyle": "IntervalStyle", "is_superuser": "is_superuser",
    "server_encoding": "server_encoding", "server_version": "server_version", "session_authorization": "session_authorization",
    "standard_conforming_strings": "standard_conforming_strings", "timezone": "TimeZone",
    "default_transaction_read_only": "default_transaction_read_only", "in_hot_standby": "in_hot_standby",
}  # fmt: skip
"""ClientSettings that a client is told of at the start, by their names in lower case."""
MAX_SETTING = 1000
"""Characters of a setting's value."""
MAX_SETTINGS = 200
_QUIET = ("warning", "error", "fatal", "panic")


class ClientSettings:
    """The settings of one session of a PostgreSQL client.

    >>> settings = ClientSettings("ada")
    >>> settings.change("extra_float_digits", "3"), settings.get("extra_float_digits")
    (None, '3')
    """

    def __init__(self, analyst: str) -> None:
        self._known = {**_DEFAULTS, **{name: values[0] for name, values in FIXED.items()}}
        self._known |= {"session_authorization": analyst, "role": "none", "server_version": SERVER_VERSION}
        self._known["server_version_num"] = "150000"
        self._initial = dict(self._known)

    def get(self, name: str) -> str:
        """Return a setting's value.

        Raises:
            BindError: there is none of that name.
        """
        found = self._known.get(name.lower())
        if found is None:
            raise BindError(f"there is no setting {name[:60]}.", hint="SHOW ALL lists the settings.")
        return found

    def find(self, name: str) -> str | None:
        """Return a setting's value; None where there is none of that name."""
        return self._known.get(name.lower())

    @property
    def quiet(self) -> bool:
        """Tell whether the client wants no notices."""
        return self._known["client_min_messages"].lower() in _QUIET

    def list(self) -> list[tuple[str, str]]:
        """Return all settings, by name."""
        return sorted(self._known.items())

    def change(self, name: str, value: str) -> None:
        """Keep a setting's value.

        Raises:
            BindError: it would change how values are written, or who asks.
        """
        name = name.lower()
        if name in FIXED and value.lower() not in [known.lower() for known in FIXED[name]]:
            raise BindError(f"{name} is {FIXED[name][0]} here.", hint=f"SET {name} TO '{FIXED[name][0]}'")
        if name == "datestyle" and not value.lower().startswith("iso"):
            raise BindError("dates are written as ISO 8601 has them.", hint="SET DateStyle TO 'ISO'")
        who = self._known["session_authorization"].lower()
        if name in ("role", "session_authorization") and value.lower() not in ("none", "default", who):
            raise PrivacyError(
                "a session is the analyst's whose token opened it.", hint="connect as the other one."
            )
        if name in ("server_version", "server_version_num", "is_superuser"):
            raise BindError(f"{name} can't be changed.")
        if (
            len(value) > MAX_SETTING
            or len(name) > MAX_SETTING
            or (name not in self._known and len(self._known) > MAX_SETTINGS)
        ):
            raise BindError("this setting is too long, or there are too many.")
        self._known[name] = value

    def reset(self, name: str) -> None:
        """Put a setting back, or all of them."""
        if name.lower() == "all":
            self._known = dict(self._initial)
        elif name.lower() in self._initial:
            self._known[name.lower()] = self._initial[name.lower()]
        else:
            self._known.pop(name.lower(), None)


@dataclass(frozen=True)
class Done:
    """The outcome of a command: its tag, and what else the client's connection has to know.

    Args:
        tag: what the client is told.
        transaction: ``T`` where a transaction block begins, ``I`` where one ends; empty where neither.
        changed: settings that the client is told of.
        forget: the prepared statement to forget; ``*`` for all of them.
        rows: of SHOW: the column's names and the rows.
    """

    tag: str
    transaction: str = ""
    changed: tuple[tuple[str, str], ...] = ()
    forget: str = ""
    names: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = field(default=())


def run_command(words: Sequence[str], settings: ClientSettings, only_describe: bool = False) -> Done:
    """Do a command.

    Args:
        words: its words.
        settings: those of the session.
        only_describe: change nothing.

    Raises:
        BindError: it is none, or asks for what there is not.
    """
    word = words[0].upper()
    if word in ("BEGIN", "START"):
        return Done("BEGIN" if word == "BEGIN" else "START TRANSACTION", "T")
    if word in ("COMMIT", "END"):
        return Done("COMMIT", "I")
    if word in ("ROLLBACK", "ABORT"):
        back = "TO" in [other.upper() for other in words[1:]]
        return Done("ROLLBACK", "" if back else "I")
    if word in ("SAVEPOINT", "RELEASE", "LISTEN", "UNLISTEN"):
        return Done(word)
    if word == "CLOSE":
        return Done("CLOSE CURSOR ALL")
    if word == "SHOW":
        return _show_setting(words, settings)
    if only_describe:
        return Done(word)
    if word == "DEALLOCATE":
        rest = [other for other in words[1:] if other.upper() != "PREPARE"]
        name = rest[0] if rest else ""
        return (
            Done("DEALLOCATE ALL", forget="*")
            if name.upper() in ("ALL", "")
            else Done("DEALLOCATE", forget=name)
        )
    if word == "DISCARD":
        settings.reset("all")
        return Done("DISCARD ALL", changed=_list_reported(settings), forget="*")
    name, value = _read_setting(words)
    if word == "RESET" or value.upper() == "DEFAULT":
        settings.reset(name)
    else:
        settings.change(name, value)
    shown = REPORTED.get(name.lower())
    changed = ((shown, settings.find(name) or ""),) if shown else ()
    return Done(word, changed=changed if name.lower() != "all" else _list_reported(settings))


def _list_reported(settings: ClientSettings) -> tuple[tuple[str, str], ...]:
    return tuple((shown, settings.find(name) or "") for name, shown in REPORTED.items())


_SPOKEN = {
    "transaction isolation level": "transaction_isolation",
    "time zone": "timezone",
    "session authorization": "session_authorization",
}


def _show_setting(words: Sequence[str], settings: ClientSettings) -> Done:
    name = " ".join(words[1:]).lower()
    name = _SPOKEN.get(name, name)
    if name == "all":
        return Done("SHOW", names=("name", "setting"), rows=tuple(settings.list()))
    return Done("SHOW", names=(REPORTED.get(name, name),), rows=((settings.get(name),),))


def _read_setting(words: Sequence[str]) -> tuple[str, str]:
    """Return the name and the value of a SET or RESET.

    Raises:
        BindError: there is no such setting to read.
    """
    rest = list(words[1:])
    while rest and rest[0].upper() in ("SESSION", "LOCAL") and len(rest) > 2 and rest[1].upper() != "=":
        if rest[1].upper() in ("AUTHORIZATION", "CHARACTERISTICS"):
            break
        rest = rest[1:]
    upper = [word.upper() for word in rest]
    if upper[:1] == ["TRANSACTION"] or upper[:2] == ["SESSION", "CHARACTERISTICS"]:
        return "transaction_isolation", "read committed"
    if upper[:2] == ["TIME", "ZONE"]:
        return "timezone", "".join(rest[2:]) or "UTC"
    if upper[:2] == ["SESSION", "AUTHORIZATION"]:
        return "session_authorization", "".join(rest[2:])
    if upper[:1] == ["NAMES"]:
        return "client_encoding", "".join(rest[1:])
    sign = next((place for place, word in enumerate(upper) if word in ("=", "TO")), None)
    if not rest or (words[0].upper() == "SET" and sign is None and upper[0] != "ROLE"):
        raise _make_error()
    if sign is None:
        return "".join(rest[:1]) if upper[0] == "ROLE" else "".join(rest), "".join(rest[1:])
    return "".join(rest[:sign]), "".join(rest[sign + 1 :]).replace(",", ", ")


def _make_error() -> Error:
    return BindError("a setting has a name and a value.", hint="SET statement_timeout = 0")
