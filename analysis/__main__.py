"""`python -m analysis`: tables, report, compare, explain. Exit status: 0 all well, 1 a difference, 2 bad input."""

import argparse
import json
import sys
from pathlib import Path

from analysis import read, study, terminal
from gauntlet.errors import GauntletError
from gauntlet.names import as_list, unknown


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except GauntletError as error:
        print(f"analysis: {error}", file=sys.stderr)
        return 2


def _table(options: argparse.Namespace) -> int:
    print(terminal.closing(study.make(read(*options.results), options.synthetic)))
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
    report.add_argument("--output", default="report", metavar="DIR", help="where the report goes (default: ./report)")
    report.add_argument("--format", default="html,tex,pdf", metavar="LIST", help="of html, tex, pdf (default: all)")
    report.add_argument("--plan", metavar="FILE", help="a campaign's plan: shows what was not run and why")
    return parser


if __name__ == "__main__":
    sys.exit(main())
