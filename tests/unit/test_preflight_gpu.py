"""Preflight must not touch CUDA: on a real H200 the validation's forked children died of the parent's CUDA context."""

from types import SimpleNamespace

import pytest

from gauntlet.errors import GauntletError
from gauntlet.preflight import run


@pytest.mark.parametrize(
    ("shown", "gpu"),
    [
        ("143771, 9.0\n", {"capability": [9, 0], "memory_mib": 143771, "count": 1}),
        ("97887, 12.0\n97251, 12.0\n", {"capability": [12, 0], "memory_mib": 97251, "count": 2}),
        ("No devices were found\n", None),
        ("", None),
    ],
)
def test_the_gpu_is_what_nvidia_smi_tells(monkeypatch, shown, gpu):
    monkeypatch.setattr(run.services, "run", lambda *words: SimpleNamespace(stdout=shown))
    assert run.smallest_gpu() == gpu


def test_a_host_without_the_tool_has_none(monkeypatch):
    def absent(*words):
        raise GauntletError("this host has no nvidia-smi")

    monkeypatch.setattr(run.services, "run", absent)
    assert run.smallest_gpu() is None
