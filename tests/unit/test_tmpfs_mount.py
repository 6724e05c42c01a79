"""What the kernel says of a mount is compared with what the unit asks for: declared is not the same as mounted."""

from pathlib import Path

import pytest

from tests.loading import loaded

ROOT = Path(__file__).parents[2]
OPTIONS = "rw,size=166396k,mode=755,huge=within_size,mpol=interleave:0-1,noswap"
MOUNTINFO = f"""\
22 28 0:20 / /proc rw,nosuid,nodev,noexec,relatime shared:5 - proc proc rw
45 28 0:40 / /srv/gauntlet/models rw,nosuid,nodev,noexec,relatime shared:9 - tmpfs tmpfs {OPTIONS}
46 28 8:1 / /srv/with\\040space rw,relatime shared:9 - ext4 /dev/sda1 rw
"""


@pytest.fixture(scope="module")
def module():
    return loaded(ROOT / "library/tmpfs_mount.py")


def test_mounts_are_found_by_their_point(module):
    kind, options = module.mounted("/srv/gauntlet/models", MOUNTINFO)
    assert kind == "tmpfs"
    assert {"noswap", "huge=within_size", "mpol=interleave:0-1", "noexec"} <= options
    assert module.mounted("/srv/with space", MOUNTINFO)[0] == "ext4"
    assert module.mounted("/srv/gauntlet", MOUNTINFO) is None


def test_what_a_remount_by_hand_changed_is_named(module):
    _, options = module.mounted("/srv/gauntlet/models", MOUNTINFO)
    wanted = ["huge=within_size", "mpol=interleave", "noswap"]
    assert module.differences(options, wanted, 170389504, 170389504) == []
    assert module.differences(options - {"noswap"}, wanted, 1, 2) == ["size is 1, should be 2", "noswap is not set"]
    opened = options - {"noexec", "nosuid"}
    assert module.differences(opened, module.ALWAYS, 1, 1) == ["nosuid is not set", "noexec is not set"]
    assert module.differences(options | {"ro"}, module.ALWAYS, 1, 1) == ["it is read-only"]


@pytest.mark.parametrize(
    ("have", "said", "size", "why"),
    [
        (100, 100, 100, "a narrower campaign leaves it alone"),
        (500, 100, 100, "the mount was enlarged by hand"),
        (100, 500, 100, "its unit was"),
        (20, 100, 50, "it was made smaller than what is wanted"),
        (100, None, 100, "no unit: nothing else says what was declared"),
    ],
)
def test_a_size_made_by_hand_is_not_taken_over(module, have, said, size, why):
    assert module.due(have, 40, said, 50) == size, why
    assert module.due(500, 400, 100, 50) == 400, "what fills it cannot be cut off"


def test_the_size_that_a_unit_says(module, tmp_path):
    unit = tmp_path / "models.mount"
    assert module.declared(unit) is None
    unit.write_bytes(b"# \xff\n[Mount]\nOptions=size=4096,huge=within_size,mode=0755\n")
    assert module.declared(unit) == 4096
    unit.write_text("[Mount]\nOptions=size=50%\n")
    assert module.declared(unit) is None


def test_what_lies_in_it_beside_the_campaigns_weights_is_counted(module, tmp_path):
    """A smaller campaign after a larger one: the tmpfs cannot shrink below what it still holds, so that is added."""
    for name in ("ours", "older"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"x" * 100_000)
        (tmp_path / name / module.MANIFEST).write_text("{}")
    (tmp_path / "foreign").write_bytes(b"x" * 900_000)  # nobody makes room for that
    held = module.held_by_others(tmp_path, ["ours"])
    assert 100_000 <= held < 200_000
    assert module.held_by_others(tmp_path, ["ours", "older"]) == 0
    assert module.pages(held) % module.PAGE == 0


@pytest.mark.parametrize(("said", "answer"), [("", None), ("mount: bad option\n", "mount: bad option")])
def test_an_option_is_refused_in_the_kernels_own_words(module, monkeypatch, said, answer):
    def run(command, **_):
        assert command[:3] == ["unshare", "--mount", "--"], "the try must not be seen outside"
        return type("Done", (), {"returncode": int(bool(said)), "stderr": said})

    monkeypatch.setattr(module.subprocess, "run", run)
    assert module.refusal("noswap") == answer
