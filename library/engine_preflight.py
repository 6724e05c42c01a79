#!/usr/bin/python
"""Module: what would fail or mislead when the planned deployments start."""

DOCUMENTATION = r"""
module: engine_preflight
short_description: Check every planned deployment of SGLang before the first one starts
description:
  - SGLang's own validation of all command lines, in its own environment, in one process that serves nothing; rules
    where SGLang has a bare assert or says nothing; and a prediction of memory from the configs as they are staged.
  - Fails with one sentence for each error. Warnings do not fail.
  - Runs on the agent's interpreter (C(/opt/gauntlet/agent/bin/python)), after weights are staged. Changes nothing.
attributes:
  check_mode:
    support: full
    description: It only looks.
options:
  deployments:
    description: Deployments of the plan. Those of other engines have nothing to check.
    type: list
    elements: dict
    required: true
  models:
    description: The mount that weights are staged in.
    type: path
    default: /srv/gauntlet/models
  engines:
    description: The folder of engine environments.
    type: path
    default: /opt/gauntlet/engines
  libexec:
    description: The folder of programs that are not in a wheel.
    type: path
    default: /opt/gauntlet/libexec
  pretend:
    description:
      - A GPU for a host that has none, so that a plan can be checked before the hardware is there, as
        C({capability, memory_mib, count}).
    type: dict
"""

EXAMPLES = r"""
- name: Every planned deployment could start
  engine_preflight:
    deployments: "{{ plan.deployments[inventory_hostname] }}"
"""

RETURN = r"""
findings:
  description: What was found, errors and warnings.
  type: list
  elements: dict
  returned: always
  sample: [{deployment: x, level: warning, what: a, why: b, change: c}]
predictions:
  description: What memory each deployment will have, see gauntlet.memory.predict; empty without a GPU.
  type: dict
  returned: success
builds:
  description: Version and speculative algorithms of each build that was asked.
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from gauntlet import engines, preflight
from gauntlet.errors import GauntletError
from gauntlet.preflight import run


def main():
    module = AnsibleModule(
        argument_spec={
            "deployments": {"type": "list", "elements": "dict", "required": True},
            "models": {"type": "path", "default": engines.MODELS},
            "engines": {"type": "path", "default": engines.ENGINES},
            "libexec": {"type": "path", "default": engines.LIBEXEC},
            "pretend": {"type": "dict"},
        },
        supports_check_mode=True,
        no_log=True,  # its arguments are long
    )
    options = module.params
    try:
        answer = run.run(
            options["deployments"],
            models=options["models"],
            engines_folder=options["engines"],
            libexec=options["libexec"],
            pretend=options["pretend"],
        )
    except GauntletError as error:
        module.fail_json(msg=str(error))
    for finding in answer["findings"]:
        if finding["level"] == "warning":
            module.warn(preflight.sentence(finding))
    errors = [preflight.sentence(finding) for finding in answer["findings"] if finding["level"] == "error"]
    if errors:
        module.fail_json(msg="\n".join(errors), findings=answer["findings"])
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
