"""The controller's part of host_settings: catalog and inventory become settings, the report a table or JSON."""

import json

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from gauntlet import access, catalog, settings
from gauntlet.errors import GauntletError
from gauntlet.names import as_list

display = Display()
GROUPS = {"hypervisors", "inference"}


class ActionModule(ActionBase):
    """Own arguments beside the module's: `choices` (of the inventory), `catalog` (folders), `show` (table, json).

    With `show`, the report is for people: the result keeps only what a playbook decides by, and faults fail the task.
    """

    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        asked = dict(self._task.args)
        choices, folders = asked.pop("choices", None), as_list(asked.pop("catalog", None))
        show = asked.pop("show", None)
        if show not in (None, "table", "json"):
            raise AnsibleActionFail(f"format is '{show}'; it takes table or json")
        if folders:
            try:
                asked["settings"] = settings.choose(catalog.load(folders).settings, choices)
            except GauntletError as error:
                raise AnsibleActionFail(str(error)) from error
        asked["groups"] = sorted(GROUPS & set(asked.get("groups") or []))
        try:
            result.update(self._execute_module("host_settings", module_args=asked, task_vars=task_vars))
        except AnsibleError as error:
            if cause := access.explain(str(error)):
                raise AnsibleActionFail(cause) from error
            raise
        if result.get("failed"):
            said = " ".join(str(result.get(key, "")) for key in ("msg", "module_stderr", "module_stdout"))
            result["msg"] = access.explain(said) or result.get("msg")
            return result
        return self._shown(show, task_vars["inventory_hostname"], result) if show else result

    def _shown(self, show, name, result):
        if show == "json":
            keys = ("profile", "faults", "simulated", "restrictions", "report")
            display.display(json.dumps({"host": name, **{key: result[key] for key in keys}}))
        else:
            simulated = f"; simulated: {', '.join(result['simulated'])}" if result["simulated"] else ""
            lines = [f"\n{name}: tuning profile {result['profile']}{simulated}", *result["restrictions"]]
            display.display("\n".join([*lines, "", result["table"], ""]))
        if not result["faults"]:
            return {"changed": False, "profile": result["profile"]}
        return {"changed": False, "failed": True, "msg": "\n".join(["not as wanted:", *result["faults"]])}
