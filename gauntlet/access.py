"""Why a host cannot be driven at all, from what Ansible and the host said: one cause and what to do about it."""

import re

CAUSES = (
    (
        r"Missing sudo password|sudo: a password is required|Incorrect sudo password",
        "sudo asks for a password: run with --ask-become-pass, or allow this user sudo without one (NOPASSWD)",
    ),
    (
        r"you must have a tty to run sudo",
        "sudo wants a terminal (requiretty), which pipelining does not give: put 'Defaults !requiretty' for this user "
        "into sudoers, or set ANSIBLE_PIPELINING=false",
    ),
    (
        r"(?:/bin/sh|/bin/bash|sh|bash).*: .*python[\d.]*: (?:not found|No such file or directory)"
        r"|/usr/bin/env: .*python.*No such file|No python interpreters found",
        "there is no Python where it was looked for: install python3 on the host, or name it with "
        "ansible_python_interpreter",
    ),
    (
        r"/\.ansible/tmp/\S+: Permission denied|Failed to create temporary directory|noexec",
        "the folder for modules cannot be used, most often because its file system is mounted noexec: "
        "keep pipelining on, or set ansible_remote_tmp to a folder on a file system that allows programs",
    ),
    (
        r"[^\s'\"]+['\"]?: Read-only file system|\[Errno 30\]",
        "a file system is read-only there, so nothing can be kept over a reboot: settings of the moment can still be "
        "verified with verify.yml",
    ),
)


def explain(said: str) -> str | None:
    """'<cause and remedy> (<what was said>)', or None for a message that is no case of these."""
    for pattern, cause in CAUSES:
        if found := re.search(pattern, said):
            line = next(line for line in said.splitlines() if found.group().splitlines()[0] in line)
            return f"{cause} (it said: {line.strip()})"
    return None
