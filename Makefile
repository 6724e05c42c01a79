# Two commands do everything: `make bench` and `make test`. The rest are their parts, each of use alone.
SHELL := /bin/bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PYTHONUNBUFFERED := 1
step := scripts/step
lane_1 := resume lab_host two_hosts host_tuning

.PHONY: help
help: ## what there is
	@grep -hE '^[a-z0-9.-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 18

.PHONY: bench
bench: ## the main job on this machine: environment, lab host, provision, measure, report
	@rm -f .cache/steps.jsonl
	@$(step) environment scripts/bootstrap
	@$(step) lab ansible-playbook playbooks/lab.yml
	@$(step) provision ansible-playbook site.yml
	@$(step) measure ansible-playbook bench.yml
	@$(step) report ansible-playbook report.yml
	@$(step) --summary

.PHONY: env
env: ## the controller's environment: Debian packages and .venv
	@scripts/bootstrap

.PHONY: test
test: core lab-more tex chromium wheel ansible-2.21 ## everything: the quick core and the heavy extras

.PHONY: core
core: env ## lint, unit and contract tests beside the main job on a lab host
	@scripts/lanes 'make lab-test' 'make lint unit'

.PHONY: lint
lint: ## ruff, yamllint, ansible-lint (profile production)
	ruff check .
	yamllint --strict .
	ansible-lint --offline --profile production

.PHONY: unit
unit: ## unit and contract tests: seconds, no lab
	pytest -q tests/unit tests/contract -m "not tex and not chromium and not wheel"

.PHONY: lab-test
lab-test: ## the main job on a real lab host, from check mode to a reboot
	pytest -q tests/lab/test_main_job.py

.PHONY: lab-more
lab-more: ## all else that is tried on lab hosts: staging, serving, tuning, kills, two hosts
	@scripts/lanes 'pytest -q $(addprefix tests/lab/test_,$(addsuffix .py,$(lane_1)))' \
	'pytest -q tests/lab $(foreach test,main_job $(lane_1),--ignore tests/lab/test_$(test).py)'

.PHONY: tex
tex: ## compile the LaTeX report for real (installs TeX)
	scripts/bootstrap --debian requirements/debian-tex.txt
	pytest -q -m tex tests

.PHONY: chromium
chromium: ## open the HTML report in headless Chromium (installs it)
	scripts/bootstrap --debian requirements/debian-chromium.txt
	pytest -q -m chromium tests

.PHONY: wheel
wheel: ## argument validation by the real SGLang wheel
	scripts/sglang_wheel
	pytest -q -m wheel tests

.PHONY: ansible-2.21
ansible-2.21: ## the playbooks on ansible-core 2.21, from a Debian 13 root
	pytest -q tests/ansible_2_21

.PHONY: lock
lock: ## make the locks in requirements/ anew
	scripts/lock

.PHONY: clean
clean: ## take the lab host away; results stay
	ansible-playbook playbooks/lab.yml -e lab_state=absent
