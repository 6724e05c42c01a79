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
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as who looks does: it may bind beside us,
        free.bind(("127.0.0.1", 0))  # and nobody is given the port meanwhile
        yield {
            "GAUNTLET_DEPLOYMENT": "d", "GAUNTLET_PORT": str(free.getsockname()[1]),
            "GAUNTLET_MODEL": str(model / "m.gguf"), "GAUNTLET_COMMAND": f"{sys.executable} -c 'print(1)'",
            "PATH": os.environ["PATH"],
        }, model  # fmt: skip


def write(file, variables):
    file.write_text("".join(f"{name}={engines.quoted(value, name)}\n" for name, value in variables.items()))


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Launches with an env file on a machine; what it would have become: (program, words, environment)."""

    def run(variables, machine=None):
        file, became = tmp_path / "d.env", []
        if variables is not None:
            write(file, variables)
        monkeypatch.setattr(os, "environ", {"PATH": os.environ["PATH"]} | (machine or {}))
        monkeypatch.setattr(os, "execvpe", lambda *call: became.append(call))
        launch.main(["d", "--env-file", str(file)])
        return became[0]

    return run


def refused(run, variables, capsys):
    with pytest.raises(SystemExit) as ended:
        run(variables)
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
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} is taken" in refused(run, staged[0] | {"GAUNTLET_PORT": str(port)}, capsys)


def test_the_environment_of_another_deployment_is_refused(staged, run, capsys):
    assert "is of 'other'" in refused(run, staged[0] | {"GAUNTLET_DEPLOYMENT": "other"}, capsys)


def test_what_steers_an_engine_comes_from_its_env_file_alone(staged, run):
    """A variable of the machine's image or of a drop-in would change the numbers and be in no hash of theirs."""
    machine = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL", "CUDA_HOME": "/usr/local/cuda", "SGLANG_SIMULATE_ACC_LEN": "9"}
    _, _, environment = run(staged[0] | {"NCCL_ALGO": "Tree"}, machine)
    assert environment["NCCL_ALGO"] == "Tree" and environment["CUDA_HOME"] == "/usr/local/cuda"
    assert "NCCL_PROTO" not in environment and "SGLANG_SIMULATE_ACC_LEN" not in environment


def test_a_missing_env_file_says_who_writes_it(run, capsys):
    assert "run site.yml" in refused(run, None, capsys)


def test_secrets_come_from_files_and_are_no_arguments(staged, run, tmp_path):
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "hf_token").write_text("secret\n")
    _, words, environment = run(staged[0], {"CREDENTIALS_DIRECTORY": str(folder)})
    assert environment["HF_TOKEN"] == "secret" and "secret" not in " ".join(words)


def test_a_node_binds_processor_and_memory(staged, run):
    program, words, _ = run(staged[0] | {"GAUNTLET_NUMA_NODE": "1"})
    assert (program, words[1:3]) == ("numactl", ["--cpunodebind=1", "--membind=1"])


def test_a_program_that_is_not_there_is_a_sentence(staged, tmp_path, capsys):
    file = tmp_path / "d.env"
    variables = staged[0] | {"GAUNTLET_COMMAND": "/nowhere/python -m x"}
    write(file, variables)
    with pytest.raises(SystemExit) as ended:
        launch.main(["d", "--env-file", str(file)])
    assert ended.value.code == launch.EX_CONFIG and "/nowhere/python" in capsys.readouterr().err
