import ctypes
import platform

import pytest

from app.server.memory import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="THE C LIBRARY IS NOT GLIBC: mallopt WAS NOT TRIED")
def test_glibc_takes_the_thresholds() -> None:
    assert keep_freed_memory()


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not keep_freed_memory()
