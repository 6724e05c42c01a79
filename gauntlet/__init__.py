"""The core of Gauntlet: planning, measuring, staging, verifying. No Ansible in here.

Runs on the controller and, as a wheel, in the agent environment of each host; needs only `requests`.
"""
