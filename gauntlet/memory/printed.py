"""The figures of memory as the server printed them, in the wording of every release from 0.5.10 on."""

import re
from collections.abc import Iterable

NUMBER = r"([\d.]+)"
FINAL = re.compile(
    r"max_total_num_tokens=(\d+), .*?max_running_requests=(\d+), context_len=(\d+)(?:, available_gpu_mem=([\d.]+) GB)?"
)
POOL = re.compile(
    r"(?:(\w+) )?KV Cache is allocated\.(?: dtype: ([\w.]+),)? #tokens: (\d+), "
    rf"(?:K size: {NUMBER} ?GB, V size: {NUMBER} ?GB|KV size: {NUMBER} ?GB)"
)
STATES = re.compile(rf"Mamba Cache is allocated\. max_mamba_cache_size: (\d+), conv_state size: {NUMBER} ?GB,? "
                    rf"ssm_state size: {NUMBER} ?GB,?(?: intermediate_ssm_state_cache size: {NUMBER} ?GB,? "
                    rf"intermediate_conv_window_cache size: {NUMBER} ?GB)?")  # fmt: skip
CAPPED = re.compile(r"max_running_requests is capped to (\d+) by the mamba state cache")
WEIGHTS = re.compile(rf"Load weight end\..*?type=(\w+),.*?avail mem={NUMBER} GB, mem usage={NUMBER} GB")
BEGIN = re.compile(rf"Load weight begin\. avail mem={NUMBER} GB")
GRAPHS = re.compile(rf"Capture .*?(?:graph|CUDA graph) end\..*?mem usage={NUMBER} GB")
FRACTION = re.compile(r"\bmem_fraction_static=([\d.]+)")
TOLERANCE = 0.05


def figures(lines: Iterable[str]) -> dict:
    """{'kv_tokens', 'max_running_requests', 'context_length', 'available_gib', 'slots', 'conv_gib', 'ssm_gib',
    'intermediate_gib', 'kv_gib', 'draft_kv_gib', 'weights_gib', 'draft_weights_gib', 'free_gib', 'graphs_gib',
    'fraction'}: only what was printed. Every rank prints its own lines; the first of each kind counts.
    """
    found: dict = {}
    pools, weights, graphs = [], [], 0.0
    for line in lines:
        rank = re.search(r"\bTP(\d+)", line)
        if rank and rank[1] != "0":
            continue
        if match := FINAL.search(line):
            found |= {"kv_tokens": int(match[1]), "max_running_requests": int(match[2])}
            found |= {"context_length": int(match[3])}
            if match[4]:
                found["available_gib"] = float(match[4])
        elif match := STATES.search(line):
            found |= {"slots": int(match[1]), "conv_gib": float(match[2]), "ssm_gib": float(match[3])}
            if match[4]:
                found["intermediate_gib"] = float(match[4])
        elif match := POOL.search(line):
            pools.append(sum(float(size) for size in match.groups()[3:] if size))
        elif match := WEIGHTS.search(line):
            weights.append(float(match[3]))
        elif match := BEGIN.search(line):
            found.setdefault("free_gib", float(match[1]))
        elif match := GRAPHS.search(line):
            graphs += float(match[1])
        elif match := CAPPED.search(line):
            found["max_running_requests"] = int(match[1])
        if match := FRACTION.search(line):
            found.setdefault("fraction", float(match[1]))
    for names, values in ((("kv_gib", "draft_kv_gib"), pools), (("weights_gib", "draft_weights_gib"), weights)):
        found |= dict(zip(names, values, strict=False))
    if graphs:
        found["graphs_gib"] = round(graphs, 2)
    return found


def compare(prediction: dict, printed: dict) -> list[str]:
    """Sentences on figures that differ by more than 5 %; empty when the prediction held."""
    pairs = {
        "KV tokens": (prediction["kv_tokens"], printed.get("kv_tokens")),
        "state slots": (prediction["slots"], printed.get("slots")),
        "running requests": (prediction["max_running_requests"], printed.get("max_running_requests")),
    }
    return [
        f"{name}: {predicted} predicted, {got} printed by the server"
        for name, (predicted, got) in pairs.items()
        if predicted is not None and got is not None and abs(predicted - got) > TOLERANCE * max(got, 1)
    ]
