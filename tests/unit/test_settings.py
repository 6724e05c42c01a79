"""An inventory chooses among the catalog's settings by name; a typo is refused, 'off' as text is off."""

import pytest

from gauntlet import catalog, plan, settings
from gauntlet.errors import GauntletError
from tests.fake_host import CASES

PROSE = {"title": "t", "why": "w", "evidence": "never measured", "risk": "r"}
ENTRIES = {
    "swappiness": {"name": "swappiness", "kind": "sysctl", "key": "vm.swappiness", "wanted": 0, "where": "hypervisor",
                   "default": False, "file": "/c/settings/swappiness.yml", "folders": ["/c"], **PROSE},
    "reads": {"name": "reads", "kind": "max_read_request", "select": [{"vendor": "10de"}], "wanted": 4096,
              "where": "hypervisor", "default": True, **PROSE},
    "nodes": {"name": "nodes", "kind": "device_nodes", "where": "anywhere", "default": True, **PROSE},
    "nccl": {"name": "nccl", "kind": "environment", "environment": {}, "where": "deployment", "default": True, **PROSE},
}  # fmt: skip


def chosen(choices):
    return {spec["name"]: spec for spec in settings.choose(ENTRIES, choices)}


def test_without_choices_the_defaults_hold_and_prose_stays_at_home():
    """The host gets what it needs to act, not the reasons."""
    specs = chosen(None)
    assert set(specs) == {"swappiness", "reads", "nodes"}
    assert specs["swappiness"] == {
        "name": "swappiness", "title": "t", "kind": "sysctl", "key": "vm.swappiness", "wanted": 0,
        "where": "hypervisor", "enabled": False, "asked": False,
    }  # fmt: skip


@pytest.mark.parametrize("on", [True, "true", "yes", "On"])
@pytest.mark.parametrize("off", [False, "false", "no", "OFF"])
def test_switches_also_as_text(on, off):
    """Extra-vars arrive as strings: 'no' must not be a wanted value of 'no'."""
    specs = chosen({"swappiness": on, "reads": off})
    assert (specs["swappiness"]["enabled"], specs["swappiness"]["wanted"], specs["swappiness"]["asked"]) == (
        True,
        0,
        True,
    )
    assert (specs["reads"]["enabled"], specs["reads"]["asked"]) == (False, False)


def test_a_value_switches_on_and_replaces_and_a_mapping_replaces_keys():
    """10 and 0 and 1 are values; a selection is a key."""
    specs = chosen({"swappiness": 1, "reads": {"select": [{"driver": "nvme"}], "wanted": 1024}})
    assert (specs["swappiness"]["enabled"], specs["swappiness"]["wanted"]) == (True, 1)
    assert specs["reads"]["select"] == [{"driver": "nvme"}] and specs["reads"]["wanted"] == 1024
    assert chosen({"swappiness": "0"})["swappiness"]["enabled"]


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        ({"swapiness": 1}, "unknown setting 'swapiness'; did you mean 'swappiness'"),
        ({"nccl": True}, "unknown setting 'nccl'"),
        ({"nodes": 7}, "setting nodes takes true, false or a mapping, not '7'"),
        ({"reads": {"selekt": []}}, "setting reads: kind max_read_request has no selekt"),
    ],
)
def test_what_cannot_be_meant_is_refused(choices, sentence):
    """A choice without effect is worse than an error."""
    with pytest.raises(GauntletError, match=sentence):
        chosen(choices)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kind": "sysctrl"}, "unknown kind of setting swappiness 'sysctrl'; did you mean 'sysctl'"),
        ({"where": "host"}, "unknown place"),
        ({"default": "on"}, "default is 'on'; it takes true or false"),
        ({"evidence": "helps a lot"}, "evidence is 'never measured' or says what was measured and its source"),
        ({"evidence": {"measured": "x"}}, "evidence"),
        ({"why": None}, None),
    ],
)
def test_an_entry_says_what_was_measured_or_that_nothing_was(change, sentence):
    """People copy settings from wikis: without evidence and risk there is no entry."""
    entry = {**ENTRIES["swappiness"], **change}
    if sentence is None:
        del entry["why"]
        sentence = "lacks why"
    with pytest.raises(GauntletError, match=sentence):
        settings.check(entry)


def test_a_profile_for_eight_gpus_is_not_given_to_four():
    """NCCL_GRAPH_FILE of a TP size breaks every other size on the same host."""
    known = catalog.load([CASES.parents[1] / "catalog"])
    known.campaigns["nccl"] |= {"environments": ["nccl-default", "nccl-graph-tp8"], "tp": [4, 8]}
    host = {"engine_builds": {"sglang": "sglang-0.5.23"}, "gpus": 8, "conditions": {"gpus": []}}
    made = plan.make(known, {"campaign": "nccl"}, {"gpu1": host}, [])
    given = {d["tp"]: set() for d in made["deployments"].values()}
    for deployment in made["deployments"].values():
        given[deployment["tp"]].add("NCCL_GRAPH_FILE" in deployment["environment"])
    assert given == {4: {False}, 8: {False, True}}
