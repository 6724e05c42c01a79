"""A recorded pid must never be taken for another process: what it says is killed."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from module_utils import lab_record


@pytest.fixture
def process():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_a_running_process_is_found(tmp_path, process):
    lab_record.write(tmp_path, process.pid)
    assert lab_record.find(tmp_path).pid == process.pid


@pytest.mark.parametrize("wrong", [{"started": 1}, {"boot_id": "another"}, {"pid": 0}, {"pid": "x"}, {"pid": None}])
def test_a_recycled_pid_or_another_boot_is_not_it(tmp_path, process, wrong):
    lab_record.write(tmp_path, process.pid)
    record = tmp_path / "machine.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | wrong))
    assert lab_record.find(tmp_path) is None


def test_a_dead_or_unreaped_process_is_not_up(tmp_path, process):
    lab_record.write(tmp_path, process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and still in /proc
    assert lab_record.find(tmp_path) is None
    process.wait()
    assert lab_record.find(tmp_path) is None


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}"])
def test_no_record_or_half_of_one_is_no_machine(tmp_path, content):
    if content is not None:
        (tmp_path / "machine.json").write_text(content)
    assert lab_record.find(tmp_path) is None


def test_the_start_is_read_past_a_name_with_brackets():
    """A process may call itself `) S 1 (`: counting fields from the left reads a field of its choice."""
    fields = " ".join(str(n) for n in range(3, 53))
    assert lab_record.start_time(f"7 () S 1 () {fields}") == 22


def refused(labs, given):
    """The ssh to a host that is not up, after all of `given` was written to it or the pipe broke."""
    program = Path(__file__).parents[2] / "roles/lab_host/files/connect.py"
    proxy = f"ProxyCommand={sys.executable} -I {program} {labs} lab7 22"
    ssh = ["ssh", "-F", "none", "-o", proxy, "-o", "LogLevel=ERROR", "lab7"]
    process = subprocess.Popen(ssh, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with contextlib.suppress(BrokenPipeError):
        os.write(process.stdin.fileno(), given)
    return process


def test_a_host_that_is_not_up_is_told_in_the_ssh_protocol(tmp_path):
    """ssh discards a ProxyCommand's stderr, so the sentence has to come as a disconnect of a server."""
    process = refused(tmp_path, b"")
    said = process.communicate()[1].strip()
    assert process.returncode == 255
    assert said.endswith("lab host 'lab7' is not up; start it with: ansible-playbook playbooks/lab.yml")
    assert len(said.splitlines()) == 1


def test_ssh_has_ended_before_what_is_written_to_it_is_cut_off(tmp_path):
    """Ansible looks for the reason only where ssh has ended when its write fails; else it says "Broken pipe"."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})  # one for both: who writes goes on before who ends has ended, now and then
    try:
        for _ in range(5):
            process = refused(tmp_path, bytes(1 << 20))
            ended, said = process.poll(), process.communicate()[1]
            assert ended == 255
            assert "lab host 'lab7' is not up" in said
    finally:
        os.sched_setaffinity(0, cpus)
