"""The inventories that a person copies: an own catalog beside hosts.yml is read, as docs/catalog.md says."""

import json
import shutil
import subprocess
import sys

import pytest

from tests.fake_host import CASES

ROOT = CASES.parents[1]
COPIED = ["bare_metal", "ct200", "lab"]


def shown(program, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "ansible", program, *map(str, arguments)], cwd=ROOT, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", COPIED)
def test_a_copys_own_catalog_is_read_when_it_is_there(tmp_path, name):
    copy, ask = tmp_path / name, ["all", "-m", "debug", "-a", "var=gauntlet_catalog"]
    shutil.copytree(ROOT / "inventory" / name, copy)
    assert f"{copy}/catalog" not in shown("adhoc", "-i", copy, *ask)
    (copy / "catalog/campaigns").mkdir(parents=True)
    assert f"- {ROOT}/catalog\n    - {copy}/catalog\n" in shown("adhoc", "-i", copy, *ask)


def test_a_host_of_bare_metal_is_tuned_and_serves():
    groups = json.loads(shown("inventory", "-i", ROOT / "inventory/bare_metal", "--list"))
    hosts = groups["inference"]["hosts"]
    assert hosts and groups["hypervisors"] == {"children": ["inference"]}
    assert not {"host_tuning_hypervisor", "model_staging_on"} & groups["_meta"]["hostvars"][hosts[0]].keys()
