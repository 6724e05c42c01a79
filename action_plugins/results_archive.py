"""The controller's part of `results_archive`: fetch the archive, verify it, move the attempts in, then let them go."""

from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from gauntlet import archive
from gauntlet.errors import GauntletError


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        home = Path(self._task.args.get("home") or "")
        listed = self._step("list", task_vars)
        if self._task.check_mode or not listed["attempts"]:
            return listed | {"changed": bool(listed["attempts"])}
        packed = self._step("pack", task_vars)
        remote = self._task.args.get("archive", "/var/lib/gauntlet/jobs/results.tar")
        try:
            with archive.incoming(home) as folder:
                local = folder / "results.tar"
                self._connection.fetch_file(remote, str(local))
                manifest = archive.unpack(local, home)
        except GauntletError as error:
            raise AnsibleActionFail(f"{error}; the attempts are still on the host") from error
        except OSError as error:
            raise AnsibleActionFail(
                f"the results folder {home} cannot be written ({error.strerror}); the attempts are still on the host"
            ) from error
        if manifest != packed["manifest"]:
            raise AnsibleActionFail("the archive changed on its way home; the attempts are still on the host")
        self._step("forget", task_vars, manifest=manifest)
        return {"changed": True, "attempts": sorted(manifest), "manifest": manifest}

    def _step(self, step, task_vars, **more):
        result = self._execute_module(
            module_name="results_archive", module_args=self._task.args | {"step": step} | more, task_vars=task_vars
        )
        if result.get("failed"):
            raise AnsibleActionFail(result.get("msg", "results_archive failed"), result=result)
        return result
