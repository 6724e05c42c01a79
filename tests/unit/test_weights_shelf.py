"""A shelf must never show half a model, whatever interrupts it, and must never touch what is not its own."""

import errno
import io
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gauntlet.errors import GauntletError
from gauntlet.weights import digests, manifest, shelf, transfer
from gauntlet.weights.progress import Progress
from gauntlet.weights.shelf import Shelf
from gauntlet.weights.transfer import Damaged, Piece

WEIGHTS = {"id": "tiny", "format": "safetensors", "source": {"kind": "local", "path": "/models/tiny"}}
FILES = {"a.bin": bytes(range(256)) * 3, "sub/b.bin": b"b" * 300, "empty": b""}


def pieces(files=FILES, opened=None):
    def opener(name):
        if opened is not None:
            opened.append(name)
        return io.BytesIO(files[name])

    return [
        Piece(name, len(data), lambda name=name: opener(name), {"sha256": digests_of(data)["sha256"]})
        for name, data in files.items()
    ]


def digests_of(data):
    running = digests.Digests(["sha256", "xxh3_128"], len(data))
    running.update(data)
    return running.hex()


def fill(target, of=None, **more):
    return target.fill(WEIGHTS, of or pieces(), hashed=True, jobs=2, progress=Progress(), **more)


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != manifest.NAME
    }


@pytest.fixture(params=[True, False], ids=["memory", "disk"])
def target(tmp_path, request):
    (tmp_path / "shelf").mkdir()
    return Shelf(tmp_path / "shelf", memory=request.param)


def test_a_snapshot_is_whole_and_known_by_both_hashes(target):
    """The first proof is by the hash that the source gave; later ones are by the fast one: both must be recorded."""
    filled = fill(target)
    assert content(target.path("tiny")) == FILES
    entries = target.manifest("tiny")["files"]
    assert {n: e["sha256"] for n, e in entries.items()} == {n: digests_of(d)["sha256"] for n, d in FILES.items()}
    assert {n: e["xxh3_128"] for n, e in entries.items()} == {n: digests_of(d)["xxh3_128"] for n, d in FILES.items()}
    assert filled["bytes"] == sum(map(len, FILES.values()))
    assert not target.staging("tiny").exists()
    assert target.check("tiny", deep=True, jobs=1, progress=Progress()) == {}


def test_the_server_reads_what_a_root_with_a_strict_umask_staged(target):
    """Also what a staging folder of an earlier run holds: all of it is due before it is published."""
    umask = os.umask(0o077)
    try:
        (target.staging("tiny") / "sub").mkdir(parents=True)
        fill(target)
    finally:
        os.umask(umask)
    assert target.modes("tiny", repair=False) == {}
    os.chmod(target.path("tiny") / "sub", 0o700)
    assert list(target.modes("tiny", repair=True)) == ["sub"]
    assert target.modes("tiny", repair=False) == {}


class Crash(BaseException):
    """Nothing in the code may catch it: like a kill, it ends everything at once."""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(at=st.integers(0, sum(map(len, FILES.values())) + 1), piece=st.sampled_from([1, 7, 256, 4096]))
def test_an_interruption_at_any_byte_leaves_nothing_published_and_is_taken_up(tmp_path_factory, at, piece):
    """The founding campaign lost its weights to a reboot in mid-copy: half a copy must never look like a model."""
    target = Shelf(tmp_path_factory.mktemp("shelf"), memory=True)
    written = 0

    def write(fd, data):
        nonlocal written
        room = at - written
        if len(data) > room:
            os.write(fd, data[: max(room, 0)])
            raise Crash
        written += len(data)
        os.write(fd, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "_write", write)
        patch.setattr(digests, "PIECE", piece)
        try:
            target.fill(WEIGHTS, pieces(), hashed=True, jobs=1, progress=Progress())
            finished = True
        except Crash:
            finished = False
    assert target.path("tiny").exists() == finished == (at >= sum(map(len, FILES.values())))
    opened = []
    again = fill(target, pieces(opened=opened))
    assert content(target.path("tiny")) == FILES
    assert set(opened) | set(again["resumed"]) == set(FILES), "a file that was whole is kept, every other is copied"
    assert not set(opened) & set(again["resumed"])


def test_a_file_that_was_whole_but_is_not_any_more_is_not_taken_up(target):
    """The name says that a file was right once; only its hash says that it is right now."""
    staging = target.staging("tiny")
    (staging / "sub").mkdir(parents=True)
    (staging / "a.bin").write_bytes(FILES["a.bin"][:-1] + b"!")
    (staging / "sub/b.bin").write_bytes(FILES["sub/b.bin"])
    (staging / "from another revision").write_bytes(b"x")
    assert fill(target)["resumed"] == ["sub/b.bin"]
    assert content(target.path("tiny")) == FILES


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"B" + b"b" * 299, "sha256 is"), (b"b" * 299, "299 bytes, should be 300"), (b"b" * 301, "longer than 300")],
    ids=["flipped", "short", "long"],
)
def test_wrong_bytes_are_named_and_never_published(target, data, why):
    wrong = [
        Piece(p.name, p.size, lambda: io.BytesIO(data), p.expected) if p.name == "sub/b.bin" else p for p in pieces()
    ]
    with pytest.raises(Damaged, match=why) as damaged:
        fill(target, wrong)
    assert list(damaged.value.files) == ["sub/b.bin"]
    assert not target.path("tiny").exists()
    assert not list(target.staging("tiny").rglob("b.bin*"))


@pytest.mark.parametrize("deep", [True, False])
@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda path: path.write_bytes(b"B" + b"b" * 299), "xxh3_128 is"),
        (lambda path: os.truncate(path, 10), "10 bytes, should be 300"),
        (lambda path: path.unlink(), "missing"),
        (lambda path: (path.unlink(), path.symlink_to("/etc/passwd")), "a link that leads to /etc/passwd"),
        (lambda path: (path.unlink(), path.mkdir()), "not a regular file"),
        (lambda path: (os.truncate(path, 0), os.truncate(path, 300)), "xxh3_128 is"),
    ],
    ids=["flipped", "truncated", "removed", "link out", "folder", "sparse"],
)
def test_every_harm_to_a_published_file_is_found_and_named(target, harm, why, deep):
    """Also without reading everything: a write moves the times of a file, and then its hash decides."""
    fill(target)
    harm(target.path("tiny") / "sub/b.bin")
    wrong = target.check("tiny", deep=deep, jobs=2, progress=Progress())
    assert list(wrong) == ["sub/b.bin"]
    assert why in wrong["sub/b.bin"]


def test_a_touched_file_is_not_a_damaged_one(target):
    fill(target)
    os.utime(target.path("tiny") / "a.bin")
    assert target.check("tiny", deep=False, jobs=1, progress=Progress()) == {}


def test_no_room_is_said_before_the_first_byte(target, monkeypatch):
    monkeypatch.setattr(shelf.space, "filesystem_free", lambda folder: 500)
    opened = []
    with pytest.raises(GauntletError, match=r"no room for tiny: needed 1.1 kB, free 500 B"):
        fill(target, pieces(opened=opened))
    assert opened == []


def test_all_of_it_is_reserved_before_the_first_byte(tmp_path):
    """A tmpfs that fills up after most of 600 GB were copied has cost half an hour and helped nobody."""
    target, held = Shelf(tmp_path, memory=True), []

    def opened():
        held.append([os.stat(path) for path in sorted(target.staging("tiny").rglob("*.part"))])
        raise FileNotFoundError

    with pytest.raises(GauntletError, match="could not be copied"):
        fill(target, [Piece(name, len(data), opened) for name, data in FILES.items()])
    assert [(s.st_size, s.st_blocks * 512 >= s.st_size) for s in held[0]] == [(768, True), (0, True), (300, True)]


def test_room_that_somebody_else_takes_meanwhile_is_a_sentence_too(target, monkeypatch):
    def full(fd, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(transfer, "_write", full)
    with pytest.raises(GauntletError, match="is full"):
        fill(target)
    assert not target.path("tiny").exists()


def test_a_source_that_disappears_is_a_sentence(target):
    def gone():
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/store/tiny/a.bin")

    with pytest.raises(GauntletError, match=r"a\.bin could not be copied"):
        fill(target, [Piece("a.bin", 10, gone, {})])


def test_a_sparse_source_without_a_known_hash_is_refused(target, tmp_path):
    """Preallocated by an interrupted download: the right size, and zeros inside."""
    with open(tmp_path / "w", "wb") as file:
        file.write(b"x" * 8192)
        file.truncate(1 << 20)
    with pytest.raises(Damaged, match="sparse: nothing was written at byte 8192"):
        fill(target, [transfer.local("w", tmp_path / "w", 1 << 20, {})])


def test_a_link_in_place_of_a_source_is_refused(target, tmp_path):
    (tmp_path / "w").symlink_to("/etc/hostname")
    with pytest.raises(GauntletError, match="could not be copied"):
        fill(target, [transfer.local("w", tmp_path / "w", 5, {})])


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", manifest.NAME, "x.part", ""])
def test_names_that_lead_out_or_hide_are_refused(target, name):
    with pytest.raises(GauntletError, match="is not a file name inside a model folder"):
        fill(target, [Piece(name, 1, lambda: io.BytesIO(b"x"), {})])


@pytest.mark.parametrize("weights_id", ["../x", "a/b", ".hidden", "", ".."])
def test_ids_that_lead_out_are_refused(target, weights_id):
    with pytest.raises(GauntletError, match="is not usable as a folder's name"):
        target.path(weights_id)


def test_nothing_outside_is_ever_removed(target, tmp_path):
    """Links inside our folders may lead anywhere: removing, refilling and withdrawing must stop at the link."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("kept")
    staging = target.staging("tiny")
    staging.mkdir()
    (staging / "link").symlink_to(outside)
    (staging / "sub").symlink_to(outside)
    fill(target)
    (target.path("tiny") / "more").symlink_to(outside)
    target.withdraw("tiny", {"more": "not ours"})
    (target.staging("tiny") / "again").symlink_to(outside)
    assert target.remove("tiny") > 0
    (target.root / "linked").symlink_to(outside)
    assert "linked" not in target.ids()
    with pytest.raises(GauntletError, match="is not a folder of Gauntlet"):
        target.remove("linked")
    with pytest.raises(GauntletError, match="is not removed"):
        target._remove(outside)
    assert content(outside) == {"precious": b"kept"}


def test_a_folder_without_its_manifest_is_filled_from_what_is_right_in_it(target):
    fill(target)
    (target.path("tiny") / manifest.NAME).unlink()
    (target.path("tiny") / "a.bin").write_bytes(b"?")
    assert target.check("tiny", deep=True, jobs=1, progress=Progress()) is None
    assert fill(target)["resumed"] == ["empty", "sub/b.bin"]


def test_a_damaged_manifest_is_a_sentence(target):
    fill(target)
    path = target.path("tiny") / manifest.NAME
    path.write_text(path.read_text()[:-20])
    with pytest.raises(GauntletError, match="cannot be read as a manifest"):
        target.manifest("tiny")
    path.write_text('{"schema": 2}')
    with pytest.raises(GauntletError, match="not a manifest of schema 1"):
        target.manifest("tiny")


def test_digest_of_a_git_blob_is_the_one_that_git_gives(tmp_path):
    """The hub names small files by it; `git hash-object` of "hello\\n" is well known."""
    (tmp_path / "x").write_bytes(b"hello\n")
    assert digests.of_file(tmp_path / "x", ["git_blob_sha1"]) == {
        "git_blob_sha1": "ce013625030ba8dba906f756967f9e9ca394464a"
    }


def test_paths_are_paths():
    assert isinstance(Shelf("/x", memory=False).path("a"), Path)
