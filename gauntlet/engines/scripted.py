"""The scripted engine in SGLang's place, where there is no GPU: it answers from a script at times that are known.

A build named '…-scripted' keeps SGLang's unit, env file and flags, and all that is measured with it is stored as
simulated.
"""

SUFFIX = "-scripted"
PROGRAM = ["/opt/gauntlet/agent/bin/python", "-m", "gauntlet.calibrate", "serve"]


def stands_in(deployment: dict) -> bool:
    """Whether a deployment's build is the scripted engine in another's place."""
    return str(deployment.get("engine_build") or "").endswith(SUFFIX)
