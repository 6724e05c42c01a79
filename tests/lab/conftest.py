"""Lab hosts that more than one test stands on, made fresh once per test run and taken away afterwards."""

import pytest

from . import stand_in
from .runner import booted

HOST = "labtest"


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    with booted(HOST, tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """One that serves the stand-in."""
    with stand_in.served(stand_in.HOST, tmp_path_factory.mktemp("served")) as host:
        yield host
