"""All deployments of a host checked before the first one starts: configs as staged, SGLang's own word, memory."""

import hashlib
import json
import subprocess
from pathlib import Path

from gauntlet import engines, memory, services
from gauntlet.engines import releases, scripted, sglang
from gauntlet.errors import GauntletError
from gauntlet.preflight import findings
from gauntlet.preflight.case import error, warning

CACHE = Path("/var/lib/gauntlet/preflight")
STAMP = ".gauntlet-environment.json"
GIB = 1 << 30
BF16 = 2  # bytes
SECONDS = 900
# what SGLang resolved, as arguments for the prediction
RESOLVED = (
    "mem_fraction_static", "max_running_requests", "page_size", "chunked_prefill_size", "mamba_radix_cache_strategy",
    "mamba_scheduler_strategy", "disable_radix_cache", "disable_overlap_schedule", "kv_cache_dtype", "context_length",
)  # fmt: skip


def run(
    deployments: list[dict], *, models: str = engines.MODELS, engines_folder: str = engines.ENGINES,
    libexec: str = engines.LIBEXEC, pretend: dict | None = None, cache: Path = CACHE,
) -> dict:  # fmt: skip
    """{'findings': [...], 'predictions': {name: prediction}, 'builds': {build: {'version', 'algorithms'}}}

    Only deployments of SGLang have something to check. pretend: another GPU than the host's, see sglang_check.py.
    Raises GauntletError where a build cannot be asked at all.
    """
    wanted = [one for one in deployments if one["engine"] == "sglang"]
    told = pretend or smallest_gpu()
    builds = {}
    for build in sorted({one["engine_build"] for one in wanted if not scripted.stands_in(one)}):
        of_build = [one for one in wanted if one["engine_build"] == build]
        builds[build] = ask(of_build, models, engines_folder, libexec, {"gpu": told, "pretend": bool(pretend)}, cache)
    found, predictions = [], {}
    for deployment in wanted:
        paths = engines.locate(deployment, models, engines_folder)
        configs = {role: config(paths[role]) for role in ("model", "drafter") if role in paths}
        build = builds.get(deployment["engine_build"])
        found += findings(deployment, configs, build)
        if told:
            own, predictions[deployment["name"]] = predict(deployment, configs, paths, told, build)
            found += own
    if predictions:
        cache.mkdir(parents=True, exist_ok=True)
    for name, prediction in predictions.items():
        (cache / f"{name}.prediction.json").write_text(json.dumps(prediction))
    asked = {name: {"version": one["version"], "algorithms": one["algorithms"]} for name, one in builds.items()}
    return {"findings": found, "predictions": predictions, "builds": asked}


def predicted(name: str, cache: Path = CACHE) -> dict | None:
    """The prediction that the last check made for a deployment, or None."""
    text = read(cache / f"{name}.prediction.json")
    return json.loads(text) if text else None


def ask(deployments: list[dict], models: str, engines_folder: str, libexec: str, gpu: dict, cache: Path) -> dict:
    """The answer of sglang_check.py for all deployments of one build; kept, for it depends on nothing else."""
    folder = f"{engines_folder}/{deployments[0]['engine_build']}"
    request = {**gpu, "deployments": []}
    for deployment in deployments:
        paths = engines.locate(deployment, models, engines_folder)
        words = sglang.command(deployment, paths, 30000)
        environment = {**sglang.environment(deployment, paths), **(deployment.get("environment") or {})}
        request["deployments"].append(
            {"name": deployment["name"], "argv": words[words.index("--model-path") :], "environment": environment}
        )
    script = Path(libexec, "sglang_check.py")
    located = {path for one in deployments for path in engines.locate(one, models, engines_folder).values()}
    configs = [read(Path(path, "config.json")) for path in sorted(located)]
    content = json.dumps([request, read(Path(folder, STAMP)), read(script), configs])
    kept = cache / f"{hashlib.sha256(content.encode()).hexdigest()}.json"
    if kept.is_file():
        return json.loads(kept.read_text())
    try:
        asked = subprocess.run(
            [f"{folder}/bin/python", str(script)],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        answer = json.loads(asked.stdout)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise GauntletError(f"{folder} cannot be asked what it takes: {problem}; run site.yml") from None
    except ValueError:
        last = (asked.stderr.strip().splitlines() or ["no word"])[-1]
        raise GauntletError(f"the SGLang of {folder} cannot be imported: {last}") from None
    cache.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(answer))
    return answer


def predict(
    deployment: dict, configs: dict, paths: dict, gpu: dict, build: dict | None
) -> tuple[list[dict], dict | None]:
    """(findings, prediction). A deployment that cannot start is an error, one that will run fewer requests than it was
    given is a warning; each with the cheapest changes that fit, calculated by the same formulas."""
    name = {"deployment": deployment["name"]}
    resolved = ((build or {}).get("deployments") or {}).get(deployment["name"], {}).get("resolved") or {}
    arguments = sglang.spelled(deployment["arguments"], releases.parse(deployment["engine_build"]))
    arguments |= {field.replace("_", "-"): resolved[field] for field in RESOLVED if resolved.get(field) is not None}
    try:
        facts = {
            "gpu_memory": gpu["memory_mib"] / 1024, "release": deployment["engine_build"], "tp": int(deployment["tp"]),
            "weights": size(deployment, paths, configs, "model") / GIB,
            "environment": deployment.get("environment"),
            "drafter": memory.shape(configs["drafter"]) if configs.get("drafter") else None,
            "drafter_weights": size(deployment, paths, configs, "drafter") / GIB,
        }  # fmt: skip
        shape = memory.shape(configs["model"])
        prediction = memory.predict(shape, arguments, **facts)
    except GauntletError as problem:
        return [
            name | warning("memory is not predicted", str(problem), "watch the figures that the server prints")
        ], None
    found = [name | warning("memory", one, "see gauntlet/memory") for one in prediction["warnings"]]
    given, cap = deployment["arguments"].get("max-running-requests"), prediction["max_running_requests"]
    if prediction["failure"]:
        wanted, level, what, why = 1, error, "the server would not start", prediction["failure"]
    elif given is not None and cap < int(given):
        wanted, level, what, why = int(given), warning, f"max-running-requests {given}", f"the server will run {cap}"
    else:
        return found, prediction
    sizes = tuple(size for size in (1, 2, 4, 8) if size <= gpu.get("count", 1))
    changes = memory.levers(shape, arguments, concurrency=wanted, tps=sizes, **facts)
    advice = f"what fits: {', or '.join(changes)}" if changes else "nothing fits on this many GPUs of this size"
    return [*found, name | level(what, f"{why} ({'; '.join(prediction['arithmetic'])})", advice)], prediction


def smallest_gpu() -> dict | None:
    """{'capability', 'memory_mib', 'count'} of this host's GPUs as nvidia-smi tells, or None without one."""
    query = "--query-gpu=memory.total,compute_cap"
    try:
        shown = services.run("nvidia-smi", query, "--format=csv,noheader,nounits").stdout
    except GauntletError:
        return None
    rows = [line.replace(",", " ").split() for line in shown.splitlines()]
    rows = [row for row in rows if len(row) == 2 and row[0].isdigit()]
    if not rows:
        return None
    memory_mib, capability = min(rows, key=lambda row: int(row[0]))
    return {
        "capability": [int(part) for part in capability.split(".")],
        "memory_mib": int(memory_mib),
        "count": len(rows),
    }


def config(folder: str) -> dict:
    """The config.json of staged weights; GauntletError when they are not staged."""
    text = read(Path(folder, "config.json"))
    if text is None:
        raise GauntletError(f"there is no {folder}/config.json: stage the weights first (site.yml or restage.yml)")
    try:
        return json.loads(text)
    except ValueError as problem:
        raise GauntletError(f"{folder}/config.json is not JSON: {problem}") from None


def size(deployment: dict, paths: dict, configs: dict, role: str) -> int:
    """Bytes of the target's or the drafter's weights: on disk, or as SGLang makes them up for a shape."""
    if role not in paths:
        return 0
    if deployment["arguments"].get("load-format") == "dummy":
        return memory.parameters(configs[role]) * BF16
    return sum(file.stat().st_size for file in Path(paths[role]).glob("*.safetensors"))


def read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
