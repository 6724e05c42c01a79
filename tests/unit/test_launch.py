"""The launcher is the last to look before minutes of loading: whatever is missing is one sentence and status 78."""

import os
import socket
import sys

import pytest

from gauntlet import engines, launch


@pytest.fixture
def staged(tmp_path):
    """(environment of a deployment that could start, its model folder)"""
    model = tmp_path / "models" / "m"
    model.mkdir(parents=True)
    (model / "m.gguf").write_text("weights")
    (model / launch.MANIFEST).write_text("{}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "GAUNTLET_DEPLOYMENT": "d", "GAUNTLET_PORT": str(port), "GAUNTLET_MODEL": str(model / "m.gguf"),
        "GAUNTLET_COMMAND": f"{sys.executable} -c 'print(1)'", "PATH": os.environ["PATH"],
    }, model  # fmt: skip


@pytest.fixture
def run(monkeypatch):
    """Launches with an environment; what it would have become: (program, words, environment)."""

    def run(environment, *arguments):
        became = []
        monkeypatch.setattr(os, "environ", environment)
        monkeypatch.setattr(os, "execvpe", lambda *call: became.append(call))
        launch.main(["d", *map(str, arguments)])
        return became[0]

    return run


def refused(run, environment, capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        run(environment, *arguments)
    assert ended.value.code == launch.EX_CONFIG
    return capsys.readouterr().err


def test_it_becomes_the_engine(staged, run):
    program, words, _ = run(staged[0])
    assert program == sys.executable and words == [sys.executable, "-c", "print(1)"]


def test_without_a_manifest_it_names_the_folder_and_the_way_out(staged, run, capsys):
    environment, model = staged
    (model / launch.MANIFEST).unlink()
    said = refused(run, environment, capsys)
    assert said.startswith(launch.REFUSED) and str(model) in said and "restage.yml" in said


def test_a_drafter_is_looked_at_too(staged, run, capsys, tmp_path):
    environment = staged[0] | {"GAUNTLET_DRAFTER": str(tmp_path / "models" / "x")}
    assert "the drafter is not staged" in refused(run, environment, capsys)


def test_a_manifest_without_its_file_is_not_served(staged, run, capsys):
    environment, model = staged
    (model / "m.gguf").unlink()
    assert "is missing although" in refused(run, environment, capsys)


def test_a_taken_port_is_said_before_loading(staged, run, capsys):
    environment, _ = staged
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(environment["GAUNTLET_PORT"])))
        taken.listen()
        assert f"port {environment['GAUNTLET_PORT']} is taken" in refused(run, environment, capsys)


def test_the_environment_of_another_deployment_is_refused(staged, run, capsys):
    assert "is of 'other'" in refused(run, staged[0] | {"GAUNTLET_DEPLOYMENT": "other"}, capsys)


def test_an_env_file_is_read_where_the_manager_cannot(staged, run, tmp_path):
    environment, _ = staged
    file = tmp_path / "d.env"
    file.write_text("".join(f"{name}={engines.quoted(value, name)}\n" for name, value in environment.items()))
    _, words, became = run({}, "--env-file", file)
    assert words[0] == sys.executable and became["GAUNTLET_PORT"] == environment["GAUNTLET_PORT"]


def test_a_missing_env_file_says_who_writes_it(run, capsys, tmp_path):
    assert "run site.yml" in refused(run, {}, capsys, "--env-file", tmp_path / "no.env")


def test_secrets_come_from_files_and_are_no_arguments(staged, run, tmp_path):
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "hf_token").write_text("secret\n")
    _, words, environment = run(staged[0] | {"CREDENTIALS_DIRECTORY": str(folder)})
    assert environment["HF_TOKEN"] == "secret" and "secret" not in " ".join(words)


def test_a_node_binds_processor_and_memory(staged, run):
    program, words, _ = run(staged[0] | {"GAUNTLET_NUMA_NODE": "1"})
    assert (program, words[1:3]) == ("numactl", ["--cpunodebind=1", "--membind=1"])


def test_a_program_that_is_not_there_is_a_sentence(staged, capsys, monkeypatch):
    monkeypatch.setattr(os, "environ", staged[0] | {"GAUNTLET_COMMAND": "/nowhere/python -m x"})
    with pytest.raises(SystemExit) as ended:
        launch.main(["d"])
    assert ended.value.code == launch.EX_CONFIG and "/nowhere/python" in capsys.readouterr().err
