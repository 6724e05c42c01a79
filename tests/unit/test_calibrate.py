"""The scripted engine must say what it did: a wrong truth would prove a wrong client right."""

import json
import subprocess
import sys

import pytest
import requests

from gauntlet.calibrate import lag, script
from gauntlet.calibrate.__main__ import parser, scripted
from gauntlet.calibrate.engine import Engine
from gauntlet.calibrate.script import Script
from gauntlet.errors import GauntletError
from tests.measuring import FAST


def options(*words):
    return parser().parse_known_args(["serve", *words])[0]


def test_steps_carry_fractions():
    """2.5 tokens a step are 2 and 3 in turn, and the sum is what was asked."""
    assert script.steps(Script(tokens=(2.5,)), 11) == [1, 3, 6, 8, 11]
    assert script.steps(Script(tokens=(1, 17)), 20) == [1, 2, 19, 20]


def test_the_tokenizer_gives_back_what_it_took():
    """Exact lengths need it: a byte is a token."""
    assert script.decode(script.encode("ü€𝄞 x")) == "ü€𝄞 x" and len(script.encode("abc")) == 3


def test_output_is_the_prompts_alone():
    """Lossless by construction, unless told to diverge, and then from there."""
    one, two = script.output([1, 2], 20), script.output([1, 2], 20, diverge_at=5)
    assert one == script.output([1, 2], 20) and one[:5] == two[:5] and one[5:] != two[5:]
    assert script.output([1, 3], 20) != one


def test_a_stand_in_behaves_like_its_method():
    """More tokens a step than the baseline, at a dearer step; flags and the script's JSON win over that."""
    baseline, tree = scripted(options()), scripted(options("--speculative-algorithm", "DDTREE"))
    assert baseline.draft == 0 and baseline.tokens == (1,)
    assert tree.tokens[0] * baseline.step_s / tree.step_s > 2 and tree.draft == 15
    chosen = scripted(options("--speculative-algorithm", "EAGLE3", "--speculative-num-draft-tokens", "8",
                              "--tokens-per-step", "3.2", "--script", '{"step_s": 0.004}'))  # fmt: skip
    assert (chosen.draft, chosen.tokens, chosen.step_s) == (7, (3.2,), 0.004)


def test_a_typo_in_a_script_is_named():
    """A script field that is silently ignored would script another truth."""
    with pytest.raises(GauntletError, match="did you mean 'step_s'"):
        Script.of({"step": 1})
    with pytest.raises(GauntletError, match="positive"):
        script.check(Script(tokens=(0,)))


def test_side_doors():
    """What readiness checks, tokenising and counters ask for; a script can be changed while it plays."""
    engine = Engine(Script.of(FAST), facts={"model_path": "/m/x-1"}).start()
    try:
        url = engine.base_url
        assert requests.get(f"{url}/health", timeout=5).ok
        assert requests.get(f"{url}/get_model_info", timeout=5).json()["model_path"] == "/m/x-1"
        assert requests.get(f"{url}/server_info", timeout=5).json()["context_length"] == 131072
        assert requests.post(f"{url}/flush_cache", timeout=5).ok
        assert requests.post(f"{url}/tokenize", json={"prompt": "abc"}, timeout=5).json()["tokens"] == [97, 98, 99]
        body = {"prompt": "x", "max_tokens": 4}
        whole = requests.post(f"{url}/v1/completions", json=body, timeout=5).json()
        assert whole["usage"]["completion_tokens"] == 4 and len(whole["choices"][0]["text"]) == 4
        assert "sglang:generation_tokens_total" in requests.get(f"{url}/metrics", timeout=5).text
        changed = requests.post(f"{url}/script", json={"script": {"step_s": 0.5}}, timeout=5)
        assert changed.json()["step_s"] == 0.5
        assert requests.post(f"{url}/script", json={"script": {"stap_s": 1}}, timeout=5).status_code == 400
        assert requests.get(f"{url}/nothing", timeout=5).status_code == 404
        assert requests.post(f"{url}/generate", data="{", timeout=5).status_code == 400
    finally:
        engine.stop()


def test_lag_is_measured_against_a_process_of_its_own():
    """Every chunk of every stream has a lag, and no arrival is before its send."""
    found = lag.measure(2, Script.of(FAST), chunks=5)
    assert found["chunks"] == 2 * lag.ROUNDS * 5 and 0 < found["p50"] <= found["p99"]


def test_serve_takes_the_flags_of_an_engine(tmp_path):
    """As a stand-in under a unit it is started with flags that it does not know; a key is read from its file."""
    key = tmp_path / "key"
    key.write_text("secret\n")
    words = ["serve", "--port", "0", "--model-path", "/m/x", "--mem-fraction-static", "0.8", "--trust-remote-code",
             "--api-key-file", str(key), "--script", json.dumps(FAST)]  # fmt: skip
    server = subprocess.Popen([sys.executable, "-m", "gauntlet.calibrate", *words], stderr=subprocess.PIPE, text=True)
    try:
        assert "--mem-fraction-static 0.8" in server.stderr.readline()
        url = server.stderr.readline().rstrip(")\n").rpartition(" ")[2]
        assert requests.get(f"{url}/health", timeout=5).status_code == 401
        assert requests.get(f"{url}/health", headers={"Authorization": "Bearer secret"}, timeout=5).ok
    finally:
        server.terminate()
        server.wait()
        server.stderr.close()
