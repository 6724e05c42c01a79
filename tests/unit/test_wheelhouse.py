"""What a host without a route out gets must be exactly what the lock says, for that host's Python."""

import subprocess
import sys
import tarfile
import zipfile

import pytest

from gauntlet import wheelhouse
from gauntlet.errors import GauntletError

TARGET = {"python": "3.11.2", "machine": "x86_64", "libc": "2.36"}
LOCK = """\
# a comment
requests==2.34.2 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
typing-extensions==4.16.0 ; python_full_version < '3.12' \\
    --hash=sha256:cc
pywin32==1 ; sys_platform == 'win32' \\
    --hash=sha256:dd
grpc==1 ; platform_machine == 'aarch64' \\
    --hash=sha256:ee
"""


class TestPins:
    def test_what_holds_for_the_target_without_its_markers(self):
        assert wheelhouse.pins(LOCK, TARGET) == [
            "requests==2.34.2 --hash=sha256:aa --hash=sha256:bb", "typing-extensions==4.16.0 --hash=sha256:cc",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("change", "names"),
        [({"python": "3.13.5"}, ["requests"]), ({"machine": "aarch64"}, ["grpc", "requests", "typing-extensions"])],
    )
    def test_another_target_another_set(self, change, names):
        assert [pin.partition("==")[0] for pin in wheelhouse.pins(LOCK, TARGET | change)] == names

    @pytest.mark.parametrize(
        ("line", "words"),
        [("requests==2.34.2", "has no hash"), ("requests=2 --hash=sha256:aa", "is not a requirement")],
    )
    def test_a_lock_that_pins_nothing_is_refused(self, line, words):
        with pytest.raises(GauntletError, match=words):
            wheelhouse.pins(line, TARGET)

    def test_equal_content_equal_key_and_nothing_else(self):
        pins = wheelhouse.pins(LOCK, TARGET)
        other = [wheelhouse.key(pins[:1], TARGET), wheelhouse.key(pins, TARGET | {"python": "3.11.3"})]
        keys = {wheelhouse.key(pins, TARGET), *other}
        assert len(keys) == 3 and wheelhouse.key(list(pins), dict(TARGET)) in keys


def test_every_platform_that_the_libc_loads_newest_first():
    names = wheelhouse.platforms(TARGET)
    assert names[0] == "manylinux_2_36_x86_64" and names[-1] == "manylinux1_x86_64"
    assert "manylinux2014_x86_64" in names and "manylinux_2_37_x86_64" not in names


class TestOwnWheel:
    def test_the_same_source_gives_the_same_bytes(self, tmp_path):
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        (a, pin_a), (b, pin_b) = (wheelhouse.own_wheel(tmp_path / name) for name in "ab")
        assert a.read_bytes() == b.read_bytes() and a.name == b.name and pin_a == pin_b

    def test_it_installs_and_runs(self, tmp_path):
        wheel, _ = wheelhouse.own_wheel(tmp_path)
        target = tmp_path / "site"
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", target, wheel]
        subprocess.run(command, check=True)
        code = f"import sys; sys.path.insert(0, {str(target)!r}); import gauntlet.names as n; print(n.__file__)"
        shown = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
        assert str(target) in shown.stdout

    def test_its_version_is_its_content(self, tmp_path, monkeypatch):
        wheel, _ = wheelhouse.own_wheel(tmp_path)
        copy = tmp_path / "gauntlet"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path)
        (copy / "names.py").write_text((copy / "names.py").read_text() + "\n# changed\n")
        monkeypatch.setattr(wheelhouse.gauntlet, "__file__", str(copy / "__init__.py"))
        (tmp_path / "again").mkdir()
        assert wheelhouse.own_wheel(tmp_path / "again")[0].name != wheel.name


class TestGitBuilds:
    """A build of a commit, for engines that are in no release. The package here brings its own tiny build backend."""

    BACKEND = """
import pathlib, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as z:
        z.writestr("tiny.py", "x = 1")
        z.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n")
        z.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        z.writestr("tiny-1.0.dist-info/RECORD", "")
    return name
"""

    @pytest.fixture
    def repository(self, tmp_path):
        """(its url, a commit)"""
        folder = tmp_path / "repository"
        package = folder / "python"
        package.mkdir(parents=True)
        (package / "backend.py").write_text(self.BACKEND)
        (package / "pyproject.toml").write_text(
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        )
        git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org"]
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
            subprocess.run([*git, *words], check=True)
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        return f"file://{folder}", commit

    def test_a_commit_is_built_once(self, repository, tmp_path):
        url, commit = repository
        source = {"url": url, "commit": commit, "subdirectory": "python"}
        wheel = wheelhouse.git_wheel(source, tmp_path / "cache")
        assert wheel.name == "tiny-1.0-py3-none-any.whl"
        built = wheel.stat().st_mtime_ns
        assert wheelhouse.git_wheel(source, tmp_path / "cache").stat().st_mtime_ns == built
        assert wheelhouse.pin_of(wheel)[1].startswith("tiny==1.0 --hash=sha256:")

    @pytest.mark.parametrize("commit", ["main", "v0.5.23", "93e9850", ""])
    def test_what_moves_is_refused(self, commit, tmp_path):
        with pytest.raises(GauntletError, match="a branch moves"):
            wheelhouse.git_wheel({"url": "https://example.org/x", "commit": commit}, tmp_path)

    def test_what_cannot_be_built_is_said(self, repository, tmp_path):
        with pytest.raises(GauntletError, match="cannot be built"):
            wheelhouse.git_wheel({"url": repository[0], "commit": "0" * 40}, tmp_path)


def test_a_pack_holds_the_wheels_and_nothing_of_their_paths(tmp_path):
    (tmp_path / "a-1-py3-none-any.whl").write_text("a")
    with tarfile.open(wheelhouse.pack([tmp_path / "a-1-py3-none-any.whl"], tmp_path / "x.tar")) as archive:
        assert archive.getnames() == ["a-1-py3-none-any.whl"]


def test_the_cache_is_asked_before_the_index(tmp_path, monkeypatch):
    pins = ["x==1 --hash=sha256:aa"]
    (tmp_path / wheelhouse.key(pins, TARGET)).mkdir()
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("it asked"))
    assert wheelhouse.download(pins, TARGET, tmp_path).name == wheelhouse.key(pins, TARGET)
