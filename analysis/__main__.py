"""`python -m analysis`: tables, report, compare, explain. Exit status: 0 all well, 1 a difference, 2 bad input."""

import argparse
import json
import os
import sys
from pathlib import Path

from analysis import compare, read, study, terminal
from analysis.findings import Findings
from gauntlet.errors import GauntletError
from gauntlet.names import as_list, unknown


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except GauntletError as error:
        print(f"analysis: {error}", file=sys.stderr)
        return 2


def _table(options: argparse.Namespace) -> int:
    print(terminal.closing(Findings(study.make(read(*options.results), options.synthetic))))
    return 0


def _report(options: argparse.Namespace) -> int:
    from analysis import report  # matplotlib is slow to import and a table does not need it

    formats = tuple(as_list(options.format))
    for name in formats:
        if name not in report.FORMATS:
            raise unknown("format", name, report.FORMATS)
    plan = _plan(options.plan) if options.plan else None
    for line in report.write(
        study.make(read(*options.results), options.synthetic), Path(options.output), formats, plan
    ):
        print(line)
    return 0


def _compare(options: argparse.Namespace) -> int:
    threshold = compare.percent(options.threshold)
    a, b = (compare.side(text, options.results, options.synthetic) for text in (options.a, options.b))
    found = compare.changes(a, b)
    print(compare.table(found, threshold))
    return compare.status(found, threshold)


def _explain(options: argparse.Namespace) -> int:
    found = compare.explain(read(options.results), options.a, options.b)
    for path, one, other in found:
        print("\n".join(terminal.wrapped(f"{path}: {one} → {other}")))
    if not found:
        print("nothing differs: the same specification under the same conditions")
    return int(bool(found))


def _plan(path: str) -> dict:
    try:
        return json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise GauntletError(f"the plan {path} cannot be read: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m analysis", description="Numbers with intervals from results trees."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    table = commands.add_parser("table", help="the closing table, for a terminal")
    report = commands.add_parser("report", help="report.html and what goes with it")
    for command, run in ((table, _table), (report, _report)):
        command.add_argument("results", nargs="+", metavar="RESULTS", help="results folder (host/cell/attempt)")
        command.add_argument("--synthetic", action="store_true", help="accept synthetic results, watermarked")
        command.set_defaults(run=run)
    report.add_argument("--output", default="build/report", metavar="DIR", help="where it goes (default: build/report)")
    report.add_argument("--format", default="html,tex,pdf", metavar="LIST", help="of html, tex, pdf (default: all)")
    report.add_argument("--plan", metavar="FILE", help="a campaign's plan: shows what was not run and why")
    compares = commands.add_parser("compare", help="which cells moved beyond noise between two sets of results")
    explains = commands.add_parser("explain", help="what two cells differ in")
    compares.add_argument(
        "--threshold", default="0", metavar="PERCENT", help="smaller changes do not count (default: 0)"
    )
    compares.add_argument("--synthetic", action="store_true", help="accept synthetic results")
    what = "a results folder, or part of --results such as host=lab1,engine_build=X"
    for command, run, meaning in ((compares, _compare, what), (explains, _explain, "a cell's id, or its beginning")):
        command.add_argument("a", metavar="A", help=meaning)
        command.add_argument("b", metavar="B", help=meaning)
        command.add_argument("--results", default="results", metavar="DIR", help="results folder (default: ./results)")
        command.set_defaults(run=run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
