"""Issuers for tests: keys, tokens that they sign, and a server of their key sets."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.support.waiting import HANG_S

ISSUER, AUDIENCE = "https://login.example.org/", "ferry"

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def public(key: Any, kid: str | None, **more: Any) -> dict[str, Any]:
    algorithm: Any = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), **({"kid": kid} if kid else {}), **more}


def key_set(*keys: Mapping[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def claims(**more: Any) -> dict[str, Any]:
    found = {"iss": ISSUER, "aud": AUDIENCE, "sub": "me", "exp": time.time() + 3600, "groups": ["ml"], **more}
    return {name: value for name, value in found.items() if value is not None}


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "k1", **more: Any) -> bytes:
    return jwt.encode(claims(**more), key, algorithm, {"kid": kid} if kid else {}).encode()


class JwksServer:
    """Serves what `content` is, while `answers` is set; counts who asks."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()

    content: bytes = b""
    status = 200
    asked = 0
    port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/keys"


@contextmanager
def jwks_server() -> Iterator[JwksServer]:
    served = JwksServer()

    class Handler(BaseHTTPRequestHandler):
        served_: ClassVar[JwksServer] = served

        def do_GET(self) -> None:
            served.asked += 1
            served.answers.wait(HANG_S)
            self.send_response(served.status)
            if served.status == 302:
                self.send_header("location", f"http://localhost:{served.port}/elsewhere")
            self.end_headers()
            self.wfile.write(served.content)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        served.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def dripping_server(begins: bytes) -> Iterator[str]:
    """Answers with this, and then byte by byte for ever. Its URL."""
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(begins)
            while not over.wait(0.005):
                connection.sendall(b"1")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/keys"
        finally:
            over.set()
            thread.join()
