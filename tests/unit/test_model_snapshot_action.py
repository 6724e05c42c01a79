"""The controller's part of model_snapshot: a progress line is shown once and whole, however the connection cuts it."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.loading import loaded

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def action():
    return loaded(ROOT / "action_plugins/model_snapshot.py")


def note(text):
    return json.dumps({"event": "note", "what": text}) + "\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["pipe", "terminal"])
def test_lines_are_shown_once_and_whole(action, end):
    """A terminal turns line ends into two bytes, and a look may come while a line is being written."""
    content = ""

    def shell(command):
        start = int(command.split("+")[1].split()[0]) - 1
        return {"stdout": content[start:].replace("\n", end)}

    watched = action.Watched("/progress", shell)
    shown = []
    whole = note("one") + note("two") + note("three")
    for upto in (0, 10, len(note("one")), len(note("one")) + 5, len(whole) - 1, len(whole)):
        content = whole[:upto]
        shown += watched.news()
    assert shown == ["one", "two", "three"]


def test_a_host_without_the_agent_is_predicted(action):
    """Check mode on a fresh host: the module cannot run there yet, and all of it is still to come."""
    weights = {"id": "tiny", "size_bytes": 5, "source": {"kind": "wheel"}}
    drafter = weights | {"id": "drafter", "size_bytes": None}  # a size that the catalog does not know
    predicted = action._predicted({"weights": [weights, drafter]})
    assert predicted["changed"] is True
    assert [line["bytes"] for line in predicted["snapshots"]] == [5, 0] and action.staging.sentences(predicted)
    assert predicted["snapshots"][0]["state"] == "would_stage"


def test_the_host_waits_until_the_job_ends_and_no_longer_than_asked(action, tmp_path):
    """What async_wrapper writes: that the job was started, and in its place, by a rename, the module's result."""
    job, result = tmp_path / "job", tmp_path / "job.tmp"
    job.write_text('{"started": true, "finished": false, "ansible_job_id": "j1"}')
    subprocess.run(["sh", "-c", action.UNTIL_IT_ENDS.format(tenths=1, file=job)], check=True, timeout=10)
    with subprocess.Popen(["sh", "-c", action.UNTIL_IT_ENDS.format(tenths=600, file=job)]) as waiting:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.5)
        result.write_text('{"changed": false, "snapshots": []}')
        result.rename(job)
        assert waiting.wait(10) == 0
