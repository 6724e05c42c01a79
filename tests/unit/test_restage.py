"""What survived a reboot: every loss is named, nothing is done that is not needed, and harm is refused."""

import pytest

from gauntlet import hoststate, restage

RIGHT, BAD = {}, {"m.gguf": "xxh3_128 is 00…, should be 11…"}


def observed(**changes):
    boot = {"id": "b1", "utc": "2026-11-29T14:00:00Z", "seen": {"boot_id": "b1", "utc": "2026-11-29T13:00:00Z"}}
    boot["seen"]["facts"] = {"gpus": 8, "results_mount": "/data"}
    whole = {
        "boot": boot,
        "memory": {"path": "/srv/gauntlet/models", "mounted": True, "size": 10**9, "free": 10**8},
        "weights": [
            {"id": "big", "roles": ["model"], "bytes": 52 * 10**9, "memory": RIGHT, "store": RIGHT, "else": {}},
            {"id": "small", "roles": ["drafter"], "bytes": 10**9, "memory": RIGHT, "store": RIGHT, "else": {}},
        ],
        "builds": {"sglang-0.5.16": True},
        "units": [
            {
                "unit": "sglang@x.service",
                "since": "…",
                "deployment": "x",
                "phase": "active (running)",
                "up": True,
                "owner": None,
            }
        ],  # fmt: skip
        "tuned": True,
        "gpus": 8,
        "results": {"folder": "/data/results", "mount": "/data", "attempts": 3},
    }
    return whole | changes


def weights(memory, store, **more):
    return [{"id": "big", "roles": ["model"], "bytes": 52 * 10**9, "memory": memory, "store": store, "else": {}} | more]


HOME = {"attempts": 3, "unfinished": {"main": 12}, "settings": {"profile": "tuned", "faults": []}, "staged_by": ""}


def assess(home=HOME, **changes):
    return restage.assess(observed(**changes), home)


def row(result, what):
    return next(row for row in result["rows"] if row[0] == what)


def test_without_a_loss_nothing_is_needed():
    result = assess()
    assert (result["rebooted"], result["needs"], result["refused"], result["start"]) == (False, [], [], [])
    assert row(result, "host")[1] == "not rebooted"
    assert row(result, "campaign main")[1] == "12 cells to measure"


def test_a_reboot_is_told_by_the_boot_id():
    """Not by the clock, which a host without a battery gets wrong."""
    boot = observed()["boot"] | {"id": "b2"}
    assert assess(boot=boot)["rebooted"] is True
    assert row(assess(boot=boot | {"seen": None}), "host")[1] == "never seen before"


def test_a_stand_in_has_no_build_that_could_be_lost():
    """A host that serves the scripted engine in SGLang's place was refused after every reboot."""
    builds = [{"engine_build": name} for name in ("sglang-0.5.16", "sglang-0.5.23-scripted")]
    assert restage._builds(builds) == ["sglang-0.5.16"]


def test_what_a_campaign_had_started_is_not_brought_back():
    """bench.yml refuses a server that it did not start, so one that restage.yml started would stop the campaign."""
    (unit,) = observed()["units"]
    result = assess(units=[unit | {"up": False, "owner": "bench.yml"}])
    assert result["start"] == result["needs"] == []
    assert "of bench.yml" in row(result, unit["unit"])[2]


def test_weights_that_memory_lost_are_staged_and_the_unit_started_again():
    down = [observed()["units"][0] | {"phase": "inactive (dead)", "up": False}]
    result = assess(weights=weights(None, RIGHT), units=down)
    assert result["needs"] == ["stage big (52.0 GB)", "start sglang@x.service"]
    assert result["start"] == ["x"]
    assert result["refused"] == []


def test_a_damaged_store_is_refused_by_name_only_when_it_is_needed():
    result = assess(weights=weights(None, BAD))
    assert result["refused"] == [f"the store of big is damaged: m.gguf ({BAD['m.gguf']}); site.yml has it anew"]
    result = assess(weights=weights(RIGHT, BAD))
    assert (result["needs"], result["refused"]) == ([], [])
    assert row(result, "model big in the store")[1] == "damaged"


def test_a_lost_store_says_what_the_other_sources_have():
    """The drafter survived, the target is lost: each is its own line."""
    lost = weights(None, None, **{"else": {"cache": "a link without its blob", "hub": "55.6 GB in 15 files"}})
    result = assess(weights=lost + observed()["weights"][1:])
    assert row(result, "model big in the store")[1] == "lost"
    assert ["model big elsewhere", "hub", "55.6 GB in 15 files"] in result["rows"]
    assert row(result, "drafter small in memory")[1] == "right"


def test_a_container_leaves_the_store_to_its_machine():
    """It has no store of its own: that nothing is there is no loss."""
    result = assess(HOME | {"staged_by": "pve1"}, weights=weights(None, None))
    assert row(result, "model big in the store")[1] == "on pve1"
    assert (result["needs"], result["refused"]) == (["stage big (52.0 GB)"], [])


def test_a_results_disk_that_is_not_mounted_is_refused():
    """The folder below the mount point looks the same, and results would be written to the wrong disk."""
    results = {"folder": "/data/results", "mount": "/", "attempts": 0}
    result = assess(results=results, weights=weights(None, RIGHT))
    assert "/data is not mounted: results would land on /" in result["refused"][0]


def test_missing_gpus_and_builds_are_refused():
    result = assess(gpus=7, builds={"sglang-0.5.16": False}, weights=weights(None, RIGHT))
    assert result["refused"] == [
        "engine build sglang-0.5.16 is gone; run site.yml",
        "7 GPUs are visible, 8 were when the host was last seen",
    ]


@pytest.mark.parametrize(("tuned", "needs"), [(True, ["set 2 settings again"]), (False, [])])
def test_settings_are_set_again_only_where_they_were_set(tuned, needs):
    home = HOME | {"settings": {"profile": "mixed", "faults": ["a is 1", "b is 0"]}}
    result = assess(home, tuned=tuned)
    assert (result["needs"], result["settings_lost"]) == (needs, tuned)


def test_a_unit_that_left_the_plan_is_named_and_not_started():
    gone = [observed()["units"][0] | {"unit": "sglang@old.service", "deployment": None, "up": False}]
    result = assess(units=gone)
    assert (result["needs"], result["start"]) == ([], [])
    assert "no longer in the plan" in row(result, "sglang@old.service")[2]


def test_the_table_is_aligned():
    lines = restage.table([["a", "bb", "c"], ["long", "b", ""]]).splitlines()
    assert lines == ["a     bb  c", "long  b"]


class TestHoststate:
    """What a host remembers must outlive a crash, and must not outlive its meaning."""

    def test_a_unit_is_remembered_until_it_is_stopped(self, tmp_path):
        hoststate.started("sglang@x.service", tmp_path)
        (record,) = hoststate.active(tmp_path)
        assert (record["unit"], record["boot_id"]) == ("sglang@x.service", hoststate.boot_id())
        hoststate.stopped("sglang@x.service", tmp_path)
        assert hoststate.active(tmp_path) == []

    def test_a_start_supersedes_what_was_up_before_the_reboot(self, tmp_path, monkeypatch):
        with monkeypatch.context() as before:
            before.setattr(hoststate, "boot_id", lambda: "earlier")
            hoststate.started("sglang@x.service", tmp_path)
        assert [r["unit"] for r in hoststate.active(tmp_path)] == ["sglang@x.service"]
        hoststate.started("sglang@y.service", tmp_path)
        assert [r["unit"] for r in hoststate.active(tmp_path)] == ["sglang@y.service"]

    def test_the_owner_of_a_start_is_of_that_start(self, tmp_path, monkeypatch):
        """bench.yml stops what it started, also what was up before the reboot; a person's start is a person's."""
        x = "sglang@x.service"
        with monkeypatch.context() as before:
            before.setattr(hoststate, "boot_id", lambda: "earlier")
            hoststate.started(x, tmp_path)
        hoststate.own(x, "bench.yml", tmp_path)
        hoststate.started(x, tmp_path)
        assert hoststate.owned("bench.yml", tmp_path) == [x]
        monkeypatch.setattr(hoststate, "boot_id", lambda: "later")
        assert hoststate.owner(x, tmp_path) == "bench.yml", "known until something else is started"
        hoststate.started(x, tmp_path)
        assert hoststate.owned("bench.yml", tmp_path) == []

    def test_the_last_look_and_its_facts_are_remembered(self, tmp_path):
        assert hoststate.seen(tmp_path) is None
        hoststate.set_seen({"gpus": 8}, tmp_path)
        assert hoststate.seen(tmp_path)["facts"] == {"gpus": 8}
        assert hoststate.seen(tmp_path)["boot_id"] == hoststate.boot_id()

    def test_a_cut_record_is_a_sentence(self, tmp_path):
        hoststate.started("sglang@x.service", tmp_path)
        (tmp_path / "active/sglang@x.service.json").write_text("{")
        with pytest.raises(ValueError, match="remove it to go on"):
            hoststate.active(tmp_path)


def test_gpus_and_mounts_are_read_from_the_host(tmp_path):
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "driver/nvidia/gpus" / name).mkdir(parents=True)
    assert restage.gpus(tmp_path) == 2
    assert restage.gpus(tmp_path / "none") == 0
    assert restage.mount_of("/proc/self/not/there") == "/proc"
