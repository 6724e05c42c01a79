"""An env file is what a person reads, what the launcher executes and what the plan compares: all three must agree."""

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gauntlet import engines
from gauntlet.errors import GauntletError

DEPLOYMENT = {
    "name": "smollm2-135m.ngram-simple.tp1-0a1b2c3d",
    "spec_id": "0a1b2c3d" * 8,
    "engine": "llamacpp",
    "engine_build": "llamacpp-1",
    "arguments": {"ctx-size": 4096, "spec-type": "ngram-simple", "ngram-size-n": 8},
    "environment": {"A": "1"},
    "weights": {"model": {"id": "smollm2", "entry": "m.gguf"}},
}


def text(**changes):
    deployment = {**DEPLOYMENT, **changes}
    return engines.env_file(deployment, engines.locate(deployment), 30000)


def command(text):
    return shlex.split(engines.read_env(text)["GAUNTLET_COMMAND"])


def test_the_command_names_the_staged_file_the_port_and_every_flag():
    words = command(text())
    assert words[0] == "/opt/gauntlet/engines/llamacpp-1/bin/python"
    assert words[words.index("--model") + 1] == "/srv/gauntlet/models/smollm2/m.gguf"
    assert words[words.index("--port") + 1] == "30000"
    assert words[words.index("--ngram-size-n") + 1] == "8"


def test_one_flag_a_line_so_that_a_diff_shows_the_flag():
    before, after = text().splitlines(), text(arguments={**DEPLOYMENT["arguments"], "ngram-size-n": 9}).splitlines()
    assert [line for line in after if line not in before] == [' --ngram-size-n 9"']


def test_the_same_deployment_gives_the_same_bytes():
    assert text() == text(environment=dict(DEPLOYMENT["environment"]))


@given(
    st.lists(
        st.text(st.characters(exclude_characters="$`\n\r\0", exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1)
    )
)
def test_any_argument_survives_the_file(values):
    words = command(text(arguments={f"x{n}": value for n, value in enumerate(values)}))
    got = words[words.index("--port") + 2 :]
    assert got == [word for n, value in enumerate(values) for word in (f"--x{n}", value)]


def test_a_posix_shell_reads_the_same(tmp_path):
    arguments = {"json": '{"a": [1, "b c"], "d": "\\\\"}', "quote": "it's"}
    file = tmp_path / "x.env"
    file.write_text(text(arguments=arguments))
    shown = subprocess.run(["sh", "-c", f'. {file}; printf %s "$GAUNTLET_COMMAND"'], capture_output=True, text=True)
    assert shown.stdout == engines.read_env(file.read_text())["GAUNTLET_COMMAND"]


def test_what_a_shell_would_read_differently_is_refused():
    with pytest.raises(GauntletError, match="dollar sign"):
        text(arguments={"x": "$HOME"})


def test_a_placeholder_that_the_deployment_lacks_is_named():
    with pytest.raises(GauntletError, match=r"\$\{drafter\}"):
        text(arguments={"model-draft": "${drafter}"})


def test_an_unknown_engine_gets_the_nearest_name():
    with pytest.raises(GauntletError, match="did you mean 'llamacpp'"):
        engines.get("llama.cpp")
