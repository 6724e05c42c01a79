"""What the controller does for the module model_snapshot: push what only it can fetch, show how it goes."""

import json
import uuid

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from gauntlet.errors import GauntletError
from gauntlet.weights import staging, wheel
from gauntlet.weights.progress import sentence

NAME = "model_snapshot"
TIME_LIMIT_S = 24 * 3600
PAUSE_S = 2  # between two looks at a module that is at work
# The host itself waits: a job's file says that it was started until its end, when the result takes its place.
UNTIL_IT_ENDS = "n={tenths}; while [ $n -gt 0 ] && grep -qs '\"started\"' {file}; do n=$((n - 1)); sleep 0.1; done"
JOB = (
    "ansible_job_id",
    "started",
    "finished",
    "results_file",
    "stdout",
    "stdout_lines",
    "stderr",
    "stderr_lines",
    "erased",
)

display = Display()


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        python = self._templar.template((task_vars or {}).get("ansible_python_interpreter", ""))
        if not self._there(python):
            if not self._task.check_mode:
                return {"failed": True, "msg": f"there is no agent on this host ({python}): run site.yml"}
            return _predicted(arguments)
        result = self._module(arguments, task_vars)
        if self._task.check_mode and result.get("agent") is False:  # damaged, or of an older Gauntlet: made anew first
            return _predicted(arguments)
        waiting = [report for report in result.get("snapshots", []) if report["state"] == "push"]
        if waiting and not result.get("failed"):
            try:
                pushed = self._push(arguments, {report["id"] for report in waiting}, result)
            except GauntletError as error:
                return {"failed": True, "msg": str(error)}
            said = {report["id"]: report["why"] for report in waiting}
            result = self._module({**arguments, "pushed": pushed}, task_vars)
            for report in result.get("snapshots", []):
                if report["id"] in said:
                    report["why"] = [*said[report["id"]], *report["why"]]
        for line in staging.sentences(result):
            display.display(line)
        return result

    def _there(self, python):
        return not python.startswith("/") or self._shell(f"test -x {python}")["rc"] == 0

    def _push(self, arguments, ids, result):
        """Lays files into the store's staging folder on the host -> {id: {name: {"size", "sha256"}}}."""
        pushed = {}
        for weights in arguments["weights"]:
            if weights["id"] in ids:
                path, entry = wheel.member(weights)
                display.display(f"{weights['id']}: pushing {path.name} from the controller")
                folder = self._connection._shell.join_path(result["store"], ".staging-" + weights["id"])
                self._transfer(path, folder, weights["entry"])
                pushed[weights["id"]] = {weights["entry"]: entry}
        return pushed

    def _transfer(self, path, folder, name):
        scratch = self._make_tmp_path()
        carried = self._connection._shell.join_path(scratch, "weights")
        self._transfer_file(str(path), carried)
        moved = self._shell(
            f"mkdir -p {folder} && cp {carried} {folder}/{name}.part && mv {folder}/{name}.part {folder}/{name}"
        )
        self._remove_tmp_path(scratch)
        if moved["rc"]:
            raise GauntletError(f"{name} could not be laid into {folder}: {moved['stderr'].strip()}")

    def _module(self, arguments, task_vars):
        if self._task.check_mode or arguments.get("state") == "absent":
            return self._execute_module(NAME, module_args=arguments, task_vars=task_vars)
        progress = Watched(f"/tmp/.gauntlet-staging-{uuid.uuid4().hex}", self._shell)
        self._task.async_val = TIME_LIMIT_S
        try:
            job = self._execute_module(
                NAME, module_args={**arguments, "progress": progress.path}, task_vars=task_vars, wrap_async=True
            )
        finally:
            self._task.async_val = 0
        if "ansible_job_id" not in job:
            return job
        result = self._wait(job, progress, task_vars)
        self._shell(f"rm -f {progress.path} {job['results_file']}")
        return {key: value for key, value in result.items() if key not in JOB}

    def _wait(self, job, progress, task_vars):
        """Ctrl-C ends this loop and not the staging: it goes on, and a second run waits for its lock."""
        while True:
            self._shell(UNTIL_IT_ENDS.format(tenths=10 * PAUSE_S, file=job["results_file"]))
            state = self._status(job["ansible_job_id"], task_vars)
            if state.get("finished") or state.get("failed") or state.get("unreachable"):
                return state
            for line in progress.news():
                display.display(line)

    def _status(self, job, task_vars):
        folder = self._remote_expand_user(self.get_shell_option("async_dir", default="~/.ansible_async"))
        return self._execute_module(
            "ansible.legacy.async_status", module_args={"jid": job, "_async_dir": folder}, task_vars=task_vars
        )

    def _shell(self, command):
        return self._low_level_execute_command(command)


class Watched:
    """The progress file of a module on the host, read from where the last look ended."""

    def __init__(self, path, shell):
        self.path, self._shell, self._seen = path, shell, 0

    def news(self):
        text = self._shell(f"tail -c +{self._seen + 1} {self.path} 2>/dev/null")["stdout"].replace(
            "\r\n", "\n"
        )  # a terminal's line ends are not in the file
        whole = text[: text.rfind("\n") + 1]
        self._seen += len(whole.encode())
        return [sentence(json.loads(line)) for line in whole.splitlines()]


def _predicted(arguments):
    """Check mode on a host that has no agent yet, or must have it made anew: everything is still to come."""
    reports = [
        staging.report(
            weights, "would_stage", why=["memory: the agent is not installed yet"], bytes=weights["size_bytes"] or 0
        )
        for weights in arguments["weights"]
    ]
    return {
        "changed": bool(reports),
        "snapshots": reports,
        "evictable": {},
        "evicted": {},
        "said": "nothing was copied",
    }
