"""The register that is written must be the right one, on every shape of configuration space, and nothing beside it."""

import json
import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from module_utils.gauntlet_host import pci, read_request
from module_utils.gauntlet_host.host import HostError
from tests.fake_host import CASES, FakeHost, config_space, eight_gpus

WALK = CASES / "02-pcie-capability-walk"
H200 = (CASES.parent / "recordings" / "h200-passthrough.config.bin").read_bytes()


@pytest.fixture
def host(tmp_path):
    return FakeHost(tmp_path)


@pytest.mark.parametrize("name", ["gpu", "switch", "rootport", "rcec", "hostbridge", "iommu"])
def test_each_shape_of_device_is_decoded_at_its_own_offset(name):
    """Capability offsets differ by device; a fixed one edits somebody else's register."""
    expected = json.loads((WALK / "expected.json").read_text())[name]
    (file,) = WALK.glob(f"{name}-*.bin")
    found = pci.decode(file.read_bytes())
    if expected is None:
        assert found == {"state": "no PCIe capability"}
        return
    assert (found["max_payload"], found["max_read_request"]) == (expected["mps"], expected["mrrs"])
    assert found["devctl"] == int(expected["devctl"], 16)
    assert "cap" not in expected or found["cap"] == int(expected["cap"], 16)
    assert "exttag" not in expected or found["ext_tag"] == expected["exttag"]
    assert "type" not in expected or found["type"] == expected["type"]


def test_the_dump_of_lspci_says_the_same_as_the_bytes():
    """The bytes of the case are what `lspci -xxx` printed: the two may not drift apart."""
    lines = (WALK / "gpu-lspci-xxx.txt").read_text().splitlines()[1:]
    dump = bytes.fromhex("".join(line.split(": ", 1)[1] for line in lines if ": " in line))
    assert pci.decode(dump) == pci.decode((WALK / "gpu-0000_06_00.0.config.bin").read_bytes())


def test_a_whole_host_is_set_and_only_the_gpu_register_moves(host):
    """0x2937 becomes 0x5937; bridge, IOMMU and event collector are skipped with their reason, not failed."""
    classes = {
        "gpu": "0302",
        "switch": "0604",
        "rootport": "0604",
        "rcec": "0807",
        "hostbridge": "0600",
        "iommu": "0806",
    }
    before = {}
    for file in WALK.glob("*.bin"):
        name, address = file.name.split("-", 1)
        before[address[:-11].replace("_", ":")] = file.read_bytes()
        host.device(address[:-11].replace("_", ":"), file.read_bytes(), classes[name])
    outcomes = {d.address: read_request.request(d, 4096) for d in read_request.select(host, [{}])}
    assert {a: (o["outcome"], o["why"]) for a, o in outcomes.items() if o["outcome"] == "skipped"} == {
        "0000:00:00.0": ("skipped", "no PCIe capability"),
        "0000:00:00.2": ("skipped", "no PCIe capability"),
        "0000:00:00.3": ("skipped", "an event collector issues no reads"),
    }
    gpu = host.config("0000:06:00.0")
    assert gpu[0x68:0x6A] == bytes.fromhex("3759")
    assert gpu[:0x69] + gpu[0x6A:] == (w := before["0000:06:00.0"])[:0x69] + w[0x6A:]


def test_a_real_h200_as_a_virtual_machine_sees_it():
    """Recorded from hardware: MaxReadReq 4096 at 0x60, and extended space that begins with an empty capability."""
    found = pci.decode(H200)
    assert (found["state"], found["type"], found["devctl"]) == ("ok", "endpoint", 0x5134)
    assert (found["max_payload"], found["max_read_request"]) == (256, 4096)
    assert found["link"] == {"speed": 32.0, "width": 16, "max_speed": 32.0, "max_width": 16}
    assert pci.find_extended(H200, 0x0001) == 0x1B8
    assert found["acs"] is None


def test_64_bytes_are_unreadable_not_absent(host):
    """An unprivileged reader gets the header only: neither "no capability" nor the 128 of zeroed bytes is true."""
    folder = CASES / "03-config-64-bytes-nonroot"
    header = (folder / "gpu.config.bin").read_bytes()
    host.device("0000:06:00.0", header)
    without_list = bytearray(header)
    without_list[6] &= ~0x10
    host.device("0000:00:18.1", bytes(without_list), "0600")
    outcomes = [read_request.request(d, 4096) for d in pci.devices(host)]
    assert [(o["outcome"], o["why"], o["before"]) for o in outcomes] == [
        ("skipped", "no PCIe capability", None),
        ("skipped", "needs root", None),
    ]
    # the judge of the same case: lspci says access denied for one, Cap- for the other
    assert "<access denied>" in (folder / "lspci-vv.txt").read_text()
    assert host.config("0000:06:00.0") == header


def test_a_device_off_the_bus_is_not_written_and_the_others_are(host):
    """All ones decode to a reserved code and to the reset bit: nothing may be written, its neighbour still is."""
    gone = (CASES / "04-config-all-ones" / "gpu.config.bin").read_bytes()
    host.device("0000:06:00.0", config_space())
    host.device("0000:07:00.0", gone)
    outcomes = {d.address: read_request.request(d, 4096) for d in read_request.select(host, [{"vendor": "10de"}])}
    assert outcomes["0000:06:00.0"]["outcome"] == "changed"
    assert (outcomes["0000:07:00.0"]["outcome"], outcomes["0000:07:00.0"]["why"]) == ("skipped", "not responding")
    assert host.config("0000:07:00.0") == gone


@pytest.mark.parametrize("length", [0, 1, 63, 65, 0x62, 0x6C])
def test_a_truncated_file_is_never_decoded(length):
    """A short read must not turn into zeros."""
    assert pci.decode(config_space(length=length))["state"] == "truncated"


def test_a_loop_in_the_capability_list_ends():
    """Broken firmware points a capability at itself."""
    space = bytearray(config_space())
    space[0x41] = 0x40
    assert pci.decode(bytes(space))["state"] == "no PCIe capability"
    space = bytearray(config_space(acs=0))
    space[0x148:0x14C] = (0x148 << 20 | 0x0001).to_bytes(4, "little")
    assert pci.find_extended(bytes(space), pci.ACS) is None


def test_the_reset_bit_is_never_written(host):
    """Bit 15 of Device Control resets an endpoint and reads as 0: a 1 there says that it cannot be trusted."""
    host.device("0000:06:00.0", config_space(devctl=0xA937))
    outcome = read_request.request(pci.Device(host, "0000:06:00.0"), 4096)
    assert outcome["outcome"] == "skipped" and "reset bit" in outcome["why"]
    assert host.config("0000:06:00.0") == config_space(devctl=0xA937)


def fixed(mask, value):
    """A register of which some bits do not follow what is written: pwrite with those bits forced."""
    real = os.pwrite

    def pwrite(file, content, offset):
        written = int.from_bytes(content, "little")
        return real(file, (written & ~mask | value).to_bytes(2, "little"), offset)

    return pwrite


@pytest.mark.parametrize(
    ("value", "outcome", "after"), [(0x2000, "read-only", 512), (0x3000, "capped", 1024)], ids=["read-only", "capped"]
)
def test_a_register_that_does_not_follow_is_reported(host, monkeypatch, value, outcome, after):
    """Switch ports fix MaxReadReq and say nothing when written: only the read-back tells."""
    host.device("0000:06:00.0", config_space())
    monkeypatch.setattr(pci.os, "pwrite", fixed(0x7000, value))
    result = read_request.request(pci.Device(host, "0000:06:00.0"), 4096)
    assert (result["outcome"], result["after"]) == (outcome, after)


def test_a_check_changes_nothing_and_a_second_run_neither(host):
    """--check predicts, the run does, the run after it finds nothing to do."""
    host.device("0000:06:00.0", config_space())
    device = pci.Device(host, "0000:06:00.0")
    assert read_request.request(device, 4096, check=True)["outcome"] == "changed"
    assert host.config("0000:06:00.0") == config_space()
    assert read_request.request(device, 4096)["outcome"] == "changed"
    assert read_request.request(device, 4096)["outcome"] == "unchanged"


def test_a_size_the_register_cannot_say_is_refused(host):
    """8192 would need the reserved code 6."""
    host.device("0000:06:00.0", config_space())
    with pytest.raises(HostError, match="8192 is not one of 128, 256"):
        pci.Device(host, "0000:06:00.0").set_max_read_request(8192)


def test_selection_by_vendor_class_address_and_driver(tmp_path):
    """Any entry that matches takes a device; addresses are taken with and without their domain."""
    host = eight_gpus(tmp_path)

    def chosen(*patterns):
        return [d.address for d in read_request.select(host, list(patterns))]

    gpus = chosen({"vendor": "10DE", "device_class": "03*"})
    assert len(gpus) == 8 and gpus[0] == "0000:03:00.0"
    assert chosen({"address": "03:00.0"}) == chosen({"address": "0000:03:00.0"}) == ["0000:03:00.0"]
    assert chosen({"driver": "nvme"}) == ["0000:c1:00.0"]
    assert chosen({"driver": "nvme"}, {"address": "04:*"}) == ["0000:04:00.0", "0000:c1:00.0"]
    assert chosen({"vendor": "dead"}) == []


def test_bridges_above_a_device_come_from_the_bus_numbers(tmp_path):
    """The chain GPU → switch port → switch → root port holds without the nesting of sysfs, as in a copied tree."""
    devices = pci.devices(eight_gpus(tmp_path))
    gpu = next(d for d in devices if d.address == "0000:24:00.0")
    assert [d.address for d in pci.ancestors(gpu, devices)] == ["0000:22:01.0", "0000:21:00.0", "0000:20:01.1"]


def test_pcie_bus_perf_is_warned_of(host):
    """That kernel option writes MaxReadReq itself: the two undo each other."""
    host.write("/proc/cmdline", "quiet pci=noaer,pcie_bus_perf\n")
    assert read_request.warnings(host) == [read_request.BUS_PERF]
    host.write("/proc/cmdline", "quiet pci=noaer\n")
    assert read_request.warnings(host) == []


@given(
    st.integers(0, 2**32 - 1).map(random.Random),
    st.integers(0x10, 0x3A).map(lambda n: n * 4),
    st.sampled_from([0, 1, 4, 5, 6, 7, 9]),
    st.integers(0, 0x7FFF),
    st.sampled_from(pci.READ_SIZES),
)
def test_no_other_bit_of_the_4096_bytes_ever_changes(tmp_path_factory, noise, cap, kind, devctl, size):
    """Whatever the rest of the space holds, at most bits 14:12 of one word differ afterwards."""
    space = bytearray(noise.randbytes(4096))
    space[0:2], space[0x06], space[0x0E], space[0x34] = b"\xde\x10", 0x10, 0, cap
    space[cap : cap + 4] = bytes([0x10, 0, kind << 4 | 2, 0])
    space[cap + 8 : cap + 10] = devctl.to_bytes(2, "little")
    host = FakeHost(tmp_path_factory.mktemp("pci", numbered=True))
    host.device("0000:06:00.0", bytes(space))
    result = read_request.request(pci.Device(host, "0000:06:00.0"), size)
    after = host.config("0000:06:00.0")
    assert result["after"] == size
    difference = int.from_bytes(bytes(space), "little") ^ int.from_bytes(after, "little")
    assert difference & ~(0x7000 << 8 * (cap + 8)) == 0
