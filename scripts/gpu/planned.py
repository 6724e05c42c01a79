"""A campaign of inventory/gpu_local as bench.yml would plan it, for scripts that look at one deployment."""

import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from gauntlet import catalog, plan  # noqa: E402

INVENTORY = ROOT / "inventory/gpu_local"
HOST = "gpu_local"


def known() -> catalog.Catalog:
    return catalog.load([ROOT / "catalog", INVENTORY / "catalog"])


def planned(campaign: str, model: str | None = None, method: str | None = None, gpus: int = 1) -> dict:
    """The plan of a campaign with nothing measured, under the inventory's own arguments; of another model and method
    than the campaign's where they are given."""
    variables = yaml.safe_load((INVENTORY / "group_vars/all.yml").read_text())
    host = {
        "engine_builds": variables["gauntlet_engine_builds"],
        "engines": variables["gauntlet_engines"],
        "gpus": gpus,
    }
    catalog_now = known()
    if model:
        entry = catalog_now.campaigns[campaign]
        catalog_now.campaigns[campaign] = {**entry, "models": [model], "methods": [method]}
    return plan.make(catalog_now, {"campaign": campaign}, {HOST: host}, [], plan.utc_now())
