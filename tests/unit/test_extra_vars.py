"""`-e key=value` is always text, and 'false' is true in Python. People have switched on what they switched off; every
form in which a selector can be typed is read here by Ansible itself and then by the plan."""

import csv
import re
import shlex
from pathlib import Path

import pytest
import yaml
from ansible import context
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.common.collections import ImmutableDict
from ansible.parsing.dataloader import DataLoader
from ansible.utils.vars import load_extra_vars

from gauntlet import catalog, plan
from gauntlet.errors import GauntletError
from gauntlet.names import as_switch
from tests.loading import loaded

ROOT = Path(__file__).parents[2]
CASE = ROOT / "tests/cases/48-extra-vars-string-bool"
FORMS = (CASE / "cli-forms.txt").read_text().splitlines()
MEANING = [row["meaning"] for row in csv.DictReader((CASE / "expected.csv").open())]
# the case's made-up names -> ours of the same kind
OURS = {"acs_disable": "baseline", "mem_fraction": "mem_fraction", "tp": "tp"}
CATALOG = catalog.load([ROOT / "catalog"])
HOST = {"gpu": {"engine_builds": {"sglang": "sglang-0.5.23"}, "gpus": 8}}


def typed(form, monkeypatch):
    """The variables that ansible-playbook has after this form on its command line."""
    flag, value = shlex.split(form)
    assert flag == "-e"
    for theirs, ours in OURS.items():
        value = value.replace(theirs, ours)
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(extra_vars=(value,)))
    load_extra_vars.extra_vars = None  # it keeps the first answer of a process
    return dict(load_extra_vars(DataLoader()))


def planned(variables, **more):
    """The plan as playbooks/plan.yml asks for it: every selector, with its default where it was not typed."""
    selection = {"campaign": "qwen3.6-27b", "method": "dflash", "workload": "short-128", "concurrency": 1} | more
    typed = {key: variables[key] for key in ("baseline", "tp", "_raw_params") if key in variables}
    return plan.make(CATALOG, {"baseline": True, **selection, **typed}, HOST, [])


def test_the_case_is_whole():
    assert len(FORMS) == len(MEANING) == 11


@pytest.mark.parametrize(("form", "meaning"), [pair for pair in zip(FORMS, MEANING, strict=True) if "acs" in pair[0]])
def test_every_spelling_of_off_is_off_and_what_is_not_read_is_refused(form, meaning, monkeypatch):
    variables = typed(form, monkeypatch)
    if meaning == "off":
        methods = {d["method"] for d in planned(variables)["deployments"].values()}
        assert methods == {"dflash"}
    else:
        with pytest.raises(GauntletError) as error:
            planned(variables)
        assert "baseline" in str(error.value)
        assert "flase" in str(error.value) or "write -e baseline=false" in str(error.value)


def test_numbers_as_text_are_numbers(monkeypatch):
    variables = typed(FORMS[10], monkeypatch)
    assert variables == {"tp": "08"}
    assert {d["tp"] for d in planned(variables)["deployments"].values()} == {8}


def test_a_fraction_as_text_is_the_same_argument_as_the_number(monkeypatch):
    given = typed(FORMS[9], monkeypatch)["mem_fraction"]
    assert given == "0.85"

    def specs(value):
        engines = {"sglang": {"arguments": {"mem-fraction-static": value}}}
        made = plan.make(CATALOG, {"campaign": "tuning"}, {"gpu": {**HOST["gpu"], "engines": engines}}, [])
        return {d["spec_id"] for d in made["deployments"].values()}

    assert specs(given) == specs(0.85)


def test_an_ini_inventory_says_off_in_two_types():
    inventory = InventoryManager(DataLoader(), [str(CASE / "inventory.ini")])
    values = [inventory.get_host(name).vars["acs_disable"] for name in ("node1", "node2")]
    assert [isinstance(value, bool) for value in values] == [False, True]
    assert [as_switch("acs_disable", value) for value in values] == [False, False]


@pytest.mark.parametrize("word", ["flase", "nein", "2", "", "None"])
def test_a_switch_that_is_neither_is_never_read_as_on(word):
    with pytest.raises(GauntletError, match="it takes true or false"):
        as_switch("evict", word)


@pytest.fixture(scope="module")
def action():
    return loaded(ROOT / "action_plugins/campaign_plan.py")


@pytest.mark.parametrize(
    "name", ["metod", "methods", "models", "tps", "worklaod", "concurency", "campain", "base_line"]
)
def test_a_selector_whose_name_is_mistyped_is_refused_and_not_left_out(action, name):
    """Ansible takes any variable; unread, the whole campaign would be measured instead of the part that was meant."""
    with pytest.raises(GauntletError, match=f"unknown selector '{name}'; did you mean '"):
        planned({}, **action.mistyped({name: "x", "method": "dflash", "gauntlet_results": "/r"}))


def test_nothing_that_we_document_looks_like_a_selector_mistyped(action):
    ours = {name for role in ROOT.glob("roles/*/defaults/main.yml") for name in yaml.safe_load(role.read_text()) or {}}
    plays = " ".join(file.read_text() for file in ROOT.glob("playbooks/*.yml"))
    ours |= set(re.findall(r"\b(?:gauntlet|report|lab)_\w+\b", plays)) | {"evict", "resume", "format"}
    assert len(ours) > 50 and action.mistyped(dict.fromkeys(ours)) == {}
