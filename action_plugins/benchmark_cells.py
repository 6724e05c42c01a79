"""The controller's part of `benchmark_cells`: make the job from the plan, follow the client, show its progress."""

from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from gauntlet import engines, identity, job, progress
from gauntlet import plan as plans
from gauntlet.errors import GauntletError

WAIT_S = 10
display = Display()


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        host = task_vars["inventory_hostname"]
        options = dict(self._task.args)
        state = options.get("state", "started")
        if state == "started":
            try:
                options["job"] = self._job(host, dict(options.get("job") or {}))
            except GauntletError as error:
                return {"failed": True, "msg": str(error)}
        first = options if state == "started" else options | {"state": "status"}
        result = self._execute_module("benchmark_cells", module_args=first, task_vars=task_vars)
        if result.get("failed") or self._task.check_mode or state in ("status", "stopped"):
            return result
        if state == "attached" and not result["running"]:
            return result | {"lines": [], "deployment": None}
        if result.get("attached") or state == "attached":
            display.display(f"{host}: a measurement still runs: attached to it")
        told = progress.Teller(host)
        lines = result.get("lines", [])
        while True:
            for line in told.sentences(lines):
                display.display(line)
            if result["finished"]:
                break
            status = options | {"state": "status", "job": None, "offset": result["offset"], "wait": WAIT_S}
            result = self._execute_module("benchmark_cells", module_args=status, task_vars=task_vars)
            if result.get("failed"):
                return result
            lines = result["lines"]
        # the ended unit was kept only for its exit status
        gone = options | {"state": "stopped", "job": None, "job_id": result["job_id"]}
        self._execute_module("benchmark_cells", module_args=gone, task_vars=task_vars)
        return result | {
            "changed": bool(result["attempts"]),
            "lines": [],
            "failed": bool(result["exit"]) and state == "started",
            "msg": told.failure(result["exit"]),
        }

    def _job(self, host, asked):
        given = {key: asked.pop(key) for key in list(asked) if key not in ("plan", "deployment", "repeat", "closing")}
        given["conditions_id"] = identity.conditions_id(given.get("conditions") or {})
        plan, deployment = plans.load(Path(asked["plan"])), asked["deployment"]
        dialect = engines.get(plan["deployments"][deployment]["engine"]).DIALECT
        given["endpoint"] = {"dialect": dialect, **given["endpoint"]}
        return job.make(plan, host, deployment, asked["repeat"], asked.get("closing", False), **given)
