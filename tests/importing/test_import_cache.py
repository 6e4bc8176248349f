"""The cache of imports: what is found again, what is let go, and what is kept while a server uses it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from app.importing import import_cache
from app.importing.import_cache import ImportCache, import_key, link_key


class Makes:
    """Makes a version of some bytes, and counts how often."""

    def __init__(self, size: int = 1) -> None:
        self.times = 0
        self._size = size

    def __call__(self, version: Path) -> None:
        self.times += 1
        version.mkdir(parents=True)
        (version / "saved_model.pb").write_bytes(bytes(self._size))


@pytest.fixture
def cache(tmp_path: Path) -> ImportCache:
    return ImportCache(tmp_path / "cache")


def _keys(tmp_path: Path) -> set[str]:
    return {each.name for each in (tmp_path / "cache").iterdir()}


def test_an_entry_is_made_once_and_belongs_to_its_user_alone(cache: ImportCache, tmp_path: Path) -> None:
    make = Makes()
    for _ in range(2):
        with cache.models_folder("key", "mine/1", make) as folder:
            assert folder == tmp_path / "cache" / "key"
            assert (folder / "mine" / "1" / "saved_model.pb").read_bytes() == bytes(1)
            assert {path.stat().st_mode & 0o777 for path in (folder, folder.parent)} == {0o700}
    assert make.times == 1


def test_a_failure_leaves_no_model_and_is_tried_again(cache: ImportCache) -> None:
    def fails(version: Path) -> None:
        raise ValueError("no model")

    with pytest.raises(ValueError, match="no model"), cache.models_folder("key", "mine/1", fails):
        pass
    make = Makes()
    with cache.models_folder("key", "mine/1", make):
        assert make.times == 1


def test_the_key_changes_with_each_file_of_the_source(tmp_path: Path) -> None:
    source = tmp_path / "mine"
    (source / "data").mkdir(parents=True)
    file = source / "data" / "model.keras"
    file.write_bytes(b"one")
    first = import_key(source)
    assert import_key(source) == first
    file.write_bytes(b"two")
    second = import_key(source)
    (source / "MLmodel").touch()
    third = import_key(source)
    stat = file.stat()
    file.write_bytes(b"six")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as a careless copy leaves it
    assert len({first, second, third, import_key(source)}) == 4


def test_the_key_changes_with_the_versions_that_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = import_key(tmp_path)
    monkeypatch.setattr(import_cache, "__version__", "9")
    assert import_key(tmp_path) != before


def test_the_longest_unused_entries_are_let_go_beyond_their_number(
    cache: ImportCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_cache, "MOST_ENTRIES", 2)
    for number, key in enumerate(("a", "b", "a", "c")):
        with cache.models_folder(key, "mine/1", Makes()):
            pass
        os.utime(tmp_path / "cache" / key, (number, number))
    assert _keys(tmp_path) == {"a", "c"}


def test_the_longest_unused_entries_are_let_go_beyond_their_bytes(
    cache: ImportCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_cache, "MOST_BYTES", 250)
    for number, key in enumerate("abcd"):
        with cache.models_folder(key, "mine/1", Makes(100)):
            pass
        os.utime(tmp_path / "cache" / key, (number, number))
    assert _keys(tmp_path) == {"c", "d"}


def test_an_entry_in_use_is_kept(cache: ImportCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_cache, "MOST_ENTRIES", 1)
    with cache.models_folder("used", "mine/1", Makes()):
        for key in ("a", "b"):
            with cache.models_folder(key, "mine/1", Makes()):
                assert _keys(tmp_path) == {"used", key}
    with cache.models_folder("c", "mine/1", Makes()):
        assert _keys(tmp_path) == {"c"}


def test_an_entry_of_a_process_that_was_killed_can_be_let_go(
    cache: ImportCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"""
        from pathlib import Path
        from app.importing.import_cache import ImportCache
        with ImportCache(Path({str(tmp_path / "cache")!r})).models_folder("used", "mine", Path.mkdir):
            print("used", flush=True)
            input()
    """
    user = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with user:
        assert user.stdout is not None
        assert user.stdout.readline() == b"used\n"
        monkeypatch.setattr(import_cache, "MOST_ENTRIES", 1)
        with cache.models_folder("a", "mine/1", Makes()):
            assert _keys(tmp_path) == {"used", "a"}
        user.kill()
        user.wait()
        with cache.models_folder("a", "mine/1", Makes()):
            assert _keys(tmp_path) == {"a"}


def test_a_link_is_let_go_and_what_it_leads_to_stays(
    cache: ImportCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "mine"
    (model / "1").mkdir(parents=True)
    (model / "1" / "saved_model.pb").write_bytes(bytes(1000))
    with cache.models_folder(link_key(model), "mine", lambda link: link.symlink_to(model)) as folder:
        assert (folder / "mine" / "1" / "saved_model.pb").is_file()
    monkeypatch.setattr(import_cache, "MOST_ENTRIES", 1)
    with cache.models_folder("a", "mine/1", Makes()):
        assert _keys(tmp_path) == {"a"}
    assert (model / "1" / "saved_model.pb").stat().st_size == 1000
