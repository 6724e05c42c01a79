"""The conditions of a measurement: the same for the same host, different when something that matters differs."""

import json
import os

import pytest

from module_utils.gauntlet_host import place
from module_utils.gauntlet_host.fingerprint import fingerprint
from tests.fake_host import FakeHost, config_space, eight_gpus

SMI = r"""case "$*" in
*--query-gpu=*) %s ;;
"topo -m") %s ;;
"topo -p2p r") printf ' \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n' ;;
esac"""
ROW = (
    "{i}, 00000000:{bus}:00.0, NVIDIA RTX PRO 6000 Blackwell Server Edition, GPU-{i}, 580.95.05, 98.02.81.00.07, "
    "Enabled, Default, Disabled, 97887, 600.00, 600.00, 300.00, 600.00, 2430, 12481, {clock}, 405, 34, 33.21, 4, [N/A]"
)
BUSES = ("03", "04", "23", "24", "43", "44", "63", "64")


@pytest.fixture
def host(tmp_path):
    host = eight_gpus(tmp_path)
    host.write(
        "/proc/cpuinfo", "processor : 0\nmodel name : AMD EPYC 9575F\nphysical id : 0\ncpu MHz : 1500.1\nflags : fpu\n"
    )
    host.write("/proc/meminfo", "MemTotal:       791000000 kB\nSwapTotal: 0 kB\nMemAvailable: 700000000 kB\n")
    host.write("/proc/sys/kernel/osrelease", "6.14.8-2-pve\n")
    host.write("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda2 quiet iommu=off\n")
    host.write("/proc/sys/kernel/numa_balancing", "1\n")
    host.write(
        "/proc/1/limits",
        "Max open files            1024                 524288               files     \n"
        "Max locked memory         8388608              unlimited            bytes     \n",
    )
    for cpu in range(4):
        host.write(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", "powersave\n")
    card(host, clock=180)
    return host


def card(host, clock):
    rows = "; ".join(f"echo '{ROW.format(i=i, bus=bus, clock=clock)}'" for i, bus in enumerate(BUSES))
    host.program("nvidia-smi", SMI % (rows, "true"))


def again(host):
    """The same files as another run would see them."""
    host.unreadable.clear()
    return fingerprint(host)


def test_the_stable_part_does_not_move_with_clocks_load_and_link_speed(host):
    """Otherwise every run would be under new conditions, and nothing could be resumed."""
    first = again(host)
    card(host, clock=2430)
    host.write("/proc/loadavg", "7.5 2 1 1/1 1\n")
    host.write("/proc/sys/kernel/random/boot_id", "another\n")
    idle = bytearray(host.config("0000:03:00.0"))
    idle[0x72] = idle[0x72] & 0xF0 | 1
    host.write("/sys/bus/pci/devices/0000:03:00.0/config", bytes(idle))
    second = again(host)
    assert second["stable"] == first["stable"]
    assert second["volatile"] != first["volatile"]
    assert second["volatile"]["pcie_links"]["0000:03:00.0"] == {"speed": 2.5, "width": 16}
    assert first["unreadable"] == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("/proc/sys/kernel/numa_balancing", "0\n"),
        ("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda2 quiet\n"),
        ("/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "performance\n"),
        ("/sys/bus/pci/devices/0000:43:00.0/config", config_space(devctl=0x5937)),
        ("/proc/sys/kernel/osrelease", "6.14.11-4-pve\n"),
        ("/run/systemd/container", "lxc\n"),
        ("/etc/nccl.conf", "NCCL_ALGO=Ring\n"),
        ("/var/lib/gauntlet/engines/sglang/.nccl.conf", "NCCL_PROTO=LL\n"),
    ],
    ids=["numa balancing", "command line", "one governor", "one MaxReadReq", "kernel", "container", "NCCL", "own NCCL"],
)
def test_every_condition_that_matters_changes_the_stable_part(host, name, content):
    """A figure measured before the change must not pass for one measured after it."""
    before = again(host)["stable"]
    host.write(name, content)
    assert again(host)["stable"] != before


def test_the_name_of_the_boot_disk_is_not_a_condition(host):
    """Two hosts of equal hardware differ in root=UUID."""
    before = again(host)["stable"]
    host.write("/proc/cmdline", "BOOT_IMAGE=/other root=UUID=1-2 quiet iommu=off\n")
    assert again(host)["stable"] == before


def test_a_comment_in_nccls_file_is_not_a_condition(host):
    host.write("/etc/nccl.conf", "NCCL_ALGO=Ring\n")
    before = again(host)["stable"]
    host.write("/etc/nccl.conf", "# ours\n\n NCCL_ALGO=Ring\n#NCCL_PROTO=LL\n")
    assert again(host)["stable"] == before


def test_gpus_come_with_their_place_and_what_the_driver_says(host):
    """The driver's eight digits of domain, '[N/A]' and the bus are brought together."""
    found = again(host)
    gpu = found["stable"]["gpus"][5]
    assert (gpu["address"], gpu["index"], gpu["numa_node"]) == ("0000:44:00.0", 5, 1)
    assert (gpu["memory.total"], gpu["power.limit"], gpu["bar1_mib"]) == (97887.0, 600.0, 98304)
    assert found["volatile"]["gpus"][5]["utilization.gpu"] is None
    assert "uuid" not in gpu
    assert found["stable"]["tp_groups"]["4"] == {"gpus": [0, 1, 2, 3], "numa_nodes": [0], "cpus": "0-47,96-143"}
    assert found["stable"]["gpu_links"]["0-1"] == "PIX"
    assert "available" in found["stable"]["peer_access"]


def test_the_tree_holds_the_way_to_each_gpu(host):
    """MaxPayload, MaxReadReq and ACS of every bridge above a GPU are conditions too; a management display is not."""
    tree = again(host)["stable"]["pcie"]
    assert tree["0000:03:00.0"]["parent"] == "0000:02:00.0"
    assert tree["0000:02:00.0"]["type"] == "downstream" and tree["0000:02:00.0"]["max_read_request"] == 128
    assert tree["0000:02:00.0"]["acs"] == ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"]
    assert "0000:c2:00.0" not in tree


def test_a_gpu_off_the_bus_is_listed_as_such(host):
    """A dead GPU must neither vanish nor count as healthy."""
    host.write("/sys/bus/pci/devices/0000:64:00.0/config", b"\xff" * 256)
    found = again(host)
    assert [g["responding"] for g in found["stable"]["gpus"]] == [True] * 7 + [False]
    assert "GPU 0000:64:00.0: not responding" in found["unreadable"]


def test_an_unprivileged_reader_says_what_it_could_not_read(host):
    """64 bytes of configuration space are not "no capability"."""
    for bus in BUSES:
        address = f"0000:{bus}:00.0"
        host.write(f"/sys/bus/pci/devices/{address}/config", host.config(address)[:64])
        host.write(f"/sys/bus/pci/devices/{address}/current_link_speed", "2.5 GT/s PCIe\n")
        host.write(f"/sys/bus/pci/devices/{address}/max_link_speed", "32.0 GT/s PCIe\n")
        host.write(f"/sys/bus/pci/devices/{address}/current_link_width", "16\n")
        host.write(f"/sys/bus/pci/devices/{address}/max_link_width", "16\n")
    found = again(host)
    assert "/sys/bus/pci/devices/0000:03:00.0/config: needs root" in found["unreadable"]
    entry = found["stable"]["pcie"]["0000:03:00.0"]
    assert entry["max_read_request"] is None and entry["state"] == "needs root"
    assert (entry["width"], entry["max_speed"]) == (16, 32.0)


def test_without_nvidia_smi_the_kernel_module_still_names_the_gpus(host):
    """A container may have the driver's /proc and no tools."""
    os.unlink(host.path("/usr/bin/nvidia-smi"))
    host.write("/proc/driver/nvidia/gpus/0000:03:00.0/information", "Model: \t\t NVIDIA H200\nVideo BIOS: \t 96.00\n")
    gpu = again(host)["stable"]["gpus"][0]
    assert (gpu["name"], gpu["vbios_version"], gpu["id"]) == ("NVIDIA H200", "96.00", "10de:2bb5")


def test_the_same_keys_on_a_host_that_has_nothing(tmp_path, host):
    """A difference between two hosts must never be a missing key."""
    bare, full = fingerprint(FakeHost(tmp_path / "bare")), again(host)
    assert set(bare["stable"]) == set(full["stable"]) and set(bare["volatile"]) == set(full["volatile"])
    json.dumps(bare)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("/run/systemd/container", "lxc\n", "lxc"),
        ("/proc/1/environ", "TERM=linux\0container=systemd-nspawn\0", "systemd-nspawn"),
        ("/.dockerenv", "", "docker"),
        ("/proc/1/environ", "TERM=linux\0", None),
    ],
)
def test_a_container_is_detected_from_its_traces(tmp_path, name, content, expected):
    """Host-only settings refuse by what is found, not by what an inventory assumes."""
    host = FakeHost(tmp_path)
    host.write(name, content)
    assert place.container(host) == expected


def test_limits_and_cgroup_are_read_in_both_forms(host):
    """cgroup v1 writes a huge number for "no limit"."""
    assert place.limits(host) == {"nofile": 524288, "memlock": "unlimited"}
    host.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    host.write("/proc/1/status", "Cpus_allowed_list:\t0-47\nMems_allowed_list:\t0\n")
    assert place.cgroup(host) == {"memory_bytes": None, "cpu_max": None, "cpus": "0-47", "mems": "0"}
    host.write("/sys/fs/cgroup/memory.max", "824633720832\n")
    assert place.cgroup(host)["memory_bytes"] == 824633720832


def test_a_containers_fingerprint_carries_its_machines(host, tmp_path):
    """Kernel, PCIe and power limit are the machine's: a container is as tuned as both are, and as simulated."""
    guest = FakeHost(tmp_path / "guest")
    machine = again(host)
    assert fingerprint(guest, machine)["volatile"]["tuning_profile"] == "stock"
    machine["volatile"].update(tuning_profile="tuned", simulated=["host tuning: reads"])
    both = fingerprint(guest, machine)["volatile"]
    assert (both["tuning_profile"], both["simulated"]) == ("mixed", ["host tuning: reads"])
    assert both["hypervisor"] is machine
