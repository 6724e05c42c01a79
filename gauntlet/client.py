"""The closed loop: C workers, each sends its next request the moment its last one ended. Requests + standard library.

Nothing here sleeps, prints, polls or parses between the first byte sent and the last byte received: reads are stamped
with the monotonic clock and kept; they are parsed when the window is over (or, beyond KEEP_BYTES a process, when their
own request is over).
"""

import gc
import itertools
import multiprocessing
import resource
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import HTTPError

from gauntlet.dialects.reading import Reading, loads, message_of
from gauntlet.stream import dechunk, is_whole

THREADS_A_PROCESS = 32
KEEP_BYTES = 64 << 20
READ_BYTES = 1 << 14
CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 600
clock = time.monotonic


@dataclass(slots=True)
class Ask:
    """One request to send: its body, and what goes into the record. A turn that depends on the answers before it has
    no body; `then(readings) -> Ask` makes it."""

    body: bytes | None
    about: dict
    then: Callable | None = None


@dataclass(slots=True)
class Trace:
    """One request as it happened; absolute monotonic seconds."""

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


@dataclass(slots=True)
class Answer:
    """A request that was answered or failed; `reading` is None until it is parsed."""

    conversation: int
    about: dict
    trace: Trace
    reading: Reading | None = None


@dataclass(slots=True)
class Window:
    """What one run of the closed loop gave; answers in order of schedule, absolute monotonic seconds."""

    answers: list[Answer]
    start: float
    end: float
    load: float
    cpu_s: float
    processes: int
    threads: int


class _Connection(HTTPConnection):
    """Notes when the request went out and how long connecting took."""

    connect_s = None
    sent = 0.0

    def connect(self) -> None:
        begin = clock()
        super().connect()
        self.sent = clock()
        self.connect_s = self.sent - begin

    def request(self, *args, **kwargs) -> None:
        self.connect_s, self.sent = None, clock()
        super().request(*args, **kwargs)


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args, **kwargs) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool}


def session(dialect) -> requests.Session:
    """A session that reads no environment: a proxy or a .netrc of the host is none of the measurement's."""
    one = requests.Session()
    one.trust_env = False
    one.headers.clear()
    one.headers.update({**dialect.headers, "Accept": "text/event-stream"})
    one.mount("http://", _Adapter(pool_connections=1, pool_maxsize=1, max_retries=0))
    return one


def prepare(dialect, one: requests.Session, body: bytes | None) -> requests.PreparedRequest | None:
    """The request, ready to be sent; None for a turn that is not known yet."""
    if body is None:
        return None
    return one.prepare_request(requests.Request("POST", dialect.base_url + dialect.path, data=body))


class Worker:
    """One session, one connection, one request at a time."""

    def __init__(self, number: int, dialect):
        self.number, self.kept = number, False
        self.session = session(dialect)

    def send(self, prepared: requests.PreparedRequest, scheduled: float) -> Trace:
        """Send, read to the end, stamp every read. A kept connection that the server closed is opened anew."""
        trace = Trace(self.number, scheduled, sent=clock())
        for again in (True, False):
            try:
                self._send(prepared, trace)
            except (requests.ConnectionError, HTTPError, OSError) as error:
                kind = _kind(error)
                if again and self.kept and trace.status is None and kind == "connection_lost":
                    trace.anomalies.append("reconnected")
                    continue
                trace.error = {"kind": kind, "message": str(error), "status": trace.status}
            break
        self.kept = trace.error is None
        trace.ended = trace.times[-1] if trace.times and trace.error is None else clock()
        return trace

    def _send(self, prepared: requests.PreparedRequest, trace: Trace) -> None:
        with self.session.send(
            prepared, stream=True, timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S), allow_redirects=False
        ) as answer:
            connection = getattr(answer.raw, "_connection", None)
            if connection is not None:
                trace.sent, trace.connect_s = connection.sent, connection.connect_s
            trace.status = answer.status_code
            trace.chunked = answer.raw._original_response.chunked
            if trace.chunked:
                _read_raw(answer.raw, trace)
            else:
                while piece := answer.raw.read1(READ_BYTES):
                    trace.times.append(clock())
                    trace.pieces.append(piece)


def _read_raw(raw, trace: Trace) -> None:
    """Read a chunked body as it comes off the socket; taking the chunks apart is parsing and comes later."""
    original = raw._original_response
    read, stamp, pieces = original.fp.read1, trace.times.append, trace.pieces
    socket_ = original.fp.raw._sock
    # the kernel's own timeout: Python's costs a second system call a read
    socket_.settimeout(None)
    socket_.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", READ_TIMEOUT_S, 0))
    try:
        while piece := read(READ_BYTES):
            stamp(clock())
            pieces.append(piece)
            if piece.endswith(b"\n") and is_whole(pieces):
                original.close()  # the answer; its connection is kept
                raw.release_conn()
                return
            read = socket_.recv  # what came with the headers has been read
    except BaseException:
        raw.close()
        raise
    raw.close()
    raise ConnectionResetError("the connection was closed in the middle of the answer")


def _kind(error: Exception) -> str:
    text = str(error)
    if isinstance(error, requests.Timeout) or "timed out" in text:
        return "timeout"
    if "Connection refused" in text:
        return "server_gone"
    return "connection_lost"


def understand(dialect, trace: Trace):
    """Parse a finished trace; transport errors and refusals first."""
    _take_apart(trace)
    if trace.status is not None and trace.status != 200 and trace.error is None:
        reading, body = Reading(), b"".join(trace.pieces)
        value = loads(body, Reading()) if body else None
        message = message_of(value)[0] if value else body[:200].decode(errors="replace")
        reading.fail("refused", dialect.refused(trace.status, message), trace.status)
    elif trace.error is not None:
        reading = dialect.read(trace.times, trace.pieces)
        reading.error = trace.error
    else:
        reading = dialect.read(trace.times, trace.pieces)
    reading.anomalies = trace.anomalies + reading.anomalies
    trace.times, trace.pieces = [], []
    return reading


def _take_apart(trace: Trace) -> None:
    """Raw chunks to payload; of a body that broke off, what came whole."""
    if not trace.chunked or not trace.pieces:
        return
    if trace.error is not None:
        trace.times, trace.pieces = [*trace.times, trace.times[-1]], [*trace.pieces, b"\r\n0\r\n\r\n"]
    try:
        trace.times, trace.pieces = dechunk(trace.times, trace.pieces)
    except ValueError:
        trace.times, trace.pieces = [], []


class _Shared:
    """The next conversation to start, for threads of one process or of several."""

    def __init__(self, processes: int, parties: int):
        if processes == 1:
            count = itertools.count()
            self.next, self.barrier = lambda: next(count), threading.Barrier(parties)
        else:
            context = multiprocessing.get_context("fork")
            self._value, self.barrier = context.Value("l", 0), context.Barrier(parties)
            self.next = self._take

    def _take(self) -> int:
        with self._value.get_lock():
            taken = self._value.value
            self._value.value = taken + 1
        return taken


def _work(worker: Worker, dialect, conversations, shared, prepared, think_s, kept, answers) -> None:
    shared.barrier.wait()
    ready = clock()
    while (number := shared.next()) < len(conversations):
        turns, readings = conversations[number], []
        for turn, ask in enumerate(turns):
            if turn and think_s:
                time.sleep(think_s)  # the person's, between two turns: nothing is measured
            if ask.then is not None:
                ask = ask.then(readings)
                request = prepare(dialect, worker.session, ask.body)
            else:
                request = prepared[number][turn]
            if turn and (think_s or turns[turn].then is not None):
                ready = clock()
            answer = Answer(number, ask.about, worker.send(request, ready))
            answers.append(answer)
            ready = answer.trace.ended
            kept[0] += sum(map(len, answer.trace.pieces))
            depends = turn + 1 < len(turns) and turns[turn + 1].then is not None
            if depends or kept[0] > KEEP_BYTES:
                answer.reading = understand(dialect, answer.trace)
                readings.append(answer.reading)
                ready = clock()
                if depends and answer.reading.error is not None:
                    break  # a turn whose history failed cannot be asked


def _read(dialect, answers: list[Answer]) -> list[Answer]:
    for answer in answers:
        answer.reading = answer.reading or understand(dialect, answer.trace)
    return answers


def _process(numbers: Sequence[int], dialect, conversations, shared, prepared, think_s: float) -> tuple[list, float]:
    workers = [Worker(number, dialect) for number in numbers]
    kept, answers = [0], []
    threads = [
        threading.Thread(target=_work, args=(w, dialect, conversations, shared, prepared, think_s, kept, answers))
        for w in workers
    ]
    switch = sys.getswitchinterval()
    gc.collect()
    gc.freeze()
    gc.disable()
    sys.setswitchinterval(0.0005)
    try:
        for thread in threads:
            thread.start()
        before = _cpu()
        for thread in threads:
            thread.join()
        cpu_s = _cpu() - before
    finally:
        sys.setswitchinterval(switch)
        gc.enable()
        gc.unfreeze()
    for worker in workers:
        worker.session.close()
    return answers, cpu_s


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _child(pipe, numbers, dialect, conversations, shared, prepared, think_s, done) -> None:
    answers, cpu_s = _process(numbers, dialect, conversations, shared, prepared, think_s)
    done.wait()  # parse only when every process is out of the window
    pipe.send((_read(dialect, answers), cpu_s))
    pipe.close()


def closed_loop(
    dialect,
    conversations: Sequence[Sequence[Ask]],
    concurrency: int,
    think_s: float = 0.0,
    processes: int | None = None,
) -> Window:
    """Run every conversation, `concurrency` at a time, to the end; times in the answers are absolute monotonic."""
    workers = min(concurrency, len(conversations))
    count = processes or -(-workers // THREADS_A_PROCESS)
    shared = _Shared(count, workers)
    with session(dialect) as one:
        prepared = [[prepare(dialect, one, ask.body) for ask in turns] for turns in conversations]
    if count == 1:
        answers, cpu_s = _process(range(workers), dialect, conversations, shared, prepared, think_s)
        answers = _read(dialect, answers)
    else:
        answers, cpu_s = _spread(workers, count, dialect, conversations, shared, prepared, think_s)
    answers.sort(key=lambda answer: (answer.trace.scheduled, answer.conversation))
    start = answers[0].trace.scheduled
    end = max(answer.trace.ended for answer in answers)
    load = load_reached(answers, workers)
    return Window(answers, start, end, load, cpu_s, count, workers)


def _spread(workers: int, count: int, *work) -> tuple[list, float]:
    """`count` processes; what they share is forked, not copied."""
    context = multiprocessing.get_context("fork")
    done = context.Barrier(count)
    pipes, children = [], []
    for number in range(count):
        here, there = context.Pipe(duplex=False)
        numbers = range(number, workers, count)
        child = context.Process(target=_child, args=(there, numbers, *work, done), daemon=True)
        child.start()
        there.close()
        pipes.append(here)
        children.append(child)
    answers, cpu_s = [], 0.0
    for pipe in pipes:
        part, used = pipe.recv()
        answers += part
        cpu_s += used
    for child in children:
        child.join()
    return answers, cpu_s


def load_reached(answers: Sequence[Answer], workers: int) -> float:
    """Share of the closed loop's load that was really there, while there was work for every worker.

    Busy time of all workers (a conversation with its thinking counts as one) over workers x time, until the last
    conversation was started. 1.0 when no worker had a second one to start.
    """
    spans: dict[int, tuple[float, float, float]] = {}
    for answer in answers:
        trace = answer.trace
        scheduled, sent, ended = spans.get(answer.conversation, (trace.scheduled, trace.sent, trace.ended))
        spans[answer.conversation] = (min(scheduled, trace.scheduled), min(sent, trace.sent), max(ended, trace.ended))
    if len(spans) <= workers:
        return 1.0
    start, until = min(span[0] for span in spans.values()), max(span[0] for span in spans.values())
    busy = sum(max(0.0, min(ended, until) - sent) for _, sent, ended in spans.values())
    return busy / (workers * (until - start))
