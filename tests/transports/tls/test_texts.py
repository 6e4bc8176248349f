"""What of a certificate and a key can be used, what is said of the rest, and what OpenSSL then offers to clients."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from app.transports.tls.texts import TlsError, TlsTexts
from app.transports.tls.validity import NotACertificate, latest_use_s
from tests.transports.tls.certificates import Authority, Pair


def texts_of(pair: Pair, client_ca: bytes = b"") -> TlsTexts:
    return TlsTexts(pair.certificate.read_bytes(), pair.key.read_bytes(), client_ca)


@pytest.fixture(scope="module")
def texts(authority: Authority) -> TlsTexts:
    return texts_of(authority.issue(), authority.certificate.read_bytes())


def test_what_belongs_together_can_be_used(texts: TlsTexts) -> None:
    context = texts.context(["h2", "http/1.1"])
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert {each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.2"} == {
        f"ECDHE-{key}-{cipher}"
        for key in ("ECDSA", "RSA")
        for cipher in ("AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305")
    }
    assert texts.context([], verify=False).verify_mode is ssl.CERT_NONE
    assert replace(texts, client_ca=b"").context([]).verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize("kind", ["RSA -pkeyopt rsa_keygen_bits:2048", "ED25519"])
def test_keys_of_other_kinds_can_be_used(kind: str, authority: Authority) -> None:
    texts_of(authority.issue("other", kind=kind)).context([])


def test_what_is_written_between_certificates_is_left_out(
    texts: TlsTexts, authority: Authority, tmp_path: Path
) -> None:
    """As in bundles of public authorities, whose names are not all ASCII."""
    other = Authority(tmp_path).certificate.read_bytes()
    bundle = (
        b"\xef\xbb\xbf# Microsec, F\xc5\x91tan\xc3\xbas\xc3\xadtv\xc3\xa1ny\n" + texts.client_ca + b"\xff\0\r\n" + other
    )
    assert len(replace(texts, client_ca=bundle).context([]).get_ca_certs()) == 2


def test_what_is_wrong_is_said_with_the_name_of_the_setting(texts: TlsTexts, authority: Authority) -> None:
    other = texts_of(authority.issue("another"))
    short = texts_of(authority.issue("short", kind="RSA -pkeyopt rsa_keygen_bits:1024"))
    rsa = texts_of(authority.issue("rsa", kind="RSA -pkeyopt rsa_keygen_bits:2048"))
    cut = texts.certificate.replace(b"\n", b"", 3)[:200] + b"\n-----END CERTIFICATE-----\n"
    no_certificate = "has no certificate in PEM (-----BEGIN CERTIFICATE-----)"
    for wrong, said in (
        (replace(texts, key=other.key), "tls_key does not belong to the certificate of tls_certificate"),
        (replace(texts, key=rsa.key), "tls_key does not belong to the certificate of tls_certificate"),
        (replace(texts, key=b"x"), "tls_key has no private key in PEM (-----BEGIN PRIVATE KEY-----)"),
        (replace(texts, key=texts.certificate), "tls_key has no private key in PEM (-----BEGIN PRIVATE KEY-----)"),
        (replace(texts, key=b"-----BEGIN PRIVATE KEY-----\nMA==\n"), "tls_key cannot be used: OpenSSL says"),
        (replace(texts, certificate=b""), f"tls_certificate {no_certificate}"),
        (replace(texts, certificate=texts.key), f"tls_certificate {no_certificate}"),
        (replace(texts, certificate=cut), "tls_certificate has a certificate that cannot be read"),
        (short, "tls_certificate cannot be used: OpenSSL says 'ee key too small'"),
        (replace(texts, client_ca=b"\xff"), f"tls_client_ca {no_certificate}"),
        (replace(texts, client_ca=cut), "tls_client_ca has a certificate that cannot be read"),
    ):
        with pytest.raises(TlsError) as error:
            wrong.context([])
        assert str(error.value).startswith(said)


def test_an_encrypted_key_is_rejected_without_a_question(texts: TlsTexts, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(texts.key)
    command = ["openssl", "pkcs8", "-topk8", "-in", tmp_path / "key", "-passout", "pass:secret"]
    encrypted = subprocess.run(command, check=True, capture_output=True).stdout
    with pytest.raises(TlsError, match="tls_key is encrypted; expected a key without a passphrase"):
        replace(texts, key=encrypted).context([])


@pytest.mark.parametrize("days", [1, 90, 3650, 36500, -1])  # from 2050 on dates are written otherwise
def test_when_it_ends_is_what_openssl_says(days: int, authority: Authority) -> None:
    pair = authority.issue("ends", days)
    command = ["openssl", "x509", "-noout", "-enddate", "-in", pair.certificate]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip().removeprefix("notAfter=")
    seconds = datetime.strptime(f"{said}+0000", "%b %d %H:%M:%S %Y GMT%z").timestamp()
    assert latest_use_s(pair.certificate.read_bytes()) == seconds
    chain = TlsTexts(authority.certificate.read_bytes() + pair.certificate.read_bytes(), b"")
    assert chain.expiry() == {"server": min(seconds, latest_use_s(authority.certificate.read_bytes()))}


def test_what_is_no_certificate_ends_nowhere(authority: Authority) -> None:
    der = ssl.PEM_cert_to_DER_cert(authority.certificate.read_text())
    for length in range(0, 200, 7):
        with pytest.raises(NotACertificate):
            latest_use_s(ssl.DER_cert_to_PEM_cert(der[:length]).encode())
