"""Half a topology is worse than none: tables are read whole or refused, groups stay on one socket where they fit."""

import pytest

from module_utils.gauntlet_host import topology
from module_utils.gauntlet_host.host import HostError
from module_utils.gauntlet_host.pci import devices
from tests.fake_host import CASES, eight_gpus

MP = CASES / "06-topo-mp-nics-wrapped"
P2P = CASES / "07-topo-p2p-matrix"
NODES = {"0": {"cpus": "0-47,96-143"}, "1": {"cpus": "48-95,144-191"}}


@pytest.mark.parametrize("name", ["topo-mp.txt", "topo-mp-wrapped-80.txt"])
def test_a_table_of_eight_gpus_and_fourteen_nics_is_read_whole_even_wrapped(name):
    """A terminal wraps the rows and shifts the last columns; the words are all there, in order."""
    table = topology.parse_matrix((MP / name).read_text())
    assert table["kind"] == "links"
    assert len(table["gpus"]) == 8 and len(table["nics"]) == 14
    for gpu in table["gpus"]:
        assert [code for nic, code in table["cells"][gpu].items() if nic in table["nics"]].count("PIX") == 1
    assert table["affinity"]["GPU7"] == {"cpus": "48-95,144-191", "numa": "1"}
    assert table["cells"]["GPU0"]["GPU4"] == "SYS"
    assert table["cells"]["NIC13"]["GPU7"] == "PIX"


def test_the_wrapped_and_the_clean_table_agree():
    """They are one table."""
    clean, wrapped = ((MP / name).read_text() for name in ("topo-mp.txt", "topo-mp-wrapped-80.txt"))
    assert topology.parse_matrix(clean) == topology.parse_matrix(wrapped)


@pytest.mark.parametrize(
    "cut",
    [
        lambda text: "\n".join(line[:80] for line in text.splitlines()),
        lambda text: "\n".join(text.splitlines()[:4]),
        lambda text: "\n".join(text.splitlines()[:9]),
        lambda text: text.replace("NODE    NODE    NODE    SYS", "NODE    NODE    SYS", 1),
        lambda text: "",
        lambda text: "No devices were found",
    ],
    ids=["80 columns", "3 GPUs", "no NIC rows", "a cell lost", "empty", "no devices"],
)
def test_a_cut_table_is_refused(cut):
    """A topology with 3 of 8 GPUs would place a group across sockets."""
    with pytest.raises(HostError, match="topology table"):
        topology.parse_matrix(cut((MP / "topo-mp.txt").read_text()))


def test_a_peer_access_matrix_is_not_a_table_of_links():
    """GNS is the driver's refusal for this GPU model, not a kind of link."""
    table = topology.parse_matrix((P2P / "topo-p2p-rw.txt").read_text())
    assert table["kind"] == "peer access" and table["gpus"] == ["GPU0", "GPU1"]
    possible, sentence = topology.peer_access(table)
    assert not possible
    assert "GNS = GPU not supported" in sentence and "NCCL_P2P_LEVEL has no effect" in sentence


def test_links_of_the_same_host_are_links():
    """Tabs, ' X ', and no NIC: the smallest table there is."""
    table = topology.parse_matrix((P2P / "topo-m.txt").read_text())
    assert table["kind"] == "links" and table["cells"] == {"GPU0": {"GPU1": "PHB"}, "GPU1": {"GPU0": "PHB"}}
    assert table["affinity"]["GPU1"] == {"cpus": "0-63", "numa": "0"}
    with pytest.raises(HostError, match="topo -p2p"):
        topology.peer_access(table)


def test_the_underlined_header_of_driver_580_is_read():
    """Recorded: nvidia-smi writes terminal codes into a pipe."""
    text = (
        "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
        "GPU0\t X \tNV18\t0-15\t0\t\tN/A\nGPU1\tNV18\t X \t0-15\t0\t\tN/A\n"
    )
    assert topology.parse_matrix(text)["cells"]["GPU0"] == {"GPU1": "NV18"}


@pytest.mark.parametrize("mixed", ["GPU0 GPU1\nGPU0 X OK\nGPU1 PIX X\n"])
def test_a_table_with_both_kinds_of_cells_is_refused(mixed):
    """Two tables pasted together say nothing."""
    with pytest.raises(HostError, match="mixes"):
        topology.parse_matrix(mixed)


def test_links_from_the_bridges_alone(tmp_path):
    """Without nvidia-smi the bus numbers of the bridges still tell switch, socket and the way between sockets."""
    everything = devices(eight_gpus(tmp_path))
    at = {d.address: d for d in everything}

    def link(a, b):
        return topology.link(at[f"0000:{a}:00.0"], at[f"0000:{b}:00.0"], everything)

    assert link("03", "04") == "PIX"
    assert link("03", "23") == "NODE"
    assert link("03", "43") == "SYS"


def test_a_group_of_four_stays_on_one_socket():
    """Enumeration order does not follow the sockets: indexes 0, 2, 4, 6 share one here."""
    gpus = [{"index": i, "numa_node": i % 2} for i in range(8)]
    links = {(a, b): "NODE" if a % 2 == b % 2 else "SYS" for a in range(8) for b in range(a + 1, 8)}
    groups = topology.tensor_parallel_groups(gpus, links, NODES)
    assert groups["4"] == {"gpus": [0, 2, 4, 6], "numa_nodes": [0], "cpus": "0-47,96-143"}
    assert groups["8"] == {"gpus": list(range(8)), "numa_nodes": [0, 1], "cpus": "0-47,96-143,48-95,144-191"}
    assert set(groups) == {"1", "2", "4", "8"}
    # an engine takes the first GPUs by itself: only the other groups need to be said
    assert topology.group_environment(groups) == {
        "2": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0,2"},
        "4": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0,2,4,6"},
    }


def test_a_pair_takes_the_nearest_link():
    """Two GPUs behind one switch beat two that only share the socket; NVLink beats both."""
    gpus = [{"index": i, "numa_node": 0} for i in range(4)]
    links = {(0, 1): "NODE", (0, 2): "NODE", (0, 3): "NODE", (1, 2): "PHB", (1, 3): "NODE", (2, 3): "PIX"}
    assert topology.tensor_parallel_groups(gpus, links, NODES)["2"]["gpus"] == [2, 3]
    links[(0, 3)] = "NV4"
    assert topology.tensor_parallel_groups(gpus, links, NODES)["2"]["gpus"] == [0, 3]


def test_a_cpu_list_is_a_list():
    """What the kernel prints, read; what it never prints, refused."""
    assert topology.cpu_list("0-2,8") == [0, 1, 2, 8]
    assert topology.cpu_list("") == []
    with pytest.raises(HostError, match="not a CPU list"):
        topology.cpu_list("0-x")
