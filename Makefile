# Two commands do everything: `make bench` and `make test`. The rest are their parts, each of use alone.
SHELL := /bin/bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PYTHONUNBUFFERED := 1
step := scripts/step

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
test: core tex chromium wheel ansible-2.21 ## everything: the quick core and the heavy extras

.PHONY: core
core: env lint unit lab-test ## lint, unit, contract and lab tests

.PHONY: lint
lint: ## ruff, yamllint, ansible-lint (profile production)
	ruff check .
	yamllint --strict .
	ansible-lint --offline --profile production

.PHONY: unit
unit: ## unit and contract tests: seconds, no lab
	pytest -q tests/unit tests/contract -m "not tex and not chromium and not wheel"

.PHONY: lab-test
lab-test: ## the whole job on real lab hosts; two halves side by side, each on hosts of its own
	@mkdir -p .cache
	@pytest -q tests/lab/test_main_job.py tests/lab/test_lab_host.py >.cache/lab-test.log 2>&1 & half=$$!; \
	pytest -q tests/lab --ignore tests/lab/test_main_job.py --ignore tests/lab/test_lab_host.py; other=$$?; \
	wait $$half; half=$$?; cat .cache/lab-test.log; exit $$((half | other))

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
