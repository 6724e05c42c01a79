"""The scripted engine: an HTTP server that plays a script at exact times and logs when it sent what.

One thread, one heap of due sends: on a busy core it is late like any server would be, and says by how much.
"""

import contextlib
import gc
import heapq
import itertools
import json
import os
import selectors
import socket
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass, field

from gauntlet.calibrate import script as play
from gauntlet.calibrate.script import Script

clock = time.monotonic
ROUTES = {"/generate": "generate", "/completion": "completion", "/v1/completions": "completions",
          "/v1/chat/completions": "chat"}  # fmt: skip
ANSWERS_KEPT = 8192
TURN = 16  # reads or sends between two looks at the sockets
COUNTERS = ("prompt_tokens", "completion_tokens", "verify_steps", "requests", "drafted", "accepted", "cached")


@dataclass(slots=True)
class Connection:
    sock: socket.socket
    got: bytearray = field(default_factory=bytearray)
    out: bytearray = field(default_factory=bytearray)
    busy: bool = False
    closing: bool = False
    ready_at: float | None = None


class Engine:
    """Serve `script` on a port of 127.0.0.1 (0: any). `overrides` change the script of the n-th request (0…)."""

    def __init__(self, script: Script, port: int = 0, facts: dict | None = None, key: str | None = None):
        self.script, self.facts, self.key = play.check(script), facts or {}, key
        self.overrides: dict[int, Script] = {}
        self.count = 0
        self.totals = dict.fromkeys(COUNTERS, 0)
        self.log: list[dict] = []
        self._due: list = []
        self._order = itertools.count()
        self._cache: dict = {}
        self._stop = False
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._wake_r, self._wake_w = os.pipe()
        self._selector.register(self._wake_r, selectors.EVENT_READ, "wake")
        self.port = self._listener.getsockname()[1]
        self.base_url = f"http://127.0.0.1:{self.port}"

    # running

    def serve_alone(self) -> None:
        """Serve in a process of its own, without the pauses of the garbage collector."""
        gc.disable()
        self.serve()

    def start(self) -> "Engine":
        """Serve in a thread (for tests; calibration and benchmarks give it a process of its own)."""
        self._thread = threading.Thread(target=self.serve, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop = True
        os.write(self._wake_w, b"x")
        self._thread.join()

    def serve(self) -> None:
        """Until stopped: send what is due, read what came; a little of each in turn, so that a burst of one does not
        hide when the other was due."""
        waiting: deque[Connection] = deque()
        while not self._stop:
            wait = 0.0 if waiting else max(0.0, self._due[0][0] - clock()) if self._due else None
            ready = self._selector.select(wait)
            moment = clock()  # what is ready had arrived by now, however long its turn takes to come
            for key, _ in ready:
                if key.data is None:
                    self._accept()
                elif key.data == "wake":
                    os.read(self._wake_r, 1)
                elif key.data.ready_at is None:
                    key.data.ready_at = moment
                    waiting.append(key.data)
            for _ in range(min(TURN, len(waiting))):
                connection = waiting.popleft()
                moment, connection.ready_at = connection.ready_at, None
                self._read(connection, moment)
            for _ in range(TURN):
                if self._due and self._due[0][0] <= clock():
                    heapq.heappop(self._due)[2]()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Connection):
                key.data.sock.close()
        self._listener.close()
        self._selector.close()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = self._listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._selector.register(sock, selectors.EVENT_READ, Connection(sock))

    def _read(self, connection: Connection, moment: float) -> None:
        try:
            data = connection.sock.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            return self._close(connection)
        connection.got += data
        if not connection.busy:
            self._next(connection, moment)

    def _next(self, connection: Connection, arrived: float) -> None:
        head, end, rest = bytes(connection.got).partition(b"\r\n\r\n")
        if not end:
            return
        first, *headers = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (h.partition(":") for h in headers)}
        length = int(fields.get("content-length", 0))
        if len(rest) < length:
            return
        connection.got = bytearray(rest[length:])
        method, path, _ = first.split(" ", 2)
        if fields.get("expect", "").lower() == "100-continue":
            connection.sock.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.closing = fields.get("connection", "").lower() == "close"
        try:
            body = json.loads(rest[:length]) if length else {}
        except ValueError:
            return self._reply(connection, 400, {"error": {"message": "the body is not JSON", "code": 400}})
        if self.key and fields.get("authorization") != f"Bearer {self.key}":
            return self._reply(connection, 401, {"error": {"message": "Unauthorized", "code": 401}})
        route = ROUTES.get(path.partition("?")[0])
        if route and method == "POST":
            self._play(connection, route, body, arrived)
        else:
            self._reply(connection, *self._side_door(path.partition("?")[0], body))

    def _close(self, connection: Connection) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.sock)
        connection.sock.close()

    # plain answers

    def _reply(self, connection: Connection, status: int, value: dict | str) -> None:
        text = isinstance(value, str)
        body = value.encode() if text else json.dumps(value).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {'text/plain' if text else 'application/json'}\r\n"
        self._write(connection, head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._done(connection, connection.closing)

    def _done(self, connection: Connection, close: bool) -> None:
        connection.busy = False
        if close:
            self._close(connection)
        elif connection.got:
            self._next(connection, clock())

    def _write(self, connection: Connection, data: bytes) -> bool:
        """All of it; a client that does not read for a second is dropped."""
        view, patience = memoryview(data), clock() + 1.0
        while view:
            try:
                view = view[connection.sock.send(view) :]
            except BlockingIOError:
                if clock() > patience:
                    return False
            except OSError:
                return False
        return True

    def _side_door(self, path: str, body: dict) -> tuple[int, dict | str]:
        model = {"model_path": self.facts.get("model_path", "scripted"), "is_generation": True}
        if path in ("/health", "/health_generate", "/ready"):
            return 200, {"status": "ok"}
        if path in ("/model_info", "/get_model_info"):
            return 200, model
        if path in ("/server_info", "/get_server_info"):
            return 200, {**model, "version": "scripted", "context_length": self.script.context, **self.facts}
        if path == "/props":
            settings = {"n_ctx": self.script.context}
            return 200, {**model, "build_info": "scripted", "total_slots": 512, "default_generation_settings": settings}
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": model["model_path"], "object": "model"}]}
        if path in ("/flush_cache", "/slots"):
            return 200, "Cache flushed."
        if path in ("/tokenize", "/v1/tokenize"):
            ids = play.encode(_prompt_text(body))
            return 200, {"tokens": ids, "count": len(ids), "max_model_len": self.script.context}
        if path == "/apply-template":
            return 200, {"prompt": _prompt_text(body)}
        if path in ("/detokenize", "/v1/detokenize"):
            text = play.decode(body.get("tokens", []))
            return 200, {"text": text, "content": text}
        if path == "/metrics":
            return 200, self._metrics()
        if path == "/script":
            return self._configure(body)
        if path == "/script/log":
            log, self.log = self.log, []
            return 200, {"log": log}
        return 404, {"error": {"message": f"no such path: {path}", "code": 404}}

    def _metrics(self) -> str:
        t = self.totals
        values = {
            "sglang:prompt_tokens_total": t["prompt_tokens"],
            "sglang:generation_tokens_total": t["completion_tokens"],
            "sglang:spec_verify_calls_total": t["verify_steps"],
            "sglang:num_requests_total": t["requests"],
            "llamacpp:prompt_tokens_total": t["prompt_tokens"] - t["cached"],
            "llamacpp:prompt_tokens_cached_total": t["cached"],
            "llamacpp:tokens_predicted_total": t["completion_tokens"],
            "llamacpp:spec_decode_num_draft_tokens_total": t["drafted"],
            "llamacpp:spec_decode_num_accepted_tokens_total": t["accepted"],
        }
        return "".join(f'{name}{{model_name="scripted"}} {value}\n' for name, value in values.items())

    def _configure(self, body: dict) -> tuple[int, dict]:
        """POST /script {script, overrides: {n: script}, prepare: [{path, body}]}: what is played from now on; counting
        starts again. Prepared questions have their answers made now, so that a burst of them is served in time."""
        try:
            base = play.check(Script.of(body.get("script", {}), self.script))
            overrides = {int(n): play.check(Script.of(one, base)) for n, one in body.get("overrides", {}).items()}
        except ValueError as error:
            return 400, {"error": {"message": str(error), "code": 400}}
        self.script, self.overrides, self.count, self.log = base, overrides, 0, []
        for one in body.get("prepare", []):
            route = ROUTES[one["path"]]
            self._answer(self.script, route, *_asked(route, one["body"]))
        return 200, self.script.plain()

    # streams

    def _play(self, connection: Connection, route: str, body: dict, arrived: float) -> None:
        number, self.count = self.count, self.count + 1
        script = self.overrides.get(number, self.script)
        prompt, asked, options = asked_for = _asked(route, body)
        if script.status != 200:
            return self._reply(
                connection, script.status, {"error": {"message": "scripted refusal", "code": script.status}}
            )
        if len(prompt) + asked > script.context:
            return self._reply(connection, 400, _too_long(len(prompt), asked, script.context))
        answer = self._answer(script, route, *asked_for)
        if not body.get("stream"):
            return self._later(arrived + answer.parts[-1].due, lambda: self._whole(connection, route, answer, number))
        connection.busy = True
        truth = ("prompt_tokens", "completion_tokens", "verify_steps", "accepted", "drafted")
        entry = {"request": number, "head": prompt[:4], "arrived": arrived, "t": [], "n": [], "late": 0.0}
        entry |= {name: getattr(answer, name) for name in truth}
        sends = deque((part.due, part.data, part.tokens) for part in answer.parts)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        if script.framing == "together":
            sends = deque(_together(sends))

        def headers() -> None:
            self._write(connection, head)
            self._schedule(connection, script, answer, sends, entry, arrived)

        self._later(arrived + script.headers_s, headers)

    def _answer(self, script: Script, route: str, prompt: list[int], asked: int, options: dict) -> play.Answer:
        """Made once for each question: making it costs more than sending it."""
        which = len(prompt) if script.same_output else bytes(i % 256 for i in prompt)
        key = (script, route, which, asked, tuple(sorted(options.items())))
        if key not in self._cache:
            if len(self._cache) >= ANSWERS_KEPT:
                self._cache.clear()
            self._cache[key] = play.answer(script, route, prompt, asked, options)
        return self._cache[key]

    def _later(self, due: float, send) -> None:
        heapq.heappush(self._due, (due, next(self._order), send))

    def _schedule(self, connection, script: Script, answer, sends: deque, entry: dict, arrived: float) -> None:
        if not sends:
            return self._finish(connection, script, answer, entry)
        due = arrived + script.headers_s + sends[0][0]
        self._later(due, lambda: self._send(connection, script, answer, sends, entry, arrived, due))

    def _send(self, connection, script: Script, answer, sends: deque, entry: dict, arrived: float, due: float) -> None:
        said = len(entry["t"])
        if script.reset_after is not None and said >= script.reset_after:
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return self._close(connection)
        if script.error_after is not None and said >= script.error_after:
            error = {"error": {"message": "scripted error in mid-stream", "type": "server_error", "code": 500}}
            self._write(
                connection, _chunk(b"data: " + json.dumps(error).encode() + b"\n\ndata: [DONE]\n\n") + b"0\r\n\r\n"
            )
            return self._done(connection, script.close)
        due_after, payload, tokens = sends.popleft()
        frames = [payload]
        while sends and sends[0][0] == due_after and sends[0][2] == tokens:  # the end follows its last token at once
            frames.append(sends.popleft()[1])
        if script.framing == "split":
            joined = b"".join(frames)
            frames = [joined[i : i + 7] for i in range(0, len(joined), 7)]
        now = clock()
        if not self._write(connection, b"".join(map(_chunk, frames))):
            return self._close(connection)
        if tokens > (entry["n"][-1] if entry["n"] else 0):
            entry["t"].append(now)
            entry["n"].append(tokens)
            entry["late"] = max(entry["late"], now - due)
        self._schedule(connection, script, answer, sends, entry, arrived)

    def _finish(self, connection, script: Script, answer, entry: dict) -> None:
        self._count(script, answer)  # before the last byte: a scrape after the answer sees it
        self.log.append(entry)
        self._write(connection, b"0\r\n\r\n")
        self._done(connection, script.close or connection.closing)

    def _count(self, script: Script, answer) -> None:
        for name in ("prompt_tokens", "completion_tokens", "verify_steps", "drafted", "accepted"):
            self.totals[name] += getattr(answer, name)
        self.totals["requests"] += 1
        self.totals["cached"] += script.cached
        self.totals["completion_tokens"] += script.counters_off

    def _whole(self, connection, route: str, answer, number: int) -> None:
        """An answer without streaming, as readiness checks ask for it."""
        self._count(self.overrides.get(number, self.script), answer)
        usage = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens}
        text = play.decode(answer.ids)
        if route == "generate":
            value = {
                "text": text,
                "output_ids": answer.ids,
                "meta_info": {**usage, "finish_reason": {"type": answer.finish}},
            }
        elif route == "completion":
            value = {"content": text, "tokens": answer.ids, "stop": True, "tokens_predicted": answer.completion_tokens}
        else:
            said = {"message": {"role": "assistant", "content": text}} if route == "chat" else {"text": text}
            value = {"choices": [{"index": 0, "finish_reason": answer.finish, **said}], "usage": usage}
        self._reply(connection, 200, value)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n" % len(data) + data + b"\r\n"


def _together(sends: deque) -> list[tuple[float, bytes, int]]:
    """Two steps in one segment, sent when the second is due."""
    pairs = list(sends)
    return [
        (two[-1][0], b"".join(data for _, data, _ in two), two[-1][2])
        for two in (pairs[i : i + 2] for i in range(0, len(pairs), 2))
    ]


def _prompt_text(body: dict) -> str:
    if body.get("messages"):
        return "".join(f"<{m['role']}>{m['content']}" for m in body["messages"]) + "<assistant>"
    text = body.get("prompt", body.get("content", body.get("text", "")))
    return text if isinstance(text, str) else "".join(map(str, text))


def _asked(route: str, body: dict) -> tuple[list[int], int, dict]:
    """(prompt ids, output tokens asked, options) of a request's body."""
    usage = body.get("stream_options") or {}
    options = {"include_usage": bool(usage.get("include_usage")),
               "continuous_usage": bool(usage.get("continuous_usage_stats")),
               "incremental": bool(body.get("incremental"))}  # fmt: skip
    given = body.get("input_ids") or body.get("prompt")
    if isinstance(given, list) and given and isinstance(given[0], int):
        prompt = given
    else:
        prompt = play.encode(_prompt_text(body))
    if route == "generate":
        asked = (body.get("sampling_params") or {}).get("max_new_tokens", 128)
    else:
        asked = body.get("max_completion_tokens") or body.get("max_tokens") or body.get("n_predict") or 16
    return prompt, int(asked), options


def _too_long(prompt: int, asked: int, context: int) -> dict:
    message = (
        f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested a total "
        f"of {prompt + asked} tokens: {prompt} tokens from the input messages and {asked} tokens for the completion."
    )
    return {"error": {"message": message, "code": 400}}
