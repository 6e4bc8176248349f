"""Wheels that go to a machine without a network in pieces arrive whole, or are refused."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import gpu_wheels
import pytest
from gpu_wheels import (
    LOCK,
    MANIFEST,
    BadPiece,
    Manifest,
    cut,
    download_command,
    environment_there,
    install,
    join,
    keep,
    wanted,
)
from hypothesis import given
from hypothesis import strategies as st

CONTENTS = st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=5)


def write_wheels(folder: Path, contents: list[bytes]) -> dict[str, bytes]:
    folder.mkdir()
    wheels = {f"wheel_{number}-1-py3-none-any.whl": content for number, content in enumerate(contents)}
    for name, content in wheels.items():
        (folder / name).write_bytes(content)
    return wheels


@given(CONTENTS, st.integers(1, 70), st.randoms(use_true_random=False))
def test_wheels_arrive_as_they_were_whatever_the_order_of_their_pieces(
    contents: list[bytes], piece_bytes: int, random: object
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheels = write_wheels(folder / "wheels", contents)
        manifest = cut(folder / "wheels", folder / "pieces", piece_bytes)
        sizes = [piece.bytes for piece in manifest.pieces]
        assert set(sizes[:-1]) <= {piece_bytes}
        assert 0 < sizes[-1] <= piece_bytes
        names = [piece.name for piece in manifest.pieces]
        random.shuffle(names)  # type: ignore[attr-defined] - hypothesis.strategies.randoms
        for left, piece in enumerate(names, 1 - len(names)):
            missing = keep(folder / "store", folder / "pieces" / MANIFEST, [folder / "pieces" / piece])
            assert len(missing) == -left
        assert {wheel.name: wheel.read_bytes() for wheel in join(folder / "store")} == wheels
        assert [file.name for file in (folder / "store").glob("*.piece")] == []
        assert keep(folder / "store", folder / "pieces" / MANIFEST, []) == []
        assert len(join(folder / "store")) == len(wheels)


@pytest.fixture
def pieces(tmp_path: Path) -> Path:
    write_wheels(tmp_path / "wheels", [b"abcdefgh", b"ijkl"])
    cut(tmp_path / "wheels", tmp_path / "pieces", 5)
    return tmp_path / "pieces"


def test_a_damaged_piece_is_refused_and_can_be_sent_again(pieces: Path, tmp_path: Path) -> None:
    piece, store = pieces / "0001.piece", tmp_path / "store"
    right = piece.read_bytes()
    piece.write_bytes(b"fghiX")
    with pytest.raises(BadPiece, match=r"0001\.piece has 5 bytes .* expected 5"):
        keep(store, pieces / MANIFEST, [piece])
    piece.write_bytes(right)
    assert keep(store, pieces / MANIFEST, [piece]) == ["0000.piece", "0002.piece"]


def test_wheels_are_not_joined_while_a_piece_is_missing(pieces: Path, tmp_path: Path) -> None:
    keep(tmp_path / "store", pieces / MANIFEST, [pieces / "0000.piece"])
    with pytest.raises(BadPiece, match=r"2 of 3 pieces are missing: 0001\.piece, 0002\.piece"):
        join(tmp_path / "store")


def test_pieces_of_another_cut_are_not_mixed_in(pieces: Path, tmp_path: Path) -> None:
    keep(tmp_path / "store", pieces / MANIFEST, [pieces / "0000.piece"])
    cut(tmp_path / "wheels", tmp_path / "other", 6)
    with pytest.raises(BadPiece, match="pieces of another cut"):
        keep(tmp_path / "store", tmp_path / "other" / MANIFEST, [tmp_path / "other" / "0000.piece"])
    (tmp_path / "stranger").write_bytes(b"")
    with pytest.raises(BadPiece, match="stranger is not in the manifest"):
        keep(tmp_path / "store", pieces / MANIFEST, [tmp_path / "stranger"])


def test_a_file_that_is_no_manifest_is_named(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("{}")
    with pytest.raises(BadPiece, match=r"manifest\.json is no manifest"):
        Manifest.read(tmp_path / MANIFEST)


def test_nothing_is_cut_of_a_folder_without_wheels_or_into_one_that_is_in_use(pieces: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no wheels"):
        cut(pieces, tmp_path / "new", 5)
    with pytest.raises(ValueError, match="is not empty"):
        cut(tmp_path / "wheels", pieces, 5)


def test_what_was_joined_is_installed_without_an_index(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    with zipfile.ZipFile(tmp_path / "wheels" / "carried-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carried.py", "WORD = 'arrived'\n")
        wheel.writestr("carried-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: carried\nVersion: 1\n")
        wheel.writestr("carried-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("carried-1.dist-info/RECORD", "carried.py,,\n")
    manifest = cut(tmp_path / "wheels", tmp_path / "pieces", 100)
    keep(tmp_path / "store", tmp_path / "pieces" / MANIFEST, [tmp_path / "pieces" / p.name for p in manifest.pieces])
    python = install(tmp_path / "store", tmp_path / "venv")
    said = subprocess.run([python, "-c", "import carried; print(carried.WORD)"], stdout=subprocess.PIPE, check=True)
    assert said.stdout == b"arrived\n"


def test_only_what_the_other_machine_needs_is_wanted() -> None:
    lines = wanted(LOCK.read_text(), environment_there())
    numpy = [line for line in lines.splitlines() if line.startswith("numpy==")]
    assert len(numpy) == 1
    assert f"{numpy[0].split()[0]} ; python_full_version >= '3.12'" in LOCK.read_text()
    assert "colorama" not in lines  # of Windows
    assert "\nnvidia-cudnn-cu12==" in lines
    assert "\ntensorflow==" in lines
    assert lines.count("--hash=") > lines.count("==")
    few = wanted(LOCK.read_text(), environment_there(), only=["six"])
    assert few.startswith("six==")
    assert few.count("==") == 1
    assert "\nsix==" not in wanted(LOCK.read_text(), environment_there(), without=["six"])
    with pytest.raises(ValueError, match=r"gpu\.txt locks no sixx"):
        wanted(LOCK.read_text(), environment_there(), without=["sixx"])


def test_pip_is_asked_for_wheels_of_the_other_machine_with_their_hashes(tmp_path: Path) -> None:
    command = download_command(tmp_path / "requirements.txt", tmp_path)
    assert {"--require-hashes", "--no-deps", "--only-binary=:all:", "manylinux_2_17_x86_64"} <= set(command)
    assert command[command.index("--python-version") + 1] == "3.12"


def test_the_other_machine_needs_nothing_but_this_file(tmp_path: Path, pieces: Path) -> None:
    alone = tmp_path / "gpu_wheels.py"
    alone.write_bytes(Path(gpu_wheels.__file__).read_bytes())
    command = [sys.executable, "-I", "-S", str(alone), "keep", str(tmp_path / "store"), str(pieces / MANIFEST)]
    first = subprocess.run([*command, str(pieces / "0000.piece")], capture_output=True, text=True, check=True)
    assert first.stdout == "2 pieces are missing: 0001.piece 0002.piece\n"
    again = subprocess.run([*command, str(pieces / "0000.piece")], capture_output=True, text=True, check=False)
    assert (again.returncode, "No such file" in again.stderr) == (1, True)  # it is in the store
