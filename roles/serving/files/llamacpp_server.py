#!/usr/bin/env python3
"""llama.cpp's HTTP server out of the xllamacpp wheel, which is a library without a program.

Flags carry the names of llama-server where it has them; what is not given keeps the library's default.
Listens on loopback only and runs until SIGTERM or SIGINT.
"""

import argparse
import signal
import sys

import xllamacpp

SPECULATIVE = {
    member.removeprefix("COMMON_SPECULATIVE_TYPE_").lower().replace("_", "-"): value
    for member, value in xllamacpp.common_speculative_type.__members__.items()
    if not member.endswith("_COUNT")
}

# flag -> (type, where it goes below CommonParams); a method that has its own block of settings is named by spec-type
SETTINGS = {
    "ctx-size": (int, "n_ctx"),
    "parallel": (int, "n_parallel"),
    "batch-size": (int, "n_batch"),
    "ubatch-size": (int, "n_ubatch"),
    "threads": (int, "cpuparams.n_threads"),
    "threads-batch": (int, "cpuparams_batch.n_threads"),
    "cache-ram": (int, "cache_ram_mib"),
    "n-gpu-layers": (int, "n_gpu_layers"),
    "model-draft": (str, "speculative.draft.mparams.path"),
    "draft-max": (int, "speculative.draft.n_max"),
    "draft-min": (int, "speculative.draft.n_min"),
    "ngram-size-n": (int, "speculative.{block}.size_n"),
    "ngram-size-m": (int, "speculative.{block}.size_m"),
    "ngram-min-hits": (int, "speculative.{block}.min_hits"),
    "ngram-match": (int, "speculative.{block}.n_match"),
    "ngram-max": (int, "speculative.{block}.n_max"),
    "ngram-min": (int, "speculative.{block}.n_min"),
}


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    flags.add_argument("--model", required=True, metavar="FILE.gguf")
    flags.add_argument("--port", required=True, type=int)
    flags.add_argument("--host", default="127.0.0.1", choices=["127.0.0.1"], help="loopback only")
    flags.add_argument("--spec-type", default="none", choices=sorted(SPECULATIVE))
    for flag, (kind, _) in SETTINGS.items():
        flags.add_argument(f"--{flag}", type=kind)
    return flags


def apply(params, path: str, value) -> None:
    *groups, field = path.split(".")
    for group in groups:
        params = getattr(params, group)
    if not hasattr(params, field):
        raise AttributeError(path)
    setattr(params, field, value)


def parameters(arguments: argparse.Namespace):
    params = xllamacpp.CommonParams()
    params.model.path = arguments.model
    params.hostnames = [arguments.host]
    params.port = arguments.port
    params.endpoint_metrics = params.endpoint_props = params.endpoint_slots = True
    params.ui = False
    params.speculative.types = [SPECULATIVE[arguments.spec_type]]
    block = arguments.spec_type.replace("-", "_")
    for flag, (_, path) in SETTINGS.items():
        value = getattr(arguments, flag.replace("-", "_"))
        if value is not None:
            try:
                apply(params, path.format(block=block), value)
            except AttributeError:
                sys.exit(f"--{flag} means nothing for --spec-type {arguments.spec_type}")
    return params


def main() -> None:
    stop = {signal.SIGTERM, signal.SIGINT}
    # blocked before the server's threads start, so that they inherit it and only sigwait below sees the signal
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    server = xllamacpp.Server(parameters(parser().parse_args()))
    print(f"serving on {server.listening_address}", flush=True)
    signal.sigwait(stop)


if __name__ == "__main__":
    main()
