"""SGLang: what Gauntlet is for."""

import re

from gauntlet import engines
from gauntlet.engines import http, releases, scripted
from gauntlet.errors import GauntletError

DIALECT = "sglang"
UNIT = "sglang@"

# SGLang prints its arguments and shows them in /server_info
SECRET = {"api-key", "admin-api-key", "ssl-keyfile-password"}
LOOPBACK = {"127.0.0.1", "localhost"}
# (name up to the release before, name from the release on, that release): read from the wheels 0.5.10 to 0.5.23
RENAMED = (
    ("mamba-scheduler-strategy", "mamba-radix-cache-strategy", (0, 5, 14)),
    ("cuda-graph-max-bs", "cuda-graph-max-bs-decode", (0, 5, 16)),
    ("speculative-dflash-draft-window-size", "speculative-draft-window-size", (0, 5, 12)),
)
# what a journal says of a start, latest first
PHASES = (
    (r"The server is fired up", "answering its first requests"),
    (r"Capture .*graph begin", "capturing CUDA graphs"),
    (r"KV Cache is allocated|Memory pool end", "allocating pools"),
    (r"Load weight begin", "loading weights"),
    (r"Init torch distributed begin", "joining ranks"),
    (r"server_args=", "reading the configuration"),
)
SHARDS = re.compile(r"(?:Loading|checkpoint shards).*?(\d+)% Completed \| (\d+)/(\d+)")


def spelled(arguments: dict, release: tuple[int, int, int]) -> dict:
    """The same arguments in the spelling of a release, so that a catalog has one. Order is kept."""
    names = {}
    for old, new, since in RENAMED:
        names |= {old: new} if release >= since else {new: old}
    found: dict = {}
    for flag, value in arguments.items():
        name = names.get(flag, flag)
        if name in found and found[name] != value:
            raise GauntletError(f"--{flag} {value} and --{name} {found[name]} are the same flag with two values")
        found[name] = value
    return found


def advice(flag: str, known: set[str] | None = None) -> str:
    """What became of a flag that a release does not know, or ''."""
    for old, new, since in RENAMED:
        if flag in (old, new):
            other = new if flag == old else old
            if known is None or other in known:
                return f"use --{other} (renamed in {'.'.join(map(str, since))})"
    return ""


def command(deployment: dict, paths: dict, port: int) -> list[str]:
    """`python -m sglang.launch_server …`; a build named '…-scripted' has the scripted engine in its place.

    Raises GauntletError for a secret among the arguments and for a host that is not loopback.
    """
    arguments = deployment["arguments"]
    for flag in arguments:
        if flag in SECRET:
            raise GauntletError(
                f"--{flag} is a secret, and SGLang shows its arguments to anybody who asks; "
                "servers here stay on loopback and need none"
            )
    if arguments.get("host", "127.0.0.1") not in LOOPBACK:
        raise GauntletError(f"--host {arguments['host']} is not loopback; reach a server from outside through ssh")
    base: dict = {"model-path": "${model}"}
    if paths.get("drafter"):
        base["speculative-draft-model-path"] = "${drafter}"
    base |= {"tp": deployment["tp"], "host": "127.0.0.1", "port": "${port}"}
    release = releases.parse(deployment["engine_build"])
    program = [f"{paths['engine']}/bin/python", "-m", "sglang.launch_server"]
    if scripted.stands_in(deployment):
        program = scripted.PROGRAM
    return [*program, *engines.flags({**base, **spelled(arguments, release)}, {**paths, "port": port})]


def environment(deployment: dict, paths: dict) -> dict[str, str]:
    """GPUs by number (SGLang reads them with int()), and nothing is fetched: weights were staged."""
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in range(deployment["tp"])),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }


def phase(lines: list[str]) -> str:
    """What a server that does not answer yet is doing, from its journal."""
    for number in range(len(lines) - 1, -1, -1):
        for pattern, words in PHASES:
            if re.search(pattern, lines[number]):
                shards = [match for line in lines[number:] if (match := SHARDS.search(line))]
                return f"{words}, {shards[-1][1]} %" if shards and words == "loading weights" else words
    return "starting"


def ready(base_url: str, timeout: float, key: str | None = None) -> dict:
    """{'completion': text, 'server': allow-listed facts}; GauntletError while it is not ready.

    A token is asked of /generate: /health has answered 200 for servers that hung.
    """
    body = {"text": "The capital of France is", "sampling_params": {"max_new_tokens": 4, "temperature": 0}}
    answer = http.post(f"{base_url}/generate", body, timeout, key)
    if not (answer.get("meta_info") or {}).get("completion_tokens"):
        raise GauntletError(f"{base_url}/generate completed without a single token")
    return {"completion": answer.get("text", ""), "server": facts(_server_info(base_url, timeout, key))}


def _server_info(base_url: str, timeout: float, key: str | None) -> dict:
    try:
        return http.get(f"{base_url}/server_info", timeout, key)
    except GauntletError:  # its name before 0.5.13
        return http.get(f"{base_url}/get_server_info", timeout, key)


def facts(info: dict) -> dict:
    """Of /server_info what a result may hold. The true cap is the scheduler's, not the one that was asked for."""
    states = (info.get("internal_states") or [{}])[0]
    effective = states.get("effective_max_running_requests_per_dp")
    return {
        "version": info.get("version"),
        "model": str(info.get("model_path", "")).rstrip("/").rpartition("/")[2],
        "max_total_num_tokens": info.get("max_total_num_tokens"),
        "max_running_requests": effective if effective is not None else info.get("max_running_requests"),
        "context_length": info.get("context_length"),
    }
