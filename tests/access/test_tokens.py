"""Tokens, by what RFC 8725 says of how they are forged."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from math import inf
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from app.access.access_file import Issuer
from app.access.key_sets import KeySet
from app.access.rules import Permission, Rules
from app.access.tokens import Tokens
from app.core.errors import IssuerUnknown, NotAllowed, Unauthenticated
from tests.access.jwks import AUDIENCE, EC, ISSUER, OTHER_RSA, RSA, key_set, public, token

ML = Rules(("m",), frozenset({Permission.INFER}), rate=5.0, burst=5.0, weight=2.0)
OPS = Rules(("*",), frozenset(Permission))


def issuer(*algorithms: str, claim: str = "groups") -> Issuer:
    groups = [
        {"value": "ops", "models": ["*"], "permissions": list(Permission)},
        {"value": "ml", "models": ["m"], "permissions": ["infer"], "rate": 5, "weight": 2},
    ]
    return Issuer.model_validate(
        {
            "issuer": ISSUER,
            "audience": AUDIENCE,
            "jwks": "/keys",
            "algorithms": algorithms or ("RS256", "ES256"),
            "claim": claim,
            "groups": groups,
        }
    )


def tokens(*keys: Mapping[str, Any], of: Issuer | None = None) -> Tokens:
    keys = keys or (public(RSA, "k1"), public(EC, "k2"))
    known = KeySet("/keys")
    known.changed(key_set(*keys))
    return Tokens({ISSUER: of or issuer()}, {ISSUER: known})


def test_a_token_says_who_it_is_what_it_may_do_and_until_when() -> None:
    end_s = float(int(time.time()) + 600)
    principal = tokens().verify(token(exp=end_s))
    assert principal.name == "token:me"
    assert principal.rules == ML
    assert principal.expires_s == end_s + 30, "clocks differ"
    assert tokens().verify(token(EC, "ES256", "k2")).rules == ML


def test_a_subject_is_a_name_that_can_be_printed() -> None:
    """Lone surrogates cannot be encoded, and line ends would begin lines of the log."""
    assert tokens().verify(token(sub="a\nb\ud800" + 200 * "c")).name == "token:a?b?" + 124 * "c"


def test_subjects_of_two_issuers_are_two_callers() -> None:
    other = "https://other.example.org/"
    known = KeySet("/keys")
    known.changed(key_set(public(RSA, "k1")))
    both = Tokens(
        {ISSUER: issuer(), other: issuer().model_copy(update={"issuer": other})}, {ISSUER: known, other: known}
    )
    assert both.verify(token()).name == f"token:me@{ISSUER}"
    assert both.verify(token(iss=other)).name == f"token:me@{other}"


def _unsigned(**header: Any) -> bytes:
    own = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": "k1", **header}).encode()).rstrip(b"=")
    return own + b"." + token().split(b".")[1] + b"."


def _with_public_key_as_secret() -> bytes:
    """HS256, by what everybody can know (RFC 8725, section 2.1)."""
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    secret = RSA.public_key().public_bytes(encoding, form)
    head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "k1"}).encode()).rstrip(b"=")
    signed = head + b"." + token().split(b".")[1]
    signature = hmac.digest(secret, signed, hashlib.sha256)
    return signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")


def _changed(place: int) -> bytes:
    parts = token().split(b".")
    parts[place] = parts[place][:-5] + (b"AAAAA" if parts[place][-5:] != b"AAAAA" else b"BBBBB")
    return b".".join(parts)


FORGED = {
    "another key": token(OTHER_RSA),
    "another issuer": token(iss="https://evil.example.org/"),
    "no issuer": token(iss=None),
    "another audience": token(aud="other"),
    "no audience": token(aud=None),
    "no end": token(exp=None),
    "an end that is none": token(exp="soon"),
    "an end that is too far": token(exp=10**400),
    "an end that is infinite": token(exp=inf),
    "not yet": token(nbf=time.time() + 3600),
    "no subject": token(sub=None),
    "a subject that is none": token(sub=["me"]),
    "no signature": _unsigned(),
    "no signature, of another name": _unsigned(alg="None"),
    "the public key as a secret": _with_public_key_as_secret(),
    "an unknown key": token(OTHER_RSA, kid="k3"),
    "no key where there are several": token(kid=None),
    "the key of another algorithm": token(EC, "ES256", "k1"),
    "an algorithm that is not allowed": token(RSA, "RS512"),
    "another signature": _changed(2),
    "other claims": _changed(1),
    "no token": b"a.b.c",
    "no text": b"\xff.\xff.\xff",
    "nothing": b"..",
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED.keys())
def test_what_is_forged_is_denied_and_not_shown(forged: bytes) -> None:
    with pytest.raises(Unauthenticated) as raised:
        tokens().verify(forged)
    assert str(raised.value) == "The token is not valid here"


def test_what_a_token_names_is_not_fetched_or_taken_for_a_key() -> None:
    """RFC 8725, section 3.10."""
    own = {"jwk": public(OTHER_RSA, "k1"), "jku": "http://127.0.0.1:1/keys", "x5u": "http://127.0.0.1:1/cert"}
    head = base64.urlsafe_b64encode(json.dumps({"alg": "RS256", "kid": "k1", **own}).encode()).rstrip(b"=")
    body = token().split(b".")[1]
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - only here
    from cryptography.hazmat.primitives.asymmetric import padding  # noqa: PLC0415 - likewise

    signature = OTHER_RSA.sign(head + b"." + body, padding.PKCS1v15(), hashes.SHA256())
    with pytest.raises(Unauthenticated):
        tokens().verify(head + b"." + body + b"." + base64.urlsafe_b64encode(signature).rstrip(b"="))


def test_one_that_has_expired_is_told_so() -> None:
    with pytest.raises(Unauthenticated) as raised:
        tokens().verify(token(exp=time.time() - 60))
    assert raised.value.denied == "expired"
    assert tokens().verify(token(exp=time.time() - 10)).name == "token:me", "clocks differ"


def test_a_key_that_is_for_another_algorithm_or_purpose_verifies_nothing() -> None:
    for key in (public(RSA, "k1", alg="RS512"), public(RSA, "k1", use="enc")):
        with pytest.raises(Unauthenticated):
            tokens(key, public(EC, "k2")).verify(token())
    assert tokens(public(RSA, "k1", alg="RS256", use="sig")).verify(token())


def test_the_only_key_needs_no_name() -> None:
    assert tokens(public(RSA, None)).verify(token(kid=None)).name == "token:me"


@pytest.mark.parametrize(
    ("claim", "given"),
    [
        ("groups", {"groups": ["x", "ml"]}),
        ("scope", {"scope": "x ml"}),
        ("realm_access.roles", {"realm_access": {"roles": ["ml"]}}),
        ("https://a.b/roles", {"https://a.b/roles": "ml"}),
    ],
)
def test_groups_are_a_list_or_a_text_perhaps_within_another_claim(claim: str, given: dict[str, Any]) -> None:
    assert tokens(of=issuer(claim=claim)).verify(token(**given)).rules == ML


def test_the_first_group_of_the_file_counts() -> None:
    assert tokens().verify(token(groups=["ml", "ops"])).rules == OPS


@pytest.mark.parametrize("groups", [None, [], ["mlx"], "", 5, {"ml": 1}, [["ml"]]])
def test_who_is_in_no_group_may_do_nothing(groups: Any) -> None:
    with pytest.raises(NotAllowed, match="token:me is in no group that has rights here"):
        tokens().verify(token(groups=groups))


def test_before_there_are_keys_a_token_cannot_be_checked() -> None:
    with pytest.raises(IssuerUnknown) as raised:
        Tokens({ISSUER: issuer()}, {ISSUER: KeySet("/keys")}).verify(token())
    assert raised.value.retry_after_s
