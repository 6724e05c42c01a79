"""What lies in place of an env file may be anything; what is written there is read by a user without rights."""

import json
import os
import stat
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

from tests.loading import loaded

module = loaded(Path(__file__).parents[2] / "library/deployment_files.py")

TEXT = "GAUNTLET_PORT=30000\n"


@pytest.fixture
def folder(tmp_path):
    """Under the umask of a hardened root."""
    umask = os.umask(0o077)
    yield tmp_path / "gauntlet/deployments"
    os.umask(umask)


def run(folder, capsys, **options):
    with (
        patch_module_args({"deployments": [], "port": 1, "folder": str(folder), "texts": {"m": TEXT}, **options}),
        pytest.raises(SystemExit),
    ):
        module.main()
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("found", [b"GAUNTLET_PORT=\xff\n", TEXT.replace("\n", "\r\n").encode()], ids=["byte", "crlf"])
def test_bytes_that_are_no_text_are_different_and_repaired(folder, capsys, found):
    """Read as text, the first ends the module and the second passes for what was planned."""
    folder.mkdir(parents=True)
    (folder / "m.env").write_bytes(found)
    result = run(folder, capsys)
    assert result["different"] == ["m"], result
    assert (folder / "m.env").read_bytes() == TEXT.encode()


def test_the_service_user_reads_what_a_root_with_a_strict_umask_made(folder, capsys):
    run(folder, capsys)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder, folder / "m.env")]
    assert modes == [0o755, 0o755, 0o644]
