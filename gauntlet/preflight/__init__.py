"""What would fail or mislead after minutes of loading, said before a server starts.

`findings` joins SGLang's own validation (roles/serving/files/sglang_check.py) with rules where SGLang has a bare assert
or says nothing (drafting.py, model.py). Each finding:
    {'deployment': name, 'level': 'error' | 'warning', 'what', 'why', 'change'}
"""

import re
from collections.abc import Iterator

from gauntlet.engines import sglang
from gauntlet.preflight import drafting, model
from gauntlet.preflight.case import Case, error


def findings(deployment: dict, configs: dict, build: dict | None = None) -> list[dict]:
    """All findings of one deployment, errors first.

    configs: {'model': config.json, 'drafter': config.json or absent}. build: the answer of sglang_check.py, or None
    where it was not run. Of SGLang's refusal and a rule's error the rule's is shown, for it says what to change.
    """
    case = Case(deployment, configs, build)
    found = [{"deployment": case.name, **one} for rule in RULES for one in rule(case)]
    if not any(one["level"] == "error" for one in found):
        found += [{"deployment": case.name, **one} for one in sglangs_own(case)]
    return sorted(found, key=lambda one: one["level"])


def sentence(finding: dict) -> str:
    return f"{finding['deployment']}: {finding['what']}: {finding['why']}; {finding['change']}"


def unknown_flags(case: Case) -> Iterator[dict]:
    known = set(case.build.get("flags") or ())
    for flag in case.arguments:
        if known and flag not in known:
            yield error(
                f"--{flag}", f"SGLang {case.build.get('version')} does not know it",
                sglang.advice(flag, known) or "remove it, or choose a build that has it",
            )  # fmt: skip


def unknown_algorithm(case: Case) -> Iterator[dict]:
    known = set(case.build.get("algorithms") or ())
    algorithm = case.spec["algorithm"]
    if algorithm and known and algorithm not in known | {"NEXTN"}:
        yield error(
            f"--speculative-algorithm {algorithm}", f"this build knows {', '.join(sorted(known))}",
            "choose a build that has it (DDTree is in no release: a git build of the change that brings it)",
        )  # fmt: skip


def sglangs_own(case: Case) -> Iterator[dict]:
    """SGLang's own refusal, when no rule said it in better words."""
    if not case.answer or case.answer["ok"]:
        return
    refused = case.answer["error"]
    kind, message = refused["kind"], refused["message"] or refused.get("code") or "without a message"
    if kind == "usage" and (flags := re.findall(r"--([\w-]+)", message)):
        known = set(case.build.get("flags") or ())
        change = "; ".join(filter(None, (sglang.advice(flag, known) for flag in flags))) or "correct the argument"
    else:
        change = "change what it names"
    where = f" ({refused['where']})" if refused.get("where") else ""
    yield error(
        f"SGLang {case.build.get('version')} refuses it",
        f"{'' if kind == 'usage' else kind + ': '}{message}{where}",
        change,
    )


RULES = (unknown_flags, unknown_algorithm, *drafting.RULES, *model.RULES)
