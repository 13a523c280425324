"""Analysts' tokens: shown once, kept as salted hashes, and compared in constant time.

The file ``<policy>.analysts`` in the policy's folder has the hashes; only its owner may read it. Each change replaces the file
atomically. A token has 256 bits from the operating system, so one round of SHA-256 protects it as well as many would.

An identity provider of the organisation (OpenID Connect) may sign tokens, too. The policy names it, the audience, and the
claims that have the analyst's name and groups. Such a token proves them, as a client certificate proves a name: the owner still
registers the analyst or the group (``dpsql analyst add``), and a pause, a removal and the expiry there apply. The provider's
keys come from its discovery document. They are read again once an hour, and at most once a minute if a token
names an unknown key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dpsql.errors import PolicyError, ServerError, did_you_mean
from dpsql.late_dataclass import dataclass
from dpsql.ledger.log_file import drafting, sync_folder
from dpsql.policy.model import IdentityProvider, settle_issuer
from dpsql.policy.validate import fold
from dpsql.server.postgres.authentication import Verifier

TOKEN_BITS = 256
MAX_TOKEN_DAYS = 3650
_PREFIX = "dpsql_"
"""The start of each token, by which people and secret scanners recognise one."""
_TOKEN = re.compile(r"dpsql_[A-Za-z0-9_-]{43}")
_MAX_FILE = 16 << 20
_FORMAT = 1


@dataclass(frozen=True)
class TokenRecord:
    """The file's record of one analyst's token. Times are in UTC.

    ``paused`` is the reason of a pause, or empty. ``scram`` is the verifier for PostgreSQL's protocol.
    ``ended`` lists the sessions (``1a2b3c4d``) and statements (``#17``) that a running server is to end, each with the second.
    """

    name: str
    salt: str
    hash: str
    made: str
    expires: str
    scram: str
    paused: str = ""
    ended: str = ""

    def list_ended(self) -> list[str]:
        """Return the sessions and statements to end; an older order was obeyed, or no server ran."""
        orders = (order.split("@") for order in self.ended.split())
        return [what for what, second in orders if 0 <= time.time() - float(second) < _ORDER_SECONDS]

    def has_expired(self) -> bool:
        """Return whether the token has expired."""
        return datetime.fromisoformat(self.expires) <= datetime.now(UTC)


@dataclass(frozen=True)
class Identity:
    """A token's analyst, its ``mark``, the reason of a pause (or empty), and the ``member`` of a provider's group (or empty)."""

    name: str
    expires: datetime
    paused: str
    mark: str
    member: str = ""


class TokenFile:
    """The tokens in the folder of the policy file ``policy``. Safe for threads and processes."""

    def __init__(self, policy: str | Path) -> None:
        policy = Path(policy)
        self._policy = policy
        self.path = policy.with_name(policy.name + ".analysts")
        self._lock = threading.Lock()
        self._read: tuple[tuple[int, ...], dict[str, TokenRecord]] = ((), {})

    @property
    def version(self) -> tuple[int, ...]:
        """Numbers that change with the file; empty if there is none."""
        try:
            found = self.path.stat()
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def add(self, name: str, days: int = 90) -> str:
        """Make and return an analyst's first token, shown only once; PolicyError if there is one or the file can't be written."""
        with self._writing() as records:
            if name in records:
                raise PolicyError(
                    f"{name} has a token already.",
                    hint=f"replace it: dpsql analyst rotate {name} --policy {self._policy}",
                )
            token, records[name] = _make_token(name, days)
        return token

    def rotate(self, name: str, days: int = 90) -> str:
        """Replace an analyst's token at once (a pause stays), and return the new one; PolicyError if it can't."""
        with self._writing() as records:
            paused = self._find_record(records, name).paused
            token, made = _make_token(name, days)
            records[name] = replace(made, paused=paused)
        return token

    def find_days(self, name: str) -> int:
        """Return the lifetime of an analyst's token in days; PolicyError without a token or a readable file."""
        found = self._find_record(self._load(), name)
        lifetime = datetime.fromisoformat(found.expires) - datetime.fromisoformat(found.made)
        return max(1, round(lifetime / timedelta(days=1)))

    def remove(self, name: str) -> None:
        """Remove an analyst's token, which ends at once; PolicyError without a token or a writable file."""
        with self._writing() as records:
            del records[self._find_record(records, name).name]

    def pause(self, name: str, why: str) -> None:
        """Pause an analyst until resumed; the first reason stays. PolicyError without a token or a writable file."""
        with self._writing() as records:
            found = self._find_record(records, name)
            when = datetime.now(UTC).isoformat(timespec="seconds")
            records[name] = replace(found, paused=found.paused or f"{why} ({when})")

    def end(self, name: str, what: str) -> None:
        """Ask a running server to end a session, ``1a2b3c4d``, or a statement, ``#17``; PolicyError as for :meth:`pause`."""
        with self._writing() as records:
            found = self._find_record(records, name)
            kept = [order for order in found.ended.split() if order.split("@")[0] in found.list_ended()]
            records[name] = replace(found, ended=" ".join([*kept, f"{what}@{int(time.time())}"]))

    def resume(self, name: str) -> str:
        """Resume an analyst, and return the reason of the pause (empty: none); PolicyError as for :meth:`pause`."""
        with self._writing() as records:
            found = self._find_record(records, name)
            records[name] = replace(found, paused="")
        return found.paused

    def list(self) -> list[TokenRecord]:
        """Return the record of each token, by name; PolicyError if the file can't be read or trusted."""
        return sorted(self._load().values(), key=lambda record: record.name)

    def identify(self, token: str) -> Identity | None:
        """Return a token's analyst; None if it is unknown or has expired.

        The time doesn't depend on which token it is, since every hash is compared in constant time.

        Raises:
            PolicyError: the file can't be read or trusted.
        """
        records = self._load()
        given = token if isinstance(token, str) and _TOKEN.fullmatch(token) else _PREFIX
        found = None
        for record in records.values():
            if hmac.compare_digest(_hash_token(record.salt, given), record.hash):
                found = record
        return identify_holder(found)

    def find_holder(self, name: str) -> Identity | None:
        """Return an exact name's analyst; None without a valid token. PolicyError if the file can't be read or trusted."""
        return identify_holder(self._load().get(name))

    def find(self, name: str) -> TokenRecord | None:
        """Return the record of an analyst's valid token, by the name in any case, or None; PolicyError as for :meth:`list`."""
        found = next((r for known, r in self._load().items() if fold(known) == fold(name)), None)
        return None if found is None or found.has_expired() else found

    def _find_record(self, records: Mapping[str, TokenRecord], name: str) -> TokenRecord:
        if name not in records:
            near = did_you_mean(name, records)
            raise PolicyError(
                f"{name} has no token.", hint=near or f"dpsql analyst add {name} --policy {self._policy}"
            )
        return records[name]

    def _load(self) -> dict[str, TokenRecord]:
        with self._lock:
            version = self.version
            if version != self._read[0] or not version:
                self._read = (version, _read_records(self.path) if version else {})
            return self._read[1]

    @contextmanager
    def _writing(self) -> Iterator[dict[str, TokenRecord]]:
        """Yield the records under a lock that other processes respect, and write them unless the block fails."""
        try:
            with _locked(self.path.with_name(f".{self.path.name}.lock")):
                records = _read_records(self.path) if self.path.exists() else {}
                yield records
                _write_records(self.path, records)
        except OSError as error:
            raise PolicyError(
                f"the file {self.path} can't be written: {error.strerror}.",
                hint="run this as the owner of the policy file.",
            ) from None


def identify_holder(found: TokenRecord | None) -> Identity | None:
    """Return a record's analyst; None if there is no record, or its token has expired."""
    if found is None or found.has_expired():
        return None
    return Identity(found.name, datetime.fromisoformat(found.expires), found.paused, found.hash)


def _make_token(name: str, days: int) -> tuple[str, TokenRecord]:
    if isinstance(days, bool) or not isinstance(days, int) or not 1 <= days <= MAX_TOKEN_DAYS:
        raise PolicyError(f"a token is valid for 1 to {MAX_TOKEN_DAYS} days.", hint="--days 90")
    token, salt = _PREFIX + secrets.token_urlsafe(TOKEN_BITS // 8), secrets.token_hex(16)
    now = datetime.now(UTC)
    made, expires = (at.isoformat(timespec="seconds") for at in (now, now + timedelta(days=days)))
    scram = str(Verifier.make(token))
    return token, TokenRecord(name, salt, _hash_token(salt, token), made, expires, scram)


def _hash_token(salt: str, token: str) -> str:
    return hashlib.sha256(f"{salt}\n{token}".encode()).hexdigest()


def _read_records(path: Path) -> dict[str, TokenRecord]:
    descriptor = -1
    try:
        descriptor = os.open(path, os.O_RDONLY)
        found = os.fstat(descriptor)
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise PolicyError(f"the file {path} is open to other users.", hint=f"chmod 600 {path}")
        with open(descriptor, "rb", closefd=False) as file:
            body = json.loads(file.read(_MAX_FILE).decode())
        if body["format"] != _FORMAT:
            raise PolicyError(f"another version of dpsql wrote the file {path}.")
        records = [_read_record(item) for item in body["analysts"]]
        return {record.name: record for record in records}
    except OSError as error:
        raise PolicyError(f"the file {path} can't be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise PolicyError(
            f"the file {path} is not a file of tokens.", hint="restore it from a backup."
        ) from None
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _read_record(body: Any) -> TokenRecord:
    record = TokenRecord(**body)
    if not all(isinstance(value, str) for value in asdict(record).values()) or len(record.hash) != 64:
        raise TypeError("text expected")
    record.hash.encode("ascii")
    if datetime.fromisoformat(record.expires).tzinfo is None:
        raise ValueError("a time without a zone")
    record.list_ended()
    Verifier.read(record.scram)
    return record


def _write_records(path: Path, records: Mapping[str, TokenRecord]) -> None:
    body = {"format": _FORMAT, "analysts": [asdict(record) for record in records.values()]}
    with drafting(path) as draft:
        with draft.open("wb") as file:
            file.write((json.dumps(body, indent=1) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    sync_folder(path.parent)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    import fcntl  # the server and its tokens are for systems that have it

    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


_ORDER_SECONDS = 60.0
"""Seconds for which an order to end a session or a statement is in force."""


# -- tokens of an identity provider -------------------------------------------------------------------------------------

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures with a public key only: with a shared secret, the published key would be that secret."""
MOST_LETTERS = 8000
_MOST_BYTES = 1 << 20
_FETCH_SECONDS, _REST_SECONDS, _KEYS_SECONDS = 10.0, 60.0, 3600.0
"""Seconds that one answer may take, between two readings of the keys, and until keys are read again in any case."""
_LEEWAY_SECONDS = 30
"""Seconds by which the provider's clock may differ."""


@dataclass(frozen=True)
class ProviderToken:
    """The person of a valid token, their groups, and when it expires."""

    name: str
    groups: tuple[str, ...]
    expires: datetime


class TokenReader:
    """Reads the tokens of one provider. Thread-safe.

    Args:
        provider: the policy's terms.

    Raises:
        ServerError: the extra's library is missing.
    """

    def __init__(self, provider: IdentityProvider) -> None:
        try:
            import jwt
        except ImportError:
            raise ServerError(
                "an identity provider needs PyJWT.", hint="pip install 'dpsql[server]'"
            ) from None
        self._jwt = jwt
        self._provider = provider
        self._lock = threading.Lock()
        self._keys: dict[str, Any] = {}
        self._fetched = -_KEYS_SECONDS

    def read(self, token: str) -> ProviderToken | None:
        """Return the person of a token; None if it is invalid."""
        if len(token) > MOST_LETTERS or token.count(".") != 2:
            return None
        provider = self._provider
        try:
            key = self._find_key(str(self._jwt.get_unverified_header(token).get("kid", "")))
            claims = self._jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                audience=provider.audience,
                issuer=provider.issuer,
                leeway=_LEEWAY_SECONDS,
                options={
                    "require": ["exp", "iss", "aud", provider.claim],
                    "enforce_minimum_key_length": True,
                },
            )
            name, groups = claims[provider.claim], claims.get(provider.groups or "")
            end = datetime.fromtimestamp(int(claims["exp"]) + _LEEWAY_SECONDS, UTC)
        except (self._jwt.PyJWTError, LookupError, ValueError, TypeError, OverflowError, OSError):
            return None
        listed = groups if isinstance(groups, list) else [groups]
        known = tuple(group for group in listed if isinstance(group, str))
        return ProviderToken(name, known, end) if isinstance(name, str) else None

    def _find_key(self, name: str) -> Any:
        """Return the provider's key of a name; KeyError if it has none."""
        with self._lock:
            age = time.monotonic() - self._fetched
            if age >= (_KEYS_SECONDS if name in self._keys else _REST_SECONDS):
                self._fetched = time.monotonic()
                with suppress(OSError, ValueError, TypeError, LookupError, AttributeError, PolicyError):
                    self._keys = self._fetch()
            return self._keys[name]

    def _fetch(self) -> dict[str, Any]:
        """Return the provider's keys for signatures, by name."""
        issuer = self._provider.issuer
        found = _fetch_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found["issuer"] != issuer:
            raise ValueError("another issuer")
        place = settle_issuer("jwks_uri", found["jwks_uri"])
        keys = {}
        for listed in _fetch_json(place)["keys"]:
            if listed.get("use", "sig") == "sig":
                with suppress(self._jwt.PyJWTError):  # a kind of key that nothing here can use
                    keys[str(listed.get("kid", ""))] = self._jwt.PyJWK(listed)
        return keys


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which could lead to another host, or to plain HTTP."""

    def redirect_request(self, *given: Any) -> None:
        return None


def _fetch_json(address: str) -> Any:
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(address, timeout=_FETCH_SECONDS) as reply:
        return json.loads(reply.read(_MOST_BYTES))
