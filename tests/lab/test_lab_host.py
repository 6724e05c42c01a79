"""A lab host must behave like a machine, be found again after any death, and leave nothing when it goes."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from module_utils import lab_record

from .runner import LABS, ROOT, booted, ssh

pytestmark = pytest.mark.lab

LEFT, RIGHT = HOSTS = "lableft", "labright"  # linked; the right one has the fake hardware
KINDS = "net", "pid", "mnt"


def pid(host):
    machine = lab_record.find(LABS / host)
    return machine and machine.pid


def processes():
    """{pid: command line} of everything that runs on this machine."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found


def spaces_of(process):
    """The inodes of its network, pid and mount namespaces."""
    return [os.stat(f"/proc/{process}/ns/{kind}").st_ino for kind in KINDS]


@contextlib.contextmanager
def namespaces(*hosts):
    """The namespaces that the hosts' processes live in, those nspawn made inside too. Held open all along: the kernel
    gives the inode of one that is gone to the next that anybody makes."""
    nets, found = [spaces_of(pid(host))[0] for host in hosts], set()
    with contextlib.ExitStack() as held:
        for process in processes():
            with contextlib.suppress(OSError):
                if spaces_of(process)[0] in nets:
                    files = [held.enter_context(open(f"/proc/{process}/ns/{kind}", "rb")) for kind in KINDS]
                    found |= {os.fstat(file.fileno()).st_ino for file in files}
        yield found.difference(spaces_of("self"))


def inhabited(spaces):
    """Processes that still live in any of these namespaces."""
    found = []
    for process in processes():
        with contextlib.suppress(OSError):
            if spaces.intersection(spaces_of(process)):
                found.append(process)
    return found


def eventually(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def interfaces():
    return [link["ifname"] for link in json.loads(subprocess.check_output(["ip", "-json", "link"]))]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    outside = interfaces()
    with booted(",".join(HOSTS), tmp_path_factory.mktemp("pair")) as pair:
        pair.outside = outside
        yield pair


def test_it_is_a_machine_with_no_way_out(pair):
    """Real systemd with nothing failed, and only its loopback and the link: what it needs must be pushed to it."""
    for host in HOSTS:
        assert (
            ssh(host, "cat /proc/1/comm; systemctl is-system-running --wait; hostname") == f"systemd\nrunning\n{host}"
        )
        routes = ssh(host, "ip -4 route; ip -6 route").splitlines()
        assert not [route for route in routes if "default" in route or "via" in route]


def test_keys_are_its_own_and_only_roots(pair):
    """A key shared through the cache or readable by others would open every lab host of a shared machine."""
    keys = [LABS / host / "id_ed25519" for host in HOSTS]
    keys += [LABS / host / "disk/etc/ssh/ssh_host_ed25519_key" for host in HOSTS]
    assert all(key.stat().st_mode & 0o777 == 0o600 for key in keys)
    assert len({key.read_text() for key in keys}) == len(keys)
    assert all((LABS / host).stat().st_mode & 0o777 == 0o700 for host in HOSTS)
    assert not list(Path("/var/cache/gauntlet-lab").glob("*/root/etc/ssh/ssh_host_*"))


def test_a_second_run_changes_nothing(pair):
    before = [pid(host) for host in HOSTS]
    pair.play("playbooks/lab.yml").unchanged()
    assert [pid(host) for host in HOSTS] == before


def linked():
    """Whether the left host reaches an ssh server at the right one's address."""
    address = ssh(RIGHT, "ip -4 -brief address show scope global").split()[2]
    assert address.startswith("10.77.")
    return ssh(LEFT, f"exec 3<>/dev/tcp/{address}/22; head -1 <&3").startswith("SSH-2.0-")


def test_two_hosts_are_linked_and_this_machine_has_no_part_in_it(pair):
    """Peers that stage from each other need a network; the machine under them must not get one."""
    assert linked()
    assert interfaces() == pair.outside


def test_fake_hardware_is_judged_by_the_tools_people_use(pair):
    """If lspci, setpci, numactl and sysctl did not take it for hardware, tests of host tuning would prove nothing."""
    assert len(re.findall("10de:2bb5", ssh(RIGHT, "lspci -n"))) == 9
    assert "MaxReadReq 512 bytes" in ssh(RIGHT, "lspci -vvs 03:00.0")
    assert "MaxReadReq 128 bytes" in ssh(RIGHT, "lspci -vvs 02:00.0")
    assert "[84]" in ssh(RIGHT, "lspci -t"), "a GPU of the second socket hangs below its switch"
    assert "2 nodes" in ssh(RIGHT, "numactl -H")
    ssh(RIGHT, "setpci -s 03:00.0 CAP_EXP+8.w=5000:7000; sysctl -q kernel.numa_balancing=0")
    assert ssh(RIGHT, "setpci -s 03:00.0 CAP_EXP+8.w; cat /proc/sys/kernel/numa_balancing") == "5937\n0"
    assert ssh(LEFT, "lspci -n | grep -c 10de: || true") == "0", "a host that did not ask has none"


def test_a_reboot_is_real(pair):
    """Everything that re-staging is for: memory is empty, the disk is kept, tuning is lost, the boot is another."""
    before, boot = pid(RIGHT), ssh(RIGHT, "cat /proc/sys/kernel/random/boot_id")
    ssh(RIGHT, "touch /dev/shm/lost /run/lost /root/kept")
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "adhoc", "-i", "inventory/lab", "-i", "tests/lab/inventory", RIGHT,
         "-m", "ansible.builtin.reboot"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert ssh(RIGHT, "cat /proc/sys/kernel/random/boot_id") != boot
    assert ssh(RIGHT, "ls -d /dev/shm/lost /run/lost /root/kept 2>/dev/null || true") == "/root/kept"
    assert ssh(RIGHT, "setpci -s 03:00.0 CAP_EXP+8.w; cat /proc/sys/kernel/numa_balancing") == "2937\n1"
    assert pid(RIGHT) == before
    assert linked(), "the link outlives a reboot of either end"


def test_a_killed_host_is_recognised_and_booted_once(pair):
    """kill -9 of systemd-nspawn or of what holds it must end all of it; two runs at once must not boot two."""
    kept = [ssh(host, "touch /root/kept; cat /etc/machine-id") for host in HOSTS]
    (nspawn,) = (
        p for p, line in processes().items() if line.startswith("systemd-nspawn") and f"--machine {LEFT} " in line
    )
    with namespaces(*HOSTS) as spaces:
        assert len(inhabited(spaces)) > 10
        os.kill(nspawn, signal.SIGKILL)
        os.kill(pid(RIGHT), signal.SIGKILL)
        eventually(lambda: not inhabited(spaces))

    sentence = r"lab host 'lableft' is not up; start it with: ansible-playbook playbooks/lab\.yml"
    pair.play("tests/lab/ping.yml").refused(sentence)

    with ThreadPoolExecutor() as both:
        runs = list(both.map(pair.play, ["playbooks/lab.yml"] * 2))
    assert [run.ok().status for run in runs] == [0, 0]
    for host in HOSTS:
        assert sum(f"--machine {host} " in line for line in processes().values()) == 1
    assert [ssh(host, "ls /root/kept; cat /etc/machine-id") for host in HOSTS] == [f"/root/kept\n{own}" for own in kept]


def test_a_host_half_made_or_without_its_ssh_is_put_right(pair):
    """Half a disk must not be booted; a host that nobody can enter is booted again with all that is on it."""
    os.kill(pid(LEFT), signal.SIGKILL)
    eventually(lambda: pid(LEFT) is None)
    (LABS / LEFT / "image").unlink()  # what says that all is there
    (LABS / LEFT / "disk/etc/ssh/ssh_host_ed25519_key").unlink()
    before = pid(RIGHT)
    ssh(RIGHT, "systemctl stop ssh.service")
    pair.play("playbooks/lab.yml").ok()
    assert ssh(LEFT, "ls /root/kept 2>/dev/null || true") == ""
    assert ssh(RIGHT, "ls /root/kept") == "/root/kept"
    assert pid(RIGHT) != before
    assert linked()


def test_bad_input_is_one_sentence(pair):
    pair.play("playbooks/lab.yml", lab_state="gone").refused("value of lab_host_state must be one of: present, absent")


def test_it_leaves_nothing(pair):
    assert pair.play("playbooks/lab.yml", "--check", lab_state="absent").ok().changes and pid(LEFT)
    with namespaces(*HOSTS) as spaces:
        assert spaces
        pair.play("playbooks/lab.yml", lab_state="absent").ok()
        assert not inhabited(spaces)
    eventually(
        lambda: not [line for line in processes().values() if re.search("lab(left|right)", line) and "ssh" in line]
    )
    assert not [line for line in processes().values() if "nspawn" in line and re.search("lab(left|right)", line)]
    assert interfaces() == pair.outside
    assert not re.search("lab(left|right)", Path("/proc/self/mountinfo").read_text())
    search = ["find", "/run", "/tmp", "/var/lib", "/var/tmp", "/sys/fs/cgroup", "-ignore_readdir_race", "-xdev",
              "-maxdepth", "4", "(", "-name", "*lableft*", "-o", "-name", "*labright*", ")"]  # fmt: skip
    # find fails where others take their files away under it, and then has not seen everything
    eventually(lambda: (found := subprocess.run(search, capture_output=True)).returncode == 0 and not found.stdout)
