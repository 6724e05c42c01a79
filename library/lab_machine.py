#!/usr/bin/python
"""A lab host: a systemd-nspawn machine on this machine, reached by ssh."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_machine
short_description: Boot or remove a lab host
description:
  - A lab host is a cached Debian root with a disk of the host's own laid over it, booted by systemd-nspawn with systemd
    as PID 1 and its own sshd, in namespaces that have no name, no mount and no interface on this machine.
  - Everything of it is C(<folder>/<name>/) - what it wrote to its C(disk), the keys, the record of its process - and
    one control group.
  - A host whose processes were killed is booted again from its disk, as after a power failure.
options:
  name:
    description: Name of the host.
    type: str
    required: true
  state:
    description: V(present) is up and answering on its ssh port; V(absent) leaves no trace.
    type: str
    choices: [present, absent]
    default: present
  folder:
    description: Folder of all lab hosts, outside the repository.
    type: path
    default: /var/lib/gauntlet-lab
  image:
    description: Root that a new host stands on, never written to; needed for O(state=present).
    type: path
  additions:
    description: Folders whose content is put on the host's disk when it is made.
    type: list
    elements: path
    default: []
  supervisor:
    description: Program that holds the namespaces and runs systemd-nspawn; needed for O(state=present).
    type: path
  timeout:
    description: Seconds to wait for the host's ssh.
    type: int
    default: 30
attributes:
  check_mode:
    description: Says what would be booted or removed.
    support: full
  diff_mode:
    description: The state before and after.
    support: full
author: Gauntlet
"""

EXAMPLES = r"""
- name: Boot the lab host
  lab_machine:
    name: lab1
    image: /var/cache/gauntlet-lab/bookworm-0123456789ab/root
    supervisor: "{{ role_path }}/files/supervise.py"

- name: Remove it with all it left
  lab_machine:
    name: lab1
    state: absent
"""

RETURN = r"""
was:
  description: What was found, one of absent, unfinished, halted, silent, up.
  type: str
  returned: always
pid:
  description: Process that holds the host's namespaces.
  type: int
  returned: when the host is up
image:
  description: The root that the host stands on.
  type: str
  returned: when the host exists
"""

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

from ansible.module_utils import lab_record
from ansible.module_utils.basic import AnsibleModule

HALT_SECONDS = 10
REBOOT_SECONDS = 5


class LabError(Exception):
    """What went wrong with a lab host, as one sentence."""


@contextlib.contextmanager
def locked(folder: Path):
    """Hold the host's folder against a second run; the folder may have been removed while we waited."""
    while True:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), folder.stat()):
                    yield
                    return
        finally:
            os.close(handle)


def answers(machine: lab_record.Machine) -> bool:
    """Whether an ssh server greets on the host's port 22."""
    try:
        with machine.dial(22, timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def observe(folder: Path) -> str:
    """absent, unfinished (killed while it was made), halted (or killed), silent (runs, no ssh) or up."""
    if not folder.is_dir():
        return "absent"
    if not (folder / "image").is_file():
        return "unfinished"
    machine = lab_record.find(folder)
    if machine is None:
        return "halted"
    return "up" if answers(machine) else "silent"


def make(folder: Path, name: str, image: Path, additions: list[Path]) -> None:
    """The host's own disk with its identity and the keys; `image` is written last: it says that all is there."""
    disk = folder / "disk"

    def put(path: str, content: str, mode: int = 0o644) -> None:
        for parent in reversed(Path(path).parents):  # a folder of the disk hides the mode of the image's
            if not (disk / parent).is_dir():
                (disk / parent).mkdir(mode=0o700)
                if (image / parent).is_dir():
                    shutil.copystat(image / parent, disk / parent)
        (disk / path).touch(mode)
        (disk / path).write_text(content)

    for needed in (disk, folder / "work", folder / "root"):
        needed.mkdir()
    shutil.copystat(image, disk)
    for addition in additions:
        subprocess.run(["cp", "--recursive", "--no-dereference", f"{addition}/.", str(disk)], check=True)
    put("etc/machine-id", uuid.uuid4().hex + "\n")
    put("etc/hostname", name + "\n")
    put("etc/hosts", f"127.0.0.1 localhost {name}\n::1 localhost\n")
    for key in ("id_ed25519", "host_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / key)]
        subprocess.run(command, check=True)
    put("root/.ssh/authorized_keys", (folder / "id_ed25519.pub").read_text(), 0o600)
    put("etc/ssh/ssh_host_ed25519_key", (folder / "host_key").read_text(), 0o600)
    (folder / "known_hosts").write_text(f"{name} {(folder / 'host_key.pub').read_text()}")
    (folder / "image").write_text(f"{image}\n")


def wait_for_ssh(folder: Path, timeout: float) -> bool:
    """Whether the host greets before `timeout` seconds are over; False as soon as its processes are gone."""
    deadline = time.monotonic() + timeout
    while (machine := lab_record.find(folder)) and time.monotonic() < deadline:
        if answers(machine):
            return True
        time.sleep(0.02)
    return False


def boot(folder: Path, name: str, supervisor: Path, timeout: int) -> None:
    """Start the supervisor and wait for ssh; LabError with the console's last words when it does not come."""
    image = Path((folder / "image").read_text().strip())
    if not image.is_dir():
        raise LabError(
            f"lab host '{name}' stands on {image}, which is gone; take it away with lab_state=absent and boot it anew"
        )
    console = folder / "console.log"
    with open(console, "ab") as log:
        command = [sys.executable, "-I", str(supervisor), str(folder), name, str(image)]
        started = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/", check=False
        )
    if started.returncode == 0 and wait_for_ssh(folder, timeout):
        return
    said = console.read_text(errors="replace").strip().splitlines()
    raise LabError(f"lab host '{name}' did not come up; the end of {console}: {' | '.join(said[-5:]) or 'nothing'}")


def halt(folder: Path, patience: float) -> None:
    """End the host's processes: by halting the system inside when there is patience for it, else at once."""
    machine = lab_record.find(folder)
    if machine is None:
        return
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(machine.pid)
        if lab_record.find(folder) is None:  # it ended, and the handle may be another process's
            return
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        if patience:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
        if not patience or not ended.poll(patience * 1000):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            if not ended.poll(HALT_SECONDS * 1000):
                raise LabError(f"process {machine.pid} of the lab host in {folder} does not end, though killed")


def remove_cgroups(name: str) -> None:
    """Remove the host's control groups, which outlive killed processes."""
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split() for line in file]
    tops = [Path(fields[4]) for fields in mounts if fields[fields.index("-") + 1] == "cgroup2"]
    for top in tops[:1]:
        deadline = time.monotonic() + 5
        for path, _folders, _files in os.walk(top / f"gauntlet-lab-{name}", topdown=False):
            while True:
                try:
                    os.rmdir(path)
                    break
                except FileNotFoundError:
                    break
                except OSError as error:  # the last processes are still being reaped
                    if time.monotonic() > deadline:
                        raise LabError(f"control group {path} cannot be removed: {error.strerror}") from error
                    time.sleep(0.02)


def remove(folder: Path) -> None:
    subprocess.run(["rm", "--recursive", "--force", "--one-file-system", str(folder)], check=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()  # the last host takes the labs' folder along


def take_away(folder: Path, name: str) -> None:
    halt(folder, patience=0)
    remove_cgroups(name)
    remove(folder)


def bring_up(folder: Path, name: str, image: Path, additions: list[Path], supervisor: Path, timeout: int) -> bool:
    """Make and boot what is not there, whatever is; False when there was nothing to do after all. Raises LabError,
    CalledProcessError, OSError."""
    if wait_for_ssh(folder, REBOOT_SECONDS):  # it was only rebooting or slow, or another run has booted it meanwhile
        return False
    halt(folder, patience=HALT_SECONDS)
    remove_cgroups(name)
    if not (folder / "image").is_file():
        for leftover in folder.iterdir():
            subprocess.run(["rm", "--recursive", "--force", "--one-file-system", leftover], check=True)
        make(folder, name, image, additions)
    boot(folder, name, supervisor, timeout)
    return True


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "folder": {"type": "path", "default": "/var/lib/gauntlet-lab"},
            "image": {"type": "path"},
            "additions": {"type": "list", "elements": "path", "default": []},
            "supervisor": {"type": "path"},
            "timeout": {"type": "int", "default": 30},
        },
        required_if=[("state", "present", ("image", "supervisor"))],
        supports_check_mode=True,
    )
    params = module.params
    name, state = params["name"], params["state"]
    if not lab_record.NAME.fullmatch(name):
        module.fail_json(msg=f"'{name}' cannot name a lab host; it takes up to 42 of a-z, 0-9 and inner hyphens")
    if os.geteuid() != 0:
        module.fail_json(msg="lab hosts need root on this machine; run this as root")
    if state == "present" and not shutil.which("systemd-nspawn"):
        module.fail_json(msg="systemd-nspawn is not installed; scripts/bootstrap installs what lab hosts need")
    folder = Path(params["folder"]) / name
    image, supervisor = (Path(params[given] or "") for given in ("image", "supervisor"))
    additions = [Path(given) for given in params["additions"]]
    wanted = "up" if state == "present" else "absent"
    was = observe(folder)
    changed = was != wanted
    if changed and not module.check_mode:
        try:
            with locked(folder):
                if state == "present":
                    changed = bring_up(folder, name, image, additions, supervisor, params["timeout"])
                else:
                    take_away(folder, name)
        except (LabError, OSError) as error:
            module.fail_json(msg=str(error), was=was)
        except subprocess.CalledProcessError as error:
            module.fail_json(msg=f"lab host '{name}': {error}", was=was)
    before = was if changed else wanted
    result = {"changed": changed, "was": was, "diff": {"before": f"{name} {before}\n", "after": f"{name} {wanted}\n"}}
    machine = lab_record.find(folder)
    if machine:
        result["pid"] = machine.pid
    with contextlib.suppress(OSError):
        result["image"] = (folder / "image").read_text().strip()
        if state == "present" and result["image"] != str(image):
            module.warn(
                f"lab host '{name}' was made from {result['image']}, not from {image}; "
                "to make it anew, remove it first with lab_state=absent"
            )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
