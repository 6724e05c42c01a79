"""What a unit runs: `python -m gauntlet.launch <deployment>` checks that serving can work, then becomes the engine.

The environment is the deployment's env file. What steers an engine and is set elsewhere (a machine's image, a drop-in,
a service manager) does not reach it: the results would not say so. Whatever is missing is said in one sentence in the
journal, with exit status 78 (EX_CONFIG), which the unit does not restart on.
"""

import argparse
import os
import shlex
import socket
import sys
from pathlib import Path

from gauntlet.engines import read_env
from gauntlet.errors import GauntletError

MANIFEST = ".gauntlet-manifest.json"
EX_CONFIG = 78
# names, or their beginnings, of variables that change how an engine runs: only its env file, which is hashed, has a say
STEERING = (
    "NCCL_", "TORCH_NCCL_", "PYTORCH_", "SGLANG_", "SGL_", "GGML_", "LLAMA_", "OMP_", "MKL_", "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "GAUNTLET_",
)  # fmt: skip
PREFIX = "gauntlet: "  # what is ours in a journal
REFUSED = f"{PREFIX}refused: "


def check_staged(environment: dict[str, str]) -> None:
    """Weights that were staged whole have a manifest beside them; anything else is not served."""
    for role in ("model", "drafter"):
        if path := environment.get(f"GAUNTLET_{role.upper()}"):
            folder = Path(path) if Path(path).is_dir() else Path(path).parent
            if not (folder / MANIFEST).is_file():
                raise GauntletError(
                    f"the {role} is not staged: no {MANIFEST} in {folder}; run restage.yml (or site.yml) to stage it"
                )
            if not Path(path).exists():
                raise GauntletError(f"the {role} {path} is missing although {folder} has a manifest; run restage.yml")


def check_port(port: int) -> None:
    """A port in use is said before minutes of loading, not after."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise GauntletError(f"port {port} is taken on this host ({error.strerror}); see: ss -tlnp") from None


def secrets(environment: dict[str, str]) -> dict[str, str]:
    """Credentials of the unit (systemd: LoadCredential=) as variables: hf_token -> HF_TOKEN; never as arguments."""
    folder = environment.get("CREDENTIALS_DIRECTORY")
    files = sorted(Path(folder).iterdir()) if folder else []
    return {file.name.upper(): file.read_text().strip() for file in files if file.is_file()}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="gauntlet.launch", description=__doc__)
    parser.add_argument("deployment")
    parser.add_argument("--env-file", type=Path, required=True, help="all that steers the engine")
    options = parser.parse_args(argv)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}
    try:
        if not options.env_file.is_file():
            raise GauntletError(f"no {options.env_file}: run site.yml, which writes one env file a deployment")
        environment |= read_env(options.env_file.read_text())
        if environment.get("GAUNTLET_DEPLOYMENT") != options.deployment:
            raise GauntletError(
                f"the environment is of '{environment.get('GAUNTLET_DEPLOYMENT')}', not of this unit; run site.yml"
            )
        check_staged(environment)
        check_port(int(environment["GAUNTLET_PORT"]))
        command = shlex.split(environment["GAUNTLET_COMMAND"])
        if node := environment.get("GAUNTLET_NUMA_NODE"):  # one socket for processor and memory, under any manager
            command = ["numactl", f"--cpunodebind={node}", f"--membind={node}", *command]
        os.execvpe(command[0], command, environment | secrets(environment))
    except (GauntletError, OSError) as error:
        print(f"{REFUSED}{options.deployment} does not start: {error}", file=sys.stderr)
        sys.exit(EX_CONFIG)


if __name__ == "__main__":
    main()
