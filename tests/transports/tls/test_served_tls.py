"""Files that change while they are used."""

from __future__ import annotations

import logging
from errno import EMFILE
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.transports.tls.served_tls import ServedTls, read_files
from app.transports.tls.texts import TlsError, TlsTexts
from app.transports.tls.validity import earliest_use_s, latest_use_s
from tests.transports.tls.certificates import Authority, Pair


class World:
    def __init__(self, folder: Path, pair: Pair, client_ca: Path) -> None:
        self.names = SimpleNamespace(
            tls_certificate=str(folder / "tls.crt"), tls_key=str(folder / "tls.key"), tls_client_ca=str(client_ca)
        )
        self.write(pair)
        self.tls = ServedTls.of(self.names)
        assert self.tls is not None

    def write(self, pair: Pair) -> None:
        Path(self.names.tls_certificate).write_bytes(pair.certificate.read_bytes())
        Path(self.names.tls_key).write_bytes(pair.key.read_bytes())

    def look(self, times: int = 2) -> None:
        assert self.tls is not None
        for _ in range(times):
            self.tls.look(self.tls._seen())

    @property
    def used(self) -> TlsTexts:
        assert self.tls is not None
        return self.tls.texts

    @property
    def state(self) -> tuple[dict[str, int], bool]:
        assert self.tls is not None
        return self.tls.state.reloads, self.tls.state.usable


@pytest.fixture
def world(tmp_path: Path, authority: Authority) -> World:
    return World(tmp_path, authority.issue(), authority.certificate)


def test_without_a_certificate_there_is_no_tls() -> None:
    assert ServedTls.of(SimpleNamespace(tls_certificate="", tls_key="", tls_client_ca="")) is None


def test_new_files_are_used_once_they_are_the_same_at_two_looks(world: World, authority: Authority) -> None:
    assert world.tls is not None
    before = world.tls.context(("h2",))
    world.look()
    assert world.tls.context(("h2",)) is before
    new = authority.issue("new", days=30)
    world.write(new)
    world.look(1)
    assert world.tls.context(("h2",)) is before
    world.look(1)
    assert world.tls.context(("h2",)) is not before
    assert world.used.key == new.key.read_bytes()
    assert world.state == ({"loaded": 1, "failed": 0}, True)
    assert world.tls.state.expires_s["server"] == latest_use_s(new.certificate.read_bytes())


def test_what_cannot_be_used_changes_nothing_and_is_said_once(
    world: World, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    before, new = world.used, authority.issue("newer")
    Path(world.names.tls_certificate).write_bytes(new.certificate.read_bytes())  # the key follows later
    world.look(5)
    assert world.used is before
    assert world.state == ({"loaded": 0, "failed": 1}, False)
    key, certificate = world.names.tls_key, world.names.tls_certificate
    said = f"TLS: tls_key ({key}) does not belong to the certificate of tls_certificate ({certificate})"
    assert caplog.messages == [f"{said}; new connections still use what was read before"]
    world.write(new)
    world.look()
    assert world.state == ({"loaded": 1, "failed": 1}, True)


def test_files_that_go_away_and_come_back_are_usable_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    before = world.used
    Path(world.names.tls_key).rename(f"{world.names.tls_key}.away")
    world.look()
    assert world.state == ({"loaded": 0, "failed": 1}, False)
    assert f"tls_key ({world.names.tls_key}) cannot be read: No such file or directory" in caplog.text
    Path(f"{world.names.tls_key}.away").rename(world.names.tls_key)
    world.look()
    assert world.used is before
    assert world.state == ({"loaded": 0, "failed": 1}, True)


def test_files_that_come_when_no_descriptor_is_free_are_used_later(
    world: World, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = authority.issue("later")
    world.write(new)

    def none_is_free(_: str) -> int:
        raise OSError(EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("os.memfd_create", none_is_free)
        world.look(3)
    assert world.state == ({"loaded": 0, "failed": 0}, True)
    world.look(1)
    assert world.used.key == new.key.read_bytes()


def test_whether_clients_need_a_certificate_changes_at_a_restart_only(world: World) -> None:
    assert world.tls is not None
    before = world.used
    open_to_all = TlsTexts(before.certificate, before.key)
    for _ in range(2):
        world.tls.look(open_to_all)
    assert world.used is before
    assert world.state == ({"loaded": 0, "failed": 1}, False)


def test_an_empty_file_of_authorities_lets_nobody_in_without_a_certificate(world: World, tmp_path: Path) -> None:
    """A ConfigMap that is not filled yet, or a file that is being written."""
    before, empty = world.used, tmp_path / "empty.crt"
    empty.write_bytes(b"")
    world.names.tls_client_ca = str(empty)
    world.look()
    assert world.used is before
    assert world.state == ({"loaded": 0, "failed": 1}, False)
    with pytest.raises(TlsError, match=r"tls_client_ca \(.*empty.crt\) is empty; expected certificates in PEM"):
        ServedTls.of(world.names)


@pytest.mark.parametrize("missing", ["tls_certificate", "tls_key", "tls_client_ca"])
def test_a_file_that_is_not_there_is_named(missing: str, world: World, tmp_path: Path) -> None:
    gone = str(tmp_path / "none")
    setattr(world.names, missing, gone)
    with pytest.raises(TlsError) as error:
        read_files(world.names)
    assert str(error.value) == f"{missing} ({gone}) cannot be read: No such file or directory"


def test_what_ended_and_what_ends_soon_is_warned_of(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    for days, said in ((-1, "ended at"), (3, "ends at"), (90, "")):
        caplog.clear()
        World(tmp_path, authority.issue("soon", days), authority.certificate)
        assert (said in caplog.text) if said else not caplog.records


def test_what_is_not_valid_yet_is_warned_of(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pair = authority.issue("early")
    began_s = earliest_use_s(pair.certificate.read_bytes())
    for now_s, said in ((began_s - 1, "begins at"), (began_s, "")):
        caplog.clear()
        with monkeypatch.context() as patch:
            patch.setattr("app.transports.tls.served_tls.time.time", lambda now_s=now_s: now_s)
            World(tmp_path, pair, authority.certificate)
        messages = [each.getMessage() for each in caplog.records]
        assert (len(messages) == 1 and said in messages[0]) if said else not messages


def test_handshakes_that_fail_are_told_and_some_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert world.tls is not None
    caplog.set_level(logging.INFO)
    told: list[object] = []
    world.tls.listener = told.append
    for _ in range(100):
        world.tls.handshake_failed("10.0.0.3", "unsupported protocol")
    assert len(told) == 100
    assert caplog.messages == [
        "TLS: handshakes that failed since the last such line: 1; now of 10.0.0.3: unsupported protocol"
    ]
