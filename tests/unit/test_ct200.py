"""The worked example must be one that works: its choices exist, its container's configuration passes our own checks."""

import re

import jinja2
import pytest
import yaml

from gauntlet import catalog, settings
from module_utils.gauntlet_host import tuning, verify
from tests.fake_host import CASES, eight_gpus

ROOT = CASES.parents[1]
EXAMPLE = ROOT / "inventory" / "ct200"


def test_the_node_of_the_example_reaches_what_its_readme_shows(tmp_path):
    """Its 200.conf, with and without our lines, is brought to the same, and the devices are all there."""
    chosen = yaml.safe_load((EXAMPLE / "group_vars/hypervisors.yml").read_text())["host_tuning_settings"]
    specs = settings.choose(catalog.load([ROOT / "catalog"]).settings, chosen)
    shown = re.search(r"```\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)[1]
    host = eight_gpus(tmp_path)
    host.write("/etc/pve/local", "")
    bare = "".join(line + "\n" for line in shown.splitlines() if not line.startswith("lxc."))
    host.write("/etc/pve/lxc/200.conf", "cores: 64\n" + bare)
    wanted = tuning.here(host, specs, ["hypervisors"], None, False)
    assert {"pcie-max-read-request", "lxc-limits", "lxc-cpuset", "swappiness"} <= {spec["name"] for spec in wanted}
    tuning.apply(host, wanted)
    assert sorted(host.text("/etc/pve/lxc/200.conf").splitlines()) == sorted(shown.splitlines())
    verdicts = {e["setting"]: e["verdict"] for e in verify.verify(host, specs, ["hypervisors"])}
    assert verdicts["lxc-limits"] == verdicts["lxc-cpuset"] == verdicts["pcie-max-read-request"] == "ok"
    assert verdicts["remove-ipc"] == "off"


def test_the_container_of_the_example_is_given_only_what_is_its_own(tmp_path):
    """A machine's settings that the container shares are looked at there and set on the node."""
    inventory = yaml.safe_load((EXAMPLE / "hosts.yml").read_text())
    assert inventory["inference"]["hosts"]["ct200"]["host_tuning_hypervisor"] in inventory["hypervisors"]["hosts"]
    host = eight_gpus(tmp_path)
    host.write("/run/systemd/container", "lxc\n")
    specs = settings.choose(catalog.load([ROOT / "catalog"]).settings, None)
    names = {spec["name"] for spec in tuning.here(host, specs, ["inference"], "pve1", False)}
    assert {"remove-ipc", "default-memlock", "default-nofile"} <= names
    assert not names & {"numa-balancing", "cpu-governor", "pcie-max-read-request", "gpu-persistence"}


@pytest.mark.parametrize("model", ["qwen3.6-27b", "kimi-k2.6"])
def test_the_mount_has_room_for_a_model_and_all_of_its_drafters(model):
    """A drafter may be of no known size; the slack is there for it, and the mount is made all the same."""
    entry = catalog.load([ROOT / "catalog"]).models[model]
    weights = [entry["weights"], *entry["drafters"].values()]
    role = ROOT / "roles/model_staging"
    expression = yaml.safe_load((role / "vars/main.yml").read_text())["_model_staging_bytes"]
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text())
    size = int(jinja2.Template(expression).render(**defaults | {"model_staging_weights": weights}))
    assert size > 1.05 * sum(one["size_bytes"] or 0 for one in weights) > entry["weights"]["size_bytes"]
