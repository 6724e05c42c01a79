"""A Hugging Face cache after a reboot, a copy or an interruption: what is usable is used, what is not is named."""

import hashlib
import os
import tarfile
from pathlib import Path

import pytest
from huggingface_hub import scan_cache_dir, snapshot_download
from huggingface_hub.file_download import repo_folder_name

from gauntlet.errors import GauntletError
from gauntlet.weights import hub_cache

CASE = Path(__file__).parents[1] / "cases/29-missing-or-stale-refs-offline/tree.tar"
COMMIT = "93760be4f1f69842a46bc13dbdc0f19e291392a3"


@pytest.fixture
def case(tmp_path):
    with tarfile.open(CASE) as archive:
        archive.extractall(tmp_path, filter="fully_trusted")  # its links are the case
    return tmp_path / "cache"


class TestMissingOrStaleRefs:
    """Filled by commit, or copied without refs/: everything is there and the hub's own library finds nothing."""

    def test_the_only_snapshot_is_taken_with_a_note(self, case):
        cached = hub_cache.find(case / "one", "acme/tiny", "main")
        assert cached.commit == COMMIT
        assert sorted(cached.files) == ["config.json", "model.safetensors"]
        assert f"no refs/main; {COMMIT} is taken" in cached.notes[0]

    def test_two_snapshots_ask_for_a_revision(self, case):
        with pytest.raises(GauntletError, match=f"1111111111.*{COMMIT}; name a revision"):
            hub_cache.find(case / "two", "acme/tiny", None)
        assert hub_cache.find(case / "two", "acme/tiny", COMMIT).files["config.json"].name == "c0"

    def test_a_ref_to_a_commit_that_is_not_here_says_so(self, case):
        with pytest.raises(
            GauntletError, match=f"refs/main points to commit 2222222222.*, which is not here.*{COMMIT}"
        ):
            hub_cache.find(case / "stale", "acme/tiny", "main")
        assert hub_cache.find(case / "stale", "acme/tiny", COMMIT).commit == COMMIT


WEIGHTS, CONFIG = b"w" * 5000, b'{"model_type": "tiny"}\n'
SHA256 = hashlib.sha256(WEIGHTS).hexdigest()
GIT = hashlib.sha1(b"blob %d\0" % len(CONFIG) + CONFIG).hexdigest()


@pytest.fixture
def cache(tmp_path):
    """Built to huggingface_hub's own layout, and read by that library too, so that both mean the same."""
    folder = tmp_path / "hub" / repo_folder_name(repo_id="acme/tiny", repo_type="model")
    snapshot = folder / "snapshots" / COMMIT
    for path in (folder / "blobs", folder / "refs", snapshot):
        path.mkdir(parents=True)
    (folder / "refs/main").write_text(COMMIT)
    (folder / "blobs" / SHA256).write_bytes(WEIGHTS)
    (folder / "blobs" / GIT).write_bytes(CONFIG)
    (snapshot / "model.safetensors").symlink_to(f"../../blobs/{SHA256}")
    (snapshot / "config.json").symlink_to(f"../../blobs/{GIT}")
    return tmp_path / "hub"


def folder(cache):
    return cache / "models--acme--tiny"


def test_a_whole_cache_is_known_by_the_names_of_its_blobs(cache):
    cached = hub_cache.find(cache, "acme/tiny", "main")
    assert cached.expected("model.safetensors") == {"sha256": SHA256}
    assert cached.expected("config.json") == {"git_blob_sha1": GIT}
    assert cached.notes == []
    (repo,) = scan_cache_dir(cache).repos
    assert {f.file_name for r in repo.revisions for f in r.files} == set(cached.files)
    assert snapshot_download("acme/tiny", cache_dir=cache, local_files_only=True) == str(
        cached.folder / "snapshots" / COMMIT
    )


def test_links_without_blobs_are_named(cache):
    """What the founding campaign found after its reboot: every name, no byte."""
    (folder(cache) / "blobs" / SHA256).unlink()
    with pytest.raises(GauntletError, match=r"model\.safetensors \(a link without its blob\)") as error:
        hub_cache.find(cache, "acme/tiny", "main")
    assert "config.json" not in str(error.value)


def test_interrupted_downloads_are_named(cache):
    os.rename(folder(cache) / "blobs" / SHA256, folder(cache) / "blobs" / f"{SHA256}.incomplete")
    with pytest.raises(
        GauntletError, match=rf"a link without its blob.*interrupted downloads: {SHA256}.incomplete \(5.0 kB\)"
    ):
        hub_cache.find(cache, "acme/tiny", "main")


def test_a_link_out_of_the_cache_is_refused(cache):
    link = folder(cache) / "snapshots" / COMMIT / "config.json"
    link.unlink()
    link.symlink_to("/etc/hostname")
    with pytest.raises(GauntletError, match=r"config\.json \(a link that leads out of the cache, to /etc/hostname\)"):
        hub_cache.find(cache, "acme/tiny", "main")


def test_a_cache_without_links_is_read_too(cache):
    """Where links are not possible the library keeps the files in the snapshot; then no name promises a hash."""
    path = folder(cache) / "snapshots" / COMMIT / "config.json"
    path.unlink()
    path.write_bytes(CONFIG)
    assert hub_cache.find(cache, "acme/tiny", "main").expected("config.json") == {}


def test_what_is_not_there_is_a_sentence(cache):
    with pytest.raises(GauntletError, match="acme/other is not in"):
        hub_cache.find(cache, "acme/other", "main")
    with pytest.raises(GauntletError, match=f"does not have commit {'4' * 40}; snapshots here: {COMMIT}"):
        hub_cache.find(cache, "acme/tiny", "4" * 40)
