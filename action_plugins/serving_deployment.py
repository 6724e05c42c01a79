"""What the controller does for the module serving_deployment: ask again until the deadline, and show progress.

It also reads the catalog's diagnoses, which a host does not have.
"""

import time

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from gauntlet import catalog
from gauntlet.errors import GauntletError

display = Display()


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        options = dict(self._task.args)
        try:
            if folders := options.get("catalog"):
                options["diagnoses"] = {**catalog.load(folders).diagnoses, **(options.get("diagnoses") or {})}
        except GauntletError as error:
            return {"failed": True, "msg": str(error)}
        began = time.monotonic()
        result = self._execute_module("serving_deployment", module_args=options, task_vars=task_vars)
        changed = result.get("changed", False)
        waiting = options.get("state", "ready") == "ready" and not self._task.check_mode
        while waiting and not result.get("failed") and not result["ready"]:
            spent = time.monotonic() - began
            name = f"{task_vars['inventory_hostname']}: {options['deployment']['name']}"
            if spent > float(options.get("timeout", 1800)):
                return {
                    **result, "failed": True, "changed": changed,
                    "msg": f"{name} does not answer after {spent:.0f} s; it is {result['phase']}, and the journal has "
                    f"said nothing for {result['silent_s']:.0f} s; asked for a completion: {result['reason']}",
                }  # fmt: skip
            display.display(f"{name}: {result['phase']} ({spent:.0f} s)")
            options["begin"] = False
            result = self._execute_module("serving_deployment", module_args=options, task_vars=task_vars)
        for sentence in (result.get("memory") or {}).get("differs", []):
            display.display(f"{options['deployment']['name']}: memory is not as predicted: {sentence}")
        return {**result, "changed": changed or result.get("changed", False)}
