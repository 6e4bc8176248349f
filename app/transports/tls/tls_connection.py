"""TLS on a connection: to the socket's transport it is the protocol, to the connection above it the transport.

The event loops have a TLS transport, too. It reports a connection only when the handshake has ended, so a client could
open as many as there are descriptors. It drops the alert that tells a client why a handshake failed. And after a burst
of bytes it kept 650 KB for each connection, where this keeps 105 KB. A request costs as much CPU with either.

    WAITING -> SHAKING -> OPEN -> ENDING     first bytes; handshake; `close`, `write_eof`, or the client ends
    any -> ENDING                            `abort`, a fault, a handshake that takes too long

Rules:

- A connection counts from when it is accepted (`Handshakes.begin`) until its handshake ends; then the connection above
  it counts. Before its first bytes no object of OpenSSL is made.
- A step of a handshake takes 0.5 ms: it is done when it is the client's turn (fairness/turns.py), and meanwhile nothing
  more is read of it.
- Received bytes are decrypted and handed on at once, so none wait here. Reading is paused and writing is limited at the
  socket's transport, whose buffer holds encrypted bytes.
- The client's side ends with its bytes, whether it says so in TLS (close_notify) or not: where requests end is decided
  above. Our side ends by close_notify (RFC 8446, section 6.1); the client's is not waited for.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from time import monotonic
from typing import Any, Protocol, cast

from app.transports.fairness.fair_queue import Share
from app.transports.fairness.turns import Turns
from app.transports.tls.texts import reason_of

logger = logging.getLogger(__name__)

#: The first byte of a handshake (RFC 8446, section 5.1: a record of the type handshake).
_RECORD = 22

#: The most of a record that is not encrypted (RFC 8446, section 5.1).
_RECORD_BYTES = 2**14

#: OpenSSL keeps as much room as was ever used: so much is decrypted or encrypted at a time. Chosen: four records.
_MOST_BYTES = 2**16

#: Chosen: no timer is longer.
_MOST_HANDSHAKE_S = 600.0

_TEXT = b"This port speaks TLS: use https, or gRPC with TLS\n"
_IN_THE_CLEAR = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_TEXT), _TEXT)
)

#: The protocol above, once that connection is gone.
_NOBODY = asyncio.Protocol()


class TlsConnectionState(Enum):
    """The states of a connection of TLS."""

    WAITING = "waiting for the client"
    SHAKING = "in the handshake"
    OPEN = "open"
    ENDING = "ending"


class Handshakes(Protocol):
    """The handshakes of a port: their context, and their place among the port's connections.

    Attributes:
        timeout_s: seconds that a handshake may take, from when the connection was accepted.
    """

    timeout_s: float

    def context(self, connection: TlsConnection) -> ssl.SSLContext:
        """The context of this connection's handshake."""

    def begin(self, connection: TlsConnection) -> bool:
        """Counts a connection; False if there is no room, and it ends."""

    def end(self, connection: TlsConnection) -> None:
        """Counts a connection no longer: its handshake has ended, well or not. May come twice."""

    def failed(self, connection: TlsConnection, why: str) -> None:
        """The client did not end the handshake well."""


class TlsConnection(asyncio.Protocol, asyncio.Transport):
    """TLS between the socket's transport and the connection above.

    Args:
        make: makes the connection above, once the handshake has ended.

    Attributes:
        address: the client's; empty for a Unix socket.
        waits_since_s: monotonic second at which it was accepted.
    """

    def __init__(self, make: Callable[[], asyncio.Protocol], handshakes: Handshakes) -> None:
        asyncio.Transport.__init__(self)
        self._make = make
        self._handshakes = handshakes
        self._plain: asyncio.Transport
        self._above: Any = _NOBODY
        self._state = TlsConnectionState.WAITING
        self.address = ""
        self.waits_since_s = monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._turns, self._share = Turns.of_loop(), Share("")
        self._client_ended = False  # and the connection above was told
        self._writes_on = self._pauses = False  # there is more to write; the socket's transport has enough

        # OpenSSL's: what came, what goes, and what is between.
        self._incoming = self._outgoing = _NO_BYTES
        self._tls: ssl.SSLObject

    # --- the socket's transport calls these ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._plain = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = self._share.peer = str(peer[0]) if isinstance(peer, tuple) else ""
        if not self._handshakes.begin(self):
            self._plain.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(
            min(self._handshakes.timeout_s, _MOST_HANDSHAKE_S), self._too_late
        )

    def data_received(self, data: bytes) -> None:
        if len(data) > _MOST_BYTES:
            for at in range(0, len(data), _MOST_BYTES):
                self.data_received(data[at : at + _MOST_BYTES])
        elif self._state is _OPEN:
            if not self._client_ended:  # after the client's close_notify OpenSSL would keep bytes, and never read them
                self._incoming.write(data)
                self._read()
        elif self._state is TlsConnectionState.SHAKING:
            self._incoming.write(data)
            self._shake_in_turn()
        elif self._state is TlsConnectionState.WAITING:
            self._begin(data)

    def eof_received(self) -> bool:
        """True keeps our side open, as the connection above wants it."""
        if self._state is TlsConnectionState.OPEN and self._tell_end():
            return True
        self.close()
        return False

    def _tell_end(self) -> bool:
        """The client sends no more. Should our side stay open?"""
        if self._client_ended:
            return True
        self._client_ended = True
        return bool(self._above.eof_received())

    def connection_lost(self, exc: Exception | None) -> None:
        if self._state in _IN_HANDSHAKE:
            if self._state is TlsConnectionState.SHAKING:
                self._handshakes.failed(self, "the client left")
            self._end_handshake()
        self._state = TlsConnectionState.ENDING
        self._turns.forget(self._share)
        above, self._above = self._above, _NOBODY  # each names the other
        above.connection_lost(exc)

    def pause_writing(self) -> None:
        """Deferred while `_write_long` runs: the connection above must see the final buffer size."""
        self._pauses = self._writes_on
        if not self._writes_on:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        self._pauses = False
        self._above.resume_writing()

    # --- the handshake ---

    @property
    def in_handshake(self) -> bool:
        return self._state in _IN_HANDSHAKE and not self._plain.is_closing()

    def give_way(self) -> None:
        """Ends it within its handshake."""
        if self.in_handshake:
            self.abort()

    def _begin(self, data: bytes) -> None:
        if data[0] != _RECORD:
            if data[:1].isalpha():  # a client that speaks HTTP is told to speak TLS
                self._plain.write(_IN_THE_CLEAR)
            self._fail("it sent no TLS")
            return
        self._state = TlsConnectionState.SHAKING
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = self._handshakes.context(self)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._incoming.write(data)
        self._shake_in_turn()

    def _shake_in_turn(self) -> None:
        self._turns.run(self._share, self._shake)
        if self._turns.waits(self._share):
            self._plain.pause_reading()

    def _shake(self) -> None:
        if not self.in_handshake:  # it took too long, or gave way
            return
        self._plain.resume_reading()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()  # the alert, by which the client learns why
            self._fail(reason_of(error))
            return
        self._flush()
        self._state = TlsConnectionState.OPEN
        self._end_handshake()
        self._above = self._make()
        self._above.connection_made(self)
        if self._incoming.pending:
            self._read()

    def _too_late(self) -> None:
        self._fail("it took too long")
        self.abort()

    def _fail(self, why: str) -> None:
        self._state = TlsConnectionState.ENDING
        self._handshakes.failed(self, why)
        self._end_handshake()
        self._plain.close()

    def _end_handshake(self) -> None:
        self._handshakes.end(self)
        if self._timer is not None:
            self._timer.cancel()

    # --- bytes ---

    def _read(self) -> None:
        """Decrypts all whole records, and hands their content on as one. A read returns a record at most."""
        incoming, tls = self._incoming, self._tls
        pieces: list[bytes] = []
        ended, fault = False, ""
        try:
            # Each read takes a whole record; at the end OpenSSL keeps at most the beginning of one.
            while incoming.pending:
                piece = tls.read(_RECORD_BYTES)
                if not piece:  # the client has taken its leave
                    ended = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass  # the last record is not whole
        except ssl.SSLError as error:
            fault = reason_of(error)
        if self._outgoing.pending:  # an alert, or what TLS itself has to answer
            self._flush()
        if pieces:
            self._above.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if fault:
            logger.debug("A connection of TLS ends: %s", fault)
            self.abort()
        elif ended and self._state is TlsConnectionState.OPEN and not self._tell_end():
            self.close()

    def write(self, data: Any) -> None:
        """As asyncio.Transport.write."""
        if self._state is not _OPEN:
            return
        if len(data) > _MOST_BYTES:
            self._write_long([data])
            return
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            self._fault_in_writing(error)
            return
        self._plain.write(self._outgoing.read())

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Joins short pieces, since each write makes a record."""
        pieces = list(list_of_data)
        if sum(map(len, pieces)) <= _MOST_BYTES:
            self.write(b"".join(pieces))
        elif self._state is TlsConnectionState.OPEN:
            self._write_long(pieces)

    def _write_long(self, pieces: Iterable[Any]) -> None:
        """Sends each part while the next is encrypted. `pause_writing` above is called after the last part."""
        self._writes_on = True
        try:
            for each in pieces:
                view = memoryview(each).cast("B")
                for at in range(0, len(view), _MOST_BYTES):
                    self._tls.write(view[at : at + _MOST_BYTES])
                    self._plain.write(self._outgoing.read())
        except ssl.SSLError as error:
            self._fault_in_writing(error)
        finally:
            self._writes_on = False
        if self._pauses:
            self.pause_writing()

    def _fault_in_writing(self, error: ssl.SSLError) -> None:
        """The client has ended it in the meantime."""
        logger.debug("A connection of TLS ends: %s", reason_of(error))
        self.abort()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._plain.write(self._outgoing.read())

    # --- ends ---

    def write_eof(self) -> None:
        """Our side ends; bytes that still come are dropped at the socket (lingering.py)."""
        self._take_leave()
        if not self._plain.is_closing():
            self._plain.write_eof()

    def close(self) -> None:
        """Closes the connection after the bytes that were written."""
        self._take_leave()
        self._plain.close()

    def _take_leave(self) -> None:
        """Sends close_notify; that of the client is not waited for."""
        if self._state is TlsConnectionState.OPEN:
            self._state = TlsConnectionState.ENDING
            with suppress(ssl.SSLError):  # the client has not said the same
                self._tls.unwrap()
            if not self._plain.is_closing():
                self._flush()

    def abort(self) -> None:
        self._plain.abort()

    def is_closing(self) -> bool:
        return self._plain.is_closing()

    # --- what the socket's transport knows ---

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._above = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._above)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`ssl_object` beside those of the socket."""
        return self._tls if name == "ssl_object" else self._plain.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._plain.pause_reading()

    def resume_reading(self) -> None:
        self._plain.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._plain.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._plain.get_write_buffer_size()

    def __repr__(self) -> str:
        return f"<TlsConnection {self.address}, {self._state.value}>"


_OPEN = TlsConnectionState.OPEN
_IN_HANDSHAKE = frozenset({TlsConnectionState.WAITING, TlsConnectionState.SHAKING})

#: The input of a connection whose client has sent nothing yet.
_NO_BYTES = ssl.MemoryBIO()
