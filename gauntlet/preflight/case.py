"""One deployment as the rules look at it, and how a rule speaks."""

from gauntlet.engines import releases, sglang, speculation
from gauntlet.errors import GauntletError
from gauntlet.memory import shape

TRUE = {"1", "true", "yes", "on"}


class Case:
    """What the rules look at: arguments in the release's spelling, the configs, what the build said of itself."""

    def __init__(self, deployment: dict, configs: dict, build: dict | None):
        self.name = deployment["name"]
        self.release = releases.parse(deployment.get("release") or deployment["engine_build"])
        self.arguments = sglang.spelled(deployment["arguments"], self.release)
        self.environment = deployment.get("environment") or {}
        self.tp = int(deployment["tp"])
        self.target, self.drafter = configs.get("model") or {}, configs.get("drafter")
        self.has_drafter = bool((deployment.get("weights") or {}).get("drafter")) or bool(
            self.arguments.get("speculative-draft-model-path")
        )
        self.build = build or {}
        self.answer = (self.build.get("deployments") or {}).get(self.name)
        self.drafter_shape = _shape(self.drafter)
        self.target_shape = _shape(self.target)
        text = ".".join(map(str, self.release))
        self.spec = speculation.resolve(self.arguments, text, self.drafter_shape, self.architecture)

    @property
    def architecture(self) -> str:
        return (self.target.get("architectures") or [""])[0]

    @property
    def drafter_architecture(self) -> str:
        return ((self.drafter or {}).get("architectures") or [""])[0]

    @property
    def hybrid(self) -> bool:
        return bool(self.target_shape and self.target_shape.get("linear"))

    def switched_on(self, variable: str) -> bool:
        """A yes/no variable of the environment."""
        return str(self.environment.get(variable, "")).lower() in TRUE

    def number(self, flag: str) -> int | None:
        value = self.arguments.get(flag)
        return None if value is None else int(value)


def _shape(config: dict | None) -> dict | None:
    try:
        return shape(config) if config else None
    except GauntletError:
        return None


def error(what: str, why: str, change: str) -> dict:
    return {"level": "error", "what": what, "why": why, "change": change}


def warning(what: str, why: str, change: str) -> dict:
    return {"level": "warning", "what": what, "why": why, "change": change}
