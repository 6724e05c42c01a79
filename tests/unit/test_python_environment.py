"""An environment is what its lock says until a file of it says otherwise, and then it says which file."""

import base64
import hashlib
import importlib.util
import json
import os
import time
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location(
    "python_environment", Path(__file__).parents[2] / "library/python_environment.py"
)
environment = importlib.util.module_from_spec(spec)
spec.loader.exec_module(environment)

FILES = {"requests/api.py": b"def get(): ...", "requests/__init__.py": b"", "../../../bin/tool": b"#!/bin/sh"}


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@pytest.fixture
def root(tmp_path):
    """A small environment as pip leaves it, stamped as finished."""
    site = tmp_path / "lib/python3.11/site-packages"
    information = site / "requests-2.0.dist-info"
    information.mkdir(parents=True)
    for name, data in FILES.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(data)
    rows = [f"{name},{digest(data)},{len(data)}" for name, data in FILES.items()]
    rows += ["requests/__pycache__/api.cpython-311.pyc,,", "requests-2.0.dist-info/RECORD,,"]
    (information / "RECORD").write_text("\n".join(rows) + "\n")
    time.sleep(0.01)  # the stamp is later than the files
    stamp = {"key": "k", "target": {}, "distributions": ["requests-2.0.dist-info"]}
    (tmp_path / environment.STAMP).write_text(json.dumps(stamp))
    return tmp_path


def damage(root):
    return environment.damage(str(root), environment.read_stamp(str(root)))


def api(root):
    return root / "lib/python3.11/site-packages/requests/api.py"


class TestDamage:
    def test_as_installed_is_whole(self, root):
        assert damage(root) == []

    def test_a_longer_file(self, root):
        api(root).write_bytes(FILES["requests/api.py"] + b"\n")
        assert damage(root) == [f"{api(root)} has 15 bytes, not 14"]

    def test_one_byte_in_place_with_the_time_put_back(self, root):
        before = api(root).stat()
        api(root).write_bytes(b"def got(): ...")
        os.utime(api(root), ns=(before.st_atime_ns, before.st_mtime_ns))
        assert damage(root) == [f"{api(root)} was altered"]

    def test_the_same_bytes_written_anew_are_whole(self, root):
        api(root).write_bytes(FILES["requests/api.py"])
        assert damage(root) == []

    def test_a_file_that_is_gone(self, root):
        (root / "bin/tool").unlink()
        assert damage(root) == [f"{root / 'bin/tool'} is missing"]

    def test_a_file_that_two_wheels_bring_and_bytecode_that_one_brings(self, root):
        """As in SGLang's own requirements: two packages with a build_backend.py, and one that records a .pyc."""
        site = root / "lib/python3.11/site-packages"
        (site / "shared.py").write_bytes(b"the later one")
        for name, data in (("first", b"an earlier, longer one"), ("second", b"the later one")):
            (site / f"{name}-1.dist-info").mkdir()
            rows = [f"shared.py,{digest(data)},{len(data)}", f"{name}.pyc,{digest(b'old')},3"]
            (site / f"{name}-1.dist-info/RECORD").write_text("\n".join(rows) + "\n")
        stamp = environment.read_stamp(str(root))
        stamp["distributions"] += ["first-1.dist-info", "second-1.dist-info"]
        (root / environment.STAMP).write_text(json.dumps(stamp))
        assert damage(root) == []
        (site / "shared.py").write_bytes(b"neither")
        assert damage(root) == [f"{site / 'shared.py'} has 7 bytes, not 13"]

    def test_a_package_that_is_gone(self, root):
        (root / "lib/python3.11/site-packages/requests-2.0.dist-info").rename(root / "elsewhere")
        assert damage(root) == ["requests-2.0.dist-info is missing"]

    def test_a_package_that_somebody_added(self, root):
        (root / "lib/python3.11/site-packages/other-1.dist-info").mkdir()
        (root / "lib/python3.11/site-packages/other-1.dist-info/RECORD").write_text("")
        assert damage(root) == ["other-1.dist-info is foreign"]

    def test_an_environment_that_was_never_finished_has_no_stamp(self, root):
        (root / environment.STAMP).unlink()
        assert environment.read_stamp(str(root)) is None


class TestMismatches:
    """`pip check` in the words people need; the founding mismatch among them."""

    def test_package_found_and_wanted(self):
        said = environment.mismatches(
            "sglang 0.5.23 has requirement compressed-tensors==0.18.0, but you have compressed-tensors 0.20.1.\n",
            {"sglang"}, set(),
        )  # fmt: skip
        assert said == "compressed-tensors: found 0.20.1, but sglang 0.5.23 wants compressed-tensors==0.18.0"

    def test_what_is_not_there(self):
        said = environment.mismatches("sglang 0.5.23 requires torch, which is not installed.\n", {"sglang"}, set())
        assert said == "torch: not installed, but sglang 0.5.23 wants it"

    def test_what_was_accepted_is_not_said_and_the_rest_is(self):
        text = (
            "sglang 0.5.16 requires flash-attn-4, which is not installed.\n"
            "sglang 0.5.16 has requirement xgrammar==0.2.1, but you have xgrammar 0.1.\n"
        )
        said = environment.mismatches(text, {"sglang"}, {"flash-attn-4"})
        assert "flash-attn" not in said and "xgrammar" in said

    def test_all_is_well(self):
        assert environment.mismatches("No broken requirements found.\n", {"sglang"}, set()) == ""


class TestReplace:
    def test_the_new_one_takes_the_old_ones_place_and_the_old_one_goes(self, tmp_path):
        for name in (".agent-1", ".agent-2"):
            (tmp_path / name).mkdir()
        environment.replace(str(tmp_path / "agent"), str(tmp_path / ".agent-1"))
        environment.replace(str(tmp_path / "agent"), str(tmp_path / ".agent-2"))
        assert (tmp_path / "agent").resolve() == tmp_path / ".agent-2"
        assert not (tmp_path / ".agent-1").exists()

    def test_what_the_link_names_elsewhere_is_not_ours_to_remove(self, tmp_path):
        elsewhere = tmp_path / "elsewhere" / "theirs"
        elsewhere.mkdir(parents=True)
        (tmp_path / "opt").mkdir()
        (tmp_path / "opt/agent").symlink_to(elsewhere)
        (tmp_path / "opt/.agent-1").mkdir()
        environment.replace(str(tmp_path / "opt/agent"), str(tmp_path / "opt/.agent-1"))
        assert elsewhere.is_dir()
