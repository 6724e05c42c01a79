"""Hosts of equal hardware share a campaign by comparison group; unequal ones each measure all of it."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from gauntlet.identity import conditions_id, digest

Group = tuple[str, int]  # model, tp


def split(
    hosts: dict[str, dict], costs: dict[str, dict[Group, float]], attempts: Iterable[dict], lost: Collection[str] = ()
) -> dict[str, set[Group]]:
    """Which groups each host measures, and those that a `lost` one has begun; a function of its arguments alone.

    costs: host -> the groups it could measure with what they cost by declaration (not by results, which grow while the
    campaign runs). Equal are hosts with equal conditions, builds and groups. Among equals the dearest group goes to the
    host with the least so far; a group with attempts stays where most of them are, also when that host cannot be
    reached today: measured elsewhere, all of it would be measured again.
    """
    attempts = list(attempts)
    shares: dict[str, set[Group]] = {host: set() for host in (*hosts, *lost)}
    for equals in _classes(hosts, costs):
        load = dict.fromkeys(equals, 0.0)
        home = {}
        groups = costs[equals[0]]
        for group in sorted(groups, key=lambda group: (-groups[group], group)):
            home[group] = min(equals, key=lambda host: (load[host], host))
            load[home[group]] += groups[group]
        today = conditions_id(hosts[equals[0]].get("conditions") or {})
        theirs = [a for a in attempts if a["host"] in equals or (a["host"] in lost and a["conditions_id"] == today)]
        for group, host in (home | _begun(groups, theirs)).items():
            shares[host].add(group)
    return shares


def _classes(hosts: dict[str, dict], costs: dict[str, dict[Group, float]]) -> list[list[str]]:
    classes: dict[str, list[str]] = defaultdict(list)
    for name, host in sorted(hosts.items()):
        alike = {key: value for key, value in host.items() if key != "store"}
        observed = alike if host.get("conditions") else {**alike, "name": name}  # nothing known is equal to nothing
        classes[digest([observed, sorted(map(list, costs[name]))])].append(name)
    return list(classes.values())


def _begun(groups: dict[Group, float], attempts: list[dict]) -> dict[Group, str]:
    counts: dict[Group, Counter] = defaultdict(Counter)
    for attempt in attempts:
        group = attempt["model"], attempt["tp"]
        if attempt["valid"] and group in groups:
            counts[group][attempt["host"]] += 1
    return {group: max(sorted(count), key=count.__getitem__) for group, count in counts.items()}
