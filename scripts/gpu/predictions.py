#!/usr/bin/env python3
"""What SGLang will report of the deployments of a campaign, calculated beforehand from their shapes.

usage: predictions.py MODELS_FOLDER GPU_MEMORY_MIB CAMPAIGN…     -> JSON: {deployment: {predicted figures}}
MODELS_FOLDER holds the model folders as scripts/gpu/pack carries them.
"""

import json
import sys
from pathlib import Path

from planned import planned

from gauntlet import memory

RELEASE = "0.5.16"
GIB = 1 << 30
BF16 = 2


def weights_of(models: Path, entry: dict | None) -> tuple[dict | None, float]:
    """(shape, GiB) of a weights entry."""
    if not entry:
        return None, 0.0
    config = json.loads((models / Path(entry["source"]["path"]).name / "config.json").read_text())
    return memory.shape(config), memory.parameters(config) * BF16 / GIB


def main(models: Path, gpu_mib: int, campaigns: list[str]) -> dict:
    found = {}
    for campaign in campaigns:
        for deployment in planned(campaign, gpus=8)["deployments"].values():
            shape, weights = weights_of(models, deployment["weights"]["model"])
            drafter, drafter_weights = weights_of(models, deployment["weights"].get("drafter"))
            predicted = memory.predict(
                shape, deployment["arguments"], tp=deployment["tp"], gpu_memory=gpu_mib / 1024, weights=weights,
                release=RELEASE, drafter=drafter, drafter_weights=drafter_weights,
                environment=deployment["environment"],
            )  # fmt: skip
            keys = ("fraction", "kv_tokens", "slots", "max_running_requests", "pools", "rest_gib", "failure")
            found[deployment["name"]] = {
                "weights_gib": round(weights, 2),
                "drafter_gib": round(drafter_weights, 2),
                **{key: predicted[key] for key in keys},
            }
    return found


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]), indent=1))
