"""A hardened host says why it cannot be driven in words of its own: each becomes one cause and one remedy."""

import os

import pytest

from gauntlet.access import explain
from module_utils.gauntlet_host import place
from tests.fake_host import CASES, FakeHost

HOSTS = CASES / "50-restricted-hosts"
CAUSE = {
    "msg-noexec.txt": "mounted noexec",
    "msg-nopython.txt": "there is no Python",
    "msg-tty.txt": "requiretty",
    "msg-pass.txt": "--ask-become-pass",
    "msg-ro.txt": "read-only",
}


@pytest.mark.parametrize("name", sorted(path.name for path in HOSTS.glob("msg-*.txt")))
def test_each_message_has_one_cause_and_keeps_its_words(name):
    """The remedy differs for each; the host's own sentence stays, so that it can be searched for."""
    said = (HOSTS / name).read_text()
    sentence = explain(said)
    assert CAUSE[name] in sentence and said.splitlines()[0] in sentence
    assert [other for other in CAUSE.values() if other in sentence and other != CAUSE[name]] == []


@pytest.mark.parametrize(
    "said",
    [
        "sudo: a password is required",
        "/bin/sh: line 1: /usr/bin/python3.9: No such file or directory",
        "Failed to create temporary directory. In some cases, you may have been able to authenticate",
        "OSError: [Errno 30] Read-only file system: '/etc/sysctl.d/90-gauntlet.conf'",
    ],
)
def test_other_forms_of_the_same_causes(said):
    """sudo, shells and Python say it differently by version."""
    assert explain(said)


def test_a_message_of_another_kind_is_not_explained_away():
    """A wrong cause sends people the wrong way."""
    assert explain("ModuleNotFoundError: No module named 'yaml'") is None
    assert explain("Permission denied (publickey)") is None


def test_a_preflight_names_what_holds_before_anything_is_changed(tmp_path):
    """The case's mount table: root read-only, /tmp and /home noexec."""
    host = FakeHost(tmp_path)
    host.write("/proc/mounts", (HOSTS / "mounts.txt").read_bytes())
    assert place.restrictions(host) == [
        "/ is read-only: nothing below it can be kept over a reboot",
        "/home is noexec: programs there do not start",
        "/tmp is noexec: programs there do not start",
    ]
    host.write("/proc/mounts", "/dev/sda2 / ext4 rw 0 0\nproc /proc proc rw,noexec 0 0\ntmpfs /etc tmpfs rw 0 0\n")
    assert place.restrictions(host) == []
    host.write("/proc/mounts", "/dev/a / ext4 ro 0 0\noverlay / overlay rw 0 0\n")
    assert place.restrictions(host) == []


def test_commands_run_in_the_c_locale(tmp_path, monkeypatch):
    """A German host must not answer with a decimal comma, nor a French one with its own months."""
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de")
    host = FakeHost(tmp_path)
    host.program("says", 'echo "$LC_ALL $LANG $LANGUAGE"')
    assert host.command("says").split() == ["C", "C"]


def test_numa_lists_come_from_the_kernel_and_not_from_a_localized_lscpu(tmp_path):
    """'CPU(s) von NUMA-Knoten0' is not parsed by anybody: the kernel's own lists have no language."""
    from module_utils.gauntlet_host.topology import numa_nodes

    host = FakeHost(tmp_path)
    german = (CASES / "51-locale-and-timestamps/lscpu-de.txt").read_text()
    host.write("/usr/share/lscpu", german)
    host.program("lscpu", f"cat {host.path('/usr/share/lscpu')}")
    assert numa_nodes(host) == {}
    for node, cpus in (("0", "0-63,128-191"), ("1", "64-127,192-255")):
        assert cpus in german
        host.write(f"/sys/devices/system/node/node{node}/cpulist", f"{cpus}\n")
    assert {name: node["cpus"] for name, node in numa_nodes(host).items()} == {
        "0": "0-63,128-191",
        "1": "64-127,192-255",
    }
    assert os.environ.get("LC_ALL") != "de_DE.UTF-8" or host.command("lscpu") == german
