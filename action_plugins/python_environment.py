"""What the controller does for the module python_environment: gather the wheels, carry them over."""

import tempfile
from pathlib import Path

from ansible.plugins.action import ActionBase

from gauntlet import wheelhouse
from gauntlet.errors import GauntletError


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        found = self._module(arguments, task_vars)
        if found.get("failed"):
            return found
        try:
            with tempfile.TemporaryDirectory() as scratch:
                return self._converge(arguments, found, Path(scratch), task_vars)
        except GauntletError as error:
            return {"failed": True, "msg": str(error)}

    def _converge(self, arguments, found, scratch, task_vars):
        target, locked, local = found["target"], [], {}
        for name in arguments.get("locks") or []:
            path = Path(name)
            if not path.is_file():
                raise GauntletError(f"there is no lock {path} on the controller")
            lines = wheelhouse.pins(path.read_text(), target, str(name))
            locked += [line for line in lines if line not in locked]
        for name in arguments.get("wheels") or []:
            local.update([wheelhouse.pin_of(Path(name))])
        if source := arguments.get("git"):
            local.update([wheelhouse.pin_of(wheelhouse.git_wheel(source))])
        if arguments.get("own"):
            wheel, pin = wheelhouse.own_wheel(scratch)
            local[wheel] = pin
        pins = [*locked, *local.values()]
        beside = arguments.get("beside")
        key = wheelhouse.key([*pins, f"beside {beside}"] if beside else pins, target)
        problems = found["problems"] if found["key"] in (None, key) else [f"{arguments['path']} has other packages"]
        result = {"key": key, "target": target, "problems": problems, "changed": bool(problems)}
        if not problems or self._task.check_mode:
            return result
        # pip itself always comes from the controller: it installs the rest
        carried = locked if arguments.get("source", "controller") == "controller" else wheelhouse.only(locked, "pip")
        wheels = [*wheelhouse.download(carried, target).iterdir(), *local]
        remote = self._connection._shell.join_path(self._make_tmp_path(), "wheelhouse.tar")
        self._transfer_file(str(wheelhouse.pack(wheels, scratch / "wheelhouse.tar")), remote)
        installed = self._module({**arguments, "requirements": pins, "key": key, "wheelhouse": remote}, task_vars)
        self._remove_tmp_path(self._connection._shell.tmpdir)
        return installed if installed.get("failed") else {**result, **installed, "problems": problems}

    def _module(self, arguments, task_vars):
        return self._execute_module("python_environment", module_args=arguments, task_vars=task_vars, wrap_async=False)
