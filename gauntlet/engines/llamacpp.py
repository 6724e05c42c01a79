"""llama.cpp on a CPU: the embedded default, a real engine with real weights."""

from gauntlet import engines
from gauntlet.engines import http

DIALECT = "llamacpp"
UNIT = "llamacpp@"


def command(deployment: dict, paths: dict, port: int) -> list[str]:
    """The launcher of roles/serving on the engine's own Python; see its SETTINGS for the flags it takes."""
    arguments = {"model": "${model}", "host": "127.0.0.1", "port": "${port}", **deployment["arguments"]}
    return [
        f"{paths['engine']}/bin/python",
        f"{engines.LIBEXEC}/llamacpp_server.py",
        *engines.flags(arguments, {**paths, "port": port}),
    ]


def environment(deployment: dict, paths: dict) -> dict[str, str]:
    return {}


def ready(base_url: str, timeout: float, key: str | None = None) -> dict:
    """{'completion': text, 'server': {model, context_length, max_running_requests}}; GauntletError while it is not."""
    completion = http.completion(base_url, timeout, key)
    properties = http.get(f"{base_url}/props", timeout, key)
    settings = properties.get("default_generation_settings", {})
    return {
        "completion": completion,
        "server": {
            "version": properties.get("build_info"),
            "model": str(properties.get("model_path", "")).rpartition("/")[2],
            "context_length": settings.get("n_ctx"),
            "max_running_requests": properties.get("total_slots"),
        },
    }


def phase(lines: list[str]) -> str:
    """What a server that does not answer yet is doing, from its journal."""
    return "loading weights" if any("loading model" in line for line in lines) else "starting"
