"""Certificates for tests, made by the openssl command: an authority, and what it signs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Pair(NamedTuple):
    """Files of a certificate and of its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates in `folder`. All keys are of P-256, which takes 1 ms."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate, self._key = folder / f"{name}.crt", folder / f"{name}.key"
        self._openssl(
            f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN={name} "
            f"-keyout {name}.key -out {name}.crt"
        )

    def issue(self, name: str = "localhost", days: int = 90, kind: str = "EC -pkeyopt ec_paramgen_curve:P-256") -> Pair:
        """Of a server or a client of this name, and of 127.0.0.1. It ended if `days` is -1."""
        pair = Pair(self._folder / f"{name}{days}.crt", self._folder / f"{name}{days}.key")
        (self._folder / "names").write_text(f"subjectAltName=DNS:{name},IP:127.0.0.1\n")
        self._openssl(f"genpkey -algorithm {kind} -out {pair.key.name}")
        self._openssl(f"req -new -key {pair.key.name} -subj /CN={name} -out request")
        self._openssl(
            f"x509 -req -in request -CA {self.certificate.name} -CAkey {self._key.name} -CAcreateserial -days {days} "
            f"-extfile names -out {pair.certificate.name}"
        )
        return pair

    def _openssl(self, command: str) -> None:
        subprocess.run(["openssl", *command.split()], cwd=self._folder, check=True, capture_output=True)
