"""The command line's selectors, read once: strings, lists or numbers -> checked names and numbers."""

from dataclasses import dataclass

from gauntlet.catalog import Catalog
from gauntlet.errors import GauntletError
from gauntlet.names import as_list, as_switch, unknown

KEYS = ("campaign", "model", "method", "tp", "workload", "concurrency", "baseline", "conditions")
CONDITIONS = ("keep", "anew")


@dataclass(frozen=True)
class Selection:
    """What was asked for; an empty tuple is "as the campaign says"."""

    campaign: str
    models: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()  # names or families
    tps: tuple[int, ...] = ()
    workloads: tuple[str, ...] = ()
    concurrencies: tuple[int, ...] = ()
    baseline: bool = True
    conditions: str | None = None  # what to do with attempts under other conditions: keep | anew | None: stop

    def words(self) -> dict:
        """The selection as the plan stores it: only what was given."""
        given = {
            "campaign": self.campaign, "model": self.models, "method": self.methods, "tp": self.tps,
            "workload": self.workloads, "concurrency": self.concurrencies, "conditions": self.conditions,
        }  # fmt: skip
        words = {key: list(value) if isinstance(value, tuple) else value for key, value in given.items() if value}
        return words if self.baseline else {**words, "baseline": False}


def read(selection: dict, catalog: Catalog) -> Selection:
    """The selection; GauntletError names the selector that is wrong and the nearest right name."""
    if unread := selection.get("_raw_params"):
        name, _, value = str(unread).partition(":")
        raise GauntletError(f"-e '{unread}' sets nothing; write -e {name.strip()}={value.strip() or '…'}")
    for key in selection:
        if key not in (*KEYS, "_raw_params"):
            raise unknown("selector", key, KEYS)
    given = {key: value for key, value in selection.items() if value is not None and value != ""}
    campaign = _campaign(given, catalog)
    conditions = given.get("conditions")
    if conditions is not None and conditions not in CONDITIONS:
        raise GauntletError(f"conditions is '{conditions}'; it takes keep (reuse) or anew (measure again)")
    methods = tuple(as_list(given.get("method")))
    families = {method["family"] for method in catalog.methods.values()}
    for name in methods:
        if name not in families and name not in catalog.methods:
            raise unknown("method", name, catalog.methods.keys() | families)
    return Selection(
        campaign=campaign,
        models=_models(given, catalog, campaign),
        methods=methods,
        tps=_numbers("tp", given),
        workloads=_names("workload", given, catalog.workloads),
        concurrencies=_numbers("concurrency", given),
        baseline=as_switch("baseline", given.get("baseline", True)),
        conditions=conditions,
    )


def narrowed(own: list, selected: tuple, anywhere: set) -> list:
    """An axis of one block under a selection: what of it the block has, and what no block of the campaign has."""
    return [value for value in selected if value in own or value not in anywhere] if selected else own


def members(names: list[str] | tuple[str, ...], catalog: Catalog) -> list[str]:
    """Methods by name or family, in the order given, each once."""
    found: dict[str, None] = {}
    for name in names:
        family = [method for method, entry in catalog.methods.items() if name in (method, entry["family"])]
        if not family:
            known = catalog.methods.keys() | {entry["family"] for entry in catalog.methods.values()}
            raise unknown("method", name, known)
        found.update(dict.fromkeys(family))
    return list(found)


def _campaign(given: dict, catalog: Catalog) -> str:
    names = as_list(given.get("campaign"))
    if len(names) != 1:
        known = ", ".join(sorted(catalog.campaigns))
        raise GauntletError(f"campaign names {len(names) or 'none'}; it takes one of {known}")
    catalog.get("campaigns", names[0])
    return names[0]


def _models(given: dict, catalog: Catalog, campaign: str) -> tuple[str, ...]:
    models = _names("model", given, catalog.models)
    own = catalog.campaigns[campaign]["models"]
    for model in models:
        if model not in own:
            others = [name for name, entry in catalog.campaigns.items() if model in entry["models"]]
            where = f"campaigns that have it: {', '.join(others)}" if others else "no campaign has it"
            raise GauntletError(f"campaign '{campaign}' has no model '{model}', it has {', '.join(own)}; {where}")
    return models


def _names(selector: str, given: dict, known: dict) -> tuple[str, ...]:
    names = dict.fromkeys(as_list(given.get(selector)))
    for name in names:
        if name not in known:
            raise unknown(selector, name, known)
    return tuple(names)


def _numbers(selector: str, given: dict) -> tuple[int, ...]:
    numbers: dict[int, None] = {}
    for text in as_list(given.get(selector)):
        if not (text.isascii() and text.isdecimal() and int(text) > 0):
            raise GauntletError(f"{selector} is '{text}'; it takes whole numbers from 1, such as -e {selector}=1,4")
        numbers[int(text)] = None
    return tuple(numbers)
