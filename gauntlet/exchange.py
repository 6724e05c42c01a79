"""One worker's connection: a request out, its answer in, every read stamped. A state machine on a non-blocking socket.

The answer is kept as raw bytes; only its end is recognised here. Taking it apart comes later (`stream`).
"""

import errno
import os
import socket
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from gauntlet.errors import GauntletError
from gauntlet.stream import is_whole

READ_BYTES = 1 << 14
clock = time.monotonic


@dataclass(slots=True)
class Trace:
    """One request as it happened; absolute monotonic seconds. `pieces` is the answer's body as read, `times` when."""

    worker: int
    scheduled: float
    sent: float = 0.0
    connect_s: float | None = None
    ended: float = 0.0
    status: int | None = None
    chunked: bool = False
    times: list[float] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    error: dict | None = None
    anomalies: list[str] = field(default_factory=list)


class Target:
    """Where requests go: address and the head of each. Plain HTTP only: servers listen on loopback."""

    def __init__(self, base_url: str, path: str, headers: dict[str, str]):
        url = urlsplit(base_url)
        if url.scheme != "http" or not url.hostname:
            raise GauntletError(f"{base_url} cannot be measured; it takes http://host:port")
        self.address = socket.getaddrinfo(url.hostname, url.port or 80, type=socket.SOCK_STREAM)[0]
        fields = {"Host": url.netloc, **headers, "Accept": "text/event-stream", "Connection": "keep-alive"}
        self._head = f"POST {url.path}{path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in fields.items())

    def request(self, body: bytes) -> bytes:
        """The whole request, sent in one write."""
        return f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Exchange:
    """Requests of one worker, one after the other, on a connection that is kept while the server keeps it.

    `wants` says what to wait for: 'read', 'write' (connecting or sending) or None (nothing under way).
    """

    def __init__(self, worker: int, target: Target):
        self.worker, self.target = worker, target
        self.sock: socket.socket | None = None
        self.wants: str | None = None
        self._used = False  # an answer has come over this connection

    def begin(self, request: bytes, scheduled: float) -> None:
        """Send a request as far as the socket takes it now."""
        self.trace = Trace(self.worker, scheduled)
        self._again = self._used
        self._start(request)

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()
        self.sock, self._used, self.wants = None, False, None

    def fail(self, kind: str, message: str) -> None:
        """End the request with an error; its connection is not used again."""
        self.trace.error = {"kind": kind, "message": message, "status": self.trace.status}
        self.trace.ended = clock()
        if self.trace.status is None:  # a head that broke off is no answer
            self.trace.times, self.trace.pieces = [], []
        self.close()

    def write(self) -> None:
        """The socket takes more: go on connecting or sending."""
        if self._connecting is not None:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                return self._broken(OSError(code, os.strerror(code)))
            self._connected()
        else:
            self._send()

    def read(self) -> None:
        """The socket has something: keep it."""
        trace = self.trace
        try:
            piece = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            return self._broken(error)
        trace.times.append(clock())
        trace.pieces.append(piece)
        if not piece:
            self._closed()
        elif self._end is None:
            self._head_arrived()
        elif self._end(piece):
            self._complete()

    # sending

    def _start(self, request: bytes) -> None:
        self._request, self._rest = request, memoryview(request)
        self._end = None
        self._connecting: float | None = None
        if self.sock is not None:
            return self._send()
        family, kind, protocol, _, address = self.target.address
        self.sock = socket.socket(family, kind, protocol)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connecting = clock()
        code = self.sock.connect_ex(address)
        if code == 0:
            self._connected()
        elif code == errno.EINPROGRESS:
            self.wants = "write"
        else:
            self._broken(OSError(code, os.strerror(code)))

    def _connected(self) -> None:
        self.trace.connect_s, self._connecting = clock() - self._connecting, None
        self._send()

    def _send(self) -> None:
        if len(self._rest) == len(self._request):
            self.trace.sent = clock()
        try:
            self._rest = self._rest[self.sock.send(self._rest) :]
        except BlockingIOError:
            pass
        except OSError as error:
            return self._broken(error)
        self.wants = "write" if self._rest else "read"

    # receiving

    def _head_arrived(self) -> None:
        """Once the head is whole: status, how the body ends, and the part of the body that came along."""
        trace = self.trace
        head, end, body = b"".join(trace.pieces).partition(b"\r\n\r\n")
        if not end:
            return
        status, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip().lower() for name, _, value in (line.partition(":") for line in lines)}
        trace.status = int(status.split(" ")[1])
        self._keep = fields.get("connection") != "close" and not status.startswith("HTTP/1.0")
        trace.times, trace.pieces = ([trace.times[-1]], [body]) if body else ([], [])
        trace.chunked = "chunked" in fields.get("transfer-encoding", "")
        if trace.chunked:
            self._end = self._last_chunk
        elif "content-length" in fields:
            self._missing = int(fields["content-length"])
            self._end = self._counted
        else:
            self._end, self._keep = self._never, False
        if (body or fields.get("content-length") == "0") and self._end(body):
            self._complete()

    def _last_chunk(self, piece: bytes) -> bool:
        return piece.endswith(b"\n") and is_whole(self.trace.pieces)

    def _counted(self, piece: bytes) -> bool:
        self._missing -= len(piece)
        return self._missing <= 0

    def _never(self, piece: bytes) -> bool:
        return False

    def _complete(self) -> None:
        self.trace.ended = self.trace.times[-1] if self.trace.times else clock()
        self.wants = None
        if self._keep:
            self._used = True
        else:
            self.close()

    def _closed(self) -> None:
        """The server closed: the end of a body that has no other, else a failure."""
        self.trace.times.pop()
        self.trace.pieces.pop()
        if self._end == self._never:
            self._complete()
        else:
            self._broken(ConnectionResetError("the server closed the connection in the middle of the answer"))

    def _broken(self, error: OSError) -> None:
        """A kept connection that the server closed between two answers is opened anew, once; all else has failed."""
        trace = self.trace
        if self._again and trace.status is None and not trace.pieces:
            self._again = False
            trace.anomalies.append("reconnected")
            self.close()
            return self._start(self._request)
        kind = "server_gone" if isinstance(error, ConnectionRefusedError) else "connection_lost"
        self.fail(kind, error.strerror or str(error))
