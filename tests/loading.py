"""Modules, action plugins and programs of the repository: Ansible finds them by their files, and so do tests."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def loaded(path: Path) -> ModuleType:
    """The file as a module of its own, made anew."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses ask for it there
    spec.loader.exec_module(module)
    return module
