"""Grouping and ordering, the same everywhere."""

import re
from collections.abc import Callable, Iterable


def groups(items: Iterable, key: Callable) -> dict:
    """{key: items that have it}, both in the order of their first appearance."""
    found: dict = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def natural(text: str) -> tuple:
    """A sorting key that has 'b8' before 'b15'."""
    return tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", text))
