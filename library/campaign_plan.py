#!/usr/bin/python
"""Module: what is to be measured, planned on the controller."""

DOCUMENTATION = r"""
module: campaign_plan
short_description: Plan a campaign from the catalog, the hosts' observations and the results at home
description:
  - Expands the campaign to deployments and cells, leaves out what is measured, what cannot fit and what is not there,
    and writes the plan to a file on the controller. Reads no host and changes none.
  - Runs on the controller, in the environment that Gauntlet is installed in (C(ansible_playbook_python)).
  - The plan may hold 100,000 cells, so Ansible gets deployments, server starts and counts; C(benchmark_cells) reads the
    rest from the file.
attributes:
  check_mode:
    support: full
    description: Plans, and writes no file.
options:
  catalog:
    description: Catalog folders; a later one adds entries and replaces whole ones.
    type: list
    elements: path
    required: true
  selection:
    description:
      - What the command line selects. C(campaign) is needed; C(model), C(method) (names or families), C(tp),
        C(workload) and C(concurrency) narrow it. Each is a value, a comma-separated text or a list; empty ones are
        left out.
      - With C(baseline) off, the baseline is not added.
      - C(_raw_params) is what Ansible could not read as a variable, as in C(-e tp=4 8); it is refused.
      - C(conditions) says what becomes of attempts under other conditions than today's, C(keep) or C(anew). Without it,
        the plan stops and shows what differs.
    type: dict
    required: true
  hosts:
    description:
      - Host name to what is known of it. C(engine_builds) (engine to build) is needed.
      - Observed, where known. C(conditions) is the stable part of the fingerprint, without it attempts count whatever
        their conditions; C(gpus) a count; C(gpu_memory) bytes of the smallest; C(tuning) the tuning profile; C(store)
        ids of the weights in its store; C(environment_by_tp) variables by tensor parallelism that its topology asks
        for, under all others.
      - Declared by the inventory. C(models) is a list of allowed models; C(engines) engine to C(arguments),
        C(environment) and C(environment_by_tp), over those of the catalog.
    type: dict
    required: true
  lost:
    description:
      - Hosts that were asked for and cannot be reached. A comparison group that one of them has begun stays for it
        instead of being measured again on another one.
    type: list
    elements: str
    default: []
  results:
    description: The folder of measured attempts on the controller; one that is not there holds none.
    type: path
    required: true
  plan:
    description: Where the plan is written.
    type: path
    required: true
author: Gauntlet
"""

EXAMPLES = r"""
- name: Plan the campaign
  campaign_plan:
    catalog: "{{ gauntlet_catalog }}"
    selection:
      campaign: "{{ campaign | default(gauntlet_campaign) }}"
      method: "{{ method | default('') }}"
      concurrency: "{{ concurrency | default('') }}"
      baseline: "{{ baseline | default(true) }}"
      _raw_params: "{{ _raw_params | default('') }}"
    hosts:
      lab1:
        engine_builds:
          llamacpp: xllamacpp-2026.10.11549
        conditions: "{{ hostvars['lab1']._fingerprint.stable }}"
    results: "{{ gauntlet_results }}"
    plan: "{{ gauntlet_repository }}/.plans/bench.json"
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  delegate_to: localhost
  run_once: true
  register: _plan

- name: Show it
  ansible.builtin.debug:
    msg: "{{ _plan.table.splitlines() }}"

- name: What this host serves and measures
  ansible.builtin.debug:
    msg:
      - "{{ _plan.deployments[inventory_hostname] | map(attribute='name') }}"
      - "{{ _plan.activations[inventory_hostname] }}"
"""

RETURN = r"""
plan:
  description: The plan file.
  returned: success
  type: str
campaign:
  description: Name of the campaign.
  returned: success
  type: str
deployments:
  description: Host to the deployments of its share, measured ones included, each with C(name), C(spec_id), C(model),
    C(method), C(family), C(baseline), C(tp), C(engine), C(engine_build), C(arguments), C(environment), C(weights),
    C(context_length), C(max_running_requests), C(reserve) (tokens), C(notes), C(simulated) and C(specification).
  returned: success
  type: dict
activations:
  description: Host to its server starts in order, each with C(deployment), C(repeat), C(closing), C(cells) (a count)
    and C(estimate_s).
  returned: success
  type: dict
counts:
  description: Host to its cells by state, C(measured), C(to_measure), C(infeasible), C(unavailable), C(pending).
  returned: success
  type: dict
table:
  description: The plan for people.
  returned: success
  type: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    from gauntlet import catalog, plan
    from gauntlet.errors import GauntletError
    from gauntlet.plan import attempts
except ImportError as error:
    MISSING = str(error)
else:
    MISSING = ""


def run(params, write):
    if write:
        attempts.require_writable(Path(params["results"]))
    made = plan.make(
        catalog.load(params["catalog"]),
        params["selection"],
        params["hosts"],
        attempts.read(Path(params["results"]), [*params["hosts"], *params["lost"]]),
        plan.utc_now(),
        params["lost"],
    )
    if write:
        plan.save(made, Path(params["plan"]))
    hosts = made["hosts"]
    return {
        "plan": params["plan"],
        "campaign": made["campaign"],
        "deployments": {
            name: [made["deployments"][deployment] for deployment in host["deployments"]]
            for name, host in hosts.items()
        },
        "activations": {
            name: [{**start, "cells": len(start["cells"])} for start in host["activations"]]
            for name, host in hosts.items()
        },
        "counts": {name: host["counts"] for name, host in hosts.items()},
        "table": made["table"],
    }


def main():
    module = AnsibleModule(
        argument_spec={
            "catalog": {"type": "list", "elements": "path", "required": True},
            "selection": {"type": "dict", "required": True},
            "hosts": {"type": "dict", "required": True},
            "lost": {"type": "list", "elements": "str", "default": []},
            "results": {"type": "path", "required": True},
            "plan": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    if MISSING:
        module.fail_json(msg=f"{missing_required_lib('gauntlet')} {MISSING}")
    try:
        module.exit_json(changed=False, **run(module.params, not module.check_mode))
    except GauntletError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
