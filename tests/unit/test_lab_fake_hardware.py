"""The fake hardware must be what it claims, or tests of host tuning prove nothing."""

from pathlib import Path

import pytest

from module_utils.gauntlet_host import pci
from tests.loading import loaded

PROGRAM = Path(__file__).parents[2] / "roles/lab_host/files/fake_hardware/usr/local/libexec/lab-fake-hardware.py"


@pytest.fixture(scope="module")
def fake():
    return loaded(PROGRAM)


def test_it_decodes_as_declared(fake):
    for function in fake.machine():
        found = pci.decode(function.config())
        if found["state"] == "ok":
            assert (found["cap"], found["devctl"]) == (function.capability, function.control)
            assert bool(found["link"]) == function.has_link
            assert (found["acs"] is not None) == (found["type"] in ("root port", "downstream"))


def test_it_holds_what_a_careless_tool_trips_over(fake):
    states = {function.address: pci.decode(function.config())["state"] for function in fake.machine()}
    assert states["00:00.0"] == pci.NONE
    assert states["08:00.0"] == pci.NOT_RESPONDING
    assert states["00:14.0"] == pci.NEEDS_ROOT
    assert len(states) == len(fake.machine()), "an address is given twice"


def test_every_bus_has_one_bridge_above_it(fake):
    """A device is placed by the bus numbers of the bridges: one wrong number and it hangs nowhere."""
    functions = fake.machine()
    below = [function.buses[1] for function in functions if function.buses]
    assert len(below) == len(set(below))
    used = {int(function.address[:2], 16) for function in functions}
    assert used - {0x00, 0x80} == set(below)


@pytest.mark.parametrize(("cpus", "first", "second"), [(1, "0", ""), (2, "0", "1"), (8, "0-3", "4-7")])
def test_two_nodes_share_the_processors(fake, tmp_path, cpus, first, second):
    fake.nodes(tmp_path, cpus, 8_000_000)
    assert [(tmp_path / f"node{n}/cpulist").read_text().strip() for n in (0, 1)] == [first, second]
    assert "MemTotal:      4000000 kB" in (tmp_path / "node1/meminfo").read_text()
