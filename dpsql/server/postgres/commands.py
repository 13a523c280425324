"""Commands of PostgreSQL's clients that are no queries: settings and transactions.

Transaction commands have no effect, since a charge can't be undone. Settings are kept and shown; one that determines how values
are written can't be changed. ``intervals`` alone changes answers: it adds the ends of intervals as columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field

from dpsql.catalogue.option_names import INTERVALS
from dpsql.errors import BindError, Error, PrivacyError
from dpsql.late_dataclass import dataclass

SERVER_VERSION = "15.0"
"""The version of PostgreSQL whose catalogue queries are understood."""
FIXED = {
    "server_encoding": ("UTF8", "UNICODE", "UTF-8"),
    "client_encoding": ("UTF8", "UNICODE", "UTF-8"),
    "standard_conforming_strings": ("on", "true", "1", "yes"),
    "bytea_output": ("hex",),
    "integer_datetimes": ("on",),
}
"""Settings that determine how values are written: the value, and its other spellings."""
_DEFAULTS = {
    "datestyle": "ISO, MDY", "timezone": "UTC", "search_path": '"$user", public', "transaction_isolation": "read committed",
    "default_transaction_isolation": "read committed", "transaction_read_only": "on", "default_transaction_read_only": "on",
    "transaction_deferrable": "off", "is_superuser": "off", "in_hot_standby": "off", "application_name": "",
    "client_min_messages": "notice", "extra_float_digits": "1", "statement_timeout": "0", "max_identifier_length": "63",
    "max_index_keys": "32", "lc_collate": "C", "lc_ctype": "C", "row_security": "on", "wal_level": "replica",
    "default_table_access_method": "heap", "default_tablespace": "", "lock_timeout": "0", "max_connections": "100",
    "idle_in_transaction_session_timeout": "0", "enable_seqscan": "on", "work_mem": "4MB", "ssl": "off", "log_statement": "none",
    "quote_all_identifiers": "off", "intervals": "off", "synchronous_commit": "on", "temp_tablespaces": "", "block_size": "8192",
    "intervalstyle": "postgres",
}  # fmt: skip
_REPORTED = """
    application_name client_encoding DateStyle integer_datetimes IntervalStyle is_superuser server_encoding server_version
    session_authorization standard_conforming_strings TimeZone default_transaction_read_only in_hot_standby
"""
REPORTED = {name.lower(): name for name in _REPORTED.split()}
"""Settings that a client gets at the start, by their names in lower case."""
MAX_SETTING = 1000
"""Most characters of a setting's value."""
MAX_SETTINGS = 200
_QUIET = ("warning", "error", "fatal", "panic")
_OPTION = re.compile(r"(?:-c\s*|--)(\w+)=(\S*)")
"""A setting in the options that a client connects with."""
_TIMEOUT = re.compile(r"([0-9]{1,9}) ?(ms|s|min|h|d)?")
_UNITS = {"": 1, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


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

    @classmethod
    def begin(cls, analyst: str, startup: Mapping[str, object]) -> ClientSettings:
        """Return the settings of a client that connected with these parameters; those that can't be changed are left out."""
        made = cls(analyst)
        for name, value in [*startup.items(), *_OPTION.findall(str(startup.get("options", "")))]:
            if made.find(name) is not None and name not in FIXED:
                with suppress(Error):
                    made.change(name, str(value))
        return made

    def get(self, name: str) -> str:
        """Return a setting's value; BindError if the setting is unknown."""
        found = self._known.get(name.lower())
        if found is None:
            hint = "SHOW ALL lists the settings."
            raise BindError(f"there is no setting {name[:60]}.", hint=hint, sqlstate="42704")
        return found

    def find(self, name: str) -> str | None:
        """Return a setting's value; None if it is unknown."""
        return self._known.get(name.lower())

    @property
    def quiet(self) -> bool:
        """Whether the client wants no notices."""
        return self._known["client_min_messages"].lower() in _QUIET

    @property
    def interval_columns(self) -> bool:
        """Whether the ends of intervals are columns of the answers."""
        return self._known["intervals"] == "columns"

    @property
    def iso_intervals(self) -> bool:
        """Whether intervals are written as in ISO 8601."""
        return self._known["intervalstyle"].lower() == "iso_8601"

    @property
    def timeout(self) -> int:
        """The milliseconds after which a statement is stopped; 0 for none."""
        found = _TIMEOUT.fullmatch(self._known["statement_timeout"])
        return 0 if found is None else int(found[1]) * _UNITS[found[2] or ""]

    def list(self) -> list[tuple[str, str]]:
        """Return all settings, by name."""
        return sorted(self._known.items())

    def change(self, name: str, value: str) -> None:
        """Keep a setting's value; BindError if it changes how values are written, PrivacyError if it changes the analyst."""
        name = name.lower()
        if name in FIXED and value.lower() not in [known.lower() for known in FIXED[name]]:
            raise BindError(f"{name} can only be {FIXED[name][0]}.", hint=f"SET {name} TO '{FIXED[name][0]}'")
        if name == "datestyle" and not value.lower().startswith("iso"):
            raise BindError("dates are always in ISO 8601.", hint="SET DateStyle TO 'ISO'")
        if name == "intervalstyle" and value.lower() not in ("postgres", "iso_8601"):
            raise BindError("intervalstyle is postgres or iso_8601.", hint="SET intervalstyle TO 'postgres'")
        if name == "intervals" and value not in INTERVALS:
            raise BindError("intervals is 'columns' or 'off'.", hint="SET intervals = 'columns'")
        who = self._known["session_authorization"].lower()
        if name in ("role", "session_authorization") and value.lower() not in ("none", "default", who):
            raise PrivacyError(
                "a session can't change its analyst.", hint="connect with the other analyst's token."
            )
        if name == "statement_timeout" and _TIMEOUT.fullmatch(value) is None:
            what = "a timeout is a number of milliseconds, or of ms, s, min, h or d."
            raise BindError(what, hint="SET statement_timeout = '30s'", sqlstate="22023")
        if name in ("server_version", "server_version_num", "is_superuser"):
            raise BindError(f"{name} can't be changed.")
        if (
            len(value) > MAX_SETTING
            or len(name) > MAX_SETTING
            or (name not in self._known and len(self._known) > MAX_SETTINGS)
        ):
            raise BindError("the setting is too long, or there are too many settings.")
        self._known[name] = value

    def reset(self, name: str) -> None:
        """Reset a setting, or ``all``."""
        if name.lower() == "all":
            self._known = dict(self._initial)
        elif name.lower() in self._initial:
            self._known[name.lower()] = self._initial[name.lower()]
        else:
            self._known.pop(name.lower(), None)


@dataclass(frozen=True)
class Done:
    """The outcome of a command for the client's connection.

    Args:
        tag: the command's tag.
        transaction: ``T`` if a transaction block begins, ``I`` if one ends, otherwise empty.
        changed: changed settings to report to the client.
        forget: the prepared statement to forget; ``*`` for all.
        names, rows: the columns and the rows of SHOW.
    """

    tag: str
    transaction: str = ""
    changed: tuple[tuple[str, str], ...] = ()
    forget: str = ""
    names: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = field(default=())


def run_transaction(words: Sequence[str]) -> Done | None:
    """Return the outcome of a command about transactions; None for another command.

    >>> run_transaction(["COMMIT", "AND", "CHAIN"]).transaction, run_transaction(["ROLLBACK"]).transaction
    ('', 'I')
    """
    upper = [word.upper() for word in words]
    word = upper[0] if upper else ""
    if word == "BEGIN" or upper[:2] == ["START", "TRANSACTION"]:
        return Done("BEGIN" if word == "BEGIN" else "START TRANSACTION", "T")
    if word in ("COMMIT", "END", "ROLLBACK", "ABORT"):
        stays = "TO" in upper or ("CHAIN" in upper and "NO" not in upper)
        return Done("COMMIT" if word in ("COMMIT", "END") else "ROLLBACK", "" if stays else "I")
    return Done(word) if word in ("SAVEPOINT", "RELEASE") else None


def run_command(words: Sequence[str], settings: ClientSettings, only_describe: bool = False) -> Done:
    """Run a command, or only return its outcome (``only_describe``); BindError if it or its setting is unknown."""
    done = run_transaction(words)
    if done is not None:
        return done
    upper = [word.upper() for word in words]
    word = upper[0]
    if word in ("LISTEN", "UNLISTEN"):
        return Done(word)
    if upper[:2] == ["SET", "CONSTRAINTS"]:
        return Done("SET CONSTRAINTS")
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
    if word == "DISCARD" and upper[1:] != ["ALL"]:
        return Done(" ".join(upper))
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
    name = " ".join(words[1:]).lower().replace(" . ", ".")
    name = _SPOKEN.get(name, name)
    if name == "all":
        return Done("SHOW", names=("name", "setting"), rows=tuple(settings.list()))
    return Done("SHOW", names=(REPORTED.get(name, name),), rows=((settings.get(name),),))


def _read_setting(words: Sequence[str]) -> tuple[str, str]:
    """Return the name and the value of a SET or RESET."""
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
        raise BindError("SET needs a name and a value.", hint="SET statement_timeout = 0")
    if sign is None:
        return "".join(rest[:1]) if upper[0] == "ROLE" else "".join(rest), "".join(rest[1:])
    return "".join(rest[:sign]), "".join(rest[sign + 1 :]).replace(",", ", ")
