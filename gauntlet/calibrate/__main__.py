"""`python -m gauntlet.calibrate serve|lag`: the scripted engine, also in SGLang's place; the client's lag."""

import argparse
import json
import os
import sys

from gauntlet.calibrate.engine import Engine
from gauntlet.calibrate.lag import measure
from gauntlet.calibrate.script import Script
from gauntlet.errors import GauntletError

# what a method does when nothing else is said: (tokens a step, step ms over the baseline's, drafts a step)
METHODS = {"NGRAM": (1.4, 1.05, 7), "EAGLE": (2.4, 1.25, 15), "EAGLE3": (3.0, 1.3, 15), "STANDALONE": (2.0, 1.4, 3),
           "DFLASH": (4.0, 1.35, 15), "DDTREE": (4.8, 1.5, 15)}  # fmt: skip


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m gauntlet.calibrate", description=__doc__)
    commands = arguments.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve a script; flags of SGLang that are unknown here are accepted")
    serve.add_argument("--port", type=int, default=30000)
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--model-path", "--model", default="scripted")
    serve.add_argument("--context-length", type=int, default=131072)
    serve.add_argument("--max-running-requests", type=int)
    serve.add_argument("--speculative-algorithm")
    serve.add_argument("--speculative-num-draft-tokens", type=int)
    serve.add_argument("--script", default=os.environ.get("GAUNTLET_SCRIPT", "{}"), help="JSON of script fields")
    serve.add_argument("--tokens-per-step", type=float)
    serve.add_argument("--step-ms", type=float, help="time between chunks; default 10 x the method's")
    serve.add_argument("--ttft-ms", type=float, default=20)
    serve.add_argument("--api-key-file")
    lag = commands.add_parser("lag", help="measure this client's lag")
    lag.add_argument("--concurrency", type=int, default=1)
    return arguments


def scripted(options: argparse.Namespace) -> Script:
    """The script of a stand-in: the method's default, then the flags, then --script."""
    tokens, cost, draft = METHODS.get((options.speculative_algorithm or "").upper(), (1, 1.0, 0))
    if options.speculative_algorithm and not draft:
        tokens, cost, draft = 2.0, 1.2, 3
    values = {
        "ttft_s": options.ttft_ms / 1000,
        "step_s": (options.step_ms if options.step_ms is not None else 10 * cost) / 1000,
        "tokens": [options.tokens_per_step or tokens],
        "draft": (options.speculative_num_draft_tokens - 1 if options.speculative_num_draft_tokens else draft),
        "context": options.context_length,
    }
    return Script.of({**values, **json.loads(options.script)})


def main(words: list[str] | None = None) -> int:
    options, unknown = parser().parse_known_args(words)
    if options.command == "lag":
        print(json.dumps(measure(options.concurrency)))
        return 0
    try:
        key = None
        if options.api_key_file:
            with open(options.api_key_file) as file:
                key = file.read().strip()
        facts = {"model_path": options.model_path, "max_running_requests": options.max_running_requests,
                 "speculative_algorithm": options.speculative_algorithm, "max_total_num_tokens": 1 << 20}  # fmt: skip
        engine = Engine(scripted(options), options.port, {k: v for k, v in facts.items() if v is not None}, key)
    except (GauntletError, ValueError, OSError) as error:
        print(f"the scripted engine cannot start: {error}", file=sys.stderr)
        return 1
    if unknown:
        print(f"accepted and not used: {' '.join(unknown)}", file=sys.stderr)
    print(
        f"The server is fired up and ready to roll! (scripted engine on {engine.base_url})", file=sys.stderr, flush=True
    )
    try:
        engine.serve_alone()
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
