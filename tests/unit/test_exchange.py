"""HTTP as servers speak it: heads cut anywhere, bodies that end in three ways, requests of any size."""

import socket
import threading

import pytest

from gauntlet import client, loop
from gauntlet.errors import GauntletError
from gauntlet.exchange import Target

EVENT = b'data: {"choices": [{"text": "x", "finish_reason": "stop"}], "usage": {"completion_tokens": 1}}\n\n'
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(EVENT), EVENT)
COUNTED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(EVENT), EVENT)
OLD = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + EVENT


class Server:
    """Answers each request with `answer` in pieces; `stays`: the connection is kept."""

    def __init__(self, answer, piece=1 << 20, stays=True):
        self.answer, self.piece, self.stays, self.got = answer, piece, stays, []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as file:
            while head := file.readline():
                while (line := file.readline()) not in (b"\r\n", b""):
                    head += line
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.got.append(file.read(size))
                for i in range(0, len(self.answer), self.piece):
                    connection.sendall(self.answer[i : i + self.piece])
                if not self.stays:
                    return


class Dialect:
    path, headers = "/x", {"Content-Type": "application/json"}

    def __init__(self, server):
        from gauntlet.dialects import get

        self.base_url, self.read = server.base_url, get("openai").read

    def refused(self, status, message):
        return message


def ask(server, count=2, body=b"{}"):
    window = client.closed_loop(Dialect(server), [[client.Ask(body, {})] for _ in range(count)], 1)
    server.socket.close()
    return window.answers


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
@pytest.mark.parametrize(("answer", "stays"), [(CHUNKED, True), (COUNTED, True), (CHUNKED, False), (OLD, False)])
def test_every_end_of_a_body_is_found(answer, stays, piece):
    """Chunks, a length, or the end of the connection, however the bytes are cut."""
    answers = ask(Server(answer, piece, stays))
    assert [(a.reading.error, a.reading.output_text, a.trace.status) for a in answers] == [(None, "x", 200)] * 2
    assert (answers[1].trace.connect_s is None) == stays


def test_a_large_request_goes_out_whole():
    """More than a socket takes at once: 8 MB arrive as they were."""
    body = bytes(range(256)) * (1 << 15)
    server = Server(COUNTED)
    assert ask(server, 1, body)[0].reading.error is None and server.got == [body]


@pytest.mark.parametrize("cut", [10, len(CHUNKED) - 20])
def test_an_answer_that_breaks_off_has_failed(cut):
    """In its head or in its body: connection_lost, and the next request has a new connection."""
    answers = ask(Server(CHUNKED[:cut], stays=False))
    assert [a.reading.error["kind"] for a in answers] == ["connection_lost"] * 2


def test_silence_is_a_failure(monkeypatch):
    """A server that never answers ends the request, not the campaign."""
    monkeypatch.setattr(loop, "SILENCE_S", 0.05)
    (answer,) = ask(Server(b""), 1)
    assert answer.reading.error["kind"] == "timeout"


def test_only_plain_http_is_measured():
    """Encryption would be measured too; servers listen on loopback."""
    with pytest.raises(GauntletError, match="it takes http://host:port"):
        Target("https://127.0.0.1:1", "/x", {})
