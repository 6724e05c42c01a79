"""The closed loop: C workers, each sends its next request the moment its last one ended.

Nothing here sleeps, prints, polls or parses while requests are under way: what arrives is stamped with the monotonic
clock and kept (`loop`, `exchange`), and parsed when the window is over.
"""

import gc
import itertools
import multiprocessing
import os
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gauntlet.dialects.reading import Reading, loads, message_of
from gauntlet.exchange import Target, Trace
from gauntlet.loop import Answer, Ask, Loop
from gauntlet.stream import dechunk

__all__ = ["Answer", "Ask", "Trace", "Window", "closed_loop", "load_reached", "understand"]
WORKERS_A_PROCESS = 32


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


def closed_loop(
    dialect,
    conversations: Sequence[Sequence[Ask]],
    concurrency: int,
    think_s: float = 0.0,
    processes: int | None = None,
) -> Window:
    """Run every conversation, `concurrency` at a time, to the end. Each process has one thread for all its workers."""
    workers = min(concurrency, len(conversations))
    count = processes or _processes(workers)
    target = Target(dialect.base_url, dialect.path, dialect.headers)
    make = partial(Loop, target, conversations, think_s=think_s, understand=partial(understand, dialect))
    if count == 1:
        numbers = itertools.count()
        answers, cpu_s = _run(make(take=lambda: next(numbers)), range(workers), lambda: None)
        _read(dialect, answers)
    else:
        answers, cpu_s = _spread(dialect, make, workers, count)
    answers.sort(key=lambda answer: (answer.trace.scheduled, answer.conversation))
    start = answers[0].trace.scheduled
    end = max(answer.trace.ended for answer in answers)
    return Window(answers, start, end, load_reached(answers, workers), cpu_s, count, count)


def _processes(workers: int) -> int:
    """One up to WORKERS_A_PROCESS workers; beyond that several, as many as there are cores to run on (at least two)."""
    wanted = -(-workers // WORKERS_A_PROCESS)
    return min(wanted, max(2, len(os.sched_getaffinity(0))))


def _run(loop: Loop, workers: Sequence[int], start: Callable[[], object]) -> tuple[list[Answer], float]:
    """The answers and the CPU seconds of the window. The collector's pauses would look like the server's."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        start()
        before = _cpu()
        return loop.run(workers), _cpu() - before
    finally:
        gc.enable()
        gc.unfreeze()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _read(dialect, answers: list[Answer]) -> list[Answer]:
    for answer in answers:
        answer.reading = answer.reading or understand(dialect, answer.trace)
    return answers


def _spread(dialect, make, workers: int, count: int) -> tuple[list[Answer], float]:
    """`count` processes that take conversations from one count; what they share is forked, not copied."""
    context = multiprocessing.get_context("fork")
    taken, start, done = context.Value("l", 0), context.Barrier(count), context.Barrier(count)

    def take() -> int:
        with taken.get_lock():
            number = taken.value
            taken.value = number + 1
        return number

    def child(pipe, numbers: range) -> None:
        answers, cpu_s = _run(make(take=take), numbers, start.wait)
        done.wait()  # parse only when every process is out of the window
        pipe.send((_read(dialect, answers), cpu_s))
        pipe.close()

    pipes, children = [], []
    for number in range(count):
        here, there = context.Pipe(duplex=False)
        one = context.Process(target=child, args=(there, range(number, workers, count)), daemon=True)
        one.start()
        there.close()
        pipes.append(here)
        children.append(one)
    answers, cpu_s = [], 0.0
    for pipe in pipes:
        part, used = pipe.recv()
        answers += part
        cpu_s += used
    for one in children:
        one.join()
    return answers, cpu_s


def understand(dialect, trace: Trace) -> Reading:
    """Parse a finished trace: a refusal, what came before the connection broke, or the answer."""
    _take_apart(trace)
    if trace.status is not None and trace.status != 200 and trace.error is None:
        reading, body = Reading(), b"".join(trace.pieces)
        value = loads(body, Reading()) if body else None
        message = message_of(value)[0] if value else body[:200].decode(errors="replace")
        reading.fail("refused", dialect.refused(trace.status, message), trace.status)
    else:
        reading = dialect.read(trace.times, trace.pieces)
        reading.error = trace.error or reading.error
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


def load_reached(answers: Sequence[Answer], workers: int) -> float:
    """Share of the closed loop's load that was really there, while there was work for every worker.

    Busy time of all workers (a conversation with its thinking counts as one) over workers x time, until the last
    conversation was started. 1.0 when no worker had a second one to start.
    """
    spans: dict[int, tuple[float, float, float]] = {}
    for answer in answers:
        trace = answer.trace
        scheduled, sent, ended = spans.get(answer.conversation, (trace.scheduled, trace.sent, trace.ended))
        spans[answer.conversation] = (
            min(scheduled, trace.scheduled),
            min(sent, trace.sent),
            max(ended, trace.ended),
        )
    if len(spans) <= workers:
        return 1.0
    start, until = min(span[0] for span in spans.values()), max(span[0] for span in spans.values())
    busy = sum(max(0.0, min(ended, until) - sent) for _, sent, ended in spans.values())
    return busy / (workers * (until - start))
