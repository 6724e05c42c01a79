"""Settings are set once, kept, found again, and given back; what a host lacks or refuses is said and stops nothing."""

import json
import os
import subprocess
import sys

import pytest
import yaml

from gauntlet import catalog, settings
from module_utils.gauntlet_host import boot, explained, files, kinds, pci, record, table, tuning, verify
from module_utils.gauntlet_host import settings as host_settings
from module_utils.gauntlet_host.host import HostError
from tests.fake_host import CASES, FakeHost, eight_gpus

BOTH = ["hypervisors", "inference"]
GPUS = [{"vendor": "10de", "device_class": "03*"}]
ROOT = CASES.parents[1]


def setting(name, kind, wanted=None, where="hypervisor", **keys):
    return {"name": name, "kind": kind, "where": where, "wanted": wanted, "enabled": True, **keys}


NUMA = setting("numa-balancing", "sysctl", 0, key="kernel.numa_balancing")
GOVERNOR = setting(
    "cpu-governor", "sysfs", "performance", path="/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"
)
READS = setting("reads", "max_read_request", 4096, select=GPUS)
LXC = setting("lxc-limits", "lxc_config", containers=[200], lines={"lxc.prlimit.memlock": "unlimited", "cores": None})
CONTAINER = "arch: amd64\ncores: 16\nmemory: 786432\n\n[before-upgrade]\ncores: 8\nlxc.prlimit.memlock: 1\n"


@pytest.fixture
def host(tmp_path):
    host = eight_gpus(tmp_path)
    host.write("/proc/sys/kernel/numa_balancing", "1\n")
    host.write("/proc/sys/vm/swappiness", "60\n")
    for cpu in range(2):
        host.write(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", "powersave\n")
    host.write("/etc/pve/lxc/200.conf", CONTAINER)
    return host


def snapshot(host):
    """Every file of the host but directories: what 'as it was' means."""
    return {
        os.path.relpath(os.path.join(folder, name), host.root): open(os.path.join(folder, name), "rb").read()
        for folder, _, names in os.walk(host.root)
        for name in names
        if not os.path.islink(os.path.join(folder, name))
    }


def mrrs(host):
    return {d.decode()["max_read_request"] for d in pci.devices(host) if d.vendor == 0x10DE}


def test_apply_again_check_and_back(host):
    """The whole life: a check predicts and changes nothing, a second run finds nothing to do, the way back is whole."""
    before = snapshot(host)
    wanted = [NUMA, GOVERNOR, READS, LXC]
    predicted = tuning.apply(host, wanted, check=True)
    assert snapshot(host) == before
    done = tuning.apply(host, wanted)
    assert done.targets == predicted.targets and done.files == predicted.files and done.refused == []
    assert (host.text("/proc/sys/kernel/numa_balancing"), mrrs(host)) == ("0", {4096})
    assert host.text("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor") == "performance"
    assert not tuning.apply(host, wanted).changed and not tuning.apply(host, wanted, check=True).changed
    assert tuning.apply(host, [], check=True).changed
    back = tuning.apply(host, [])
    assert back.changed and back.refused == []
    restored = snapshot(host)
    # the kernel's files have no newline of their own; the rest is byte for byte
    assert {k: v.strip() for k, v in restored.items() if "lxc" not in k} == {
        k: v.strip() for k, v in before.items() if "lxc" not in k
    }
    assert not tuning.apply(host, []).changed


def test_a_container_configuration_keeps_its_snapshots_and_gets_its_lines_back(host):
    """Snapshots under [name] hold the same keys: only the container itself is edited."""
    tuning.apply(host, [LXC])
    text = host.text("/etc/pve/lxc/200.conf")
    now, past = text.split("\n[")
    assert "lxc.prlimit.memlock: unlimited" in now.splitlines() and "cores" not in now
    assert past == "before-upgrade]\ncores: 8\nlxc.prlimit.memlock: 1"
    tuning.apply(host, [])
    now, past = host.text("/etc/pve/lxc/200.conf").split("\n[")
    assert sorted(filter(None, now.splitlines())) == ["arch: amd64", "cores: 16", "memory: 786432"]
    assert past == "before-upgrade]\ncores: 8\nlxc.prlimit.memlock: 1"


def test_originals_are_those_of_the_first_time(host):
    """A later apply, with another value, must not record our own value as the host's."""
    tuning.apply(host, [READS])
    tuning.apply(host, [{**READS, "wanted": 1024}])
    assert mrrs(host) == {1024}
    tuning.apply(host, [])
    assert mrrs(host) == {512}


def test_a_setting_that_is_no_longer_wanted_is_given_back(host):
    """Switching one off in the inventory is a change like switching it on, and so is a narrower selection."""
    tuning.apply(host, [NUMA, READS])
    narrower = tuning.apply(host, [{**READS, "select": [{"address": "03:00.0"}]}])
    assert narrower.refused == [] and len(narrower.targets) == 8
    assert host.text("/proc/sys/kernel/numa_balancing") == "1"
    assert pci.Device(host, "0000:03:00.0").decode()["max_read_request"] == 4096
    assert pci.Device(host, "0000:04:00.0").decode()["max_read_request"] == 512
    assert not host.exists("/etc/sysctl.d/90-gauntlet.conf")


def test_another_device_in_the_same_slot_is_not_given_the_first_ones_value(host):
    """Originals belong to a device, not to its address."""
    tuning.apply(host, [READS])
    folder = "/sys/bus/pci/devices/0000:03:00.0"
    host.write(f"{folder}/device", "0x2335\n")
    tuning.apply(host, [])
    assert pci.Device(host, "0000:03:00.0").decode()["max_read_request"] == 4096
    assert pci.Device(host, "0000:04:00.0").decode()["max_read_request"] == 512


def reboot(host, original):
    """The hardware forgets, the files stay."""
    for address in host.entries("/sys/bus/pci/devices"):
        host.write(f"/sys/bus/pci/devices/{address}/config", original[f"sys/bus/pci/devices/{address}/config"])
    host.write("/proc/sys/kernel/numa_balancing", "1\n")


def test_the_boot_program_sets_again_what_a_reboot_lost(host):
    """It runs as the unit runs it, from the files that were written, without this repository."""
    before = snapshot(host)
    tuning.apply(host, [NUMA, READS])
    reboot(host, before)
    program = host.path("/opt/gauntlet/libexec")
    command = [sys.executable, "-I", "-B", "-c", f"import sys; sys.path.insert(0, {program!r}); "
               f"from gauntlet_host.boot import main; sys.exit(main({host.root!r}))"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert mrrs(host) == {4096} and host.text("/proc/sys/kernel/numa_balancing") == "0"
    assert "reads: 0000:03:00.0 512 -> 4096" in done.stdout.splitlines()
    tuning.apply(host, [])
    assert mrrs(host) == {512}


def test_the_boot_program_records_a_device_that_is_new(host):
    """A GPU added later is set by the unit before any playbook saw it; its own value must still come back."""
    gone = host.config("0000:64:00.0")
    host.write("/sys/bus/pci/devices/0000:64:00.0/config", b"\xff" * 64)
    tuning.apply(host, [READS])
    host.write("/sys/bus/pci/devices/0000:64:00.0/config", gone)
    assert boot.main(host.root) == 0
    assert mrrs(host) == {4096}
    tuning.apply(host, [])
    assert mrrs(host) == {512}


def test_the_boot_program_refuses_in_a_container(host, capsys):
    """A root file system copied into a container must not start tuning its machine."""
    tuning.apply(host, [NUMA])
    host.write("/proc/sys/kernel/numa_balancing", "1\n")
    host.write("/run/systemd/container", "lxc\n")
    assert boot.main(host.root) == 1
    assert "container (lxc)" in capsys.readouterr().err and host.text("/proc/sys/kernel/numa_balancing") == "1"


def test_the_unit_and_the_rule_start_the_same_program(host):
    """One program at boot, on hot-plug and in the playbook; a oneshot that stays active would not start again."""
    tuning.apply(host, [NUMA, READS])
    unit, rule = host.text(files.UNIT), host.text(host_settings.RULE)
    assert "-m gauntlet_host.boot" in unit and "Before=pve-guests.service" in unit
    assert "RemainAfterExit" not in unit and "StartLimitIntervalSec=0" in unit
    assert rule.splitlines()[1:] == [
        'ACTION=="add", SUBSYSTEM=="pci", ATTR{vendor}=="0x10de", ATTR{class}=="0x03*", TAG+="systemd", '
        'ENV{SYSTEMD_WANTS}+="gauntlet-host-tuning.service"'
    ]
    assert "gauntlet-host-tuning.service" in host.text(files.ENABLED)


def test_the_rule_watches_for_the_devices_that_were_selected(host):
    """Without a setting of PCI devices none is watched for; sysfs has two more digits of class than lspci."""
    tuning.apply(host, [NUMA])
    assert not host.exists(host_settings.RULE)
    tuning.apply(host, [{**READS, "select": [{"address": "3:00.0", "device_class": "0302"}, {"driver": "nvme"}]}])
    first, second = host.text(host_settings.RULE).splitlines()[1:]
    assert 'KERNEL=="0000:3:00.0", ATTR{class}=="0x0302??"' in first
    assert 'SUBSYSTEM=="pci", TAG+="systemd"' in second


# --- what hosts lack and refuse --------------------------------------------------------------------------------------


def test_keys_that_this_kernel_lacks_are_reported_and_the_others_set(tmp_path):
    """Two keys set, one already right, two skipped with their reasons; the second run changes nothing."""
    folder = CASES / "40-sysctl-key-missing"
    host = FakeHost(tmp_path)
    for line in (folder / "probe-host.txt").read_text().splitlines():
        if " = " in line:
            key, value = line.split(" = ")
            host.write(f"/proc/sys/{key.replace('.', '/')}", f"{value}\n")
    host.write("/sys/kernel/mm/ksm/run", "0\n")
    wanted = yaml.safe_load((folder / "wanted.yml").read_text())["sysctl"]
    specs = [setting(key, "sysctl", value, key=key) for key, value in wanted.items()]
    done = tuning.apply(host, specs)
    assert [(c["target"], c["after"]) for c in done.targets] == [
        ("kernel.numa_balancing", "0"),
        ("vm.max_map_count", "1048576"),
    ]
    report = {entry["setting"]: entry for entry in verify.verify(host, specs, BOTH)}
    assert report["vm.zone_reclaim_mode"]["verdict"] == "ok"
    why = {name: entry["items"][0]["why"] for name, entry in report.items() if entry["verdict"] == "not here"}
    assert why == {
        "net.netfilter.nf_conntrack_max": "there is no sysctl net.netfilter.nf_conntrack_max on this kernel",
        "kernel.mm.ksm.run": "there is no sysctl kernel.mm.ksm.run: it is /sys/kernel/mm/ksm/run, kind sysfs",
    }
    # one unknown key in the file would fail all of it at boot
    assert host.text(tuning_file := "/etc/sysctl.d/90-gauntlet.conf").count("=") == 3, tuning_file
    assert not tuning.apply(host, specs).changed
    assert verify.faults(host, list(report.values()), None) == []


def test_a_container_that_is_asked_for_a_machines_setting_says_where_to_set_it(host):
    """apply-lxc.txt is what people get instead: read-only file system, one key at a time."""
    host.write("/run/systemd/container", (CASES / "38-lxc-nvidia-uvm-missing/detect-virt.txt").read_text())
    asked = [{**NUMA, "asked": True}]
    with pytest.raises(HostError, match=r"container \(lxc\), where it cannot be set: run it on pve1"):
        tuning.here(host, asked, ["inference"], "pve1", False)
    with pytest.raises(HostError, match=r"container \(lxc\) and is in the inventory group hypervisors.*put pve1"):
        tuning.here(host, [NUMA], BOTH, "pve1", False)
    assert tuning.here(host, [NUMA], ["inference"], "pve1", False) == []
    assert tuning.here(host, [NUMA], BOTH, None, True) == [NUMA]


def test_where_a_setting_belongs(host):
    """A machine's settings go to hypervisors, a guest's to whoever runs an engine, and bare metal is both."""
    guest = setting("remove-ipc", "systemd", "no", where="guest", daemon="logind", key="RemoveIPC")
    off = {**READS, "enabled": False}

    def names(groups):
        return [spec["name"] for spec in tuning.here(host, [NUMA, guest, off], groups, None, False)]

    assert names(BOTH) == ["numa-balancing", "remove-ipc"]
    assert names(["hypervisors"]) == ["numa-balancing"]
    assert names(["inference"]) == ["remove-ipc"]
    assert names([]) == []
    host.write("/etc/pve/local", "")
    with pytest.raises(HostError, match="Proxmox node and is only in the inventory group inference"):
        names(["inference"])
    assert names(BOTH) == ["numa-balancing", "remove-ipc"]


def test_what_the_kernel_refuses_is_named_and_expected_the_next_time(host, monkeypatch):
    """In a container /proc/sys is read-only: one key refused, the others set, and a check does not promise it again."""
    real = type(host).write

    def refusing(self, name, content):
        if name.endswith("swappiness"):
            raise HostError(f"{name} refuses {content!r}: Read-only file system")
        return real(self, name, content)

    monkeypatch.setattr(type(host), "write", refusing)
    wanted = [NUMA, setting("swappiness", "sysctl", 10, key="vm.swappiness")]
    assert tuning.apply(host, wanted, check=True).changed
    done = tuning.apply(host, wanted)
    assert done.refused == ["swappiness: /proc/sys/vm/swappiness refuses '10': Read-only file system"]
    assert [c["setting"] for c in done.targets] == ["numa-balancing"]
    again = tuning.apply(host, wanted, check=True)
    assert not again.changed and "did not take 10 last time" in again.refused[0]
    assert not tuning.apply(host, wanted).changed


def test_a_value_that_is_written_and_does_not_stay_is_not_a_change(host, monkeypatch):
    """Some registers swallow a write without an error; only reading back tells."""
    monkeypatch.setattr(pci.Device, "set_max_read_request", lambda self, size: self.decode())
    done = tuning.apply(host, [READS])
    assert done.targets == [] and len(done.refused) == 8
    assert "the register stays at 512" in done.refused[0]


def test_an_option_that_undoes_a_setting_is_said_with_it(host):
    """pci=pcie_bus_perf sets the same register at boot: without the sentence people look for the fault in our unit."""
    host.write("/proc/cmdline", "quiet pci=pcie_bus_perf\n")
    assert "pcie_bus_perf" in tuning.apply(host, [READS]).refused[0]
    assert tuning.apply(host, [NUMA]).refused == []


def read_only(monkeypatch, part):
    """Files below a folder cannot be renamed into place, as on a root that is mounted read-only."""
    real = os.rename

    def rename(source, target):
        if part in str(target):
            raise OSError(30, "Read-only file system")
        real(source, target)

    monkeypatch.setattr(record.os, "rename", rename)


def test_a_read_only_root_is_said_file_by_file(host, monkeypatch):
    """What could be set is set; what could not be kept is listed."""
    read_only(monkeypatch, "/etc/")
    done = tuning.apply(host, [NUMA])
    assert host.text("/proc/sys/kernel/numa_balancing") == "0"
    assert "/etc/sysctl.d/90-gauntlet.conf could not be written: Read-only file system" in done.refused


def test_nothing_is_set_where_the_originals_cannot_be_recorded(host, monkeypatch):
    """A change that cannot be undone is not made."""
    read_only(monkeypatch, "/var/lib/")
    with pytest.raises(HostError, match="host-tuning.json cannot be written, so nothing is set: Read-only file system"):
        tuning.apply(host, [NUMA])
    assert host.text("/proc/sys/kernel/numa_balancing") == "1"


def test_a_run_that_is_killed_after_the_first_write_can_be_undone(host, monkeypatch):
    """The record is on the disk before anything is set, else the next run would take our value for the host's."""
    real = pci.Device.set_max_read_request

    def killed(self, size):
        if self.address == "0000:24:00.0":
            raise KeyboardInterrupt
        return real(self, size)

    monkeypatch.setattr(pci.Device, "set_max_read_request", killed)
    with pytest.raises(KeyboardInterrupt):
        tuning.apply(host, [READS])
    monkeypatch.undo()
    assert mrrs(host) == {512, 4096}
    tuning.apply(host, [READS])
    assert mrrs(host) == {4096}
    tuning.apply(host, [])
    assert mrrs(host) == {512}


def test_a_damaged_record_is_said_and_nothing_is_set(host):
    """Without it nobody knows the way back."""
    host.write(record.RECORD, '{"settings": {"numa')
    with pytest.raises(HostError, match="host-tuning.json is damaged"):
        tuning.apply(host, [NUMA])
    assert host.text("/proc/sys/kernel/numa_balancing") == "1"


def test_two_settings_of_one_target_are_refused(host):
    """Else each run would undo the other, for ever changed."""
    with pytest.raises(HostError, match="settings numa-balancing and mine both set kernel.numa_balancing"):
        tuning.apply(host, [NUMA, {**NUMA, "name": "mine", "wanted": 1}])


def test_what_stands_for_a_machine_in_a_container_is_recorded_as_simulated(host):
    """Results of a test host name all that was not a machine's own; a value that was right before is."""
    host.write("/run/systemd/container", "systemd-nspawn\n")
    guest = setting("remove-ipc", "systemd", "no", where="guest", daemon="logind", key="RemoveIPC")
    missing = setting("gone", "sysctl", 1, key="no.such_key")
    already = setting("swappiness", "sysctl", 60, key="vm.swappiness")
    tuning.apply(host, [NUMA, READS, guest, missing, already], simulated=True)
    assert record.Record(host).simulated == ["numa-balancing", "reads"]


# --- looking ---------------------------------------------------------------------------------------------------------


def test_verify_says_what_is_found_where_it_is_kept_and_what_to_do(host):
    """A value that is right now and lost at the next reboot is not the same as one that is kept."""
    host.write("/usr/lib/sysctl.d/50-other.conf", "kernel.numa_balancing = 0\n")
    host.write("/etc/sysctl.d/99-mine.conf", "# nothing\nkernel/numa_balancing=1\n")
    (entry,) = verify.verify(host, [NUMA], BOTH)
    (item,) = entry["items"]
    assert (item["found"], item["verdict"], item["kept"]) == ("1", "differs", "/etc/sysctl.d/99-mine.conf says 1")
    assert item["how"] == "sysctl -w kernel.numa_balancing=0, and that line in /etc/sysctl.d/90-gauntlet.conf"
    before = snapshot(host)
    verify.verify(host, [NUMA, READS, GOVERNOR, LXC], [])
    assert snapshot(host) == before


def test_the_profile_follows_from_what_is_read(host):
    """stock: nothing of ours; tuned: all that we set reads as set; mixed: something moved, or cannot be read."""
    assert verify.profile(host) == "stock"
    tuning.apply(host, [NUMA, READS])
    assert verify.profile(host) == "tuned"
    host.write("/proc/sys/kernel/numa_balancing", "1\n")
    assert verify.profile(host) == "mixed"
    tuning.apply(host, [NUMA, READS])
    address = "0000:03:00.0"
    host.write(f"/sys/bus/pci/devices/{address}/config", host.config(address)[:64])
    assert verify.profile(host) == "mixed"
    tuning.apply(host, [])
    assert verify.profile(host) == "stock"


def test_unreadable_fails_on_the_machine_and_not_in_its_container(host):
    """Whoever cannot see a setting must not call it good; a container's hypervisor is the one to ask."""
    address = "0000:03:00.0"
    host.write(f"/sys/bus/pci/devices/{address}/config", host.config(address)[:64])
    tuning.apply(host, [READS])
    report = verify.verify(host, [READS], BOTH)
    assert report[0]["verdict"] == "cannot be read here"
    assert verify.faults(host, report, None) == [f"reads: {address} cannot be read here: needs root"]
    host.write("/run/systemd/container", "lxc\n")
    assert verify.faults(host, verify.verify(host, [READS], ["inference"]), "pve1") == []


def test_a_guest_setting_is_not_judged_on_a_machine_that_runs_no_engine(host):
    """A Proxmox node whose engines live in containers has its own reasons for its logind."""
    guest = setting("nofile", "ceiling", 1024, where="guest", limit="nofile")
    host.write("/proc/1/limits", "Max open files            1024                 512               files     \n")
    assert verify.verify(host, [guest], ["hypervisors"])[0]["verdict"] == "off"
    assert verify.verify(host, [guest], [])[0]["verdict"] == "differs"
    host.write("/etc/pve/local", "")
    assert verify.verify(host, [guest], [])[0]["verdict"] == "off"


def test_the_table_has_a_line_a_setting_and_the_way_to_change_it(host):
    """Eight GPUs are one line."""
    text = table.render(verify.verify(host, [NUMA, READS, {**GOVERNOR, "enabled": False}], BOTH))
    assert "reads           4096 (all 8)  512 (all 8)  -        differs" in text.splitlines()
    assert (
        "reads: setpci -s 0000:03:00.0 CAP_EXP+8.w=5000:7000, at every boot  (and 7 more like it)" in text.splitlines()
    )
    assert "cpu-governor" not in text


# --- explained, not written ------------------------------------------------------------------------------------------


def look(host, kind, wanted=None, **keys):
    (entry,) = verify.verify(host, [setting("it", kind, wanted, **keys)], [])
    return {item["target"]: item for item in entry["items"]}


def test_acs_redirection_is_found_on_the_ports_above_gpus(host):
    """0x1D has ReqRedir and CmpltRedir on; a switch's upstream port without ACS is not a fault."""
    items = look(host, "acs", "off")
    assert items["0000:02:00.0"]["found"] == "ReqRedir CmpltRedir" and items["0000:02:00.0"]["verdict"] == "differs"
    assert items["0000:02:00.0"]["how"].startswith("setpci -s 0000:02:00.0 ECAP_ACS+6.w=0:0c")
    assert items["0000:01:00.0"]["verdict"] == "not here"
    assert "0000:03:00.0" not in items


def test_a_narrow_link_differs_and_an_idle_speed_does_not(host):
    """x8 of x16 is a fault of the slot; 2.5 of 32 GT/s is a GPU at rest."""

    def status(value):
        space = bytearray(host.config("0000:03:00.0"))
        space[0x72:0x74] = value.to_bytes(2, "little")
        host.write("/sys/bus/pci/devices/0000:03:00.0/config", bytes(space))
        return look(host, "link", "full")["0000:03:00.0"]

    assert status(0x0101)["verdict"] == "ok" and "rest speed" in status(0x0101)["found"]
    narrow = status(0x0085)
    assert narrow["verdict"] == "differs" and narrow["found"].startswith("narrow: x8 of x16 at 32")


@pytest.mark.parametrize(
    ("command_line", "present", "file", "command"),
    [
        ("BOOT_IMAGE=/x root=/dev/sda2", ["/etc/default/grub"], "LINUX_DEFAULT of /etc/default/grub", "update-grub"),
        ("BOOT_IMAGE=/x root=/dev/sda2", ["/etc/default/grub.d/gpu.cfg"], "/etc/default/grub.d/gpu.cfg", "update-grub"),
        (
            "initrd=\\EFI\\proxmox\\6.14\\initrd.img root=ZFS=rpool",
            ["/etc/default/grub", "/etc/kernel/cmdline", "/usr/bin/proxmox-boot-tool"],
            "in /etc/kernel/cmdline",
            "proxmox-boot-tool refresh",
        ),
        ("console=ttyS0", [], "the kernel command line of the machine", "reboot"),
    ],
    ids=["grub", "grub.d", "systemd-boot on Proxmox", "virtual machine"],
)  # fmt: skip
def test_the_file_that_really_feeds_the_command_line(tmp_path, command_line, present, file, command):
    """Editing /etc/default/grub on a host that boots by systemd-boot silently does nothing."""
    host = FakeHost(tmp_path)
    host.write("/proc/cmdline", command_line + "\n")
    for name in present:
        host.write(name, 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n').chmod(0o755)
    item = look(host, "command_line", ["iommu=pt"])["iommu=pt"]
    assert item["verdict"] == "differs" and file in item["how"] and command in item["how"] and "reboot" in item["how"]


def test_the_loader_names_itself_in_an_efi_variable(tmp_path):
    """Proxmox writes both files; what booted is in LoaderInfo."""
    host = FakeHost(tmp_path)
    host.write("/proc/cmdline", "BOOT_IMAGE=/x quiet\n")
    host.write("/etc/default/grub", "")
    info = b"\x06\0\0\0" + "systemd-boot 252.39\0".encode("utf-16-le")
    host.write("/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f", info)
    assert explained.boot_loader(host)[0] == "/etc/kernel/cmdline"


def test_an_option_given_now_and_not_kept_is_shown_as_such(tmp_path):
    """Somebody typed it into the loader's menu: gone at the next boot."""
    host = FakeHost(tmp_path)
    host.write("/proc/cmdline", "BOOT_IMAGE=/x iommu=pt pci=pcie_bus_perf\n")
    host.write("/etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet pci=pcie_bus_perf"\n')
    items = look(host, "command_line", ["iommu=pt"], unwanted=["pci=pcie_bus_perf"])
    assert (items["iommu=pt"]["verdict"], items["iommu=pt"]["kept"]) == ("ok", None)
    unwanted = items["pci=pcie_bus_perf"]
    assert (unwanted["verdict"], unwanted["kept"]) == ("differs", "/etc/default/grub")
    assert unwanted["how"].startswith("remove pci=pcie_bus_perf")


def test_iommu_mode_is_what_the_groups_say(tmp_path):
    """The command line is a wish; the domain type of the groups is the fact."""
    host = FakeHost(tmp_path)
    (tmp_path / "sys/kernel/iommu_groups").mkdir(parents=True)
    assert look(host, "iommu", ["off", "identity"])["iommu"]["verdict"] == "ok"
    host.write("/sys/kernel/iommu_groups/0/type", "DMA-FQ\n")
    item = look(host, "iommu", ["off", "identity"])["iommu"]
    assert (item["found"], item["verdict"]) == ("DMA-FQ", "differs")
    host.write("/sys/kernel/iommu_groups/0/type", "identity\n")
    assert look(host, "iommu", ["off", "identity"])["iommu"]["verdict"] == "ok"


def test_module_options_are_read_from_the_loaded_module(tmp_path):
    """A file under /etc/modprobe.d says what the next load may do, once the initramfs has it too."""
    host = FakeHost(tmp_path)
    host.write("/etc/modprobe.d/uvm.conf", "options nvidia-uvm uvm_disable_hmm=1\n")
    wanted = {"module": "nvidia_uvm", "option": "uvm_disable_hmm"}
    assert look(host, "module_option", "Y", **wanted)["nvidia_uvm uvm_disable_hmm"]["verdict"] == "not here"
    host.write("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "N\n")
    item = look(host, "module_option", "1", **wanted)["nvidia_uvm uvm_disable_hmm"]
    assert (item["verdict"], item["kept"]) == ("differs", "/etc/modprobe.d/uvm.conf")
    host.write("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "Y\n")
    assert look(host, "module_option", "1", **wanted)["nvidia_uvm uvm_disable_hmm"]["verdict"] == "ok"
    host.write("/sys/module/nvidia/version", "580\n")
    host.write("/proc/driver/nvidia/params", 'RegistryDwords: "ForceP2P=0x11"\nRegistryDwordsPerDevice: ""\n')
    words = {"module": "nvidia", "option": "RegistryDwords"}
    assert look(host, "module_option", "ForceP2P=0x11", **words)["nvidia RegistryDwords"]["verdict"] == "ok"


SMI = """if [ "$1" = -i ]; then
[ "$4" = 900 ] && echo 'not a valid power limit' && exit 5
[ "$3" = -pl ] && echo "$4" > {limit}; exit 0
fi
text='0, 00000000:03:00.0, RTX PRO 6000, GPU-0, 580, 98, Disabled, Default, Off'
echo "$text, 97887, $(cat {limit}), 600, 300, 600, 1, 1, 1, 1, 1, 1, 1, 1"
"""


def test_a_power_limit_is_set_and_read_back_by_the_driver(host, tmp_path):
    """nvidia-smi answers '500.00 W' for 500, and explains on standard output what it refuses."""
    limit = tmp_path / "limit"
    limit.write_text("600.00")
    host.program("nvidia-smi", SMI.format(limit=limit))
    wanted = setting("power", "gpu", 500, field="power.limit")
    assert [c["after"] for c in tuning.apply(host, [wanted]).targets] == ["500"]
    assert not tuning.apply(host, [wanted]).changed
    refused = tuning.apply(host, [{**wanted, "wanted": 900}]).refused
    assert refused == ["power: nvidia-smi refuses: not a valid power limit"]
    tuning.apply(host, [])
    assert float(limit.read_text()) == 600


def test_bar1_is_compared_with_the_memory(host, tmp_path):
    """96 GiB of BAR1 cover 97887 MiB; the 256 MiB of a board without Resizable BAR do not."""
    host.program("nvidia-smi", SMI.format(limit="/dev/null"))
    assert look(host, "bar1", "covers")["0000:03:00.0"]["verdict"] == "ok"
    host.write("/sys/bus/pci/devices/0000:03:00.0/resource", "0x0 0xffffff 0x40200\n0x1000 0x10000fff 0x14220c\n")
    item = look(host, "bar1", "covers")["0000:03:00.0"]
    assert item["verdict"] == "differs" and item["found"] == "smaller than the memory: 256 MiB of 97887"


@pytest.mark.parametrize(
    ("daemon", "key", "program", "answer", "found"),
    [
        ("logind", "RemoveIPC", "busctl", "b true", "yes"),
        ("manager", "DefaultLimitMEMLOCK", "systemctl", "DefaultLimitMEMLOCK=8388608", "8388608"),
    ],
)
def test_what_systemd_runs_with_is_asked_of_systemd(tmp_path, daemon, key, program, answer, found):
    """A file says what the next start may do; without systemd there is nothing to ask, and nothing to blame."""
    host = FakeHost(tmp_path)
    wanted = {"daemon": daemon, "key": key, "where": "guest"}
    assert look(host, "systemd", "x", **wanted)[key]["why"] == "systemd does not run here"
    assert not tuning.apply(host, [setting("it", "systemd", "x", **wanted)]).files
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert look(host, "systemd", "x", **wanted)[key]["verdict"] == "cannot be read here"
    host.program(program, f"echo '{answer}'")
    assert look(host, "systemd", "x", **wanted)[key]["found"] == found
    assert look(host, "systemd", found, **wanted)[key]["verdict"] == "ok"


# --- device nodes of containers --------------------------------------------------------------------------------------

UVM = CASES / "38-lxc-nvidia-uvm-missing"


@pytest.mark.parametrize(
    ("listing", "missing"), [("host-ls.txt", ["/dev/nvidia-uvm"]), ("host-ls-after-modprobe.txt", [])]
)
def test_a_missing_node_and_a_stale_major_number_are_told_apart(tmp_path, listing, missing):
    """nvidia-smi works in both; CUDA needs the uvm node, and the container the number it has today."""
    host = FakeHost(tmp_path)
    for line in (UVM / listing).read_text().splitlines():
        host.write(line.split()[-1], "")
    host.write("/proc/devices", (UVM / "proc-devices.txt").read_bytes())
    host.write("/etc/pve/lxc/101.conf", (UVM / "101.conf").read_bytes())
    items = look(host, "device_nodes")
    assert [target for target, item in items.items() if item["found"] == "missing"] == missing
    container = items["container 101"]
    assert container["found"] == "nvidia-uvm is major 511 now, the configuration allows 509"
    assert "dev0: /dev/nvidia-uvm" in container["how"]
    if missing:
        assert "nvidia-modprobe -u -c 0 here, by a unit before pve-guests.service" in items["/dev/nvidia-uvm"]["how"]
        host.write("/run/systemd/container", (UVM / "detect-virt.txt").read_bytes())
        assert "on its hypervisor" in look(host, "device_nodes")["/dev/nvidia-uvm"]["how"]


def test_todays_number_in_the_configuration_is_well(tmp_path):
    """The check must be able to pass."""
    text = (UVM / "101.conf").read_text().replace("509", "511")
    majors = explained.character_majors((UVM / "proc-devices.txt").read_text())
    assert explained.device_faults(text, majors) == []
    assert explained.device_faults("dev0: /dev/nvidia0\n", majors) == []


def test_a_running_container_is_compared_with_its_configuration(tmp_path):
    """A line in a file is in force only after the container was started again; until then the old limits hold."""
    host = FakeHost(tmp_path)
    host.write(
        "/etc/pve/lxc/200.conf",
        "lxc.prlimit.memlock: unlimited\nlxc.cgroup2.cpuset.cpus: 0-3,8\n\n[old]\nlxc.prlimit.nofile: 1\n",
    )
    host.write("/etc/pve/lxc/201.conf", "lxc.prlimit.memlock: unlimited\n")
    host.program("lxc-info", '[ "$2" = 200 ] && echo 4711')
    host.write("/proc/4711/limits", "Max locked memory         8388608              8388608              bytes     \n")
    host.write("/proc/4711/status", "Cpus_allowed_list:\t0-3,8\nMems_allowed_list:\t0\n")
    items = look(host, "containers_running")
    assert items["200 lxc.cgroup2.cpuset.cpus"]["verdict"] == "ok"
    memlock = items["200 lxc.prlimit.memlock"]
    assert (memlock["found"], memlock["wanted"], memlock["how"]) == ("8388608", "unlimited", "pct reboot 200")
    assert items["201"]["why"] == "container 201 is not running"
    assert len(items) == 3


# --- the catalog -----------------------------------------------------------------------------------------------------


def test_every_entry_of_the_catalog_is_of_a_kind_that_exists(tmp_path):
    """And is looked at on a host that has none of it without an error."""
    entries = catalog.load([ROOT / "catalog"]).settings
    specs = settings.choose(entries, {})
    assert {spec["kind"] for spec in specs} == set(kinds.KINDS)
    report = verify.verify(FakeHost(tmp_path), [{**spec, "enabled": True} for spec in specs], [])
    assert len(report) == len(specs)
    json.dumps(report)


def test_environment_profiles_are_not_for_hosts():
    """NCCL's variables belong to one deployment: a graph file for eight GPUs breaks a group of four beside it."""
    entries = catalog.load([ROOT / "catalog"]).settings
    assert entries["nccl-pcie-ll-ring"]["environment"] == {
        "NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "NCCL_P2P_LEVEL": "SYS"}  # fmt: skip
    assert not [spec for spec in settings.choose(entries, {}) if spec["name"].startswith("nccl")]
    assert "should not be used in production" in entries["nccl-pcie-ll-ring"]["risk"]
