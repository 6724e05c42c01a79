"""The first thing that a newcomer may see: a machine that will not do is refused in one sentence, before anything."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups"
FEDORA = 'unshare --mount sh -c \'echo ID=fedora >os && mount --bind os /etc/os-release && exec "$0" "$@"\''


@pytest.fixture
def checkout():
    """What the first steps need of the repository, in a folder that nobody may read and only root may write."""
    if os.geteuid():
        pytest.skip("needs root: it shows what others are told")
    folder = Path(tempfile.mkdtemp(prefix="checkout-"))
    folder.chmod(0o755)
    (folder / "scripts").mkdir()
    for name in ("Makefile", "scripts/step", "scripts/bootstrap"):
        shutil.copy(ROOT / name, folder / name)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("target", ["bench", "test"])
@pytest.mark.parametrize(
    ("machine", "sentence"),
    [
        (NOBODY, "root is needed: the lab host's namespaces, mounts and Debian packages are made by root"),
        (FEDORA, "this is not Debian; the lab host and its tests need Debian 12 or newer"),
    ],
)
def test_a_machine_that_will_not_do_is_refused_in_one_sentence(checkout, target, machine, sentence):
    command = f"{machine} make --no-print-directory {target}"
    environment = {"HOME": "/", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    done = subprocess.run(command, shell=True, cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    said, of_make = done.stderr.splitlines()
    assert said == f"bootstrap: {sentence}"
    assert of_make.startswith("make: ***")
