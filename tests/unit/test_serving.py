"""Up means that it answered, down means that nothing is left, and in between a person hears what is going on.

The service manager is a fake whose states and journal are scripted; a real one is under tests/lab.
"""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from gauntlet import engines, hoststate, ports, serving
from gauntlet.diagnose import look
from gauntlet.errors import GauntletError

DEPLOYMENT = {"name": "m.dflash.tp1-0a1b2c3d", "engine": "sglang", "engine_build": "sglang-0.5.23"}
UNIT = "sglang@m.dflash.tp1-0a1b2c3d.service"
DIAGNOSES = {
    "pool": {"patterns": ["Not enough memory"], "cause": "no memory", "remedy": "Raise it", "look": "fraction"},
    "port": {"patterns": ["in use by another"], "cause": "port taken", "remedy": "Stop it", "look": "port"},
    "hang": {"patterns": ["silent for (?P<s>\\d+) s"], "cause": "ranks wait ({s} s)", "remedy": "Look at NCCL"},
}
IDLE = {"active": False, "failed": False, "phase": "inactive (dead)", "pid": 0, "pids": [], "invocation": None,
        "result": "success", "exit": 0, "restarts": 0, "started": None, "unit": UNIT}  # fmt: skip
FINAL = "max_total_num_tokens=1000, chunked_prefill_size=1, max_running_requests=4, context_len=2048"
PRINTED = {"kv_tokens": 1000, "max_running_requests": 4, "context_length": 2048}
UP = IDLE | {
    "active": True,
    "phase": "active (running)",
    "pid": 42,
    "invocation": "inv",
    "started": "2026-01-01T00:00:00Z",
}
DEAD = IDLE | {"failed": True, "phase": "failed (failed)", "result": "exit-code", "exit": 1, "invocation": "inv"}


class Manager:
    def __init__(self, *states, journal=(), starts=()):
        self.states, self.lines, self.earlier, self.did = list(states), list(journal), list(starts), []

    def state(self, unit):
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def journal(self, unit, invocation):
        return [line if isinstance(line, tuple) else (time.time(), line) for line in self.lines]

    def starts(self, pattern):
        assert pattern == "sglang@m.dflash.tp1-*.service"
        return self.earlier

    def start(self, unit):
        self.did.append(f"start {unit}")

    def stop(self, unit, timeout):
        self.did.append(f"stop {unit}")

    def unit_of(self, pid):
        return "other.service"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No port of this machine, no GPU, no waiting, and an engine that does not answer."""
    monkeypatch.setattr(serving, "PAUSE_S", 0.001)
    monkeypatch.setattr(ports, "listeners", lambda port: None)
    monkeypatch.setattr(look, "on_gpus", list)
    monkeypatch.setattr(look, "busy_gpus", list)
    answers(monkeypatch, None)


def answers(monkeypatch, completion):
    def ready(base_url, timeout, key=None):
        if completion is None:
            raise GauntletError("connection refused")
        return {"completion": completion, "server": {"version": "0.5.23"}}

    monkeypatch.setattr(engines.get("sglang"), "ready", ready)


def poll(manager, seconds=0.01):
    return serving.poll(DEPLOYMENT, 30000, manager, seconds, DIAGNOSES)


class TestBegin:
    def test_what_runs_is_left_alone(self):
        manager = Manager(UP)
        assert not serving.begin(DEPLOYMENT, 30000, manager) and manager.did == []

    def test_a_taken_port_is_refused_by_pid_and_unit(self, monkeypatch):
        monkeypatch.setattr(ports, "listeners", lambda port: [7])
        monkeypatch.setattr(ports, "describe", lambda pid: f"python (pid {pid}, parent 1)")
        with pytest.raises(GauntletError, match=r"port 30000 is held by python \(pid 7, parent 1\) of other.service"):
            serving.begin(DEPLOYMENT, 30000, Manager(IDLE))
        with pytest.raises(GauntletError, match=r"held by python .* of other.service, so nothing is started"):
            serving.require_free(30000, Manager(IDLE))

    def test_a_free_port_is_no_reason(self, monkeypatch):
        monkeypatch.setattr(ports, "listeners", lambda port: None)
        serving.require_free(30000, Manager(IDLE))

    def test_schedulers_of_an_earlier_run_are_named_before_a_second_start(self, monkeypatch):
        """Case 20: they hold the GPU, and /health of a server beside them has answered 200."""
        monkeypatch.setattr(
            look, "on_gpus", lambda: [{"pid": 7, "process": "sglang::scheduler_TP0", "memory": "9 MiB"}]
        )
        monkeypatch.setattr(ports, "parent", lambda pid, proc: 1)
        manager = Manager(IDLE)
        with pytest.raises(GauntletError, match=r"sglang::scheduler_TP0 \(pid 7, parent 1, 9 MiB\)"):
            serving.begin(DEPLOYMENT, 30000, manager)
        assert manager.did == []

    def test_a_unit_that_is_up_left_nothing_behind(self, monkeypatch):
        monkeypatch.setattr(
            look, "on_gpus", lambda: [{"pid": 7, "process": "sglang::scheduler_TP0", "memory": "9 MiB"}]
        )
        monkeypatch.setattr(ports, "parent", lambda pid, proc: 1)
        assert serving.begin(DEPLOYMENT, 30000, Manager(IDLE, UP))

    def test_an_owner_wants_a_start_of_its_own(self, monkeypatch):
        monkeypatch.setattr(hoststate, "owned", lambda owner: [])
        with pytest.raises(GauntletError, match="did not start it"):
            serving.begin(DEPLOYMENT, 30000, Manager(UP), owner="bench.yml")


class TestPoll:
    def test_ready_is_an_answer_and_says_which_start_gave_it(self, monkeypatch):
        answers(monkeypatch, " Paris")
        found = poll(Manager(UP, journal=[FINAL]))
        assert found["ready"] and found["completion"] == " Paris"
        assert found["server_invocation"] == {"id": "inv", "unit": UNIT, "started_utc": "2026-01-01T00:00:00Z",
                                              "exec_pid": 42}  # fmt: skip
        assert found["memory"] == {"printed": PRINTED, "predicted": None, "differs": []}

    def test_a_prediction_is_kept_beside_what_was_printed(self, monkeypatch):
        """Both are stored; a difference over 5 % is said."""
        answers(monkeypatch, "x")
        prediction = {"kv_tokens": 1200, "slots": None, "max_running_requests": 4}
        monkeypatch.setattr(serving.preflight, "predicted", lambda name: prediction)
        found = poll(Manager(UP, journal=[FINAL]))["memory"]
        assert found["predicted"] == prediction and found["printed"] == PRINTED
        assert found["differs"] == ["KV tokens: 1200 predicted, 1000 printed by the server"]

    @pytest.mark.parametrize(
        ("lines", "phase"),
        [
            ([], "starting"),
            (["server_args=ServerArgs("], "reading the configuration"),
            (["Load weight begin. avail mem=1 GB"], "loading weights"),
            (["Load weight begin. avail mem=1 GB", "Loading safetensors checkpoint shards:  45% Completed | 5/11"],
             "loading weights, 45 %"),
            (["Load weight begin.", "KV Cache is allocated. #tokens: 1"], "allocating pools"),
            (["KV Cache is allocated.", "Capture target decode CUDA graph begin."], "capturing CUDA graphs"),
        ],
    )  # fmt: skip
    def test_while_it_loads_it_says_with_what(self, lines, phase):
        found = poll(Manager(UP, journal=lines))
        assert not found["ready"] and found["phase"] == phase and found["reason"] == "connection refused"

    def test_a_unit_that_failed_ends_the_wait_at_once(self, monkeypatch):
        monkeypatch.setattr(serving, "time", SimpleNamespace(monotonic=time.monotonic))  # without a sleep
        with pytest.raises(GauntletError, match="no known cause"):
            poll(Manager(DEAD, journal=["what nobody knows"]), seconds=600)

    def test_a_silent_start_whose_gpus_spin_hangs(self, monkeypatch):
        monkeypatch.setattr(look, "busy_gpus", lambda: [0, 1])
        long_ago = (time.time() - 2 * serving.HANG_S, "NCCL version 2.31")
        with pytest.raises(GauntletError, match=r"ranks wait \(6\d\d s\)"):
            poll(Manager(UP, journal=[long_ago]))

    def test_a_rank_that_compiles_is_no_hang(self, monkeypatch, tmp_path):
        """Seen: 4 minutes of nvcc in one rank at the first start on two GPUs, no line in the journal."""
        (tmp_path / "nvcc").symlink_to("/bin/sleep")
        monkeypatch.setattr(look, "busy_gpus", lambda: [0, 1])
        long_ago = (time.time() - 2 * serving.HANG_S, "NCCL version 2.31")
        with subprocess.Popen([tmp_path / "nvcc", "60"]) as building:
            found = poll(Manager({**UP, "pids": [1, building.pid, 2**22]}, journal=[long_ago]))
            building.kill()
        assert found["phase"] == "compiling kernels (nvcc)" and found["silent_s"] > serving.HANG_S

    def test_silence_alone_is_no_hang(self):
        assert poll(Manager(UP, journal=[(time.time() - 1e4, "loading")]))["silent_s"] > 9000


def explain(manager, state=DEAD):
    return serving.explain(DEPLOYMENT, 30000, manager, state, DIAGNOSES)


class TestExplain:
    def test_the_launchers_own_sentence_is_the_cause(self):
        said = explain(Manager(DEAD, journal=["noise", "gauntlet: refused: m does not start: the model is not staged"]))
        assert said == f"{UNIT}: refused: m does not start: the model is not staged"

    def test_a_known_cause_stands_with_its_remedy_and_the_exit(self):
        said = explain(Manager(DEAD, journal=["RuntimeError: Not enough memory"]))
        assert "result 'exit-code', exit status 1" in said and "no memory. Raise it." in said

    def test_advice_that_another_start_disproved_is_not_given(self):
        """One start at 0.85 ran out of memory while capturing, this one at 0.84 had none for its pools."""
        before = ["server_args=ServerArgs(mem_fraction_static=0.85, x", "torch.OutOfMemoryError: CUDA out of memory."]
        now = ["server_args=ServerArgs(mem_fraction_static=0.84, x",
               "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."]  # fmt: skip
        said = explain(Manager(DEAD, journal=now, starts=[before]))
        assert "no fraction fits" in said and "Raise it" not in said

    def test_a_diagnosis_looks_at_the_host(self, monkeypatch):
        monkeypatch.setattr(look, "port", lambda number, manager: f"port {number} is held by x (pid 7)")
        assert "(port 30000 is held by x (pid 7).)" in explain(Manager(DEAD, journal=["in use by another"]))

    def test_an_unknown_cause_shows_the_last_lines(self):
        said = explain(Manager(DEAD, journal=[f"line {n}" for n in range(100)]))
        assert "line 99" in said and "line 85" in said and "line 84" not in said


class TestEnd:
    def test_what_does_not_run_is_left_alone(self):
        manager = Manager(IDLE)
        assert not serving.end(UNIT, 30000, manager, 1) and manager.did == []

    def test_stopped_when_nothing_is_left(self):
        manager = Manager(UP | {"pids": [10**8]}, IDLE)
        assert serving.end(UNIT, 30000, manager, 1) and manager.did == [f"stop {UNIT}"]

    def test_a_process_that_stays_is_named(self):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        try:
            with pytest.raises(GauntletError, match=rf"pid {child.pid}, parent {os.getpid()}.* is still there"):
                serving.end(UNIT, 30000, Manager(UP | {"pids": [child.pid]}, IDLE), 0.05)
        finally:
            child.kill()
            child.wait()

    def test_a_listener_that_stays_is_named(self, monkeypatch):
        monkeypatch.setattr(ports, "listeners", lambda port: [os.getpid()])
        with pytest.raises(GauntletError, match="a listener on port 30000"):
            serving.end(UNIT, 30000, Manager(UP, IDLE), 0.05)

    def test_gpu_memory_that_stays_is_named(self, monkeypatch):
        monkeypatch.setattr(
            look, "on_gpus", lambda: [{"pid": 10**8, "process": "sglang::scheduler", "memory": "9 MiB"}]
        )
        with pytest.raises(GauntletError, match=r"GPU memory of sglang::scheduler \(pid 100000000, 9 MiB\)"):
            serving.end(UNIT, 30000, Manager(UP | {"pids": [10**8]}, IDLE), 0.05)
