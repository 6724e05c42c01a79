"""A role's public names are its defaults, and its argument specification says what each means."""

import configparser
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROOT = Path(__file__).parents[2]
ROLES = sorted(p for p in (ROOT / "roles").iterdir() if p.is_dir())
# Extra-vars beat everything: what people type on the command line must not be anybody's variable.
SELECTORS = {
    "method", "model", "tp", "campaign", "workload", "concurrency", "baseline", "conditions", "evict", "resume",
    "format",
}  # fmt: skip


def documents(path):
    return yaml.safe_load(path.read_text()) if path.exists() else None


@pytest.mark.parametrize("role", ROLES, ids=lambda p: p.name)
def test_defaults_are_the_argument_specs(role):
    defaults = documents(role / "defaults/main.yml") or {}
    specs = documents(role / "meta/argument_specs.yml")["argument_specs"]["main"]
    options = specs.get("options", {})
    required = {name for name, spec in options.items() if spec.get("required")}
    assert set(defaults) == set(options) - required
    assert not required & set(defaults)
    for name, spec in options.items():
        assert name.startswith(f"{role.name}_"), f"{name} is public without the role's name before it"
        assert spec.get("description"), f"{name} has no description"
        if "default" in spec:
            assert spec["default"] == defaults[name], f"{name}: documented default is not the default"
    assert specs.get("short_description")


def names_set(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("vars", "ansible.builtin.set_fact", "set_fact") and isinstance(value, dict):
                yield from value
            if key in ("register", "loop_var", "index_var") and isinstance(value, str):
                yield value
            yield from names_set(value)
    elif isinstance(node, list):
        for item in node:
            yield from names_set(item)


PLAYS = [*ROOT.glob("*.yml"), *ROOT.glob("playbooks/**/*.yml"), *ROOT.glob("roles/*/tasks/**/*.yml"),
         *ROOT.glob("roles/*/handlers/*.yml")]  # fmt: skip


@pytest.mark.parametrize("path", PLAYS, ids=lambda p: str(p.relative_to(ROOT)))
def test_nobody_uses_a_selector_as_a_variable(path):
    assert not SELECTORS & set(names_set(documents(path)))


# What tasks give a template beside the role's defaults and vars: a loop's variable, what a task before registered.
GIVEN = {
    "model_staging": {"_model_staging_tmpfs": {"options": "size=1"}},
    "serving": {"_serving_engine": "sglang", "serving_secrets": {"hf_token": "token"}},
}


@pytest.mark.parametrize("path", sorted(ROOT.glob("roles/*/templates/**/*.j2")), ids=lambda p: str(p.relative_to(ROOT)))
def test_templates_render_with_nothing_undefined(path):
    """As Ansible renders them, and what comes out is what systemd and supervisord read: sections of names and values,
    with nothing empty."""
    role, loader = path.parents[1], DataLoader()
    files = [file for file in (role / "defaults/main.yml", role / "vars/main.yml") if file.exists()]
    known = [loader.load_from_file(str(file), trusted_as_template=True) or {} for file in files]
    variables = {"ansible_managed": "made by hand", "role_path": str(role)}
    for more in (*known, GIVEN.get(role.name, {})):
        variables |= more
    text = Templar(loader, variables=variables).template(trust_as_template(path.read_text()))
    read = configparser.RawConfigParser(strict=False, allow_no_value=False)
    read.optionxform = str
    read.read_string(text if "[" in text.splitlines()[1] + text.splitlines()[2] else "[program]\n" + text)
    values = {name: value for section in read.sections() for name, value in read.items(section)}
    assert values and "{{" not in text
    assert [name for name, value in values.items() if value in ("", "None")] in ([], ["CapabilityBoundingSet"])
