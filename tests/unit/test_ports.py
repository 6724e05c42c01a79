"""Who holds a port, from /proc alone: the name in the message must be the one that listens."""

import os
import socket
import subprocess
import sys

import pytest

from gauntlet import ports


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_listener_is_found_with_its_pid_and_only_while_it_listens(family, address):
    with socket.socket(family) as taken:
        try:
            taken.bind((address, 0))
        except OSError:
            pytest.fail(f"this machine has no {address}")
        number = taken.getsockname()[1]
        assert ports.listeners(number) is None, "bound is not listening"
        taken.listen()
        assert ports.listeners(number) == [os.getpid()]
    assert ports.listeners(number) is None


def test_a_process_is_described_by_command_pid_and_parent():
    said = ports.describe(os.getpid())
    assert f"(pid {os.getpid()}, parent {os.getppid()})" in said and "py" in said


def test_who_is_gone_is_a_pid():
    assert ports.describe(10**8) == "pid 100000000" and ports.parent(10**8) is None


def test_alive_leaves_out_the_gone_and_the_dead_that_wait_for_their_parent():
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert ports.alive([os.getpid(), child.pid, 10**8]) == [os.getpid()]
    child.wait()
