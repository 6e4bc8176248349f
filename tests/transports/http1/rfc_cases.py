"""Requests as RFC 9112 and RFC 9110 judge them, each with the section that does: data, without a server.

A case is one request, as bytes in which PATH, BODY, SIZE, HEXSIZE and CHUNKS stand for a path, its body, the length of
that, and the body in two chunks. A whole valid request follows it on the same connection. `statuses` are those of all
replies: two if the first request ends where the RFC says that it ends, and one if it has to be refused: then nothing
behind it may be read as a request.
"""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    source: str
    name: str
    request: bytes
    statuses: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.source}: {self.name}"

    def sent(self, path: str, body: bytes) -> bytes:
        """The request and a valid one behind it."""
        return filled(self.request + VALID, path, body)


def filled(request: bytes, path: str, body: bytes) -> bytes:
    chunks = b"%X;a\r\n%b\r\n%x\r\n%b\r\n" % (7, body[:7], len(body) - 7, body[7:])
    size = len(body)
    values = {b"PATH": path.encode(), b"HEXSIZE": b"%x" % size, b"SIZE": b"%d" % size, b"CHUNKS": chunks, b"BODY": body}
    for name, value in values.items():
        request = request.replace(name, value)
    return request


_HEAD = b"POST PATH HTTP/1.1\r\nHost: here\r\n"
VALID = _HEAD + b"Content-Length: SIZE\r\n\r\nBODY"

_TWO, _CLOSED, _BAD = (200, 200), (200,), (400,)


def _line(line: bytes) -> bytes:
    """A request with another first line."""
    return line + b"\r\nHost: here\r\nContent-Length: SIZE\r\n\r\nBODY"


def _with(*fields: bytes) -> bytes:
    """A request with these lines in its head."""
    return _HEAD + b"".join(field + b"\r\n" for field in fields) + b"Content-Length: SIZE\r\n\r\nBODY"


def _length(*fields: bytes) -> bytes:
    """A request with these lines instead of its Content-Length."""
    return _HEAD + b"".join(field + b"\r\n" for field in fields) + b"\r\nBODY"


def _chunked(body: bytes) -> bytes:
    return _HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body


_CODING = b"Transfer-Encoding: "
_ASKING = b"Upgrade: h2c\r\nConnection: Upgrade\r\n"
_CHUNKED = _chunked(b"CHUNKS0\r\n\r\n")
_LONG = b"x" * 9000
_UPGRADE = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk")

CASES = (
    # --- the request line ---
    Case("RFC 9112, 2.2", "empty lines before the request", b"\r\n\r\n" + VALID, _TWO),
    Case("RFC 9112, 2.2", "a line feed alone ends the request line", VALID.replace(b"1.1\r\n", b"1.1\n", 1), _BAD),
    Case("RFC 9112, 2.2", "line feeds alone end all lines", VALID.replace(b"\r\n", b"\n"), _BAD),
    Case("RFC 9112, 2.2", "a space before the first field", _line(b"POST PATH HTTP/1.1\r\n X: y"), _BAD),
    Case("RFC 9112, 3", "two spaces", _line(b"POST  PATH HTTP/1.1"), _BAD),
    Case("RFC 9112, 3", "a tab", _line(b"POST\tPATH HTTP/1.1"), _BAD),
    Case("RFC 9112, 3", "a space at the end", _line(b"POST PATH HTTP/1.1 "), _BAD),
    Case("RFC 9112, 3", "a space in the target", _line(b"POST PATH x HTTP/1.1"), _BAD),
    Case("RFC 9112, 2.3", "no version", _line(b"POST PATH"), (505,)),
    Case("RFC 9112, 2.3", "a version in lower case", _line(b"POST PATH http/1.1"), _BAD),
    Case("RFC 9110, 15.6.6", "version 2.0", _line(b"POST PATH HTTP/2.0"), (505,)),
    Case("RFC 9110, 15.6.6", "version 0.9", _line(b"POST PATH HTTP/0.9"), (505,)),
    Case("RFC 9110, 9.1", "a method that is not known", _line(b"FETCH PATH HTTP/1.1"), (501,)),
    Case("RFC 9110, 9.1", "a method in lower case", _line(b"post PATH HTTP/1.1"), _BAD),
    Case("RFC 9110, 9.3.6", "CONNECT", b"CONNECT here:80 HTTP/1.1\r\nHost: here:80\r\n\r\n", (501,)),
    Case("RFC 9112, 3.2.2", "the absolute form", _line(b"POST http://herePATH HTTP/1.1"), _TWO),
    Case("RFC 3986, 3.2.2", "a host with an underscore", _line(b"POST http://he_rePATH HTTP/1.1"), _TWO),
    Case("RFC 3986, 3.2.3", "an empty port in the target", _line(b"POST http://here:PATH HTTP/1.1"), _TWO),
    Case("RFC 3986, 3.2.2", "an address that does not end", _line(b"POST http://[::1PATH HTTP/1.1"), _BAD),
    Case("RFC 3986, 3.2.3", "a port of letters", _line(b"POST http://here:aPATH HTTP/1.1"), _BAD),
    Case("RFC 9110, 4.2.1", "an absolute form without a host", _line(b"POST http://PATH HTTP/1.1"), _BAD),
    Case("RFC 9112, 3.2", "no Host", b"POST PATH HTTP/1.1\r\nContent-Length: SIZE\r\n\r\nBODY", _BAD),
    Case("RFC 9112, 3.2", "two Hosts", _with(b"Host: there"), _BAD),
    Case("RFC 9112, 3.2", "a Host that is none", VALID.replace(b": here", b": he re/", 1), _BAD),
    Case("RFC 9112, 3.2", "a port that is no number", VALID.replace(b": here", b": here:x", 1), _BAD),
    Case("RFC 9112, 3.2", "an IPv6 address without brackets", VALID.replace(b": here", b": ::1", 1), _BAD),
    Case("RFC 3986, 3.2.2", "an IPv6 address and a port", VALID.replace(b": here", b": [::1]:8501", 1), _TWO),
    Case("RFC 3986, 3.2.3", "an empty port", VALID.replace(b": here", b": here:", 1), _TWO),
    Case("RFC 9112, 3.2", "an empty Host", VALID.replace(b": here", b":", 1), _TWO),
    Case("RFC 9112, 3", "a request line of 9,000 bytes", _line(b"POST PATH?" + b"x" * 9000 + b" HTTP/1.1"), (414,)),
    # --- fields ---
    Case("RFC 9112, 5.1", "a space before the colon", _with(b"X : y"), _BAD),
    Case("RFC 9112, 5.1", "a space before the colon of the length", _length(b"Content-Length : SIZE"), _BAD),
    Case("RFC 9112, 5.2", "a folded line", _with(b"X: y", b" z"), _BAD),
    Case("RFC 9112, 5.2", "a line folded by a tab", _with(b"X: y", b"\tTransfer-Encoding: chunked"), _BAD),
    Case("RFC 9112, 2.2", "a carriage return alone", _with(b"X: y\rContent-Length: 0"), _BAD),
    Case("RFC 9112, 2.2", "a line feed alone", _with(b"X: y\nContent-Length: 0"), _BAD),
    Case("RFC 9110, 5.1", "no name", _with(b": y"), _BAD),
    Case("RFC 9110, 5.1", "no colon", _with(b"X"), _BAD),
    Case("RFC 9110, 5.1", "a name that is no token", _with(b"X(y): z"), _BAD),
    Case("RFC 9110, 5.5", "a value with NUL", _with(b"X: y\0z"), _BAD),
    Case("RFC 9110, 5.5", "a value with opaque bytes", _with(b"X: \xff\xc3"), _TWO),
    Case("RFC 9110, 5.5", "a blank behind the host", VALID.replace(b": here", b":here \t", 1), _TWO),
    Case("RFC 9110, 5.5", "a blank behind the coding", _CHUNKED.replace(b"chunked", b"chunked "), _TWO),
    Case("RFC 9110, 5.5", "blanks around what the server reads", _with(b"X-Request-Priority:  1 \t"), _TWO),
    Case("RFC 9110, 5.5", "an empty value", _with(b"X:"), _TWO),
    Case("RFC 9110, 5.4", "200 fields", _with(*[b"X-%d: y" % number for number in range(200)]), (431,)),
    Case("RFC 6585, 5", "a field of 40,000 bytes", _with(b"X: " + b"y" * 40_000), (431,)),
    # --- where the body ends ---
    Case("RFC 9112, 6.3", "no length: no body", _HEAD + b"\r\n", (400, 200)),
    Case("RFC 9112, 6.3", "the same length twice", _with(b"Content-Length: SIZE"), _BAD),
    Case("RFC 9112, 6.3", "two lengths", _with(b"Content-Length: 0"), _BAD),
    Case("RFC 9112, 6.3", "a list of lengths", _length(b"Content-Length: SIZE, SIZE"), _BAD),
    Case("RFC 9112, 6.3", "a length with a sign", _length(b"Content-Length: +SIZE"), _BAD),
    Case("RFC 9112, 6.3", "a negative length", _length(b"Content-Length: -1"), _BAD),
    Case("RFC 9112, 6.3", "an empty length", _length(b"Content-Length: "), _BAD),
    Case("RFC 9112, 6.3", "two numbers", _length(b"Content-Length: 2 7"), _BAD),
    Case("RFC 9112, 6.3", "a hexadecimal length", _length(b"Content-Length: 0x1b"), _BAD),
    Case("RFC 9112, 6.3", "a length of 24 digits", _length(b"Content-Length: 100000000000000000000027"), _BAD),
    Case("RFC 9112, 6.3", "chunks and a length", _with(b"Transfer-Encoding: chunked"), _BAD),
    Case("RFC 9112, 6.3", "a length and chunks", _length(b"Content-Length: 5", b"Transfer-Encoding: chunked"), _BAD),
    Case("RFC 9112, 6.3", "a last coding that is not chunked", _length(b"Transfer-Encoding: chunked, gzip"), _BAD),
    Case("RFC 9112, 6.3", "a coding that only looks like chunked", _length(b"Transfer-Encoding: xchunked"), _BAD),
    Case("RFC 9112, 6.3", "chunked behind a vertical tab", _length(b"Transfer-Encoding:\x0bchunked"), _BAD),
    Case("RFC 9112, 6.3", "chunked in two fields", _length(*[b"Transfer-Encoding: chunked"] * 2), _BAD),
    Case("RFC 9112, 6.1", "identity, which is no coding", _length(_CODING + b"identity", _CODING + b"chunked"), (501,)),
    Case("RFC 9112, 6.1", "a coding that is not known", _length(b"Transfer-Encoding: gzip, chunked"), (501,)),
    Case("RFC 9112, 6.1", "chunks in HTTP/1.0", _chunked(b"CHUNKS0\r\n\r\n").replace(b"/1.1", b"/1.0"), _BAD),
    # --- chunks ---
    Case("RFC 9112, 7.1", "chunks", _chunked(b"CHUNKS0\r\n\r\n"), _TWO),
    Case("RFC 9112, 7.1", "zeros before the size", _chunked(b"000HEXSIZE\r\nBODY\r\n000\r\n\r\n"), _TWO),
    Case("RFC 9112, 7.1", "a coding in upper case", _chunked(b"CHUNKS0\r\n\r\n").replace(b"chunked", b"CHUNKED"), _TWO),
    Case("RFC 9112, 7.1.1", "extensions", _chunked(b'HEXSIZE ; a=b;c="d e"\r\nBODY\r\n0;x\r\n\r\n'), _TWO),
    Case("RFC 9112, 7.1.1", "an extension with a line feed", _chunked(b"HEXSIZE;\nBODY\r\n0\r\n\r\n"), _BAD),
    Case("RFC 9112, 7.1.1", "an extension with a carriage return", _chunked(b"HEXSIZE;\rx\r\nBODY\r\n0\r\n\r\n"), _BAD),
    Case("RFC 9112, 7.1.1", "a long extension", _chunked(b"HEXSIZE;" + _LONG + b"\r\nBODY\r\n0\r\n\r\n"), _BAD),
    Case("RFC 9112, 7.1", "a size with 0x", _chunked(b"0xHEXSIZE\r\nBODY\r\n0\r\n\r\n"), _BAD),
    Case("RFC 9112, 7.1", "a size with a sign", _chunked(b"+HEXSIZE\r\nBODY\r\n0\r\n\r\n"), _BAD),
    Case("RFC 9112, 7.1", "a size with an underscore", _chunked(b"0_HEXSIZE\r\nBODY\r\n0\r\n\r\n"), _BAD),
    Case("RFC 9112, 7.1", "a space behind the size", _chunked(b"HEXSIZE \r\nBODY\r\n0\r\n\r\n"), _BAD),
    Case("RFC 9112, 7.1", "a space before the size", _chunked(b" HEXSIZE\r\nBODY\r\n0\r\n\r\n"), _BAD),
    Case("RFC 9112, 7.1", "no size", _chunked(b"\r\nBODY\r\n0\r\n\r\n"), _BAD),
    Case("RFC 9112, 7.1", "a size beyond 64 bits", _chunked(b"1000000000000001b\r\nBODY\r\n0\r\n\r\n"), _BAD),
    Case("RFC 9112, 7.1", "a line feed behind the size", _chunked(b"HEXSIZE\nBODY\r\n0\r\n\r\n"), _BAD),
    Case("RFC 9112, 7.1", "data longer than its size", _chunked(b"HEXSIZE\r\nBODYx\r\n0\r\n\r\n"), _BAD),
    Case("RFC 9112, 7.1", "no line end behind the data", _chunked(b"HEXSIZE\r\nBODY0\r\n\r\n"), _BAD),
    Case("RFC 9112, 7.1", "a line feed behind the data", _chunked(b"HEXSIZE\r\nBODY\n0\r\n\r\n"), _BAD),
    Case("RFC 9112, 7.1.2", "trailers", _chunked(b"CHUNKS0\r\nX: y\r\nContent-Length: 3\r\n\r\n"), _TWO),
    Case("RFC 9112, 7.1.2", "a trailer without a colon", _chunked(b"CHUNKS0\r\nX\r\n\r\n"), _BAD),
    Case("RFC 9112, 7.1.2", "a folded trailer", _chunked(b"CHUNKS0\r\nX: y\r\n z\r\n\r\n"), _BAD),
    Case("RFC 9112, 7.1.2", "long trailers", _chunked(b"CHUNKS0\r\n" + b"X: yyyyy\r\n" * 1000 + b"\r\n"), _BAD),
    # --- other protocols, and other expectations ---
    Case("RFC 9110, 7.8", "Upgrade is ignored", _with(*_UPGRADE), _TWO),
    Case("RFC 9110, 7.8", "so it is without Connection", _with(b"Upgrade: h2c"), _TWO),
    Case("RFC 9110, 7.8", "and for WebSocket", _with(b"uPgRaDe: websocket", b"Connection: upgrade"), _TWO),
    Case("RFC 9110, 7.8", "and with chunks", _chunked(b"CHUNKS0\r\n\r\n").replace(b"Host", _ASKING + b"Host", 1), _TWO),
    Case("RFC 9110, 7.8", "and with compression", _with(b"Content-Encoding: identity", *_UPGRADE), _TWO),
    Case("RFC 9110, 10.1.1", "Expect", _with(b"Expect: 100-continue"), _TWO),
    # --- whether the connection stays ---
    Case("RFC 9112, 9.3", "close", _with(b"Connection: close"), _CLOSED),
    Case("RFC 9112, 9.3", "close among others", _with(b"Connection: keep-alive, Close"), _CLOSED),
    Case("RFC 9112, 9.3", "close in its own field", _with(b"Connection: keep-alive", b"Connection: close"), _CLOSED),
    Case("RFC 9112, 9.3", "HTTP/1.0", VALID.replace(b"/1.1", b"/1.0"), _CLOSED),
    Case("RFC 9112, 9.3", "HTTP/1.0 with keep-alive", _with(b"Connection: Keep-Alive").replace(b"/1.1", b"/1.0"), _TWO),
    Case("RFC 9112, 3.2", "HTTP/1.0 without a Host", VALID.replace(b"1.1\r\nHost: here", b"1.0"), _CLOSED),
)  # fmt: skip
