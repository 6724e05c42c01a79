"""A working unit beside a failing one: what differs must be first, and nothing that differs may be missing."""

import random
from pathlib import Path

from gauntlet import compare

RECORDINGS = Path(__file__).parents[1] / "recordings/sglang-0.5.16-h200"
ENV = """# written by site.yml
GAUNTLET_DEPLOYMENT={name}
NCCL_P2P_LEVEL=SYS
GAUNTLET_COMMAND="/opt/x/bin/python -m sglang.launch_server\\
 --model-path /m\\
 --trust-remote-code\\
 --max-running-requests {requests}\\
 --numa-node 0 1"
"""


def facts(name, requests, log):
    return compare.facts(ENV.format(name=name, requests=requests), (RECORDINGS / log).read_text().splitlines())


def test_the_founding_pair():
    works, starves = facts("a", 4, "hybrid-dflash-maxreq4.log"), facts("b", 8, "hybrid-ar.log")
    text = compare.table(works, starves, ("a", "b"))
    assert "arguments: 1 of 5 differ\n  --max-running-requests: 4  |  8" in text
    assert "environment: 0 of 1 differ" in text
    assert "  slots: 47  |  193" in text and "  intermediate_gib: 11.25  |  –" in text
    assert text.index("slots") < text.index("the same:")


def test_flags_without_a_value_and_with_several_are_read():
    found = compare.arguments("python -m x --a 1 2 --b --c 'd e'")
    assert found == {"program": "python -m x", "--a": "1 2", "--b": "", "--c": "d e"}


def test_a_deployment_is_like_itself():
    one = facts("a", 4, "hybrid-ar.log")
    assert " differ" in compare.table(one, one, ("a", "a"))
    assert not [line for line in compare.table(one, one, ("a", "a")).splitlines() if line.startswith("  ")]


def test_every_difference_is_shown():
    """For random settings, exactly the keys that differ are in the lists."""
    draw = random.Random(5)
    for _ in range(50):
        pair = [
            {"arguments": {f"--{n}": str(draw.randint(0, 2)) for n in "abcdef" if draw.random() < 0.8}} for _ in "12"
        ]
        text = compare.table(*pair, ("x", "y"))
        a, b = (one["arguments"] for one in pair)
        shown = {line.split(":")[0].strip() for line in text.splitlines() if line.startswith("  ")}
        assert shown == {key for key in a | b if a.get(key) != b.get(key)}


def test_an_unknown_name_gets_the_nearest(tmp_path, capsys):
    (tmp_path / "qwen.dflash.tp1-00000000.env").write_text("")
    assert compare.main(["qwen.dflash.tp1-00000001", "x", "--folder", str(tmp_path)]) == 2
    assert "did you mean 'qwen.dflash.tp1-00000000'" in capsys.readouterr().err
