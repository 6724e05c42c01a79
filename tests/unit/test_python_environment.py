"""An environment is what its lock says until a file of it says otherwise, and then it says which file."""

import base64
import hashlib
import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

from tests.loading import loaded

environment = loaded(Path(__file__).parents[2] / "library/python_environment.py")

TARGET = {"python": "3.11.2", "machine": "x86_64", "libc": "2.36"}
SITE = "lib/python3.11/site-packages"
INFORMATION = f"{SITE}/requests-2.0.dist-info"
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
    (site / "beside.pth").write_text("/opt/torch\n")
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    python = tmp_path / "bin/python"
    python.write_text(f"#!/bin/sh\necho '{json.dumps(TARGET)}'\n")
    python.chmod(0o755)
    tmp_path.chmod(0o755)
    time.sleep(0.01)  # the stamp is later than the files
    seal(tmp_path)
    return tmp_path


def seal(root):
    stamp = {"key": "k", "target": TARGET, "seal": environment.seal(str(root))}
    (root / environment.STAMP).write_text(json.dumps(stamp))


def damage(root):
    return environment.damage(str(root), environment.read_stamp(str(root)))


def api(root):
    return root / SITE / "requests/api.py"


class Module:
    """As much of Ansible's module as asks a Python what it is."""

    def run_command(self, command, handle_exceptions):
        assert not handle_exceptions, "Ansible would end the module where there is no such program"
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr


def problems(root):
    return environment.problems_of(Module(), str(root), TARGET)


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
        seal(root)
        assert damage(root) == []
        (site / "shared.py").write_bytes(b"neither")
        assert damage(root) == [f"{site / 'shared.py'} was altered"]

    def test_a_package_that_is_gone(self, root):
        (root / INFORMATION).rename(root / "elsewhere")
        assert damage(root) == [f"{root / INFORMATION} is missing"]

    def test_a_package_that_somebody_added(self, root):
        (root / "lib/python3.11/site-packages/other-1.dist-info").mkdir()
        (root / "lib/python3.11/site-packages/other-1.dist-info/RECORD").write_text("")
        assert damage(root) == [f"{root / SITE / 'other-1.dist-info'} is foreign"]

    @pytest.mark.parametrize("text", ["", "not,a record of three\n", "\xff"])
    def test_a_record_that_is_not_the_wheels_is_named_and_proves_nothing(self, root, text):
        """Without a digest of its own, an emptied record would vouch for whatever is done to the package."""
        (root / INFORMATION / "RECORD").write_text(text, encoding="latin-1")
        api(root).write_bytes(b"altered")
        assert damage(root) == [f"{root / INFORMATION} was altered"]

    @pytest.mark.parametrize(
        ("command", "said"),
        [
            ("echo 'import theirs' >sitecustomize.py", "sitecustomize.py is foreign"),
            ("mkdir shadowing", "shadowing is foreign"),
            ("mkfifo theirs.pth", "theirs.pth is foreign"),
            ("rm beside.pth", "beside.pth is missing"),
            ("echo /tmp/theirs >beside.pth", "beside.pth was altered"),
            ("rm ../../../pyvenv.cfg", "pyvenv.cfg is missing"),
            ("echo 'include-system-site-packages = true' >>../../../pyvenv.cfg", "pyvenv.cfg was altered"),
            ("rm requests/api.py && mkdir requests/api.py", "api.py is not a regular file"),
        ],
    )
    def test_what_no_wheel_vouches_for_and_python_goes_by(self, root, command, said):
        subprocess.run(command, shell=True, check=True, cwd=root / SITE)
        assert [problem.rsplit("/")[-1] for problem in damage(root)] == [said]

    @pytest.mark.parametrize("where", [".", "lib", SITE, f"{SITE}/requests", f"{SITE}/requests/api.py", "pyvenv.cfg"])
    @pytest.mark.parametrize("mode", [0o700, 0o777])
    def test_a_mode_that_keeps_the_service_out_or_lets_others_in(self, root, where, mode):
        (root / where).chmod(mode)
        assert damage(root) == [f"{root / where} has mode {mode:04o} and owner {os.getuid()}"]

    def test_bytecode_that_the_interpreter_wrote_is_not_foreign(self, root):
        (root / SITE / "__pycache__").mkdir()
        assert damage(root) == []


class TestProblems:
    """Whatever somebody did to it, the environment is made anew and it is said why; nothing ends the module."""

    def test_an_environment_as_it_was_made_has_none(self, root):
        assert problems(root) == ("k", [])

    @pytest.mark.parametrize("stamp", ["", "{}", "[]", "5", '{"key": "k", "target": {}, "distributions": []}'])
    def test_a_stamp_that_is_damaged_or_of_an_earlier_release(self, root, stamp):
        (root / environment.STAMP).write_text(stamp)
        key, (said,) = problems(root)
        assert key is None
        assert environment.STAMP in said

    @pytest.mark.parametrize(
        ("script", "said"),
        [
            (None, "No such file or directory"),
            ("#!/nowhere\n", "No such file or directory"),
            ("#!/bin/sh\necho broken >&2; exit 1\n", "broken"),
            ("#!/bin/sh\necho hello\n", "it says 'hello'"),
            ("#!/bin/sh\necho 5\n", "5"),
        ],
    )
    def test_an_interpreter_that_is_gone_or_another(self, root, script, said):
        python = root / "bin/python"
        python.write_text(script) if script else python.unlink()
        assert problems(root) == (None, [f"{python} is not the host's Python 3.11.2: {said}"])


def test_a_host_without_the_interpreter_names_the_option(capsys):
    with patch_module_args({"path": "/nowhere/agent", "python": "/nowhere/python3"}), pytest.raises(SystemExit):
        environment.main()
    assert json.loads(capsys.readouterr().out)["msg"] == (
        "python /nowhere/python3 does not run on this host: No such file or directory; serving_python names another one"
    )


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
