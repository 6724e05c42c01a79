"""Debian 13 brings Python 3.13 and so ansible-core 2.21: the same playbooks, without a warning, and the same state."""

import re

from .conftest import changed


def test_it_is_what_it_says(controller):
    said = controller.run("ansible --version").stdout
    assert re.search(r"core 2\.21\.", said) and "python version = 3.13" in said, said


def test_the_contracts_hold(controller):
    done = controller.run("python -m pytest -q -p no:cacheprovider tests/contract -k 'not lint'")
    assert done.returncode == 0, done.stdout[-4000:]


def test_a_host_that_2_19_converged_is_converged(controller):
    assert changed(controller.play("site.yml")) == 0
    assert changed(controller.play("site.yml", "--check")) == 0


def test_it_measures_and_then_has_measured(controller):
    selection = {"method": "ngram-simple", "workload": "edit", "concurrency": "1"}
    assert changed(controller.play("bench.yml", **selection)) > 0
    assert changed(controller.play("bench.yml", **selection)) == 0


def test_it_verifies_and_has_nothing_to_restage(controller):
    assert changed(controller.play("verify.yml")) == 0
    assert changed(controller.play("restage.yml")) == 0
