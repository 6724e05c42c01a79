"""Hosts of equal hardware share a campaign by comparison group; unequal ones each measure all of it."""

from collections import defaultdict
from collections.abc import Iterable

from gauntlet.identity import digest

Group = tuple[str, int]  # model, tp


def split(
    hosts: dict[str, dict], costs: dict[str, dict[Group, float]], attempts: Iterable[dict]
) -> dict[str, set[Group]]:
    """Which groups each host measures, a function of its arguments alone.

    costs: host -> the groups it could measure with what they cost by declaration (not by results, which grow while the
    campaign runs). Equal are hosts with equal conditions, builds and groups. Among equals the dearest group goes to the
    host with the least so far; a group with attempts stays where most of them are.
    """
    attempts = list(attempts)
    shares: dict[str, set[Group]] = {host: set() for host in hosts}
    for equals in _classes(hosts, costs):
        load = dict.fromkeys(equals, 0.0)
        home = {}
        groups = costs[equals[0]]
        for group in sorted(groups, key=lambda group: (-groups[group], group)):
            home[group] = min(equals, key=lambda host: (load[host], host))
            load[home[group]] += groups[group]
        for group, host in (home | _begun(equals, groups, attempts)).items():
            shares[host].add(group)
    return shares


def _classes(hosts: dict[str, dict], costs: dict[str, dict[Group, float]]) -> list[list[str]]:
    classes: dict[str, list[str]] = defaultdict(list)
    for name, host in sorted(hosts.items()):
        alike = {key: value for key, value in host.items() if key != "store"}
        observed = alike if host.get("conditions") else {**alike, "name": name}  # nothing known is equal to nothing
        classes[digest([observed, sorted(map(list, costs[name]))])].append(name)
    return list(classes.values())


def _begun(equals: list[str], groups: dict[Group, float], attempts: list[dict]) -> dict[Group, str]:
    counts: dict[Group, dict[str, int]] = defaultdict(lambda: dict.fromkeys(equals, 0))
    for attempt in attempts:
        group = attempt["model"], attempt["tp"]
        if attempt["valid"] and attempt["host"] in equals and group in groups:
            counts[group][attempt["host"]] += 1
    return {group: max(equals, key=lambda host: count[host]) for group, count in counts.items()}
