"""Tokens of the organisation's identity provider (OpenID Connect), in place of tokens of ours.

The policy names the provider, the audience, and the claims that have the analyst's name and groups. A token proves them, as a
client certificate proves a name: the owner still registers the analyst or the group (``dpsql analyst add``), and a pause, a
removal and the expiry there apply. The provider's keys come from its discovery document. They are read again once an hour, and
at most once a minute if a token names an unknown key.

This module stands apart from :mod:`dpsql.server.served`, because it needs another library.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from dpsql.errors import PolicyError, ServerError
from dpsql.late_dataclass import dataclass
from dpsql.policy.model import IdentityProvider, settle_issuer

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
        """Return the provider's key of a name.

        Raises:
            KeyError: it has none.
        """
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
