"""perf/RESULTS.md: a section a benchmark, each replaced as a whole by its latest run."""

import re
from datetime import UTC, datetime
from pathlib import Path

FILE = Path(__file__).parent / "RESULTS.md"
HEAD = "# Latest runs\n\nRatios compare within a run; absolute figures are the machine's.\n"


def write(section: str, text: str) -> None:
    """Put `text` under the heading `section`, with today's date."""
    whole = FILE.read_text() if FILE.exists() else HEAD
    new = f"## {section}\n\n{datetime.now(UTC):%Y-%m-%d}. {text.strip()}\n"
    found = re.search(rf"^## {re.escape(section)}\n.*?(?=^## |\Z)", whole, re.M | re.S)
    parts = (whole[: found.start()], whole[found.end() :]) if found else (whole.rstrip() + "\n\n", "")
    FILE.write_text("".join([parts[0], new, "\n" if parts[1] else "", parts[1]]))
