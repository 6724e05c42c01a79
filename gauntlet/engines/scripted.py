"""The scripted engine: answers from a script at times that are known. It is never mistaken for a measurement.

It also stands in for SGLang where there is no GPU: a build named '…-scripted' keeps SGLang's unit, env file and flags,
and everything measured with it is stored as simulated.
"""

from gauntlet import engines

DIALECT = "sglang"
UNIT = "sglang@"
SUFFIX = "-scripted"
PROGRAM = ["/opt/gauntlet/agent/bin/python", "-m", "gauntlet.calibrate", "serve"]


def stands_in(deployment: dict) -> bool:
    """Whether a deployment's build is the scripted engine in another's place."""
    return str(deployment.get("engine_build") or "").endswith(SUFFIX)


def command(deployment: dict, paths: dict, port: int) -> list[str]:
    arguments = {"model-path": "${model}", "host": "127.0.0.1", "port": "${port}", **deployment["arguments"]}
    return [*PROGRAM, *engines.flags(arguments, {**paths, "port": port})]


def environment(deployment: dict, paths: dict) -> dict[str, str]:
    return {}


def phase(lines: list[str]) -> str:
    return "starting"


def ready(base_url: str, timeout: float, key: str | None = None) -> dict:
    from gauntlet.engines import sglang

    return sglang.ready(base_url, timeout, key)
