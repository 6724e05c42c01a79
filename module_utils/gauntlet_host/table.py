"""A verification as a table for the terminal."""

from __future__ import annotations

from collections import Counter

HEADER = ("setting", "wanted", "found", "kept by", "")


def render(report: list[dict]) -> str:
    """One line a setting that is wanted; equal values of many targets are counted, and what differs says what to do."""
    rows, advice = [HEADER], []
    for entry in report:
        if entry["verdict"] == "off":
            continue
        items = entry["items"]
        rows.append(
            (
                entry["setting"],
                _counted(item["wanted"] for item in items),
                _counted(_found(item) for item in items),
                _counted(item["kept"] for item in items if item["kept"]),
                entry["verdict"],
            )
        )
        how = list(dict.fromkeys(item["how"] for item in items if item["how"]))
        if how:
            more = f"  (and {len(how) - 1} more like it)" if len(how) > 1 else ""
            advice.append(f"{entry['setting']}: {how[0]}{more}")
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join(lines + ([""] + advice if advice else []))


def _counted(values) -> str:
    counts = Counter(values)
    if not counts:
        return "-"
    if len(counts) == 1:
        ((value, count),) = counts.items()
        return str(value) if count == 1 else f"{value} (all {count})"
    return ", ".join(f"{value} ({count})" for value, count in counts.most_common())


def _found(item: dict) -> str:
    if item["found"] is None:
        return f"({item['why']})"
    return item["found"] or "(nothing)"
