"""What the controller does for the module deployment_files: the exact text of every file."""

from ansible.plugins.action import ActionBase

from gauntlet import engines
from gauntlet.errors import GauntletError


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        options = dict(self._task.args)
        try:
            options["texts"] = texts(options)
        except GauntletError as error:
            return {"failed": True, "msg": str(error)}
        return self._execute_module("deployment_files", module_args=options, task_vars=task_vars)


def texts(options: dict) -> dict[str, str]:
    """{deployment: exact text of its env file}"""
    found = {}
    for deployment in options["deployments"]:
        paths = engines.locate(
            deployment, options.get("models") or engines.MODELS, options.get("engines") or engines.ENGINES
        )
        found[deployment["name"]] = engines.env_file(deployment, paths, int(options["port"]))
    return found
