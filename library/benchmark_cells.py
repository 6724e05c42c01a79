#!/usr/bin/python
"""Measure cells beside a running server: start the measuring client, or find it, and say how far it is."""

DOCUMENTATION = r"""
module: benchmark_cells
short_description: Measure the cells of a job with a client that outlives the connection
description:
  - The client is a transient systemd unit of its own (C(systemd-run)), so a lost connection does not disturb it and a
    second run finds it.
  - O(state=started) starts the client for O(job), or attaches to it when the same deployment and repeat is being
    measured. It is refused when the client of another job runs.
  - O(state=status) reads what the client said since O(offset), for people, and whether it is done.
  - With O(state=attached) the action plugin follows a client that still runs until it has ended, whoever started it.
  - A finished attempt is a folder below the job's C(results); nothing is read from the progress but lines to show.
options:
  job:
    description:
      - "The start to measure, for O(state=started): C(plan) (the plan file on the controller), C(deployment),
        C(repeat), C(closing), and what only the host could tell, C(endpoint), C(unit), C(invocation), C(conditions),
        C(observed), C(limits), C(results), C(simulated)."
      - The action plugin makes the whole job of it (C(gauntlet.job.make)), follows the client until it has ended, shows
        its progress, and fails when a cell failed.
    type: dict
  state:
    description: What is wanted.
    type: str
    choices: [started, status, attached, stopped]
    default: started
  offset:
    description: Bytes of progress that were read before; for O(state=status).
    type: int
    default: 0
  wait:
    description: Seconds that O(state=status) waits for the client's next word.
    type: float
    default: 0
  job_id:
    description: For O(state=stopped), the job whose client is stopped; that of another is left alone. None is any.
    type: str
  jobs:
    description: Where jobs and their progress lie.
    type: path
    default: /var/lib/gauntlet/jobs
  unit:
    description: The transient unit of the client.
    type: str
    default: gauntlet-bench.service
  python:
    description: The interpreter of the agent environment.
    type: path
    default: /opt/gauntlet/agent/bin/python
attributes:
  check_mode:
    support: full
    description: Says whether a client would be started.
author: Gauntlet
"""

EXAMPLES = r"""
- name: Measure the cells of this start
  benchmark_cells:
    job:
      plan: .plans/bench.json
      deployment: smollm2-135m.ngram-simple.tp1-0a1b2c3d
      repeat: 0
      endpoint: {base_url: "http://127.0.0.1:30000", dialect: llamacpp}
      results: /var/lib/gauntlet/results

- name: Wait for a measurement that an earlier run started
  benchmark_cells:
    state: attached
"""

RETURN = r"""
attached:
  description: Whether a client of the same job was found running.
  returned: with O(state=started)
  type: bool
running:
  description: Whether the client runs.
  returned: success
  type: bool
finished:
  description: Whether the client has ended, well or not.
  returned: success
  type: bool
exit:
  description: "Exit status of the client: 0 all measured, 1 some cells failed, 2 nothing could be measured."
  returned: success
  type: int
lines:
  description: New events of the progress, each a dict with C(event).
  returned: with O(state=status)
  type: list
  elements: dict
offset:
  description: Where to read on.
  returned: success
  type: int
attempts:
  description: Attempts that this job has stored, as C(cell/attempt).
  returned: success
  type: list
  elements: str
job_id:
  description: The job that is or was measured last.
  returned: success
  type: str
deployment:
  description: The deployment that the job measures or measured, as the plan has it.
  returned: success
  type: dict
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(
        argument_spec={
            "job": {"type": "dict"},
            "state": {"type": "str", "choices": ["started", "status", "attached", "stopped"], "default": "started"},
            "offset": {"type": "int", "default": 0},
            "wait": {"type": "float", "default": 0},
            "job_id": {"type": "str"},
            "jobs": {"type": "path", "default": "/var/lib/gauntlet/jobs"},
            "unit": {"type": "str", "default": "gauntlet-bench.service"},
            "python": {"type": "path", "default": "/opt/gauntlet/agent/bin/python"},
        },
        required_if=[("state", "started", ["job"])],
        supports_check_mode=True,
    )
    try:
        from gauntlet import bench_unit
    except ImportError:
        module.fail_json(msg="the agent environment is not on this host: run ansible-playbook site.yml first")
    client = bench_unit.Client(Path(module.params["jobs"]), module.params["unit"], module.params["python"])
    state = module.params["state"]
    try:
        if state == "started":
            module.exit_json(**client.start(module.params["job"], check=module.check_mode))
        if state == "stopped":
            module.exit_json(**client.stop(module.params["job_id"], check=module.check_mode))
        module.exit_json(changed=False, **client.status(module.params["offset"], module.params["wait"]))
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
