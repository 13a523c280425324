"""Tokens of an identity provider that runs on loopback: which of them prove a name, and what they open."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jwt")
pytest.importorskip("cryptography")

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

import dpsql
from dpsql.errors import Error, PolicyError
from dpsql.policy.model import IdentityProvider, Policy
from dpsql.server import analyst_tokens
from dpsql.server.analyst_tokens import TokenFile, TokenReader
from tests.support.certificates import make_certificate
from tests.support.postgres import BarePostgres, PostgresServer
from tests.support.served import ServerProcess, write_data, write_policy

pytestmark = pytest.mark.timeout(600)
KEY, OTHER = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
CURVE = ec.generate_private_key(ec.SECP256R1())


class Provider:
    """A provider: its documents by path, and how often each was read."""

    def __init__(self) -> None:
        self.read: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.read.append(self.path)
                self.send_response(302 if self.path in outer.moved else 200)
                if self.path in outer.moved:
                    self.send_header("Location", outer.moved[self.path])
                self.end_headers()
                self.wfile.write(json.dumps(outer.documents.get(self.path, {})).encode())

            def log_message(self, *given: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}/realm"
        self.moved: dict[str, str] = {}
        self.documents: dict[str, Any] = {
            "/realm/.well-known/openid-configuration": {
                "issuer": self.issuer,
                "jwks_uri": f"{self.issuer}/keys",
            }
        }
        self.publish({"rsa": KEY, "curve": CURVE})
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def publish(self, keys: dict[str, Any]) -> None:
        """Publish the public halves of keys, and one of a kind that nothing can use."""
        listed: list[dict[str, str]] = [{"kty": "GOST", "kid": "odd"}]
        for name, key in keys.items():
            kind = (
                jwt.algorithms.RSAAlgorithm
                if isinstance(key, rsa.RSAPrivateKey)
                else jwt.algorithms.ECAlgorithm
            )
            listed.append({**json.loads(kind.to_jwk(key.public_key())), "kid": name, "use": "sig"})
        self.documents["/realm/keys"] = {"keys": listed}

    def write(self, key: Any = KEY, name: str = "rsa", algorithm: str = "RS256", **changed: Any) -> str:
        """Return a signed token; None leaves a claim out."""
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": ["dpsql", "mail"],
            "sub": "ada",
            "exp": now + 300,
            "iat": now,
            **changed,
        }
        given = {claim: value for claim, value in claims.items() if value is not None}
        return str(jwt.encode(given, key, algorithm, headers={"kid": name}))


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.server.shutdown()
    made.server.server_close()


def open_reader(provider: Provider, **more: str) -> TokenReader:
    return TokenReader(IdentityProvider(issuer=provider.issuer, audience="dpsql", **more))


def test_a_token_proves_a_name_until_it_expires(provider: Provider) -> None:
    reader = open_reader(provider)
    found = reader.read(provider.write())
    assert found is not None
    assert found.name == "ada"
    assert timedelta(seconds=290) < found.expires - datetime.now(UTC) < timedelta(seconds=340)
    assert reader.read(provider.write(CURVE, "curve", "ES256", aud="dpsql")) is not None
    assert len(provider.read) == 2, "keys are kept"
    named = open_reader(provider, claim="preferred_username")
    assert named.read(provider.write()) is None
    assert named.read(provider.write(preferred_username="bob")).name == "bob"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("claim", "read"),
    [
        (["nurses", "ward 7"], ("nurses", "ward 7")),
        ("nurses", ("nurses",)),
        (["nurses", 3, None, ["x"]], ("nurses",)),
        (None, ()),
        ({"nurses": 1}, ()),
    ],
)
def test_a_token_lists_groups(provider: Provider, claim: object, read: tuple[str, ...]) -> None:
    found = open_reader(provider, groups="roles").read(provider.write(roles=claim, groups=["others"]))
    assert found is not None
    assert found.groups == read
    assert open_reader(provider).read(provider.write(groups=["nurses"])).groups == ()  # type: ignore[union-attr]


def encode(body: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(body).encode()).decode().rstrip("=")


def test_tokens_that_prove_nothing(provider: Provider) -> None:
    reader, write = open_reader(provider), provider.write
    assert reader.read(write()) is not None
    public = KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    claims = jwt.decode(write(), options={"verify_signature": False})
    confused = f"{encode({'alg': 'HS256', 'kid': 'rsa'})}.{encode(claims)}"
    mac = (
        base64.urlsafe_b64encode(hmac.digest(public, confused.encode(), hashlib.sha256)).decode().rstrip("=")
    )
    now = int(time.time())
    wrong = {
        "audience": write(aud="mail"), "no audience": write(aud=None), "issuer": write(iss=f"{provider.issuer}/"),
        "expired": write(exp=now - 60), "no end": write(exp=None), "too early": write(nbf=now + 300),
        "another key": write(OTHER), "unknown key": write(OTHER, "new"), "key of another kind": write(CURVE, "rsa", "ES256"),
        "no name": write(sub=None), "number": write(preferred_username=3, sub=None), "algorithm": write(algorithm="RS384"),
        "unsigned": f"{encode({'alg': 'none', 'kid': 'rsa'})}.{encode(claims)}.", "shared secret": f"{confused}.{mac}",
        "changed": write()[:-8] + "AAAAAAAA", "long": write(note="x" * 9000), "no token": "dpsql_x", "dots": "a.b.c", "": "",
        "great end": write(exp=10**30),
    }  # fmt: skip
    assert {why: reader.read(token) for why, token in wrong.items()} == dict.fromkeys(wrong)


def test_keys_are_read_again_but_not_for_each_token(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = open_reader(provider)
    assert reader.read(provider.write()) is not None
    provider.publish({"new": OTHER})
    for _ in range(5):
        assert reader.read(provider.write(OTHER, "new")) is None
    assert len(provider.read) == 2, "an unknown key is looked for once a minute"
    monkeypatch.setattr(analyst_tokens, "_REST_SECONDS", 0.0)
    assert reader.read(provider.write(OTHER, "new")) is not None
    assert reader.read(provider.write()) is None, "the old key was withdrawn"
    monkeypatch.setattr(analyst_tokens, "_KEYS_SECONDS", 0.0)
    provider.documents.clear()
    assert reader.read(provider.write(OTHER, "new")) is not None, "a provider that fails takes no key away"


@pytest.mark.parametrize("what", ["another issuer", "plain HTTP", "redirect", "no keys"])
def test_documents_that_are_not_believed(provider: Provider, what: str) -> None:
    place = "/realm/.well-known/openid-configuration"
    if what == "redirect":
        provider.documents["/else"] = provider.documents[place]
        provider.moved[place] = "/else"
    elif what == "another issuer":
        provider.documents[place] = {**provider.documents[place], "issuer": "https://example.org"}
    elif what == "plain HTTP":
        provider.documents[place] = {**provider.documents[place], "jwks_uri": "http://example.org/keys"}
    else:
        provider.documents["/realm/keys"] = {"keys": [3]}
    assert open_reader(provider).read(provider.write()) is None


def test_the_policy_names_the_provider() -> None:
    text = '[budget]\nepsilon = 1\n[tables.v]\nprivacy_unit = "id"\n[server.identity_provider]\n'
    policy = Policy.loads(f'{text}issuer = "https://login.example.org/realm"\naudience = "dpsql"\n')
    assert policy.server.identity_provider == IdentityProvider(
        "https://login.example.org/realm", "dpsql", "sub", None
    )
    assert Policy.loads(policy.dumps()) == policy
    assert policy.for_analyst(None).server.identity_provider is None
    for wrong in (
        'issuer = "http://example.org"\naudience = "x"',
        'issuer = "https://example.org"',
        'issuer = "ftp://a"',
    ):
        with pytest.raises(PolicyError, match=r"issuer|audience"):
            Policy.loads(text + wrong)


def test_a_server_takes_both_kinds_of_tokens(tmp_path: Path, provider: Provider) -> None:
    write_data(tmp_path, 500)
    terms = f'[server.identity_provider]\nissuer = "{provider.issuer}"\naudience = "dpsql"'
    policy = write_policy(tmp_path, {"ada": 5, "bob": 5}, f"answer_times = []\n{terms}")
    held = TokenFile(policy)
    own = held.add("ada")
    with ServerProcess(policy) as server:
        with dpsql.connect(server.url, token=provider.write()) as session:
            assert session.analyst == "ada"
            session.sql("SELECT COUNT(*) AS n FROM visits")
            held.pause("ada", "asked for it")
            with pytest.raises(Error, match="paused"):
                session.sql("SELECT SUM(cost) AS s FROM visits")
            held.resume("ada")
            session.sql("SELECT SUM(cost) AS s FROM visits")
        with dpsql.connect(server.url, token=own) as session:
            assert session.budget().analyst == "ada"
        for token in (provider.write(sub="bob"), provider.write(sub="eve"), provider.write(aud="mail")):
            with pytest.raises(Error, match="no valid token"):
                dpsql.connect(server.url, token=token)
        short = provider.write(exp=int(time.time()) - 27)
        session = dpsql.connect(server.url, token=short)
        time.sleep(4)
        with pytest.raises(Error, match="no valid token"):
            session.sql("SELECT COUNT(*) AS n FROM visits")
        held.remove("ada")
        with pytest.raises(Error, match="no valid token"):
            dpsql.connect(server.url, token=provider.write())


# -- groups -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("person", "groups", "whose"),
    [
        ("ada", ["nurses"], "ada"),  # the own share comes first
        ("ADA", [], "ADA"),
        ("eve", ["doctors", "nurses"], "nurses"),  # the first in the policy's order
        ("eve", ["doctors"], "doctors"),
        ("eve", ["Nurses", "ada", "others"], None),  # no group is a person
        ("nurses", [], None),  # no person is a group
        ("nurses", ["doctors"], "doctors"),
        ("eve", [], None),
    ],
)
def test_whose_share_a_person_uses(person: str, groups: list[str], whose: str | None) -> None:
    text = (
        '[budget]\nepsilon = 9\n[tables.v]\nprivacy_unit = "id"\n[analysts.ada]\nepsilon = 1\n'
        "[analysts.nurses]\nepsilon = 2\ngroup = true\n[analysts.doctors]\nepsilon = 2\ngroup = true\n"
    )
    assert Policy.loads(text).find_members_share(person, groups) == whose


def test_members_of_a_group_have_one_share_together(tmp_path: Path, provider: Provider) -> None:
    """What one of them spends is gone for the others; who is registered alone has the own share; the log has the persons."""
    write_data(tmp_path, 500)
    terms = f'answer_times = []\n[server.identity_provider]\nissuer = "{provider.issuer}"\naudience = "dpsql"\ngroups = "groups"'
    policy = write_policy(tmp_path, {"ada": 5, "nurses": 1}, terms)
    policy.write_text(policy.read_text().replace("[analysts.nurses]", "[analysts.nurses]\ngroup = true"))
    held = TokenFile(policy)
    held.add("ada")
    asked = "SELECT WITH DP OPTIONS (epsilon = {}) COUNT(*) AS n FROM visits WHERE cost < {}"
    with ServerProcess(policy) as server:

        def connect(person: str, *groups: str) -> Any:
            return dpsql.connect(server.url, token=provider.write(sub=person, groups=list(groups)))

        with pytest.raises(Error, match="no valid token"):
            connect("bob", "nurses")  # the owner has not registered the group
        held.add("nurses")
        with connect("bob", "nurses") as bob, connect("eve", "others", "nurses") as eve:
            assert (bob.analyst, eve.analyst) == ("nurses", "nurses")
            bob.sql(asked.format(0.7, 100))
            with pytest.raises(Error, match="nurses"):
                eve.sql(asked.format(0.7, 200))
            eve.sql(asked.format(0.3, 200))
            assert eve.sql(asked.format(0.7, 100)).fetchall(), "stored answers are free for the others"
        with connect("ada", "nurses") as ada:
            assert ada.analyst == "ada"
        for person, groups in (("nurses", []), ("bob", ["ada"]), ("bob", [])):
            with pytest.raises(Error, match="no valid token"):
                connect(person, *groups)
        held.pause("nurses", "asked for it")
        with pytest.raises(Error, match="paused"):
            connect("bob", "nurses")
        opened = [(e["analyst"], e.get("member")) for e in server.events if e["event"] == "open"]
        assert opened == [("nurses", "bob"), ("nurses", "eve"), ("ada", None)]


# -- PostgreSQL's clients -----------------------------------------------------------------------------------------------


def test_a_token_is_a_password_over_tls(tmp_path: Path, provider: Provider) -> None:
    """The user ``oidc`` sends a token as it is; it is asked for over TLS only, and its end ends the session."""
    psycopg = pytest.importorskip("psycopg")
    write_data(tmp_path, 500)
    make_certificate(tmp_path, "tls")
    terms = f'answer_times = []\n[server.identity_provider]\nissuer = "{provider.issuer}"\naudience = "dpsql"'
    policy = write_policy(tmp_path, {"ada": 5, "bob": 5}, terms)
    held = TokenFile(policy)
    own = held.add("ada")

    def begin(server: PostgresServer) -> tuple[bytes, bytes]:
        """Return the server's first message to a client without TLS."""
        with closing(BarePostgres(server.port)) as client:
            return client.start({"user": "oidc", "database": "clinic"})

    placed = ["--tls-cert", str(tmp_path / "tls.pem"), "--tls-key", str(tmp_path / "tls.key")]
    with PostgresServer(policy, *placed) as server:
        url = (
            f"host=localhost hostaddr=127.0.0.1 port={server.port} user={{}} dbname={{}} password={{}} "
            f"sslmode=verify-full sslrootcert={tmp_path / 'tls.pem'}"
        )

        def ask(user: str, database: str, password: str, statement: str) -> Any:
            with psycopg.connect(url.format(user, database, password), autocommit=True) as client:
                return client.execute(statement).fetchone()

        for database in ("clinic", "oidc", "postgres"):
            assert ask("oidc", database, provider.write(), "SELECT current_user")[0] == "ada"
        assert ask("oidc", "clinic", provider.write(), "SELECT COUNT(*) AS n FROM visits")
        assert ask("ada", "clinic", own, "SELECT current_user")[0] == "ada", "tokens of ours go on as before"
        wrong = {
            "another audience": ("oidc", "clinic", provider.write(aud="mail")),
            "no registered analyst": ("oidc", "clinic", provider.write(sub="bob")),
            "ours": ("oidc", "clinic", own),
            "as another user's password": ("ada", "clinic", provider.write()),
            "unknown database": ("oidc", "elsewhere", provider.write()),
        }
        for why, (user, database, password) in wrong.items():
            with pytest.raises(psycopg.OperationalError, match="no valid token"):
                ask(user, database, password, why)
        with psycopg.connect(
            url.format("oidc", "clinic", provider.write(exp=int(time.time()) - 26)), autocommit=True
        ) as client:
            assert client.execute("SELECT 1").fetchone() == (1,)
            time.sleep(5)
            with pytest.raises(psycopg.OperationalError, match="expired"):
                client.execute("SELECT 1")
        kind, body = begin(server)
        assert (kind, b"requires TLS" in body) == (b"E", True)
    with PostgresServer(policy) as server:
        kind, body = begin(server)
        assert (kind, b"over TLS or a Unix socket only" in body) == (b"E", True)
    policy.write_text(policy.read_text().partition("[server.identity_provider]")[0])
    with PostgresServer(policy) as server:
        kind, body = begin(server)
        assert (kind, body[:4]) == (b"R", b"\0\0\0\x0a"), "without a provider it is a user like any other"
