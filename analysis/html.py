"""report.html: one file that needs no network."""

import base64
import json
from pathlib import Path

import jinja2

from analysis import statistics
from analysis.cell import DEPLOYMENT, Cell
from analysis.figures import Figure
from analysis.findings import Findings, drift_sentence
from analysis.statistics import Estimate
from analysis.study import SYNTHETIC, Study
from analysis.tables import Table
from analysis.wording import listed, plural

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
NARROW_PT = 490  # wider figures have a row of their own
KINDS = {
    "drift": "drift", "tree": "tree", "output": "output", "fastest": "faster", "slower": "slower",
    "break-even": "break-even", "budget": "budget", "context": "context",
}  # fmt: skip


def render(findings: Findings, figures: list[Figure], drawn: dict[str, tuple[str, bytes]], tables: list[Table]) -> str:
    """The page; every name in it is escaped, every image is inside it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    study = findings.study
    return environment.get_template("report.html.j2").render(
        study=study,
        synthetic=SYNTHETIC in study.simulated,
        summary=summary(study),
        warnings=warnings(findings),
        findings=findings.all(),
        claims=len(findings.claims),
        kinds=KINDS,
        figures=figures,
        wide={name for name, (svg, _) in drawn.items() if _width_pt(svg) > NARROW_PT},
        images={name: base64.b64encode(svg.encode()).decode() for name, (svg, _) in drawn.items()},
        tables=tables,
        workloads=list(dict.fromkeys(cell.workload for cell in study.cells)),
        tps=sorted({cell.tp for cell in study.cells}),
        details=_script(details(study)),
        statistics=statistics,
        numeric=lambda table, column: any(isinstance(row[column.key], int | float | Estimate) for row in table.rows),
    )


def _width_pt(svg: str) -> float:
    return float(svg.split('width="', 1)[1].split("pt", 1)[0])


def summary(study: Study) -> dict:
    """What was measured, in a line each."""
    attempts = [document for cell in study.cells for document in cell.attempts["document"]]
    days = sorted(document["started_utc"][:10] for document in attempts)
    return {
        "hosts": listed(dict.fromkeys(cell.host for cell in study.cells)),
        "models": listed(dict.fromkeys(cell.model for cell in study.cells)),
        "campaigns": listed(sorted({document["campaign"] for document in attempts})),
        "days": days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}",
        "counts": (
            (sum(cell.valid for cell in study.cells), "cells"),
            (sum(document["validity"]["valid"] for document in attempts), "valid attempts"),
            (sum(cell.requests for cell in study.cells), "requests"),
            (sum(not document["validity"]["valid"] for document in attempts), "attempts not quoted"),
        ),
    }


def warnings(findings: Findings) -> list[str]:
    """What a reader must know before any number, the worst first."""
    study = findings.study
    found = [drift_sentence(drift) for drift in study.drifts if findings.claims.holds("drift", *drift.series)]
    found += [f"{name}: {'; '.join(doubts)}" for name, doubts in study.doubts.items()]
    found += [f"{name}: {'; '.join(remarks)}" for name, remarks in study.remarks.items()]
    alone = study.without_baseline
    missing = sorted({f"{cell.method} on {cell.host} (TP{cell.tp}, {cell.workload})" for cell in alone})
    if missing:
        methods = ",".join(sorted({cell.method for cell in alone}))
        found.append(
            f"no baseline for {listed(missing)}: no speed-up is given; ansible-playbook bench.yml -e method={methods} "
            "measures it"
        )
    few = sorted({comparison.method.method for comparison in study.comparisons if comparison.speedup.reason})
    if few:
        found.append(
            f"fewer than {statistics.MIN_STARTS} repeats of {listed(few)} or its baseline: no interval, no finding"
        )
    if study.problems:
        found.append(f"{plural(len(study.problems), 'file')} in the results could not be read; the last table says why")
    return found


def details(study: Study) -> dict:
    """Where every number leads: cells with their attempts, deployments and conditions, each once."""
    return {
        "cells": {cell.name: _cell(cell) for cell in study.cells},
        "deployments": {cell.document["deployment_spec_id"]: cell.declared for cell in study.cells},
        "conditions": {cell.conditions_id: cell.document["conditions"] for cell in study.cells},
    }


def _cell(cell: Cell) -> dict:
    return {
        "cell": cell.cell_id, "host": cell.host, "spec_id": cell.spec_id, "conditions_id": cell.conditions_id,
        "deployment_spec_id": cell.document["deployment_spec_id"], "server": cell.document.get("server"),
        "notes": cell.notes, "simulated": cell.document["simulated"],
        "specification": {key: value for key, value in cell.specification.items() if key not in DEPLOYMENT},
        "attempts": [
            {
                "attempt": document["attempt"], "started": document["started_utc"],
                "start": (document.get("invocation") or {}).get("id"), "valid": document["validity"]["valid"],
                "reasons": [f"{r.get('code')}: {r.get('detail')}" for r in document["validity"].get("reasons", [])],
                "requests": document["summary"].get("requests"),
                "tokens_per_s": document["summary"].get("tokens_per_s"), "observed": document.get("observed"),
            }
            for document in cell.attempts["document"]
        ],
    }  # fmt: skip


def _script(value: object) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
