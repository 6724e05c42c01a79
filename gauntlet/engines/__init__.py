"""Engines: how a deployment becomes a command, an environment and an answer.

One module an engine, found by `get(name)`. Each has
    DIALECT   how the measuring client talks to it: 'sglang' | 'llamacpp' | 'openai'
    UNIT      the template unit, 'sglang@'
    command(deployment, paths, port) -> list[str]
    environment(deployment, paths) -> dict[str, str]
    ready(base_url, timeout, key=None) -> dict     a real completion and the server's facts; GauntletError until then
    phase(lines) -> str                            what a server that does not answer yet is doing
A deployment is the plan's DEPLOYMENT dict; its arguments are symbolic (`${model}`, `${drafter}`, `${port}`).
"""

import importlib
import re
import shlex
from types import ModuleType

from gauntlet.engines import scripted
from gauntlet.errors import GauntletError
from gauntlet.names import unknown

NAMES = ("sglang", "llamacpp")
MODELS = "/srv/gauntlet/models"
ENGINES = "/opt/gauntlet/engines"
DEPLOYMENTS = "/etc/gauntlet/deployments"
LIBEXEC = "/opt/gauntlet/libexec"
# refused in an env file: a POSIX shell would read them otherwise than `read_env`
UNSAFE = re.compile(r"[$`\n\r\0]")


def get(name: str) -> ModuleType:
    """The engine's module; GauntletError with the nearest name when there is none."""
    if name not in NAMES:
        raise unknown("engine", name, NAMES)
    return importlib.import_module(f"gauntlet.engines.{name}")


def instance(deployment: dict) -> str:
    """The unit that serves a deployment: 'llamacpp@smollm2-135m.ngram-simple.tp1-0a1b2c3d.service'."""
    return f"{get(deployment['engine']).UNIT}{deployment['name']}.service"


def siblings(deployment: dict) -> str:
    """Units of the same model, method and tp with other arguments, as a pattern of names."""
    return f"{get(deployment['engine']).UNIT}{deployment['name'].rpartition('-')[0]}-*.service"


def simulated(deployment: dict) -> list[str]:
    """What of a deployment is not real, as results store it."""
    variables = (deployment.get("environment") or {}).items()
    return [
        *(["scripted engine"] if scripted.stands_in(deployment) else []),
        *(f"{name}={value}" for name, value in variables if name.startswith("SGLANG_SIMULATE")),
    ]


def locate(deployment: dict, models: str = MODELS, engines: str = ENGINES) -> dict[str, str]:
    """Where a deployment's parts lie on a host: {'engine', 'model', 'drafter'?}; a gguf is named by its file."""
    found = {"engine": f"{engines}/{deployment['engine_build']}"}
    for role, weights in deployment["weights"].items():
        if weights:
            folder = f"{models}/{weights['id']}"
            found[role] = f"{folder}/{weights['entry']}" if weights.get("entry") else folder
    return found


def substitute(text: object, values: dict[str, object]) -> str:
    """`${model}`, `${drafter}`, `${port}` replaced; a name that has no value here is an error."""

    def value(match: re.Match) -> str:
        if match[1] not in values:
            raise GauntletError(f"'{text}' names ${{{match[1]}}}, which this deployment does not have")
        return str(values[match[1]])

    return re.sub(r"\$\{(\w+)\}", value, str(text))


def flags(arguments: dict, values: dict[str, object]) -> list[str]:
    """{'tp': 2, 'trust-remote-code': True, 'x': None, 'y': False} -> ['--tp', '2', '--trust-remote-code']."""
    words: list[str] = []
    for flag, value in arguments.items():
        if value is None or value is False:
            continue
        words.append(f"--{flag}")
        if isinstance(value, list | tuple):
            words += [substitute(item, values) for item in value]
        elif value is not True:
            words.append(substitute(value, values))
    return words


def quoted(value: object, where: str) -> str:
    """A value as an env file takes it: read alike by `read_env` and by a POSIX shell."""
    text = str(value)
    if UNSAFE.search(text):
        raise GauntletError(f"{where} contains a dollar sign, a backtick or a line break: {text!r}")
    return text if re.fullmatch(r"[\w./:,@%+=-]*", text) else '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def command_lines(words: list[str]) -> str:
    """A command line with one flag a line, for eyes and diffs; the reader joins lines at the backslash."""
    groups: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            groups.append([])
        groups[-1].append(shlex.quote(word))
    text = "\n ".join(re.sub(r'(["\\])', r"\\\1", " ".join(group)) for group in groups)
    return '"' + text.replace("\n", "\\\n") + '"'


def env_file(deployment: dict, paths: dict, port: int) -> str:
    """The exact text of /etc/gauntlet/deployments/<name>.env. Deterministic: its sha256 is what bench.yml compares.

    Of the deployment nothing is used but its name and what its `spec_id` is the hash of; paths and port are the host's.
    """
    engine = get(deployment["engine"])
    words = engine.command(deployment, paths, port)
    for word in words:
        quoted(word, f"an argument of {deployment['name']}")
    environment = {**engine.environment(deployment, paths), **(deployment.get("environment") or {})}
    lines = [
        f"# Written by site.yml from the catalog; by hand: systemctl start {instance(deployment)}",
        f"GAUNTLET_DEPLOYMENT={quoted(deployment['name'], 'the name')}",
        f"GAUNTLET_SPEC_ID={deployment['spec_id']}",
        f"GAUNTLET_PORT={int(port)}",
        *(f"GAUNTLET_{role.upper()}={quoted(paths[role], role)}" for role in ("model", "drafter") if role in paths),
        *(
            f"{name}={quoted(substitute(value, {**paths, 'port': port}), name)}"
            for name, value in sorted(environment.items())
            if value is not None
        ),
        f"GAUNTLET_COMMAND={command_lines(words)}",
    ]
    return "\n".join(lines) + "\n"


def read_env(text: str) -> dict[str, str]:
    """{name: value} of such a file, under every service manager."""
    found = {}
    for line in text.replace("\\\n", "").splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, value = line.partition("=")
            found[name] = "".join(shlex.split(value)) if value.startswith('"') else value
    return found
