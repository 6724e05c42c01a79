"""What the controller does for the module restage_assessment: count what is at home, show the table."""

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from gauntlet import restage

NAME = "restage_assessment"


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        if home := arguments.get("home"):
            arguments["attempts_at_home"] = restage.attempts(home)
        python = self._templar.template((task_vars or {}).get("ansible_python_interpreter", ""))
        if python.startswith("/") and self._low_level_execute_command(f"test -x {python}")["rc"]:
            return {"failed": True, "msg": f"nothing of Gauntlet is left on this host (no {python}): run site.yml"}
        result = self._execute_module(NAME, module_args=arguments, task_vars=task_vars)
        if "rows" in result:
            host = (task_vars or {}).get("inventory_hostname", "")
            Display().display(f"{host}\n{restage.table(result['rows'])}")
        return result
