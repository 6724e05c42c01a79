#!/usr/bin/env python3
"""SGLang's own validation of command lines, in its own environment: one process for all, no server, no GPU held.

stdin:  {"deployments": [{"name": str, "argv": [words after `sglang serve`], "environment": {…}}],
         "gpu": null or {"capability": [12, 0], "memory_mib": 97887, "count": 8}, "pretend": true where it is not here}
stdout: {"version": str, "flags": {flag: default}, "algorithms": [str],
         "deployments": {name: {"ok": bool, "warnings": [str], "resolved": {field: value},
                                "error": null or {"kind": str, "message": str, "where": "file:line", "code": str}}}}
Each command line is resolved in a forked child, since SGLang resolves a record once and keeps state in its modules.
SGLang is told of the GPU instead of asking CUDA, whose context would hold memory and does not survive a fork. With
`pretend`, packages that only a GPU needs are stood in for, so that a plan can be checked before the hardware is there.
"""

import argparse
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import io
import json
import logging
import os
import sys
import traceback
import types

RESOLVED = (
    "attention_backend", "prefill_attention_backend", "decode_attention_backend", "page_size", "mem_fraction_static",
    "max_running_requests", "speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk",
    "speculative_num_draft_tokens", "speculative_draft_model_path", "mamba_radix_cache_strategy",
    "mamba_scheduler_strategy", "disable_radix_cache", "disable_overlap_schedule", "chunked_prefill_size",
    "kv_cache_dtype", "context_length",
)  # fmt: skip


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for packages that only a GPU needs; found first, for the real ones do not load where no driver is."""

    NAMES = {"torchvision", "sgl_kernel", "flashinfer", "deep_gemm", "cuda", "pynvml", "decord"}

    def find_spec(self, name, path=None, target=None):
        found = name.partition(".")[0] in self.NAMES
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if found else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__version__ = "0"
        module.__getattr__ = lambda name: missing(spec.name, name) if name.startswith("__") else Anything(name, (), {})
        return module

    def exec_module(self, module):
        pass


class Anything(type):
    """A class that has whatever attribute is asked of it."""

    def __getattr__(cls, name):
        return missing(cls.__name__, name) if name.startswith("__") else Anything(name, (), {})


def missing(module, name):
    raise AttributeError(f"{module} is not installed, it has no {name}")


def tell(gpu):
    """A GPU for SGLang's detection; nothing is computed on it."""
    import torch

    total = gpu["memory_mib"] << 20
    properties = type("Properties", (), {"total_memory": total, "name": "told", "major": gpu["capability"][0],
                                         "minor": gpu["capability"][1], "multi_processor_count": 188})  # fmt: skip
    torch.version.cuda = torch.version.cuda or "13.0"
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: gpu.get("count", 1)
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_capability = lambda *a, **k: tuple(gpu["capability"])
    torch.cuda.get_device_properties = lambda *a, **k: properties
    torch.cuda.get_device_name = lambda *a, **k: "told"
    torch.cuda.mem_get_info = lambda *a, **k: (total, total)
    with contextlib.suppress(ImportError):
        from sglang.srt.utils import common

        common.get_device_memory_capacity = lambda *a, **k: gpu["memory_mib"]


def resolve(argv):
    """The resolved arguments of one command line; raises what SGLang raises."""
    from sglang.srt.server_args import prepare_server_args

    record = prepare_server_args(argv)
    if hasattr(record, "resolve_once"):  # from 0.5.20 on, construction does not resolve
        record.resolve_once()
    if hasattr(record, "resolved_dict"):
        return record.resolved_dict()
    record.check_server_args()
    return vars(record)


def attempt(argv):
    """{'ok', 'error', 'warnings', 'resolved'} of one command line."""
    log = io.StringIO()
    answer = {"ok": True, "error": None, "warnings": [], "resolved": {}}
    try:
        with contextlib.redirect_stderr(log), contextlib.redirect_stdout(log):
            resolved = resolve(argv)
        answer["resolved"] = {name: resolved[name] for name in RESOLVED if name in resolved}
    except SystemExit:
        last = [line for line in log.getvalue().splitlines() if "error:" in line]
        answer |= {"ok": False, "error": {"kind": "usage", "message": (last or ["refused"])[-1].split("error: ")[-1]}}
    except BaseException as error:  # a bare assert is the answer, too
        frame = traceback.extract_tb(error.__traceback__)[-1]
        answer |= {
            "ok": False,
            "error": {
                "kind": type(error).__name__,
                "message": str(error),
                "where": f"{os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}",
                "code": frame.line or "",
            },
        }
    answer["warnings"] = [line.strip() for line in log.getvalue().splitlines() if line.strip()][-20:]
    return answer


def in_child(argv, environment):
    """The answer of a forked child, or how it died."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        os.environ.update(environment)
        logging.getLogger().handlers.clear()
        with os.fdopen(writer, "w") as out:
            json.dump(attempt(argv), out, default=str)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    if text:
        return json.loads(text)
    message = f"the check ended with status {status} and no answer"
    return {"ok": False, "error": {"kind": "died", "message": message}, "warnings": [], "resolved": {}}


def flags():
    """{flag without dashes: default} as the installed release has them, aliases too."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return {
        option.removeprefix("--"): action.default
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--") and option != "--help"
    }


def algorithms():
    """The speculative algorithms that this build knows, plugins' too."""
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    with contextlib.suppress(Exception):
        from sglang.srt.plugins import load_plugins

        load_plugins()
    names = {member.name for member in SpeculativeAlgorithm} if hasattr(SpeculativeAlgorithm, "__members__") else set()
    with contextlib.suppress(ImportError):
        from sglang.srt.speculative import spec_registry

        registry = getattr(spec_registry, "_REGISTRY", {})
        names |= {str(name).upper() for name in registry}
    if "speculative-ddtree-budget" in flags() or "speculative-dflash-enable-ddtree" in flags():
        names.add("DDTREE")
    return sorted(names - {"NONE"})


def import_ahead():
    """What every resolution imports, once in the parent instead of in each child."""
    for name in ("sglang.srt.configs.model_config", "sglang.srt.utils.hf_transformers_utils",
                 "sglang.srt.entrypoints.openai.protocol", "sglang.srt.arg_groups.pipeline"):  # fmt: skip
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def main():
    request = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the imports print is not the answer
    if request.get("pretend"):
        sys.meta_path.insert(0, Absent())
    if request.get("gpu"):
        tell(request["gpu"])
    import_ahead()
    answer = {"version": importlib.metadata.version("sglang"), "flags": flags(), "algorithms": algorithms()}
    answer["deployments"] = {
        one["name"]: in_child(one["argv"], one.get("environment") or {}) for one in request["deployments"]
    }
    json.dump(answer, out, default=str)
    out.flush()


if __name__ == "__main__":
    main()
