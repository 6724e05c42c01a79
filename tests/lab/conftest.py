"""Lab hosts that more than one test stands on, made fresh once per test run and taken away afterwards."""

import os

import pytest

from . import stand_in
from .runner import Lab

HOST = "labtest"


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    if os.geteuid():
        pytest.skip("needs root: a lab host is a systemd-nspawn machine")
    lab = Lab(HOST, tmp_path_factory.mktemp("lab"))
    lab.play("playbooks/lab.yml", lab_state="absent").ok()
    lab.play("playbooks/lab.yml").ok()
    yield lab
    lab.play("playbooks/lab.yml", lab_state="absent").ok()


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """One that serves the stand-in."""
    with stand_in.served(stand_in.HOST, tmp_path_factory.mktemp("served")) as host:
        yield host
