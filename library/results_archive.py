#!/usr/bin/python
"""Attempts of a host: pack them for the way home, forget them once they are there."""

DOCUMENTATION = r"""
module: results_archive
short_description: Bring the finished attempts of a host home
description:
  - Packs every finished attempt below O(results) into one archive, brings it to the controller, verifies each file's
    sha256, renames the attempts into O(home), and only then removes them from the host.
  - The action plugin of the same name does the controller's part; the module does the host's.
  - An attempt arrives whole or not at all. Links, devices and paths that leave the folder are refused.
options:
  results:
    description: The folder of attempts on the host.
    type: path
    default: /var/lib/gauntlet/results
  home:
    description: The host's folder on the controller.
    type: path
    required: true
  archive:
    description: Where the archive is written on the host.
    type: path
    default: /var/lib/gauntlet/jobs/results.tar
  step:
    description: The part that the action plugin asks for; leave it out.
    type: str
    choices: [list, pack, forget]
    default: list
  manifest:
    description: What arrived, for O(step=forget); leave it out.
    type: dict
attributes:
  check_mode:
    support: full
    description: Says which attempts would come home.
author: Gauntlet
"""

EXAMPLES = r"""
- name: Bring the results home
  results_archive:
    home: "{{ gauntlet_results }}/{{ inventory_hostname }}"
"""

RETURN = r"""
attempts:
  description: The attempts that came home (in check mode, that would come), as C(cell/attempt).
  returned: success
  type: list
  elements: str
manifest:
  description: sha256 of every file of every attempt.
  returned: success
  type: dict
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(
        argument_spec={
            "results": {"type": "path", "default": "/var/lib/gauntlet/results"},
            "home": {"type": "path", "required": True},
            "archive": {"type": "path", "default": "/var/lib/gauntlet/jobs/results.tar"},
            "step": {"type": "str", "choices": ["list", "pack", "forget"], "default": "list"},
            "manifest": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    results, archive = Path(module.params["results"]), Path(module.params["archive"])
    step = module.params["step"]
    if step == "list" or module.check_mode:
        names = sorted(str(p.parent.relative_to(results)) for p in results.glob("[!.]*/[!.]*/cell.json"))
        module.exit_json(changed=bool(names), attempts=names, manifest={})
    try:
        from gauntlet import archive as core
    except ImportError:
        module.fail_json(msg="the agent environment is not on this host: run ansible-playbook site.yml first")
    try:
        if step == "pack":
            manifest = core.pack(results, archive)
            module.exit_json(changed=False, attempts=sorted(manifest), manifest=manifest)
        gone = core.forget(results, module.params["manifest"] or {})
        archive.unlink(missing_ok=True)
        module.exit_json(changed=bool(gone), attempts=gone, manifest={})
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
