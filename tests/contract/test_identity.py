"""Two numbers under one hash must come from servers that were told the same: no way into a server leads past the hash.

Whoever adds one fails here, and either puts it into the specification or says below why it changes no number.
"""

import inspect
import json
import re
from pathlib import Path

import pytest
import yaml

from gauntlet import catalog, engines, plan

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "roles/serving/templates"
CATALOGS = {
    "founding": (ROOT / "catalog", {"sglang": "sglang-0.5.16-ddtree"}, ["qwen3.6-27b", "kimi-k2.6"]),
    "lab": (ROOT / "catalog", {"llamacpp": "xllamacpp-2026.10.11549"}, ["lab"]),
    "stand-in": (ROOT / "tests/lab/serving/catalog", {"sglang": "sglang-0.5.23-scripted"}, ["stand-in"]),
}
# what the module that writes env files takes, beside the plan's deployments, and why it is in no hash
PLACES = {
    "port": "where a server listens",
    "models": "where weights are staged; what they are is in the hash",
    "engines": "where a build is installed; which build is in the hash",
    "folder": "where env files lie",
    "purge": "which other env files stay",
    "texts": "made by the controller from all of the above",
}
# what a unit gives a server beside its env file
HOMES = {"HOME", "XDG_CACHE_HOME", "USER", "CREDENTIALS_DIRECTORY"}


def deployments(name):
    folder, builds, campaigns = CATALOGS[name]
    known = catalog.load(list(dict.fromkeys([ROOT / "catalog", folder])))
    host = {"engine_builds": builds, "gpus": 8, "environment_by_tp": {"1": {"GAUNTLET_NUMA_NODE": "1"}}}
    for campaign in campaigns:
        yield from plan.make(known, {"campaign": campaign}, {"h": host}, [])["deployments"].values()


@pytest.mark.parametrize("name", CATALOGS)
def test_an_env_file_can_be_written_from_the_specification_alone(name):
    """Byte by byte: what is not in the hashed document cannot be in the file."""
    for deployment in deployments(name):
        if any(weights is None for weights in deployment["weights"].values()):
            continue  # no such drafter, so never served
        hashed = json.loads(json.dumps(deployment["specification"]))
        paths = engines.locate(deployment)
        named = {key: deployment[key] for key in ("name", "spec_id")}
        assert engines.env_file({**hashed, **named}, paths, 30000) == engines.env_file(deployment, paths, 30000)


def test_nothing_but_the_deployment_and_places_goes_into_an_env_file():
    assert list(inspect.signature(engines.env_file).parameters) == ["deployment", "paths", "port"]
    source = (ROOT / "library/deployment_files.py").read_text()
    options = yaml.safe_load(re.search(r'DOCUMENTATION = r"""\n(.*?)"""', source, re.DOTALL)[1])["options"]
    assert set(options) - {"deployments"} == set(PLACES), "in no hash: say in PLACES why, or take another way"


@pytest.mark.parametrize("template", ["engine@.service.j2", "engine@.conf.j2"])
def test_a_unit_adds_no_variable_but_homes(template):
    text = (TEMPLATES / template).read_text()
    lines = [line for line in text.splitlines() if re.match("environment=", line, re.IGNORECASE)]
    names = {name for line in lines for name in re.findall(r"([A-Z_]+)=", line)}
    assert lines and names <= HOMES
    assert not re.search("EnvironmentFile|PassEnvironment", text), "the launcher reads the env file, and drops the rest"


def test_inventories_have_one_door():
    """A role that took variables of its own would be a door that the plan does not see."""
    defaults = yaml.safe_load((ROOT / "roles/serving/defaults/main.yml").read_text())
    assert not [name for name in defaults if re.search("environment|variables|arguments", name)]
