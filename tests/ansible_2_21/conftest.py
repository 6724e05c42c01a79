"""A controller with Python 3.13 and ansible-core 2.21: a Debian 13 root with our lock in it, entered by chroot."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gauntlet import wheelhouse
from tests.lab.runner import ROOT, TROUBLE, Lab, booted

TARGET = {"python": "3.13.5", "machine": os.uname().machine, "libc": "2.41"}
BINDS = {path: path for path in ("/proc", "/dev", "/var/lib/gauntlet-lab", "/root/.cache")} | {str(ROOT): "/gauntlet"}


class Controller:
    def __init__(self, root: Path, lab: Lab):
        self.root, self.lab = root, lab

    def run(self, *command: str) -> subprocess.CompletedProcess:
        """A command inside the root, in /gauntlet, with the environment of a person who just logged in."""
        binds = BINDS | {str(self.lab.folder): str(self.lab.folder)}
        mounts = "".join(
            f"mkdir -p {self.root}{at} && mount --rbind {source} {self.root}{at} && " for source, at in binds.items()
        )
        inside = f"cd /gauntlet && {' '.join(command)}"
        script = f"{mounts} exec chroot {self.root} /bin/sh -c {json.dumps(inside)}"
        environment = {
            "PATH": "/opt/controller/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LC_ALL": "C.UTF-8",
        }
        return subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-ec", script],
                              capture_output=True, text=True, env=environment)  # fmt: skip

    def play(self, playbook: str, *options: str, **extra) -> str:
        """ansible-playbook on the lab host; returns its output, with no warning in it."""
        (self.lab.folder / "extra.json").write_text(json.dumps(self.lab._extra(extra)))
        host = f"-i inventory/lab -i tests/lab/inventory --limit {self.lab.host},localhost"
        done = self.run("ansible-playbook", playbook, host, f"-e @{self.lab.folder}/extra.json", *options)
        output = done.stdout + done.stderr
        assert done.returncode == 0, output[-5000:]
        noise = [line for line in output.splitlines() if TROUBLE.search(line)]
        assert not noise, noise
        return output


def changed(output: str) -> int:
    return sum(map(int, re.findall(r"changed=(\d+)", output)))


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """A Debian 13 lab host, provisioned by this controller's own ansible-core."""
    with booted("labnew", tmp_path_factory.mktemp("lab-2-21")) as lab:
        lab.play("site.yml").ok()
        yield lab


@pytest.fixture(scope="session")
def controller(lab, tmp_path_factory):
    image = subprocess.run(
        ["ansible", "localhost", "-m", "lab_image", "-a", json.dumps({
            "suite": "trixie", "packages": ["python3", "openssh-client", "ca-certificates", "locales-all"],
            "customise": "/bin/true"})], cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    root = tmp_path_factory.mktemp("controller") / "root"
    subprocess.run(["cp", "-a", re.search(r"path: (\S+)", image.stdout)[1], root], check=True)  # devices stay devices
    lines = [
        pin
        for name in ("controller", "dev")
        for pin in wheelhouse.pins((ROOT / f"requirements/{name}.txt").read_text(), TARGET)
    ]
    wheels = wheelhouse.download(sorted(set(lines)), TARGET)
    shutil.copytree(wheels, root / "wheels")
    (root / "lock.txt").write_text("\n".join(sorted(set(lines))) + "\n")
    controller = Controller(root, lab)
    pip = next((root / "wheels").glob("pip-*.whl")).name
    for command in (
        "python3 -m venv --without-pip /opt/controller",
        f"python /wheels/{pip}/pip install -q --no-index --find-links /wheels --require-hashes -r /lock.txt",
        "echo /gauntlet > /opt/controller/lib/python3.13/site-packages/gauntlet.pth",
    ):
        done = controller.run(command)
        assert done.returncode == 0, done.stdout + done.stderr
    return controller
