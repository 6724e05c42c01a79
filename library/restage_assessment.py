#!/usr/bin/python
"""Module: what a host still has after a reboot."""

DOCUMENTATION = r"""
module: restage_assessment
short_description: What survived a reboot, what is lost, and what is needed to be where the host was
description:
  - Looks at the boot, the tmpfs, the weights in memory and in the store, the engine builds, the units that were up when
    the host went down, the GPUs and the results, and changes nothing.
  - The action plugin shows the table while the playbook runs.
  - Runs on the agent's Python (C(ansible_python_interpreter)).
attributes:
  check_mode:
    support: full
options:
  deployments:
    description: Deployments of the plan for this host.
    type: list
    elements: dict
    required: true
  mount:
    description: The tmpfs that weights are served from.
    type: path
    default: /srv/gauntlet/models
  store:
    description: The folder on disk that outlives a reboot.
    type: path
    default: /var/lib/gauntlet/store
  staged_by:
    description: Inventory name of the machine that stages for this container, and has the store; empty when none does.
    type: str
    default: ""
  caches:
    description: Hugging Face caches of the host, tried in order.
    type: list
    elements: path
    default: []
  peers:
    description: Other hosts that may have them, each with its C(name) and the C(ssh) command up to its address.
    type: list
    elements: dict
    default: []
  hub:
    description: How the hub is asked, with C(endpoint), C(token_file) and C(offline); not at all when this is left out.
    type: dict
  results:
    description: The folder that attempts are written to.
    type: path
    default: /var/lib/gauntlet/results
  verify:
    description: As for M(model_snapshot).
    type: str
    choices: [always, copy, never]
    default: always
  settings:
    description: What M(host_settings) read, C(profile) and C(faults).
    type: dict
    default: {}
  unfinished:
    description: Cells that are still to be measured on this host, by campaign.
    type: dict
    default: {}
  home:
    description: The host's results folder on the controller; its attempts are counted by the action plugin.
    type: path
  attempts_at_home:
    description: Set by the action plugin.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: What survived
  restage_assessment:
    deployments: "{{ plan.deployments[inventory_hostname] }}"
  vars:
    ansible_python_interpreter: /opt/gauntlet/agent/bin/python
  register: survived
"""

RETURN = r"""
rebooted:
  description: Whether the host was rebooted since Gauntlet last worked on it.
  type: bool
  returned: success
rows:
  description: "The table: what, its state, a detail."
  type: list
  elements: list
  returned: success
needs:
  description: What is to be done, a sentence each; empty when nothing is.
  type: list
  elements: str
  returned: success
refused:
  description: Why it must not be done, a sentence each.
  type: list
  elements: str
  returned: success
settings_lost:
  description: Whether settings that Gauntlet had set did not persist.
  type: bool
  returned: success
start:
  description: Names of the deployments that were up and are not.
  type: list
  elements: str
  returned: success
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

SPEC = {
    "deployments": {"type": "list", "elements": "dict", "required": True},
    "mount": {"type": "path", "default": "/srv/gauntlet/models"},
    "store": {"type": "path", "default": "/var/lib/gauntlet/store"},
    "staged_by": {"type": "str", "default": ""},
    "caches": {"type": "list", "elements": "path", "default": []},
    "peers": {"type": "list", "elements": "dict", "default": []},
    "hub": {"type": "dict"},
    "results": {"type": "path", "default": "/var/lib/gauntlet/results"},
    "verify": {"type": "str", "choices": ["always", "copy", "never"], "default": "always"},
    "settings": {"type": "dict", "default": {}},
    "unfinished": {"type": "dict", "default": {}},
    "home": {"type": "path"},
    "attempts_at_home": {"type": "int", "default": 0},
}


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        from gauntlet import restage, services
        from gauntlet.errors import GauntletError
        from gauntlet.weights import sources
        from gauntlet.weights.options import Options
    except ImportError as error:
        module.fail_json(msg=f"this Python has no agent in it ({error}): run site.yml")
    asked = module.params
    options = Options(verify=asked["verify"], dry=True)
    home = {"attempts": asked["attempts_at_home"], "unfinished": asked["unfinished"], "settings": asked["settings"]}
    home["staged_by"] = asked["staged_by"]
    try:
        places = sources.places(asked)
        seen = restage.observe(
            asked["deployments"], Path(asked["mount"]), places, Path(asked["results"]), options, services.manager()
        )
        module.exit_json(changed=False, **restage.assess(seen, home))
    except GauntletError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
