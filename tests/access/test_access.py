from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.access.access import Access
from app.access.access_file import AccessFile, digest_of
from app.access.rules import OPEN, UNKNOWN, Need, Permission, Principal, Rules
from app.core.errors import NotAllowed, RateExceeded, Unauthenticated

ALL = frozenset(Permission)
INFER = Need(Permission.INFER, "m")


def rules(*models: str, permissions: frozenset[Permission] = ALL, **more: float) -> Rules:
    return Rules(models or ("*",), permissions, **more)


def file_of(**principals: Principal) -> AccessFile:
    return AccessFile({digest_of(key.encode()): principal for key, principal in principals.items()})


def bearer(key: str) -> Sequence[tuple[bytes, bytes]]:
    return [(b"host", b"x"), (b"authorization", b"Bearer " + key.encode())]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    "fields",
    [
        [(b"authorization", b"Bearer k")], [(b"authorization", b"bearer   k ")], [(b"x-api-key", b" k ")],
        [(b"authorization", b"Bearer k"), (b"x-api-key", b"k")],
    ],
)  # fmt: skip
def test_a_key_comes_as_a_bearer_or_in_a_field_of_its_own(fields: Sequence[tuple[bytes, bytes]]) -> None:
    assert Access(file_of(k=Principal("a", rules()))).permit(fields, INFER).principal.name == "a"


@pytest.mark.parametrize(
    ("fields", "denied"),
    [
        ([], "missing"),
        ([(b"cookie", b"k")], "missing"),
        ([(b"authorization", b"Basic k")], "malformed"),
        ([(b"authorization", b"Bearer")], "malformed"),
        ([(b"x-api-key", b"")], "malformed"),
        ([(b"x-api-key", b"k"), (b"x-api-key", b"secret")], "malformed"),
        ([(b"authorization", b"Bearer k"), (b"authorization", b"Basic k")], "malformed"),
        ([(b"x-api-key", b"K")], "unknown"),
        ([(b"x-api-key", b"a.b.c")], "unknown"),
    ],
)
def test_what_is_no_key_is_denied_without_showing_it(fields: Sequence[tuple[bytes, bytes]], denied: str) -> None:
    with pytest.raises(Unauthenticated) as raised:
        Access(file_of(k=Principal("a", rules()))).permit(fields, INFER)
    assert raised.value.denied == denied
    assert "secret" not in str(raised.value)


def test_without_a_file_nobody_may_do_anything() -> None:
    with pytest.raises(Unauthenticated):
        Access().permit(bearer("k"), INFER)


@pytest.mark.parametrize(
    ("own", "need", "text"),
    [
        (rules(permissions=frozenset({Permission.METADATA})), INFER, "a has no permission infer, only metadata"),
        (rules("other-*"), INFER, "a may not use model 'm'"),
        (rules("m"), UNKNOWN, "a may not see what this shows of all models"),
        (rules("m"), Need(Permission.METADATA, every_model=True), "a may not see what this shows of all models"),
    ],
)
def test_what_no_rule_allows_is_denied_with_what_it_lacks(own: Rules, need: Need, text: str) -> None:
    with pytest.raises(NotAllowed) as raised:
        Access(file_of(k=Principal("a", own))).permit(bearer("k"), need)
    assert text in str(raised.value)


def test_what_rules_allow_is_allowed() -> None:
    access = Access(file_of(k=Principal("a", rules("m", "n?"))))
    for need in (INFER, Need(Permission.METADATA), Need(Permission.ADMINISTRATION, "n1"), OPEN):
        access.permit(bearer("k"), need).use()


def test_a_key_that_is_removed_ends_at_once_and_a_rule_that_changes_counts_at_once() -> None:
    access = Access(file_of(k=Principal("a", rules()), l=Principal("b", rules())))
    permits = [access.permit(bearer(key), INFER) for key in ("k", "l")]
    access.change(file_of(l=Principal("b", rules("other"))))
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            permits[0].use()
        with pytest.raises(NotAllowed):
            permits[1].use()
    access.change(file_of(k=Principal("renamed", rules())))
    permits[0].use()
    assert permits[0].principal.name == "renamed"


def test_a_key_ends_when_it_expires() -> None:
    clock = Clock()
    access = Access(file_of(k=Principal("a", rules(), expires_s=1001.0)), wall_clock=clock)
    permit = access.permit(bearer("k"), INFER)
    permit.use()
    clock.now = 1001.0
    for ask in (permit.use, lambda: access.permit(bearer("k"), INFER)):
        with pytest.raises(Unauthenticated) as raised:
            ask()
        assert raised.value.denied == "expired"


def test_the_rate_counts_all_requests_of_a_caller() -> None:
    clock = Clock()
    access = Access(file_of(k=Principal("a", rules(rate=2.0, burst=3.0))), clock=clock)
    permits = [access.permit(bearer("k"), need) for need in (INFER, Need(Permission.METADATA))]
    for each in (0, 1, 0):
        permits[each].use()
    with pytest.raises(RateExceeded) as raised:
        permits[1].use()
    assert raised.value.retry_after_s == pytest.approx(0.5)
    clock.now += 0.5
    permits[1].use()


def test_a_token_that_is_not_valid_is_verified_once_for_a_request_and_may_become_valid() -> None:
    """The fast path asks, and then the application, which tells the caller."""
    clock, verified = Clock(), []

    def verify(token: bytes) -> Principal:
        verified.append(token)
        if clock.now < 1001.0:
            raise Unauthenticated("not yet", "expired", "token:me")
        return Principal("token:me", rules())

    access = Access(clock=clock)
    access.change(AccessFile(), verify)
    for _ in range(2):
        with pytest.raises(Unauthenticated, match="not yet") as raised:
            access.permit(bearer("a.b.c"), INFER)
        assert (raised.value.denied, raised.value.caller) == ("expired", "token:me")
    assert len(verified) == 1
    with pytest.raises(Unauthenticated):
        access.permit(bearer("a.b.d"), INFER)
    access.renew()
    with pytest.raises(Unauthenticated):
        access.permit(bearer("a.b.d"), INFER)
    assert len(verified) == 3
    clock.now = 1001.0
    assert access.permit(bearer("a.b.d"), INFER).principal.name == "token:me"


def test_a_token_is_verified_once_until_it_expires_or_keys_change() -> None:
    clock, verified = Clock(), []

    def verify(token: bytes) -> Principal:
        verified.append(token)
        return Principal("token:me", rules(weight=3.0), expires_s=1060.0)

    weights: dict[str, float] = {}
    access = Access(wall_clock=clock, weigh=weights.__setitem__)
    access.change(AccessFile(), verify)
    for _ in range(3):
        assert access.permit(bearer("a.b.c"), INFER).principal.name == "token:me"
    assert verified == [b"a.b.c"]
    assert weights == {"token:me": 3.0}
    with pytest.raises(Unauthenticated):
        access.permit(bearer("no-token"), INFER)
    access.renew()
    access.permit(bearer("a.b.c"), INFER)
    assert len(verified) == 2
    clock.now = 1060.0
    with pytest.raises(Unauthenticated):
        access.permit(bearer("a.b.c"), INFER)


def test_weights_of_keys_are_told() -> None:
    weights: dict[str, float] = {}
    access = Access(weigh=weights.__setitem__)
    access.change(file_of(k=Principal("a", rules(weight=2.0)), l=Principal("b", rules())))
    assert weights == {"a": 2.0, "b": 1.0}
