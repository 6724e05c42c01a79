"""Two deployments beside each other: `python -m gauntlet.compare NAME NAME` on the host, differences first.

A working unit beside a failing one was the founding breakthrough: arguments, environment and the figures of memory of
their last starts.
"""

import argparse
import shlex
import sys
from pathlib import Path

from gauntlet import memory, services
from gauntlet.engines import DEPLOYMENTS, read_env
from gauntlet.errors import GauntletError
from gauntlet.names import unknown

OWN = {"GAUNTLET_COMMAND", "GAUNTLET_DEPLOYMENT", "GAUNTLET_SPEC_ID"}
NOTHING = "–"


def arguments(command: str) -> dict[str, str]:
    """{'--tp': '2', '--trust-remote-code': ''} of a command line; a flag's values are joined."""
    found: dict[str, str] = {}
    flag = "program"
    for word in shlex.split(command):
        if word.startswith("--"):
            flag = word
            found[flag] = ""
        else:
            found[flag] = f"{found.get(flag, '')} {word}".strip()
    return found


def facts(env_file: str, journal: list[str]) -> dict[str, dict]:
    """{'arguments': {…}, 'environment': {…}, 'memory': {…}} of one deployment."""
    environment = read_env(env_file)
    return {
        "arguments": arguments(environment.get("GAUNTLET_COMMAND", "")),
        "environment": {name: value for name, value in environment.items() if name not in OWN},
        "memory": {name: str(value) for name, value in memory.figures(journal).items()},
    }


def table(first: dict[str, dict], second: dict[str, dict], names: tuple[str, str]) -> str:
    """What differs, part by part, then what is the same, as text."""
    lines = []
    for part in first:
        rows = {
            key: (first[part].get(key, NOTHING), second[part].get(key, NOTHING)) for key in first[part] | second[part]
        }
        different = {key: pair for key, pair in rows.items() if pair[0] != pair[1]}
        lines.append(f"{part}: {len(different)} of {len(rows)} differ")
        lines += [f"  {key}: {a or 'set'}  |  {b or 'set'}" for key, (a, b) in sorted(different.items())]
    same = [f"{part} {key}" for part in first for key in first[part] if first[part][key] == second[part].get(key)]
    return "\n".join([f"{names[0]}  |  {names[1]}", *lines, f"the same: {', '.join(same) or 'nothing'}"])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gauntlet.compare", description=__doc__)
    parser.add_argument("deployment", nargs=2)
    parser.add_argument("--folder", type=Path, default=Path(DEPLOYMENTS))
    options = parser.parse_args(argv)
    try:
        known = {path.stem for path in options.folder.glob("*.env")}
        for name in options.deployment:
            if name not in known:
                raise unknown("deployment", name, known)
        both = [facts((options.folder / f"{name}.env").read_text(), last_start(name)) for name in options.deployment]
    except GauntletError as error:
        print(error, file=sys.stderr)
        return 2
    print(table(*both, tuple(options.deployment)))
    return 0


def last_start(name: str) -> list[str]:
    """The journal of the last start of the deployment, under whichever engine."""
    starts = services.manager().starts(f"*@{name}.service")
    return starts[-1] if starts else []


if __name__ == "__main__":
    sys.exit(main())
