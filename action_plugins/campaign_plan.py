"""The controller's part of `campaign_plan`: a name on the command line that is nearly a selector's goes to the plan,
which refuses it. Unseen, `-e metod=eagle3` would measure the whole campaign."""

import difflib

from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

from gauntlet.plan.selection import KEYS

NEAR = 0.75  # `models`, `metod`, `worklaod`; not `mode_x` or a variable of a role


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        arguments["selection"] = {**arguments["selection"], **mistyped(load_extra_vars(self._loader))}
        return self._execute_module(module_args=arguments, task_vars=task_vars)


def mistyped(given: dict) -> dict:
    """Of variables by name, those whose names only look like a selector's."""
    return {
        name: value
        for name, value in given.items()
        if name not in KEYS and difflib.get_close_matches(name, KEYS, cutoff=NEAR)
    }
