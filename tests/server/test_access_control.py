"""The access file and issuers' keys, as they change under a server."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from app.access.rules import Need, Permission
from app.config.settings import Settings
from app.config.sources import SettingsError, load_settings
from app.core.errors import IssuerUnknown, ServingError, Unauthenticated
from app.core.events import CredentialsLoaded, Event
from app.server.access_control import AccessControl
from tests.access.jwks import EC, ISSUER, RSA, JwksServer, jwks_server, key_set, public, token
from tests.access.test_access_file import ISSUER as ISSUER_ENTRY
from tests.access.test_access_file import KEY, SECRET
from tests.support.waiting import HANG_S, until

NEED = Need(Permission.INFER, "m")


def write(path: Path, **document: Any) -> None:
    """As Kubernetes does: another file takes its place."""
    other = path.with_suffix(".new")
    other.write_text(json.dumps(document))
    os.replace(other, path)


def control_of(path: Path) -> tuple[AccessControl, list[Event]]:
    events: list[Event] = []
    control = AccessControl(path, events.append, lambda _, __: None)
    return control, events


def denied(control: AccessControl, credential: bytes) -> str:
    """The name of the error; empty if it may."""
    try:
        control.access.permit([(b"x-api-key", credential)], NEED).use()
    except ServingError as error:
        return type(error).__name__
    return ""


async def looked(control: AccessControl) -> None:
    """Keys that are due have been fetched."""
    await control.look()
    await asyncio.gather(*control._fetching.values())


def test_the_file_is_read_anew_when_it_changes_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    write(path, keys=[KEY])
    control, events = control_of(path)
    key = SECRET.encode()
    assert not denied(control, key)

    write(path, keys=[{**KEY, "sha256": SECRET}])
    asyncio.run(control.look())
    asyncio.run(control.look())
    assert not denied(control, key)
    (told,) = events
    assert isinstance(told, CredentialsLoaded)
    assert (told.source, told.result) == ("file", "failed")
    assert SECRET not in told.detail

    path.unlink()
    asyncio.run(control.look())
    assert not denied(control, key)
    write(path, keys=[{**KEY, "sha256": 64 * "0"}])
    asyncio.run(control.look())
    assert denied(control, key) == "Unauthenticated"
    assert [each.result for each in events if isinstance(each, CredentialsLoaded)] == ["failed", "failed", "loaded"]


def test_a_file_with_the_same_size_and_time_is_read_anew(tmp_path: Path) -> None:
    """`cp -p` leaves the time as it was; `chmod`, which makes a file readable, changes neither."""
    path = tmp_path / "access.json"
    write(path, keys=[KEY])
    control, _ = control_of(path)
    before = path.stat()
    path.write_text(json.dumps({"keys": [{**KEY, "sha256": 64 * "0"}]}))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    asyncio.run(control.look())
    assert denied(control, SECRET.encode()) == "Unauthenticated"


def test_a_slow_issuer_keeps_no_key_from_being_removed(tmp_path: Path) -> None:
    path = tmp_path / "access.json"

    async def scenario(server: JwksServer) -> None:
        issuer = {**ISSUER_ENTRY, "issuer": ISSUER, "jwks": server.url}
        issuer["groups"] = [{"value": "ml", "models": ["*"], "permissions": ["infer"]}]
        write(path, issuers=[issuer], keys=[KEY])
        control, _ = control_of(path)
        await control.look()
        await until(lambda: server.asked == 1)
        write(path, issuers=[issuer])
        for _ in range(3):
            await control.look()
        assert denied(control, SECRET.encode()) == "Unauthenticated"
        assert denied(control, token()) == "IssuerUnknown"
        server.answers.set()
        await looked(control)
        assert not denied(control, token())
        assert server.asked == 1
        await control.close()

    with jwks_server() as server:
        server.content = key_set(public(RSA, "k1"))
        server.answers.clear()
        try:
            asyncio.run(scenario(server))
        finally:
            server.answers.set()


def test_an_issuer_that_does_not_answer_keeps_no_server_from_ending(tmp_path: Path) -> None:
    path, asked, answers = tmp_path / "access.json", threading.Event(), threading.Event()
    write(path, issuers=[ISSUER_ENTRY])
    control, _ = control_of(path)
    (keys,) = control._key_sets.values()

    def fetch() -> bytes:
        """As from one that sends a byte now and then."""
        asked.set()
        answers.wait()
        return b""

    keys.fetch = fetch  # type: ignore[method-assign]  # see above

    async def scenario() -> None:
        await control.look()
        await until(asked.is_set)
        await control.close()
        async with asyncio.timeout(HANG_S):
            await asyncio.get_running_loop().shutdown_default_executor()

    try:
        asyncio.run(scenario())
    finally:
        answers.set()


def test_without_a_file_that_can_be_used_nobody_may_call(tmp_path: Path) -> None:
    control, _ = control_of(tmp_path / "nothing")
    with pytest.raises(Unauthenticated):
        control.access.permit([(b"x-api-key", b"k")], NEED)


def test_a_start_with_a_bad_file_ends_with_a_line_that_does_not_show_it(tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    write(path, keys=[{**KEY, "sha256": SECRET}])
    with pytest.raises(SettingsError, match=r"--access-file is .*keys 1, sha256: expected the SHA-256") as raised:
        load_settings({"access_file": str(path)})
    assert SECRET not in str(raised.value)


def test_a_start_with_an_audit_log_that_cannot_be_written_ends_with_a_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="a file that can be written, in a folder that exists"):
        load_settings({"audit_log": str(tmp_path / "no" / "audit")})


def test_no_setting_is_a_secret_itself() -> None:
    """They are shown in errors, passed to processes and printed: secrets are in files that settings name."""
    words = ("secret", "password", "token", "credential", "api_key", "apikey", "private")
    assert [name for name in Settings.model_fields if any(word in name for word in words)] == []


def test_keys_of_an_issuer_are_fetched_changed_and_kept_during_an_outage(tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    with jwks_server() as server:
        issuer = {**ISSUER_ENTRY, "issuer": ISSUER, "jwks": server.url, "algorithms": ["RS256", "ES256"]}
        issuer["groups"] = [{"value": "ml", "models": ["*"], "permissions": ["infer"]}]
        write(path, issuers=[issuer])
        server.content, server.status = key_set(public(RSA, "k1")), 503
        control, events = control_of(path)
        (keys,) = control._key_sets.values()

        # 1. Before there are keys, and when there are.
        asyncio.run(looked(control))
        with pytest.raises(IssuerUnknown):
            control.access.permit([(b"x-api-key", token())], NEED)
        server.status = 200
        keys._due_s = 0.0
        asyncio.run(looked(control))
        verified = token()
        assert not denied(control, verified)

        # 2. Tokens with keys that are not known cause no fetch each.
        asked = server.asked
        for _ in range(20):
            assert denied(control, token(EC, "ES256", "k2")) == "Unauthenticated"
            asyncio.run(looked(control))
        assert server.asked == asked

        # 3. Another key; the old one ends, also for tokens that were verified before.
        server.content = key_set(public(EC, "k2"))
        keys._due_s = 0.0
        asyncio.run(looked(control))
        assert denied(control, token()) == denied(control, verified) == "Unauthenticated"
        assert not denied(control, token(EC, "ES256", "k2"))

        # 4. An outage, and the file changes meanwhile.
        server.status = 500
        keys._due_s = 0.0
        asyncio.run(looked(control))
        write(path, issuers=[issuer], keys=[KEY])
        asyncio.run(looked(control))
        assert not denied(control, token(EC, "ES256", "k2"))
        results = [(each.source, each.result) for each in events if isinstance(each, CredentialsLoaded)]
        assert results == [
            ("issuer", "failed"), ("issuer", "loaded"), ("issuer", "loaded"), ("issuer", "failed"), ("file", "loaded"),
        ]  # fmt: skip
