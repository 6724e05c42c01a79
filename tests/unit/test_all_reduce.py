"""An all-reduce that hangs is how a broken PCIe topology shows first: the check must end it and say so.

There is no GPU here, so a stand-in for the engine's Python plays each outcome; the real thing ran on real GPUs.
"""

import stat
import subprocess
import time

from gauntlet import all_reduce, ports


def stand_in(tmp_path, script):
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_finished_run_gives_its_rows(tmp_path):
    python = stand_in(
        tmp_path, """echo '{"nccl": "2.28.9"}'; echo noise; echo '{"bytes": 4096, "us": 9.5, "bus_gb_s": 0.4}'"""
    )
    found = all_reduce.check(python, 2, deadline_s=60)
    assert found["finished"] and found["nccl"] == "2.28.9" and found["suspects"] == []
    assert found["rows"] == [{"bytes": 4096, "us": 9.5, "bus_gb_s": 0.4}]


def test_a_hang_is_ended_with_its_children_and_the_suspects_are_named(tmp_path, monkeypatch):
    hangs = tmp_path / "child"
    python = stand_in(
        tmp_path,
        f"""echo '{{"bytes": 4096, "us": 9.5, "bus_gb_s": 0.4}}'
        sleep 600 >/dev/null 2>&1 & echo $! >{hangs}.new; mv {hangs}.new {hangs}; wait""",
    )

    class Hanging(subprocess.Popen):
        def communicate(self, *args, **more):
            """The deadline is short: it begins when all that it is to end has begun."""
            while not hangs.exists():
                assert self.poll() is None
                time.sleep(0.005)
            return super().communicate(*args, **more)

    monkeypatch.setattr(subprocess, "Popen", Hanging)
    found = all_reduce.check(python, 2, deadline_s=0.2)
    assert not found["finished"] and "0.2 s" in found["reason"]
    assert len(found["rows"]) == 1, "what was measured before the hang is kept"
    assert any("IOMMU" in suspect for suspect in found["suspects"])
    until = time.monotonic() + 60  # SIGKILL is not waited for
    while ports.alive([int(hangs.read_text())]):
        assert time.monotonic() < until, "a child outlived the check"
        time.sleep(0.01)


def test_a_crash_shows_its_last_words(tmp_path):
    found = all_reduce.check(stand_in(tmp_path, "echo 'NCCL error: unhandled system error' >&2; exit 3"), 4, 60)
    assert not found["finished"] and "unhandled system error" in found["reason"] and "3" in found["reason"]
