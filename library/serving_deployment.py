#!/usr/bin/python
"""Module: a deployment that serves, or does not."""

DOCUMENTATION = r"""
module: serving_deployment
short_description: Bring a deployment up until it answers, or take it down until nothing is left
description:
  - V(ready) starts the unit of a deployment and waits until a real completion came back; progress is shown while it
    loads. A unit that fails ends the wait at once, with the cause from the diagnoses, or its last lines.
  - V(stopped) returns when no process of the unit is left and its port is free.
  - Runs on the agent's interpreter (C(/opt/gauntlet/agent/bin/python)).
attributes:
  check_mode:
    support: full
    description: Says what would change.
options:
  deployment:
    description: A deployment of the plan. Needed, but for O(state=free), and for O(state=stopped) with an O(owner).
    type: dict
  owner:
    description:
      - Who asks for this start. A unit that somebody else started is refused; with O(state=stopped)
        and no O(deployment), every unit that this owner started is stopped, and no other.
    type: str
    default: ""
  port:
    description: The loopback port that it serves on.
    type: int
    required: true
  state:
    description:
      - V(started) does not wait for an answer.
      - V(free) changes nothing and fails when somebody holds the port, before many starts are tried one by one.
    choices: [started, ready, stopped, free]
    default: ready
    type: str
  timeout:
    description: Seconds until the deployment must answer, or be gone.
    type: int
    default: 1800
  diagnoses:
    description: The catalog's diagnoses by name.
    type: dict
    default: {}
  catalog:
    description: Folders of catalogs on the controller, whose diagnoses are added.
    type: list
    elements: path
    default: []
  slice:
    description: Seconds that one call of the module waits; the action plugin calls again and shows progress.
    type: int
    default: 10
  begin:
    description: Set by the action plugin. Whether this call may start the unit.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: The deployment answers
  serving_deployment:
    deployment: "{{ deployment }}"
    port: 30000
    state: ready
"""

RETURN = r"""
unit:
  description: The unit of the deployment.
  type: str
  returned: always
base_url:
  description: Where it answers.
  type: str
  returned: with O(state=ready)
ready:
  description: Whether a completion came back.
  type: bool
  returned: always
phase:
  description: What the server is doing, in words.
  type: str
  returned: when it is not ready
completion:
  description: The text that came back.
  type: str
  returned: when ready
server:
  description: What the server says of itself, an allow-list.
  type: dict
  returned: when ready
memory:
  description: What the server printed of its memory, what was predicted, and sentences on what is over 5 % off.
  type: dict
  returned: when ready
server_invocation:
  description: Which start of the unit answered.
  type: dict
  returned: when ready
  sample: {id: 4b1d, unit: "llamacpp@x.service", started_utc: "2026-11-29T14:05:01Z", exec_pid: 812}
"""

from ansible.module_utils.basic import AnsibleModule

from gauntlet import engines, services, serving
from gauntlet.errors import GauntletError


def converge(options, check_mode):
    deployment, port, owner = options["deployment"], options["port"], options["owner"]
    manager = services.manager()
    if options["state"] == "free":
        serving.require_free(port, manager)
        return {"changed": False, "unit": "", "ready": False, "phase": "stopped"}
    if deployment is None:
        if options["state"] != "stopped" or not owner:
            raise GauntletError("deployment is missing: name the one to serve")
        units = serving.end_owned(owner, port, manager, options["timeout"], check_mode)
        return {"changed": bool(units), "unit": ", ".join(units), "ready": False, "phase": "stopped"}
    unit = engines.instance(deployment)
    state = manager.state(unit)
    if options["state"] == "stopped":
        changed = state["active"] if check_mode else serving.end(unit, port, manager, options["timeout"])
        return {"changed": changed, "unit": unit, "ready": False, "phase": "stopped"}
    if check_mode:
        return {"changed": not state["active"], "unit": unit, "ready": False, "phase": state["phase"]}
    changed = options["begin"] and serving.begin(deployment, port, manager, owner)
    if options["state"] == "started":
        return {"changed": changed, "unit": unit, "ready": False, "phase": "started"}
    seconds = min(options["slice"], options["timeout"])
    return {"changed": changed, "unit": unit, "base_url": f"http://127.0.0.1:{port}",
            **serving.poll(deployment, port, manager, seconds, options["diagnoses"])}  # fmt: skip


def main():
    module = AnsibleModule(
        argument_spec={
            "deployment": {"type": "dict"},
            "owner": {"type": "str", "default": ""},
            "port": {"type": "int", "required": True},
            "state": {"type": "str", "choices": ["started", "ready", "stopped", "free"], "default": "ready"},
            "timeout": {"type": "int", "default": 1800},
            "diagnoses": {"type": "dict", "default": {}},
            "catalog": {"type": "list", "elements": "path", "default": []},
            "slice": {"type": "int", "default": 10},
            "begin": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
        no_log=True,  # its arguments are long, and a poll would fill the journal
    )
    try:
        module.exit_json(**converge(module.params, module.check_mode))
    except GauntletError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
