"""Weights on a real host: what is lost is had again or named, damage is never served, a killed copy converges."""

import base64
import json
import re

import pytest

from .runner import booted

pytestmark = pytest.mark.lab

WEIGHTS = "smollm2-135m-q4_1"
STAGED = f"/srv/gauntlet/models/{WEIGHTS}"
STORE = f"/var/lib/gauntlet/store/{WEIGHTS}"
AGENT = "/opt/gauntlet/agent/bin/python"


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    with booted("labstage", tmp_path_factory.mktemp("labstage")) as lab:
        lab.play("site.yml").ok()
        yield lab


def test_restage_without_a_reboot_changes_nothing_and_says_so(host):
    run = host.play("restage.yml").unchanged()
    assert "not rebooted" in run.output
    assert "nothing is missing: nothing is changed" in run.output


HARMS = {  # each on top of the one before
    "mv $f /root/away": "missing",
    "mv /root/away $f; printf X | dd of=$f bs=1 seek=7000000 conv=notrunc status=none": "xxh3_128 is",
    "n=$(stat -c %s $f); truncate -s 0 $f; truncate -s $n $f": "xxh3_128 is",  # sparse, of the right size
    "truncate -s -1 $f": r"\d+ bytes, should be \d+",
    "mv $f /root/precious; ln -s /root/precious $f": "a link that leads to /root/precious",
}


def test_a_damaged_store_is_refused_by_name_and_nothing_is_served_from_it(host):
    """After a reboot the disk is all there is; a person must hear that it fails before anything runs from it."""
    unit = host.ssh("ls /etc/gauntlet/deployments | head -1").removesuffix(".env")
    host.ssh(f"systemctl start llamacpp@{unit}")
    host.reboot()
    for harm, why in HARMS.items():
        host.ssh(f"cd {STORE}; f=SmolLM2-135M-Instruct.Q4_1.gguf; {harm}")
        host.play("restage.yml", "--check").refused(rf"the store of {WEIGHTS} is damaged: .*\.gguf \({why}")
    host.play("restage.yml").refused(rf"the store of {WEIGHTS} is damaged: .*\.gguf \({why}")
    assert host.ssh(f"ls {STAGED} 2>/dev/null || echo nothing") == "nothing"
    assert host.ssh(f"systemctl is-active llamacpp@{unit} || true") == "inactive"
    assert f"{host.host}: Weights are in memory" in host.play("site.yml").ok().changes
    assert host.ssh("rm -v /root/precious") == "removed '/root/precious'", "the link was taken away, not what it led to"


def test_restage_brings_back_what_was_up_and_proves_it(host):
    """The unit that was up when the host went down starts again, also after its store went with the reboot."""
    host.ssh(f"rm -r {STORE}")
    unit = host.ssh("ls /var/lib/gauntlet/active").removesuffix(".json")
    host.reboot()
    assert host.ssh(f"systemctl is-active {unit} || true") == "inactive"
    run = host.play("restage.yml").ok()
    assert re.search(rf"{WEIGHTS} in the store +lost", run.output)
    said = " ".join(re.sub(r"\x1b\[[\d;]*m", "", run.output).split())  # coloured, and long lines are wrapped
    assert re.search(r"copied and verified in [\d.]+ s; a plain parallel copy from disk, .* would take", said)
    assert host.ssh(f"systemctl is-active {unit}") == "active"
    host.play("restage.yml").unchanged()


def test_restage_goes_on_with_the_campaign_when_asked(host):
    """What was up is not started: the campaign starts its own servers, one after another, on the same port."""
    host.ssh("systemctl stop 'llamacpp@*' srv-gauntlet-models.mount")
    one = {"method": "ngram-simple", "baseline": "false", "workload": "edit", "concurrency": "1"}
    run = host.play("restage.yml", resume="true", **one).ok()
    assert f"{host.host}: Weights are in memory" in run.changes
    assert len(list(host.results.glob(f"{host.host}/*/r*/cell.json"))) == 2, "both starts of the one cell"
    assert host.ssh("systemctl is-active 'llamacpp@*' || true", check=False) in ("", "inactive")


def test_a_full_tmpfs_is_said_with_needed_and_free_before_the_first_byte(host):
    host.ssh(f"systemctl stop 'llamacpp@*'; rm -r {STAGED}; head -c 100M /dev/zero >/srv/gauntlet/models/foreign")
    host.play("site.yml").refused(rf"no room for {WEIGHTS}: needed 98\.4 MB, free \d+\.\d MB in /srv/gauntlet/models")
    assert host.ssh("ls -A /srv/gauntlet/models") == "foreign", "and what is not ours is left where it is"
    host.ssh("rm /srv/gauntlet/models/foreign")
    host.play("site.yml").ok()


def test_results_are_not_written_below_a_disk_that_is_not_mounted(host):
    host.ssh("mkdir -p /var/lib/gauntlet/results; mount -t tmpfs results /var/lib/gauntlet/results")
    host.play("site.yml").ok()
    host.ssh("umount /var/lib/gauntlet/results; systemctl stop srv-gauntlet-models.mount")
    host.play("restage.yml").refused("/var/lib/gauntlet/results is not mounted: results would land on /")


def test_a_stopped_mount_is_reported_and_repaired(host):
    """Check mode sees it, and the next run repairs it and nothing else."""
    host.ssh("systemctl stop srv-gauntlet-models.mount")
    for run in (host.play("site.yml", "--check").ok(), host.play("site.yml").ok()):
        assert any("mounted" in change for change in run.changes), f"nobody sees it: {run.changes}"
        others = [change for change in run.changes if not re.search("mounted|Weights", change)]
        assert not others, f"these were not altered and changed all the same: {others}"
    host.play("site.yml").unchanged()


STAGE = """
import os, signal, sys
from pathlib import Path
from gauntlet.weights import staging
from gauntlet.weights.options import Options
from gauntlet.weights.progress import Progress
from gauntlet.weights.shelf import Shelf
from gauntlet.weights.sources import Places

class Pausing(Progress):
    def add(self, n):
        super().add(n)
        if self.phase == "copy" and self.bytes == n:
            os.kill(os.getpid(), signal.SIGSTOP)

weights = {"id": "big", "format": "gguf", "entry": "big-00001-of-00002.gguf", "size_bytes": 0,
           "source": {"kind": "hub", "repository": "acme/big", "revision": "main"}}
mount = Shelf(Path("/run/memory"), memory=True)
places = Places(Shelf(Path("/run/store"), memory=False), [Path("/run/hub")])
options = Options(jobs=1, progress=Pausing() if "pause" in sys.argv else Progress())
line = staging.present([weights], mount, places, options)["snapshots"][0]
print(line["state"], ",".join(line["resumed"]))
"""

CACHE = """
import hashlib, os
from pathlib import Path
base = Path("/run/hub/models--acme--big")
snapshot = base / "snapshots" / ("9" * 40)
for folder in (base / "blobs", base / "refs", snapshot, Path("/run/memory"), Path("/run/store")):
    folder.mkdir(parents=True)
(base / "refs/main").write_text("9" * 40)
for name, size in (("big-00001-of-00002.gguf", 8 << 20), ("big-00002-of-00002.gguf", 400 << 20)):
    data = b"GGUF" + os.urandom(1 << 20) * (size >> 20)
    blob = base / "blobs" / hashlib.sha256(data).hexdigest()
    blob.write_bytes(data)
    (snapshot / name).symlink_to(f"../../blobs/{blob.name}")
"""

DISTURBED = f"""
{AGENT} /run/stage.py pause & pid=$!
until grep -q '^State:.T' /proc/$pid/status; do kill -0 $pid || exit 1; sleep 0.05; done
%s; kill -CONT $pid; wait $pid; ls /run/memory
"""  # it pauses itself at the first bytes, which are the large file's


def test_a_copy_that_is_killed_or_loses_its_source_shows_nothing_and_converges(host):
    """The large file is copied first, so the small one's blob goes while nobody has it open."""
    small = "/run/hub/models--acme--big/blobs/$(cd /run/hub; find . -size -20M -path '*blobs/*' -printf %f)"
    texts = {"stage.py": STAGE, "cache.py": CACHE, "killed.sh": DISTURBED % "kill -9 $pid"}
    for name, text in (texts | {"gone.sh": DISTURBED % f"mv {small} /run/gone"}).items():
        encoded = base64.b64encode(text.encode()).decode()
        host.ssh(f"echo {encoded} | base64 -d >/run/{name}")
    host.ssh(f"{AGENT} /run/cache.py")
    assert host.ssh("bash /run/killed.sh 2>/dev/null") == "", "nothing is published by a copy that was killed"
    assert "big-00001-of-00002.gguf could not be copied" in host.ssh("bash /run/gone.sh 2>&1 >/dev/null")
    assert host.ssh("ls /run/memory") == "", "nor by one whose source went"
    host.ssh("cd /run/hub/models--acme--big/snapshots/*/; mv /run/gone $(readlink -m big-00001-of-00002.gguf)")
    assert host.ssh(f"{AGENT} /run/stage.py") == "staged big-00002-of-00002.gguf", "what was whole is kept"
    assert host.ssh("sha256sum <$(ls /run/memory/big/*2-of-00002.gguf)").split()[0] in host.ssh("ls /run/hub/*/blobs")
    assert host.ssh(f"{AGENT} /run/stage.py") == "right"
    host.ssh("rm -r /run/memory /run/store /run/hub")


def test_another_host_is_asked_before_the_controller(host, tmp_path_factory):
    """Two hosts and the link between them: the second never sees the controller's file."""
    with booted("labpeer", tmp_path_factory.mktemp("labpeer")) as peer:
        run = peer.play("site.yml").ok()
        assert "pushing" not in run.output
        manifest = json.loads(peer.ssh(f"cat {STORE}/.gauntlet-manifest.json"))
        assert manifest["files"] and manifest["verified"]
        peer.play("site.yml").unchanged()
        keys = "cat /root/.ssh/authorized_keys"
        assert "gauntlet weights for labpeer" in host.ssh(keys)
        host.ssh("sed -n 's/for labpeer$/for labgone/p' /root/.ssh/authorized_keys >>/root/.ssh/authorized_keys")
        before = host.ssh(keys).splitlines()
        run = host.play("site.yml").ok()
        assert run.changes == [f"{host.host}: Who no longer fetches from this host has no key here"]
        assert host.ssh(keys).splitlines() == before[:-1], "a host that left the inventory, and only it, has no key"
