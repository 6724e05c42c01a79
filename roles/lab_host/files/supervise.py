"""Hold a lab host's namespaces and keep its systemd-nspawn running. Arguments: the host's folder, name and image.

The whole machine lives in one pid namespace of which this program is the first process: however it ends, the kernel
takes everything in it along, so a killed lab can leave nothing behind but files and empty control groups. The network
and mount namespaces have no name and no mount in the machine's own, and go with it too.
"""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "module_utils"))

import lab_record

CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET = 0x00020000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 0x4000, 0x40000
MNT_DETACH = 2
REBOOT = 133  # systemd-nspawn's exit status when the system inside asked for a reboot
CGROUPS = Path("/sys/fs/cgroup")

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def mount(kind: str, target: Path, flags: int = MS_NOSUID | MS_NODEV | MS_NOEXEC, options: str = "") -> None:
    words = (os.fsencode(word) for word in (kind, target, kind))
    check(libc.mount(*words, ctypes.c_ulong(flags), options.encode()))


def private_mounts(folder: Path, image: Path) -> None:
    """The host's root; and our own /proc, /run and control groups, since systemd-nspawn writes into all three."""
    check(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None))
    mount("proc", Path("/proc"))
    mount("tmpfs", Path("/run"))
    libc.umount2(os.fsencode(CGROUPS), MNT_DETACH)
    mount("cgroup2", CGROUPS)
    layers = f"lowerdir={image},upperdir={folder}/disk,workdir={folder}/work,redirect_dir=on"
    mount("overlay", folder / "root", 0, layers)


def loopback_up() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def boot(folder: Path, name: str) -> int:
    command = [
        "systemd-nspawn",
        "--quiet",
        "--machine",
        name,
        "--directory",
        folder / "root",
        "--boot",
        "--register=no",
        "--keep-unit",
        "--console=pipe",
        "--network-namespace-path=/proc/self/ns/net",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
    ]
    return subprocess.Popen(command, env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}).pid


def supervise(folder: Path, name: str, image: Path) -> int:
    private_mounts(folder, image)
    loopback_up()
    cgroup = CGROUPS / f"gauntlet-lab-{name}"
    cgroup.mkdir(exist_ok=True)
    (cgroup / "cgroup.procs").write_text("0")  # ourselves
    nspawn, stopping = None, False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        if nspawn:
            os.kill(nspawn, signal.SIGTERM)  # a clean halt of the system inside

    signal.signal(signal.SIGTERM, stop)  # the first process of a pid namespace ignores what it does not handle
    while True:
        nspawn = boot(folder, name)
        while True:
            ended, status = os.wait()  # as the first process we also reap what others orphaned
            if ended == nspawn:
                break
        nspawn = None
        if os.waitstatus_to_exitcode(status) != REBOOT or stopping:
            return os.waitstatus_to_exitcode(status)


def main(folder: Path, name: str, image: Path) -> int:
    check(libc.unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET))
    recorded, record = os.pipe()
    pid = os.fork()
    if pid:
        lab_record.write(folder, pid)
        os.write(record, b"1")
        return 0
    os.close(record)
    if os.read(recorded, 1) != b"1":
        return 1  # whoever started us died before we were written down: nobody could ever find us
    os.close(recorded)
    return supervise(folder, name, image)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
