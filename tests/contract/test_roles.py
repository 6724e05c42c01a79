"""A role's public names are its defaults, and its argument specification says what each means."""

import re
from pathlib import Path

import pytest
import yaml
from jinja2 import Environment, StrictUndefined

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


@pytest.mark.parametrize("path", sorted(ROOT.glob("roles/*/templates/**/*.j2")), ids=lambda p: str(p.relative_to(ROOT)))
def test_templates_use_only_names_that_exist(path):
    """A template's names are the role's defaults, its private variables, or what Ansible always gives."""
    role = path.relative_to(ROOT).parts[1]
    environment = Environment(undefined=StrictUndefined, autoescape=False)
    from jinja2 import meta

    source = re.sub(r"\|\s*ansible\.builtin\.\w+", "", path.read_text())
    for name in ("comment", "bool", "to_json", "quote", "basename", "dirname", "hash", "regex_replace", "to_nice_json"):
        environment.filters.setdefault(name, lambda value, *a, **k: value)
    used = meta.find_undeclared_variables(environment.parse(source))
    defaults = set(documents(ROOT / "roles" / role / "defaults/main.yml") or {})
    specs = documents(ROOT / "roles" / role / "meta/argument_specs.yml")["argument_specs"]["main"].get("options", {})
    given = {"ansible_managed", "ansible_facts", "inventory_hostname", "item", "lookup", "groups", "hostvars"}
    private = {name for name in used if name.startswith((f"_{role}_",))}
    common = {name for name in used if name.startswith("gauntlet_")}
    assert used <= defaults | set(specs) | given | private | common
