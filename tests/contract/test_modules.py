"""What `ansible-doc` shows of a module must be what the module takes: people read the one and type the other."""

import re
from pathlib import Path

import ansible.module_utils
import ansible.module_utils.basic
import pytest
import yaml

from tests.loading import loaded

ROOT = Path(__file__).parents[2]
MODULES = sorted(p for p in (ROOT / "library").glob("*.py") if not p.name.startswith("_"))


class Captured(Exception):
    pass


@pytest.fixture
def load(monkeypatch):
    monkeypatch.setattr(ansible.module_utils, "__path__", [*ansible.module_utils.__path__, str(ROOT / "module_utils")])

    def load(path):
        return loaded(path)

    return load


def argument_spec(module, monkeypatch):
    def capture(*args, **kwargs):
        raise Captured(args[0] if args else kwargs.get("argument_spec"), kwargs.get("supports_check_mode", False))

    name = next(n for n in ("AnsibleModule",) if hasattr(module, n))
    monkeypatch.setattr(module, name, capture)
    with pytest.raises(Captured) as captured:
        module.main()
    return captured.value.args


def compare(documented, specified, where):
    assert set(documented) == set(specified), f"{where}: options documented and taken differ"
    for option, doc in documented.items():
        spec = specified[option]
        here = f"{where}.{option}"
        for key, default in (
            ("type", "str"),
            ("required", False),
            ("default", None),
            ("choices", None),
            ("elements", None),
        ):
            assert doc.get(key, default) == spec.get(key, default), f"{here}: {key} differs"
        assert doc.get("description"), f"{here} has no description"
        said = doc["description"] if isinstance(doc["description"], list) else [doc["description"]]
        assert all(isinstance(text, str) for text in said), f"{here}: a colon makes a mapping of a sentence"
        if "suboptions" in doc or "options" in spec:
            compare(doc.get("suboptions", {}), spec.get("options", {}), here)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_documentation_is_the_argument_spec(path, load, monkeypatch):
    module = load(path)
    documentation = yaml.safe_load(module.DOCUMENTATION)
    spec, check_mode = argument_spec(module, monkeypatch)
    compare(documentation.get("options") or {}, spec, path.stem)
    assert documentation["module"] == path.stem
    declared = documentation.get("attributes", {}).get("check_mode", {}).get("support", "none")
    assert (declared in ("full", "partial")) == check_mode, "what is said of check mode is not what is done"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_examples_and_returns_are_there_and_are_yaml(path, load):
    module = load(path)
    examples = yaml.safe_load(module.EXAMPLES)
    assert any(path.stem in task for task in examples), "no example uses the module"
    returns = yaml.safe_load(module.RETURN)
    assert returns, "what comes back is not documented"
    for key, value in returns.items():
        assert {"description", "returned", "type"} <= set(value), f"RETURN {key} is incomplete"


@pytest.mark.parametrize("path", sorted((ROOT / "action_plugins").glob("*.py")), ids=lambda p: p.stem)
def test_an_action_plugin_stands_beside_a_module(path):
    assert (ROOT / "library" / path.name).exists(), "ansible-doc knows modules: an action plugin alone is undocumented"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_modules_import_nothing_deprecated(path):
    assert not re.search(r"ansible\.module_utils\._text|from ansible\.module_utils\.six", path.read_text())
