"""Cells of deployments, each with its identity. A large plan has many cells of few deployments and fewer workloads, so
what they share is made, and hashed, once."""

import hashlib

from gauntlet.catalog import Catalog
from gauntlet.identity import canonical, joined
from gauntlet.plan import workload
from gauntlet.plan.deployments import Candidate


class Cells:
    """Makes {"id", "spec_id", "deployment", "workload", "concurrency", "requests"}."""

    def __init__(self, catalog: Catalog, campaign: dict):
        self._catalog = catalog
        self._client = canonical(campaign["client"])
        self._contents: dict[str, dict] = {}
        self._parts: dict[tuple[str, int], tuple[int, dict[str, bytes]]] = {}
        self._made: dict[str, list[dict]] = {}

    def content(self, name: str) -> dict:
        """A workload's content, read once."""
        if name not in self._contents:
            self._contents[name] = workload.content(self._catalog.get("workloads", name))
        return self._contents[name]

    def of(self, candidate: Candidate) -> list[dict]:
        """The cells of a deployment."""
        deployment = candidate.deployment
        if deployment["name"] not in self._made:
            shared = {key: canonical(value) for key, value in deployment["specification"].items()}
            self._made[deployment["name"]] = [self._cell(deployment, shared, *pair) for pair in candidate.pairs]
        return self._made[deployment["name"]]

    def _cell(self, deployment: dict, shared: dict[str, bytes], name: str, concurrency: int) -> dict:
        requests, parts = self._workload(name, concurrency)
        identity = hashlib.sha256(joined(shared | parts)).hexdigest()
        slug = f"{deployment['model']}.{deployment['method']}.tp{deployment['tp']}.{name}.c{concurrency}"
        return {
            "id": f"{slug}-{identity[:8]}",
            "spec_id": identity,
            "deployment": deployment["name"],
            "workload": name,
            "concurrency": concurrency,
            "requests": requests,
        }

    def _workload(self, name: str, concurrency: int) -> tuple[int, dict[str, bytes]]:
        """(requests, the canonical parts of a specification that are not the deployment's)."""
        key = name, concurrency
        if key not in self._parts:
            content, entry = self.content(name), self._catalog.workloads[name]
            requests = workload.requests(entry, len(content["prompts"]), concurrency)
            self._parts[key] = (
                requests,
                {
                    "workload": canonical({**workload.specification(content), "requests": requests}),
                    "sampling": canonical(content["sampling"]),
                    "concurrency": canonical(concurrency),
                    "client": self._client,
                },
            )
        return self._parts[key]
