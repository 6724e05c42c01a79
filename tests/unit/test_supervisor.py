"""supervisord must answer `gauntlet.services`' questions as systemd does: results store which start answered."""

import xmlrpc.client

import pytest

from gauntlet import supervisor
from gauntlet.errors import GauntletError

UNIT = "sglang@qwen3-8b.dflash.tp1-3f9a2c1e.service"


class Server:
    """What supervisord's XML-RPC says, and what it was asked."""

    def __init__(self, info=None):
        self.info, self.asked = info, []

    def getProcessInfo(self, name):
        if self.info is None:
            raise xmlrpc.client.Fault(10, f"BAD_NAME: {name}")
        return self.info

    def __getattr__(self, name):
        return lambda *words: self.asked.append((name, *words))


@pytest.fixture
def manager(tmp_path, monkeypatch):
    folders = {name: tmp_path / name for name in ("configuration", "runtime", "logs")}
    for folder in folders.values():
        folder.mkdir()
    (folders["configuration"] / "sglang@.conf").write_text(
        "command=/bin/launch --env-file /etc/%i.env %i\nuser=gauntlet\n"
    )
    made = supervisor.Supervisor(**folders)
    made.server = Server()
    monkeypatch.setattr(made, "_server", lambda: made.server)
    return made


def test_an_instance_is_made_from_its_template_and_each_start_has_a_log_of_its_own(manager):
    manager.start(UNIT)
    settings = (manager.runtime / f"{UNIT}.conf").read_text()
    assert (
        "command=/bin/launch --env-file /etc/qwen3-8b.dflash.tp1-3f9a2c1e.env qwen3-8b.dflash.tp1-3f9a2c1e" in settings
    )
    assert "autorestart=false" in settings and "killasgroup=true" in settings
    first = manager.state(UNIT)["invocation"]
    (manager.logs / UNIT / f"{first}.log").write_text("one\n")
    manager.start(UNIT)
    second = manager.state(UNIT)["invocation"]
    assert first != second
    assert [line for _, line in manager.journal(UNIT, first)] == ["one"]
    assert manager.journal(UNIT, second) == []


@pytest.mark.parametrize(
    ("info", "active", "failed"),
    [
        ({"statename": "RUNNING", "pid": 0, "start": 1, "exitstatus": 0}, True, False),
        ({"statename": "EXITED", "pid": 0, "start": 1, "exitstatus": 78}, False, True),
        ({"statename": "EXITED", "pid": 0, "start": 1, "exitstatus": 0}, False, False),
        ({"statename": "FATAL", "pid": 0, "start": 0, "exitstatus": 0}, False, True),
        ({"statename": "STOPPED", "pid": 0, "start": 1, "exitstatus": -1}, False, False),
        (None, False, False),
    ],
)
def test_states_are_told_in_the_words_of_the_contract(manager, info, active, failed):
    manager.server.info = info
    state = manager.state(UNIT)
    assert (state["active"], state["failed"]) == (active, failed)


def test_a_unit_without_a_template_is_not_one(manager):
    with pytest.raises(GauntletError, match=r"not a unit of this host.*site\.yml"):
        manager.state("vllm@x.service")


def test_a_family_is_its_group_and_all_who_descend_from_it(tmp_path):
    """SGLang's schedulers are children of children; an orphan keeps the group."""
    for pid, parent, group, state in ((10, 1, 10, "S"), (11, 10, 11, "S"), (12, 11, 11, "S"), (13, 1, 10, "S"),
                                      (14, 10, 10, "Z"), (99, 1, 99, "S")):  # fmt: skip
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a (b) c) {state} {parent} {group} 5 0")
    assert supervisor.family(10, tmp_path) == [10, 11, 12, 13]
