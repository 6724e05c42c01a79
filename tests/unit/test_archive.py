"""Results are days of machine time: an archive must arrive whole or not at all, and never leave its folder."""

import io
import json
import tarfile
import threading

import pytest

from gauntlet import archive
from gauntlet import attempt as attempts
from gauntlet.errors import GauntletError


@pytest.fixture
def results(tmp_path):
    root = tmp_path / "host"
    for cell, attempt in (
        ("m.a.tp1.edit.c1-1a2b3c4d", "r0-20261129T140501Z-0001"),
        ("m.a.tp1.edit.c1-1a2b3c4d", "r1-20261129T140601Z-0002"),
    ):
        folder = root / cell / attempt
        folder.mkdir(parents=True)
        (folder / "cell.json").write_text(json.dumps({"schema": 1, "attempt": attempt}))
        (folder / "requests.jsonl.gz").write_bytes(b"\x1f\x8b" + attempt.encode())
    (root / "m.a.tp1.edit.c1-1a2b3c4d" / ".partial-x").mkdir()
    return root


def _names(root):
    return [str(p.relative_to(root)) for p in archive.attempts(root)]


def test_what_was_packed_arrives_and_only_then_leaves_the_host(results, tmp_path):
    packed = archive.pack(results, tmp_path / "a.tar")
    home = tmp_path / "home"
    assert archive.unpack(tmp_path / "a.tar", home) == packed
    assert _names(home) == _names(results) == sorted(packed)
    assert archive.unpack(tmp_path / "a.tar", home) == packed, "arriving twice is arriving once"
    assert archive.forget(results, packed) == sorted(packed)
    assert archive.attempts(results) == []
    assert not [path for path in tmp_path.iterdir() if path.is_dir() and path not in (results, home)]


def test_a_host_killed_while_it_forgets_keeps_no_torn_attempt(results, tmp_path, monkeypatch):
    """What is left of one must not be taken for an attempt: it would be packed, and be another than the one at home."""
    packed = archive.pack(results, tmp_path / "a.tar")
    archive.unpack(tmp_path / "a.tar", tmp_path / "home")

    def killed(folder):
        next(folder.glob("requests*")).unlink()
        raise SystemExit

    with monkeypatch.context() as patched, pytest.raises(SystemExit):
        patched.setattr(archive.shutil, "rmtree", killed)
        archive.forget(results, packed)
    again = archive.pack(results, tmp_path / "a.tar")
    assert len(again) == 1
    assert archive.unpack(tmp_path / "a.tar", tmp_path / "home") == again
    attempts.clean(results)
    assert archive.forget(results, again) and not list(results.glob("*/.r*"))


def test_what_a_killed_run_left_on_its_way_is_taken_away(tmp_path):
    (tmp_path / ".incoming/tmpx").mkdir(parents=True)
    (tmp_path / ".incoming/results.tar").write_bytes(b"half")
    with archive.incoming(tmp_path) as folder:
        assert list(folder.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


def test_two_runs_bring_home_one_after_the_other(tmp_path):
    """The second one would take away what the first is unpacking."""
    with archive.incoming(tmp_path) as folder:
        (folder / "mine").touch()
        second = threading.Thread(target=archive.incoming(tmp_path).__enter__)
        second.start()
        second.join(0.3)
        assert second.is_alive() and (folder / "mine").exists()
    second.join(5)
    assert not second.is_alive()


def test_an_attempt_that_changed_on_the_host_is_not_forgotten(results, tmp_path):
    packed = archive.pack(results, tmp_path / "a.tar")
    changed = archive.attempts(results)[0]
    (changed / "cell.json").write_text("{}")
    assert str(changed.relative_to(results)) not in archive.forget(results, packed)
    assert changed.is_dir()


def test_an_attempt_at_home_with_other_content_is_never_overwritten(results, tmp_path):
    archive.pack(results, tmp_path / "a.tar")
    archive.unpack(tmp_path / "a.tar", tmp_path / "home")
    mine = archive.attempts(tmp_path / "home")[0] / "cell.json"
    mine.write_text("{}")
    with pytest.raises(GauntletError, match="another content"):
        archive.unpack(tmp_path / "a.tar", tmp_path / "home")
    assert mine.read_text() == "{}"


def _evil(path, member, data=b""):
    manifest = {"c/a": {"f": "0" * 64}}
    with tarfile.open(path, "w") as tar:
        text = json.dumps(manifest).encode()
        head = tarfile.TarInfo(archive.MANIFEST)
        head.size = len(text)
        tar.addfile(head, io.BytesIO(text))
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))


def _member(name, kind=tarfile.REGTYPE, link=""):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


@pytest.mark.parametrize(
    "member",
    [
        _member("../evil"),
        _member("/etc/evil"),
        _member("c/../../evil"),
        _member("c/a/../../../evil"),
        _member("c/a/f", tarfile.SYMTYPE, "/etc/passwd"),
        _member("c/a/f", tarfile.LNKTYPE, "/etc/passwd"),
        _member("c/a/f", tarfile.CHRTYPE),
        _member("c/a/f", tarfile.FIFOTYPE),
        _member("c/a", tarfile.DIRTYPE),
        _member("c/a/unasked"),
        _member("c/a/f"),
    ],
    ids=lambda m: f"{m.name}:{m.type.decode()}",
)
def test_members_that_are_no_file_of_an_attempt_are_refused(tmp_path, member):
    _evil(tmp_path / "a.tar", member)
    with pytest.raises(GauntletError):
        archive.unpack(tmp_path / "a.tar", tmp_path / "home")
    assert not (tmp_path / "home").exists()
    assert not (tmp_path / "evil").exists()


def test_a_torn_archive_brings_nothing(results, tmp_path):
    """The link broke: at whatever byte, either nothing comes home or everything does."""
    archive.pack(results, tmp_path / "a.tar")
    whole = (tmp_path / "a.tar").read_bytes()
    for cut in range(0, len(whole), 700):
        (tmp_path / "torn.tar").write_bytes(whole[:cut])
        home = tmp_path / f"home{cut}"
        try:
            archive.unpack(tmp_path / "torn.tar", home)
        except GauntletError:
            assert archive.attempts(home) == []
        else:
            assert len(archive.attempts(home)) == 2
