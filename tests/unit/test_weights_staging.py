"""The order of sources, what each says, and what is done about damage: a person must see why bytes came from where."""

import hashlib
import json
import os
import shutil
import struct

import pytest

from gauntlet.errors import GauntletError
from gauntlet.weights import manifest, space, staging
from gauntlet.weights.options import Options
from gauntlet.weights.shelf import Shelf
from gauntlet.weights.sources import Places

COMMIT = "93760be4f1f69842a46bc13dbdc0f19e291392a3"


def safetensors(tensors):
    header, end = {}, 0
    for name, data in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [end, end := end + len(data)]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(tensors.values())


MODEL = {
    "config.json": b'{"model_type": "tiny"}\n',
    "model-00001-of-00002.safetensors": safetensors({"a": b"a" * 500, "b": b"b" * 300}),
    "model-00002-of-00002.safetensors": safetensors({"c": b"c" * 700}),
    "model.safetensors.index.json": json.dumps(
        {
            "metadata": {"total_size": 1500},
            "weight_map": {
                "a": "model-00001-of-00002.safetensors",
                "b": "model-00001-of-00002.safetensors",
                "c": "model-00002-of-00002.safetensors",
            },
        }
    ).encode(),
}
EXTRA = {"pytorch_model.bin": b"the same again, in another format"}
SHARD = "model-00002-of-00002.safetensors"


class Host:
    """A host's folders, and the calls that a test makes on them."""

    def __init__(self, root):
        self.root = root
        self.mount = Shelf(root / "memory", memory=True)
        self.store = Shelf(root / "store", memory=False)
        self.cache = root / "hub"
        for folder in (self.mount.root, self.store.root):
            folder.mkdir()

    def folder(self, files=MODEL | EXTRA):
        for name, data in files.items():
            (self.root / "folder").mkdir(exist_ok=True)
            (self.root / "folder" / name).write_bytes(data)
        return {
            "id": "tiny",
            "format": "safetensors",
            "source": {"kind": "local", "path": str(self.root / "folder")},
            "size_bytes": 1500,
        }

    def cached(self, files=MODEL | EXTRA):
        base = self.cache / "models--acme--tiny"
        for path in (base / "blobs", base / "refs", base / "snapshots" / COMMIT):
            path.mkdir(parents=True, exist_ok=True)
        (base / "refs/main").write_text(COMMIT)
        for name, data in files.items():
            git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            blob = hashlib.sha256(data).hexdigest() if name.endswith((".safetensors", ".bin")) else git
            (base / "blobs" / blob).write_bytes(data)
            (base / "snapshots" / COMMIT / name).symlink_to(f"../../blobs/{blob}")
        return {
            "id": "tiny",
            "format": "safetensors",
            "source": {"kind": "hub", "repository": "acme/tiny", "revision": "main"},
            "size_bytes": 1500,
        }

    def blob(self, name):
        return (self.cache / "models--acme--tiny/snapshots" / COMMIT / name).resolve()

    def present(self, *weights, pushed=None, **options):
        places = Places(self.store, [self.cache], pushed=pushed or {})
        return staging.present(list(weights), self.mount, places, Options(jobs=2, **options))

    def only(self, weights, **options):
        result = self.present(weights, **options)
        (line,) = result["snapshots"]
        return result["changed"], line

    def staged(self):
        folder = self.mount.path("tiny")
        return (
            {p.name: p.read_bytes() for p in folder.iterdir() if p.name != manifest.NAME} if folder.exists() else None
        )

    def reboot(self):
        shutil.rmtree(self.mount.root)
        self.mount.root.mkdir()


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def flip(path, at=-1):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def rot(path, at=-1):
    """A changed byte that no time stamp tells of, as a failing disk gives it."""
    flip(path, at)
    record = manifest.read(path.parent)
    record["files"][path.name]["stamp"] = manifest.stamp(os.lstat(path))
    manifest.write(path.parent, record)


def test_a_folder_is_staged_once_and_then_right(host):
    weights = host.folder()
    changed, line = host.only(weights)
    assert (changed, line["state"], line["source"], line["left_out"]) == (
        True,
        "staged",
        "folder",
        ["pytorch_model.bin"],
    )
    assert host.staged() == MODEL
    assert line["bytes"] == sum(map(len, MODEL.values()))
    assert host.only(weights)[0] is False
    assert host.only(weights)[1]["state"] == "right"


def test_check_mode_says_from_where_and_changes_nothing(host):
    changed, line = host.only(host.folder(), dry=True)
    assert (changed, line["state"], line["source"]) == (True, "would_stage", "folder")
    assert line["bytes"] == sum(map(len, MODEL.values()))
    assert host.staged() is None
    assert not any(host.store.root.iterdir())


def test_a_cache_is_proven_by_the_names_of_its_blobs_and_then_by_the_record(host):
    """The first copy hashes by what the hub promised; after a reboot the fast hash of the record is enough."""
    weights = host.cached()
    changed, line = host.only(weights)
    assert (changed, line["source"]) == (True, "cache")
    host.reboot()
    changed, line = host.only(weights)
    assert (changed, line["source"]) == (True, "store")
    assert host.staged() == MODEL
    assert sum(p.stat().st_size for p in host.store.root.rglob("*") if p.is_file()) < 3000, (
        "the bytes stay in the cache"
    )


def test_a_damaged_blob_is_named_and_nothing_is_served(host):
    weights = host.cached()
    flip(host.blob(SHARD))
    with pytest.raises(GauntletError, match=rf"damaged in cache .*: {SHARD} \(sha256 is"):
        host.present(weights)
    assert host.staged() is None


def test_a_damaged_blob_gives_the_next_source_its_turn(host):
    """One bad disk must not stop a host that has the same weights twice."""
    weights = host.cached()
    second = host.root / "second"
    shutil.copytree(host.cache, second, symlinks=True)
    flip(host.blob(SHARD))
    places = Places(host.store, [host.cache, second])
    (line,) = staging.present([weights], host.mount, places, Options(jobs=2))["snapshots"]
    assert (line["state"], line["where"], list(line["wrong"])) == (
        "staged",
        str(second / "models--acme--tiny"),
        [SHARD],
    )
    assert any(f"damaged in cache {host.cache}" in why for why in line["why"])
    assert host.staged() == MODEL


def test_a_cache_that_lost_its_blobs_after_it_was_proven_is_named(host):
    weights = host.cached()
    host.present(weights)
    host.reboot()
    host.blob(SHARD).unlink()
    with pytest.raises(GauntletError, match=rf"nowhere.*store: .*{SHARD} \(missing\).*cache /.*link without its blob"):
        host.present(weights)


def test_a_byte_flipped_in_memory_is_found_named_and_repaired_alone(host):
    """What the next site.yml run must do: report and repair exactly that."""
    weights = host.folder()
    host.present(weights)
    rot(host.mount.path("tiny") / SHARD)
    changed, line = host.only(weights)
    assert (changed, line["state"], list(line["wrong"]), line["bytes"]) == (True, "staged", [SHARD], len(MODEL[SHARD]))
    assert set(line["resumed"]) == set(MODEL) - {SHARD}
    assert host.staged() == MODEL


def test_with_the_shallow_choice_only_what_was_written_is_hashed(host):
    weights = host.folder()
    host.present(weights, verify="copy")
    flip(host.mount.path("tiny") / SHARD)
    assert list(host.only(weights, verify="copy")[1]["wrong"]) == [SHARD]


def test_unverified_says_so_in_the_manifest(host):
    weights = host.folder()
    host.present(weights, verify="never")
    record = host.mount.manifest("tiny")
    assert record["verified"] is False
    assert not any("xxh3_128" in entry for entry in record["files"].values())
    assert host.only(weights, verify="never")[0] is False


@pytest.mark.parametrize(("name", "mode"), [(SHARD, 0o600), (".", 0o700), (manifest.NAME, 0o666)])
def test_a_changed_mode_is_set_right_without_copying(host, name, mode):
    """A folder that the server may not enter keeps it from files that are right, each of them."""
    weights = host.folder()
    host.present(weights)
    os.chmod(host.mount.path("tiny") / name, mode)
    assert host.only(weights, dry=True)[0] is True
    changed, line = host.only(weights)
    assert (changed, line["state"], line["bytes"]) == (True, "right", 0)
    assert list(line["modes"]) == [name]
    assert line["modes"][name].startswith(f"{mode:04o}")
    assert host.only(weights)[0] is False


def test_another_revision_under_the_same_id_is_staged_anew(host):
    weights = host.folder()
    host.present(weights)
    other = host.root / "other"
    shutil.copytree(host.root / "folder", other)
    flip(other / SHARD)
    changed, line = host.only(weights | {"source": {"kind": "local", "path": str(other)}})
    assert (changed, line["state"]) == (True, "staged")
    assert host.staged()[SHARD] == (other / SHARD).read_bytes()


def test_hashes_of_the_catalog_are_what_counts(host):
    weights = host.folder()
    weights["files"] = {
        name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in MODEL.items()
    }
    assert host.only(weights)[1]["state"] == "staged"
    weights["files"][SHARD]["sha256"] = "0" * 64
    with pytest.raises(GauntletError, match=rf"{SHARD} \(sha256 is"):
        host.present(weights)


WHEEL = {
    "id": "tiny",
    "format": "gguf",
    "entry": "tiny.gguf",
    "source": {"kind": "wheel", "package": "tiny", "version": "1", "sha256": "0" * 64, "member": "tiny/tiny.gguf"},
    "size_bytes": 2004,
}
GGUF = b"GGUF" + b"w" * 2000


def push(host, data=GGUF):
    """As the action plugin does: lays the file into the store's staging folder and says what it is."""
    staging_folder = host.store.staging("tiny")
    staging_folder.mkdir(exist_ok=True)
    (staging_folder / "tiny.gguf").write_bytes(data)
    return {"tiny": {"tiny.gguf": {"size": len(GGUF), "sha256": hashlib.sha256(GGUF).hexdigest()}}}


class TestWheel:
    """Weights that only the controller can fetch: pushed once, kept in the store, staged from there."""

    def test_it_is_pushed_once(self, host):
        assert host.only(WHEEL)[1]["state"] == "push"
        changed, line = host.only(WHEEL, pushed=push(host))
        assert (changed, line["state"], line["source"]) == (True, "staged", "store")
        assert host.staged() == {"tiny.gguf": GGUF}
        host.reboot()
        assert host.only(WHEEL)[1]["state"] == "staged"

    def test_a_push_that_arrived_wrong_is_refused(self, host):
        host.present(WHEEL)
        with pytest.raises(GauntletError, match=r"tiny\.gguf"):
            host.present(WHEEL, pushed=push(host, GGUF[:-1] + b"?"))
        assert host.staged() is None

    @pytest.mark.parametrize(
        "harm", [flip, rot, lambda p: os.truncate(p, 50), os.unlink], ids=["flip", "rot", "cut", "gone"]
    )
    def test_a_damaged_store_is_refused_by_name_when_asked_to(self, host, harm):
        """restage.yml: damage on the disk is something that a person must hear of before anything is served."""
        host.present(WHEEL)
        host.present(WHEEL, pushed=push(host))
        host.reboot()
        harm(host.store.path("tiny") / "tiny.gguf")
        with pytest.raises(GauntletError, match=r"damaged in .*store.*tiny\.gguf"):
            host.present(WHEEL, repair_store=False)
        assert host.staged() is None

    def test_a_damaged_store_is_pushed_again_otherwise(self, host):
        host.present(WHEEL)
        host.present(WHEEL, pushed=push(host))
        host.reboot()
        rot(host.store.path("tiny") / "tiny.gguf")
        line = host.only(WHEEL)[1]
        assert line["state"] == "push"
        assert "xxh3_128 is" in line["wrong"]["tiny.gguf"]
        assert host.only(WHEEL, pushed=push(host))[1]["state"] == "staged"
        assert host.staged() == {"tiny.gguf": GGUF}

    def test_a_link_out_of_the_store_is_refused(self, host):
        host.present(WHEEL)
        host.present(WHEEL, pushed=push(host))
        host.reboot()
        path = host.store.path("tiny") / "tiny.gguf"
        shutil.copy(path, host.root / "elsewhere")
        path.unlink()
        path.symlink_to(host.root / "elsewhere")
        with pytest.raises(GauntletError, match="a link that leads to"):
            host.present(WHEEL, repair_store=False)
        host.present(WHEEL)
        assert (host.root / "elsewhere").read_bytes() == GGUF, "the link is taken away, not what it led to"

    @pytest.mark.parametrize("loss", ["store", "file"])
    def test_a_lost_store_is_filled_again_from_memory(self, host, loss):
        """Memory is right and the disk is not: the next reboot would lose everything."""
        host.present(WHEEL)
        host.present(WHEEL, pushed=push(host))
        if loss == "store":
            shutil.rmtree(host.store.root)
        else:
            flip(host.store.path("tiny") / "tiny.gguf")
        assert host.only(WHEEL, dry=True)[0] is True
        changed, line = host.only(WHEEL)
        assert changed is True
        assert "stored again from memory" in line["notes"][0]
        assert host.store.check("tiny", deep=True, jobs=1, progress=Options().progress) == {}
        assert host.only(WHEEL)[0] is False


def test_a_person_is_told_where_bytes_came_from_and_what_was_wrong(host):
    weights = host.folder()
    assert staging.sentences(host.present(weights, dry=True)) == ["tiny: would be staged, 1.9 kB from folder"]
    host.present(weights)
    flip(host.mount.path("tiny") / SHARD)
    staged, wrong = staging.sentences(host.present(weights))
    assert staged == f"tiny: staged, {len(MODEL[SHARD])} B from store"
    assert wrong.startswith(f"tiny: {SHARD} was wrong: xxh3_128 is")
    assert staging.sentences(host.present(weights)) == []
    assert staging.sentences(host.present())[0].startswith("tiny is not needed by what is planned: -e evict=true frees")
    assert staging.sentences(host.present(evict=True))[0].startswith("tiny is freed")


def test_what_no_plan_needs_is_named_and_freed_only_when_asked(host):
    weights = host.folder()
    host.present(weights | {"id": "old"})
    result = host.present(weights)
    assert list(result["evictable"]) == ["old"]
    assert result["evicted"] == {}
    assert host.mount.path("old").exists()
    result = host.present(weights, evict=True)
    assert list(result["evicted"]) == ["old"]
    assert not host.mount.path("old").exists()
    assert host.present(weights, evict=True)["changed"] is False


def test_no_room_is_said_for_all_of_it_before_the_first_byte(host, monkeypatch):
    weights = host.folder()
    host.present(weights | {"id": "old"})
    monkeypatch.setattr(space, "filesystem_free", lambda folder: 2000)
    with pytest.raises(
        GauntletError, match=r"no room for one, two: needed 3\.8 kB, free 2\.0 kB .*old \(.* kB\); -e evict=true"
    ):
        host.present(weights | {"id": "one"}, weights | {"id": "two"})
    assert host.mount.ids() == ["old"]


def test_absent_frees_memory_and_keeps_the_store(host):
    host.present(WHEEL)
    host.present(WHEEL, pushed=push(host))
    options = Options()
    assert staging.absent([WHEEL], host.mount, Places(host.store), Options(dry=True))["changed"] is True
    assert staging.absent([WHEEL], host.mount, Places(host.store), options)["changed"] is True
    assert host.staged() is None
    assert host.store.manifest("tiny")
    assert staging.absent([WHEEL], host.mount, Places(host.store), options)["changed"] is False


def test_verified_looks_at_memory_and_store_and_changes_nothing(host):
    host.present(WHEEL)
    host.present(WHEEL, pushed=push(host))
    places, options = Places(host.store), Options()

    def state():
        return staging.verified([WHEEL], host.mount, places, options)["snapshots"][0]["state"]

    assert state() == "right"
    rot(host.store.path("tiny") / "tiny.gguf")
    assert state() == "damaged"
    host.reboot()
    assert state() == "missing"


class TestSpace:
    """The limits of a host, from the files that the kernel and a container show: the lab has no memory controller."""

    @pytest.fixture
    def proc(self, tmp_path):
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/meminfo").write_text("MemTotal:       24000000 kB\nMemAvailable:   20000000 kB\n")
        (tmp_path / "proc/self/cgroup").write_text("0::/lxc/200/ns/system.slice\n")
        return tmp_path / "proc"

    def group(self, tmp_path, path, **files):
        folder = tmp_path / "cgroup" / path
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name.replace("_", ".", 1)).write_text(text)

    def test_the_tightest_group_above_counts_and_file_cache_is_free(self, tmp_path, proc):
        self.group(tmp_path, "lxc/200/ns/system.slice", memory_max="max\n", memory_current="5\n")
        self.group(
            tmp_path,
            "lxc/200-x",
            memory_max="1\n",
            memory_current="1\n",
        )
        (tmp_path / "cgroup/lxc/200/memory.max").write_text("10000000000\n")
        (tmp_path / "cgroup/lxc/200/memory.current").write_text("9000000000\n")
        stat = "anon 1000000000\nfile 7500000000\nshmem 5000000000\ninactive_file 2000000000\nactive_file 500000000\n"
        (tmp_path / "cgroup/lxc/200/memory.stat").write_text(stat)
        room = space.cgroup_headroom(proc, tmp_path / "cgroup")
        assert room == (3_500_000_000, str(tmp_path / "cgroup/lxc/200"))
        with pytest.raises(GauntletError, match=r"needed 4\.0 GB, free 3\.5 GB under the memory limit of .*lxc/200"):
            space.require(4_000_000_000, tmp_path, "m", memory=True, proc=proc, cgroup=tmp_path / "cgroup")
        space.require(4_000_000_000, tmp_path, "m", memory=False, proc=proc, cgroup=tmp_path / "cgroup")

    def test_version_one(self, tmp_path, proc):
        (proc / "self/cgroup").write_text("12:cpuset:/\n5:cpu,memory:/docker/1\n1:name=systemd:/docker/1\n")
        folder = tmp_path / "cgroup/memory/docker/1"
        folder.mkdir(parents=True)
        (folder / "memory.limit_in_bytes").write_text("8000000000\n")
        (folder / "memory.usage_in_bytes").write_text("6000000000\n")
        (folder / "memory.stat").write_text("total_inactive_file 1000000000\ntotal_active_file 0\n")
        (tmp_path / "cgroup/memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
        (tmp_path / "cgroup/memory/memory.usage_in_bytes").write_text("6000000000\n")
        assert space.cgroup_headroom(proc, tmp_path / "cgroup") == (3_000_000_000, str(folder))

    def test_no_limit_is_none(self, tmp_path, proc):
        assert space.cgroup_headroom(proc, tmp_path / "cgroup") is None
        (proc / "self/cgroup").unlink()
        assert space.cgroup_headroom(proc, tmp_path / "cgroup") is None

    def test_memory_of_the_host(self, tmp_path, proc):
        assert space.memory_available(proc) == 20_480_000_000
        with pytest.raises(GauntletError, match=r"free 20\.5 GB of the host's memory"):
            space.require(21_000_000_000, tmp_path, "m", memory=True, proc=proc, cgroup=tmp_path)
