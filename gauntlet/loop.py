"""One process's part of the closed loop: all its workers' exchanges in one thread, none waiting for another.

A thread a worker would have to take the interpreter's lock for every chunk; a sweep takes what all sockets have, so
that under load reads grow larger instead of later.
"""

import heapq
import os
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from gauntlet.dialects.reading import Reading
from gauntlet.exchange import Exchange, Target, Trace

KEEP_BYTES = 64 << 20
SILENCE_S = 600
clock = time.monotonic


@dataclass(slots=True)
class Ask:
    """One request to send: its body, and what goes into the record. A turn that depends on the answers before it has
    no body; `then(readings) -> Ask` makes it."""

    body: bytes | None
    about: dict
    then: Callable | None = None


@dataclass(slots=True)
class Answer:
    """A request that was answered or failed; `reading` is None until it is parsed."""

    conversation: int
    about: dict
    trace: Trace
    reading: Reading | None = None


@dataclass(slots=True, eq=False)
class Line:
    """A worker and the conversation that it is in."""

    exchange: Exchange
    number: int = -1
    turn: int = 0
    about: dict = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)


class Loop:
    """Runs conversations until there are none left. `take() -> int` gives the number of the next one; `understand`
    parses a trace: outside this thread, and only what the next turn depends on or what memory cannot keep."""

    def __init__(
        self,
        target: Target,
        conversations: Sequence[Sequence[Ask]],
        take: Callable[[], int],
        think_s: float,
        understand: Callable[[Trace], Reading],
    ):
        self.target, self.conversations, self.take = target, conversations, take
        self.think_s, self.understand = think_s, understand
        self.answers: list[Answer] = []
        self._epoll = select.epoll()
        self._lines: dict[int, Line] = {}  # by file descriptor
        self._waits: dict[Line, tuple] = {}  # (socket, events) as registered
        self._due: list[tuple[float, int, Line, bytes, dict]] = []
        self._ready: deque[tuple[Line, Future]] = deque()
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        self._epoll.register(self._wake_r, select.EPOLLIN)
        self._helpers: ThreadPoolExecutor | None = None
        self._parsing: list[Future] = []
        self._open = 0
        self._kept = 0

    def run(self, workers: Sequence[int]) -> list[Answer]:
        lines = [Line(Exchange(number, self.target)) for number in workers]
        self._open, last = len(lines), clock()
        for line in lines:
            self._next(line, last)
            self._sweep(0)  # the first are under way while the others connect
        while self._open:
            heard = self._sweep(self._patience(last))
            while self._ready:
                self._prepared(*self._ready.popleft())
            while self._due and self._due[0][0] <= clock():
                due, _, line, request, about = heapq.heappop(self._due)
                self._begin(line, request, about, due)
            if heard:
                last = clock()
            elif clock() - last >= SILENCE_S:
                self._silence(lines)
        return self._end(lines)

    def _sweep(self, seconds: float) -> bool:
        """What all sockets have, or what the first of them has within `seconds`; False when none had anything."""
        ready = self._epoll.poll(seconds)
        for number, events in ready:
            if number == self._wake_r:
                os.read(self._wake_r, 4096)
            else:
                self._go_on(self._lines[number], events)
        return bool(ready)

    def _patience(self, last: float) -> float:
        if self._ready:  # heard of while others still connected
            return 0.0
        until = min(last + SILENCE_S, self._due[0][0] if self._due else float("inf"))
        return max(0.0, until - clock())

    def _end(self, lines: list[Line]) -> list[Answer]:
        for line in lines:
            line.exchange.close()
        for parsed in self._parsing:
            parsed.result()
        if self._helpers:
            self._helpers.shutdown()
        self._epoll.close()
        os.close(self._wake_r)
        os.close(self._wake_w)
        return self.answers

    # a worker's way through its conversations

    def _next(self, line: Line, ready: float) -> None:
        """The next conversation, due now; none left: this worker is done."""
        line.number, line.turn, line.readings = self.take(), 0, []
        if line.number >= len(self.conversations):
            self._open -= 1
            return
        ask = self.conversations[line.number][0]
        self._begin(line, self.target.request(ask.body), ask.about, ready)

    def _begin(self, line: Line, request: bytes, about: dict, scheduled: float) -> None:
        line.about = about
        line.exchange.begin(request, scheduled)
        self._await(line)

    def _go_on(self, line: Line, events: int) -> None:
        exchange = line.exchange
        if exchange.wants == "read":
            exchange.read()
        elif exchange.wants == "write" and events & ~select.EPOLLIN:
            exchange.write()
        else:
            return
        self._await(line)

    def _await(self, line: Line) -> None:
        """Wait for what the exchange wants; when that is nothing, the request is over."""
        exchange = line.exchange
        if exchange.wants is None:
            return self._over(line)
        wanted = exchange.sock, select.EPOLLIN if exchange.wants == "read" else select.EPOLLOUT
        known = self._waits.get(line)
        if known == wanted:
            return
        if known is not None and known[0] is wanted[0]:
            self._epoll.modify(*wanted)
        else:
            self._epoll.register(*wanted)
            self._lines[exchange.sock.fileno()] = line
        self._waits[line] = wanted

    def _over(self, line: Line) -> None:
        answer = Answer(line.number, line.about, line.exchange.trace)
        self.answers.append(answer)
        self._kept += sum(map(len, answer.trace.pieces))
        turns, line.turn = self.conversations[line.number], line.turn + 1
        if line.turn == len(turns):
            if self._kept > KEEP_BYTES:
                self._parsing.append(self._help().submit(self._parse, answer))
            return self._next(line, answer.trace.ended)
        ask = turns[line.turn]
        if ask.then is None:
            self._later(line, self.target.request(ask.body), ask.about, answer.trace.ended)
        else:
            making = self._help().submit(self._make, line, answer, ask)
            making.add_done_callback(lambda made: self._wake(line, made))

    def _later(self, line: Line, request: bytes, about: dict, ended: float) -> None:
        """The next turn of a conversation: now, or when the person has thought."""
        if self.think_s:
            heapq.heappush(self._due, (ended + self.think_s, line.exchange.worker, line, request, about))
        else:
            self._begin(line, request, about, ended)

    # what takes time happens in other threads

    def _help(self) -> ThreadPoolExecutor:
        self._helpers = self._helpers or ThreadPoolExecutor(4)
        return self._helpers

    def _parse(self, answer: Answer) -> None:
        answer.reading = self.understand(answer.trace)

    def _make(self, line: Line, answer: Answer, ask: Ask) -> tuple[bytes, dict] | None:
        """The turn that follows `answer`; None when there is no history to follow."""
        self._parse(answer)
        if answer.reading.error is not None:
            return None
        line.readings.append(answer.reading)
        made = ask.then(line.readings)
        return self.target.request(made.body), made.about

    def _wake(self, line: Line, made: Future) -> None:
        self._ready.append((line, made))
        os.write(self._wake_w, b"x")

    def _prepared(self, line: Line, made: Future) -> None:
        turn = made.result()
        if turn is None:  # a turn whose history failed cannot be asked
            self._next(line, clock())
        else:
            self._later(line, *turn, clock())

    def _silence(self, lines: list[Line]) -> None:
        for line in lines:
            if line.exchange.wants is not None:
                line.exchange.fail("timeout", f"nothing arrived for {SILENCE_S} s")
                self._await(line)
