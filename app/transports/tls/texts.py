"""A server's key and certificate, whose certificates its clients must have, and what OpenSSL makes of them."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn

from app.transports.tls.validity import NotACertificate, certificates_in, latest_use_s

#: The ciphers of TLS 1.2: forward secrecy and authenticated encryption, as HTTP/2 demands (RFC 9113, section 9.2.2;
#: RFC 9325, section 4.2). Those of TLS 1.3 are all so.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


#: What OpenSSL says of a key that is not the certificate's. Of another kind of key it has no certificate.
_OF_ANOTHER_KEY = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})

#: What OpenSSL says of a certificate that is too weak for its level of security, while it loads the pair.
_OF_CERTIFICATE = frozenset({"EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"})


class TlsError(Exception):
    """A certificate or key cannot be used. The text names the setting, the file, what is wrong and what is expected."""


@dataclass(frozen=True, slots=True)
class TlsNames:
    """The names of the three texts in errors."""

    certificate: str = "tls_certificate"
    key: str = "tls_key"
    client_ca: str = "tls_client_ca"


@dataclass(frozen=True, slots=True)
class TlsTexts:
    """Texts in PEM.

    Attributes:
        certificate: the server's certificate, then those between it and its authority.
        client_ca: authorities, one of which must have signed a client's certificate; empty: clients need none.
    """

    certificate: bytes
    key: bytes
    client_ca: bytes = b""
    names: TlsNames = TlsNames()

    def context(self, protocols: Sequence[str], *, verify: bool = True) -> ssl.SSLContext:
        """TLS 1.2 or 1.3 without compression (RFC 9113, section 9.2) or renegotiation, for these protocols of ALPN.

        Args:
            verify: ask clients for a certificate, where `client_ca` says so.

        Raises:
            TlsError: a text cannot be used, or certificate and key do not belong together.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_ciphers(_CIPHERS)
        context.set_alpn_protocols(protocols)
        self._load_pair(context)
        if self.client_ca and verify:
            context.verify_mode = ssl.CERT_REQUIRED
            _load_authorities(context, self.client_ca, self.names.client_ca)
        return context

    def expiry(self) -> dict[str, float]:
        """Unix seconds at which the first certificate ends, of `server` and of `client_ca`. Raises TlsError."""
        texts = {"server": (self.certificate, self.names.certificate)}
        if self.client_ca:
            texts["client_ca"] = (self.client_ca, self.names.client_ca)
        return {which: _latest_use_s(text, name) for which, (text, name) in texts.items()}

    def _load_pair(self, context: ssl.SSLContext) -> None:
        names = self.names

        def encrypted() -> NoReturn:
            raise TlsError(f"{names.key} is encrypted; expected a key without a passphrase")

        _latest_use_s(self.certificate, names.certificate)
        if b"PRIVATE KEY-----" not in self.key:
            raise TlsError(f"{names.key} has no private key in PEM (-----BEGIN PRIVATE KEY-----)")
        with _file_of(self.certificate) as certificate, _file_of(self.key) as key:
            try:
                context.load_cert_chain(certificate, key, encrypted)
            except ssl.SSLError as error:
                if error.reason in _OF_ANOTHER_KEY:
                    raise TlsError(f"{names.key} does not belong to the certificate of {names.certificate}") from None
                of_key = error.reason not in _OF_CERTIFICATE and _is_certificate(self.certificate)
                name = names.key if of_key else names.certificate
                raise TlsError(f"{name} cannot be used: OpenSSL says {reason_of(error)!r}") from None

    def __repr__(self) -> str:
        return f"<TlsTexts {self.names.certificate}{', clients are verified' if self.client_ca else ''}>"


@contextmanager
def _file_of(content: bytes) -> Iterator[str]:
    """The path of a file in memory with this content: OpenSSL reads keys from files, and no disk may have one."""
    with open(os.memfd_create("tls"), "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _latest_use_s(text: bytes, name: str) -> float:
    try:
        return latest_use_s(text)
    except NotACertificate as error:
        raise TlsError(f"{name} {error}") from None


def _load_authorities(context: ssl.SSLContext, text: bytes, name: str) -> None:
    _latest_use_s(text, name)
    try:
        context.load_verify_locations(cadata="\n".join(certificates_in(text)))  # without the text between certificates
    except ssl.SSLError as error:
        raise TlsError(f"{name} cannot be used: OpenSSL says {reason_of(error)!r}") from None


def _is_certificate(text: bytes) -> bool:
    """Can OpenSSL use this certificate at all?"""
    with _file_of(text) as file, suppress(ssl.SSLError):
        # `load_cert_chain` would also look for a key in the file.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_verify_locations(file)
        return True
    return False


def reason_of(error: ssl.SSLError) -> str:
    """The reason of an error, in OpenSSL's words."""
    return error.reason.replace("_", " ").lower() if error.reason else str(error)
