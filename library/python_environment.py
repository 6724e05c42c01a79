#!/usr/bin/python
"""Module: one Python environment of a host, from a lock with hashes."""

DOCUMENTATION = r"""
module: python_environment
short_description: A virtual environment of a host, exactly as a lock with hashes says
description:
  - On the controller, the lock is reduced to what holds for the host's Python, and its wheels are gathered there
    (cached outside the repository) and carried over. The host needs no route to an index, no pip and no ensurepip.
  - The environment is built beside the old one and then takes its place, so that an interrupted run leaves the old one.
  - What is installed is verified file by file against the digests of the wheels; a damaged, missing or foreign
    package is reported and the environment is made anew. So is what Python goes by and no wheel vouches for
    (C(pyvenv.cfg), the top of site-packages, the wheels' own records), and a mode that keeps a service from reading it.
  - After installing, the requirements that the packages state for each other are enforced (C(pip check)).
attributes:
  check_mode:
    support: full
    description: Says what would change.
options:
  path:
    description: Where the environment is found; a symbolic link to the environment in use.
    type: path
    required: true
  locks:
    description: Lock files on the controller (C(--generate-hashes)); later ones add to earlier ones.
    type: list
    elements: path
  own:
    description: Also install this project's own package, as it is on the controller.
    type: bool
    default: false
  wheels:
    description: Wheel files on the controller that no index has, installed beside the locks (a build of a git commit).
    type: list
    elements: path
    default: []
  git:
    description:
      - A package built on the controller from a commit and installed beside the locks, as C({url, commit,
        subdirectory}); for builds of an engine that are in no release.
    type: dict
  source:
    description:
      - Where the wheels come from. V(controller) carries them over; V(index) lets pip on the host use the index it is
        configured for; V(folder) takes them from O(folder) on the host.
    choices: [controller, index, folder]
    default: controller
    type: str
  folder:
    description: A folder of wheels on the host, for O(source=folder).
    type: path
  python:
    description: The interpreter on the host to build upon.
    type: path
    default: /usr/bin/python3
  beside:
    description: A folder of packages on the host that are seen too, after the environment's own; for a machine whose
      image brings PyTorch.
    type: path
  unmet:
    description:
      - Packages that other packages of the environment ask for and that need not fit, because nothing served here loads
        them. What does not fit and is not named here is an error.
    type: list
    elements: str
    default: []
  requirements:
    description: Set by the action plugin. The pins for this host, one a line.
    type: list
    elements: str
  key:
    description: Set by the action plugin. Names the content of the environment.
    type: str
  wheelhouse:
    description: Set by the action plugin. A tar of wheels on the host.
    type: path
"""

EXAMPLES = r"""
- name: The agent environment
  python_environment:
    path: /opt/gauntlet/agent
    locks: [requirements/agent.txt]
    own: true
"""

RETURN = r"""
key:
  description: Names the content of the environment.
  type: str
  returned: always
problems:
  description: What was wrong with the environment found, a sentence each; empty when it was as declared.
  type: list
  elements: str
  returned: always
target:
  description: The Python of the host.
  type: dict
  returned: always
  sample: {python: 3.11.2, machine: x86_64, libc: "2.36"}
"""

import base64
import csv
import hashlib
import json
import os
import re
import shutil
import stat
import tarfile
import tempfile

from ansible.module_utils.basic import AnsibleModule

STAMP = ".gauntlet-environment.json"
DESCRIBE = (
    "import json, platform; print(json.dumps({'python': platform.python_version(), "
    "'machine': platform.machine(), 'libc': platform.libc_ver()[1] or '2.17'}))"
)


def ask(module, python):
    """(what wheels a Python takes, None), or (None, why it cannot say)."""
    try:
        # without its site-packages, where anything may lie
        code, out, err = module.run_command([python, "-I", "-S", "-c", DESCRIBE], handle_exceptions=False)
        return (None, err.strip() or out.strip()) if code else (json.loads(out), None)
    except OSError as error:
        return None, error.strerror
    except ValueError:
        return None, f"it says {out.strip()!r}"


def site_packages(root):
    library = os.path.join(root, "lib")
    for name in sorted(os.listdir(library)) if os.path.isdir(library) else []:
        folder = os.path.join(library, name, "site-packages")
        if os.path.isdir(folder):
            return folder
    return None


def distributions(site):
    return sorted(name for name in os.listdir(site) if name.endswith(".dist-info"))


def sha256(path):
    """Of a file; of a package's information, that of its RECORD; empty for what has none."""
    path = os.path.join(path, "RECORD") if path.endswith(".dist-info") else path
    try:
        if not os.path.isfile(path):  # a named pipe would not let go of who opens it
            return ""
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def seal(root):
    """{path in the environment: sha256} of what no wheel vouches for and Python goes by when it starts: its settings,
    what lies at the top of site-packages, and the wheels' own records."""
    site = site_packages(root)
    inside = [os.path.join(site, name) for name in os.listdir(site) if name != "__pycache__"] if site else []
    paths = [path for path in (os.path.join(root, "pyvenv.cfg"), *inside) if os.path.lexists(path)]
    return {os.path.relpath(path, root): sha256(path) for path in paths}


def damage(root, stamp):
    """Sentences on how the environment differs from what its seal and the wheels recorded.

    A file whose inode did not change since the stamp was written is as it was then; all others are hashed. One that
    several wheels bring is right when it is as one of them brought it. Bytecode is the interpreter's to write.
    """
    sealed, found = stamp["seal"], seal(root)
    said = {
        name: "is missing" if name not in found else "is foreign" if name not in sealed else "was altered"
        for name in {*sealed, *found}
        if sealed.get(name) != found.get(name)
    }
    problems = [f"{os.path.join(root, name)} {how}" for name, how in sorted(said.items())]
    written = os.stat(os.path.join(root, STAMP)).st_mtime_ns
    files = claims(root, [name for name in found if name.endswith(".dist-info") and found[name] and name not in said])
    for path, claimed in files.items():
        wrong = [compare(path, *claim, written) for claim in claimed]
        problems += wrong[-1:] if all(wrong) and os.path.relpath(path, root) not in said else []
    return problems + closed(root, {*files, *(os.path.join(root, name) for name in found)})


def claims(root, packages):
    """{path: [(digest, size)]} of the files in the records of these packages."""
    found = {}
    for name in packages:
        with open(os.path.join(root, name, "RECORD"), newline="", encoding="utf-8") as rows:
            for path, digest, size in csv.reader(rows):
                if digest and not path.endswith(".pyc"):
                    path = os.path.normpath(os.path.join(root, os.path.dirname(name), path))
                    found.setdefault(path, []).append((digest, size))
    return found


def compare(path, digest, size, written):
    """None, or how the file is not what this claim says."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            return f"{path} is not a regular file"
        if size and status.st_size != int(size):
            return f"{path} has {status.st_size} bytes, not {size}"
        if status.st_ctime_ns < written:
            return None
        algorithm, _, wanted = digest.partition("=")
        with open(path, "rb") as data:
            got = hashlib.new(algorithm, data.read()).digest()
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return None if base64.urlsafe_b64encode(got).rstrip(b"=").decode() == wanted else f"{path} was altered"


def closed(root, files):
    """Sentences on files and folders that the service cannot read or that others than their maker may write."""
    folders = {root}
    for path in files:
        while (path := os.path.dirname(path)).startswith(root) and path not in folders:
            folders.add(path)
    problems = []
    for path in sorted({*folders, *files}):
        try:
            status = os.stat(path)
        except OSError:
            continue  # said already
        needed = 0o555 if stat.S_ISDIR(status.st_mode) else 0o444
        if status.st_mode & 0o022 or status.st_mode & needed != needed or status.st_uid != os.getuid():
            problems.append(f"{path} has mode {stat.S_IMODE(status.st_mode):04o} and owner {status.st_uid}")
    return problems


def read_stamp(root):
    try:
        with open(os.path.join(root, STAMP), encoding="utf-8") as file:
            stamp = json.load(file)
    except (OSError, ValueError):
        return None
    return stamp if isinstance(stamp, dict) and "key" in stamp and isinstance(stamp.get("seal"), dict) else None


def problems_of(module, path, target):
    """(key of the environment found or None, why it is not usable)."""
    if not os.path.lexists(path):
        return None, [f"{path} does not exist"]
    stamp = read_stamp(path)
    if stamp is None:
        return None, [f"{path} has no {STAMP} of this release: it was never finished, or was altered, or is older"]
    python = os.path.join(path, "bin", "python")
    found, why = ask(module, python)
    if found != target:
        return None, [f"{python} is not the host's Python {target['python']}: {why or found}", *damage(path, stamp)]
    return stamp["key"], damage(path, stamp)


def pip(module, python, *arguments):
    return module.run_command([*python, *arguments, "--disable-pip-version-check", "--no-input"])


def install(module, root, target):
    """A finished environment in `root`, or fail_json."""
    options = module.params
    code, out, err = module.run_command([options["python"], "-m", "venv", "--without-pip", root])
    if code:
        module.fail_json(msg=f"cannot make a virtual environment with {options['python']}: {err or out}")
    wheels = os.path.join(root, ".wheels")
    with tarfile.open(options["wheelhouse"]) as archive:
        archive.extractall(wheels, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    bootstrap = next((name for name in os.listdir(wheels) if re.match(r"pip-[\d.]+-", name)), None)
    if bootstrap is None:
        module.fail_json(msg="the lock has no pip, which installs the rest")
    requirements = os.path.join(wheels, "requirements.txt")
    with open(requirements, "w", encoding="utf-8") as file:
        file.write("\n".join(options["requirements"]) + "\n")
    python = [os.path.join(root, "bin", "python")]
    where = ["--find-links", wheels]
    if options["source"] != "index":
        where.append("--no-index")
    if options["source"] == "folder":
        where += ["--find-links", options["folder"]]
    code, out, err = pip(
        module, [*python, os.path.join(wheels, bootstrap, "pip")], "install", "--quiet", "--no-deps",
        "--require-hashes", "--only-binary=:all:", "--requirement", requirements, *where,
    )  # fmt: skip
    if code:
        errors = [line for line in err.splitlines() if line.startswith("ERROR")]
        module.fail_json(msg=f"cannot install into {options['path']}: {' '.join(errors) or err or out}")
    site = site_packages(root)
    if options["beside"]:
        with open(os.path.join(site, "beside.pth"), "w", encoding="utf-8") as file:
            file.write(options["beside"] + "\n")
    code, out, err = pip(module, [*python, "-m", "pip"], "check")
    ours = {plain(name.split("-")[0]) for name in distributions(site)}
    wrong = mismatches(out, ours, set(map(plain, options["unmet"])))
    if wrong or (code and not out.strip()):
        module.fail_json(msg=f"the packages of {options['path']} do not fit together: {wrong or err}")
    shutil.rmtree(wheels)
    stamp = {"key": options["key"], "target": target, "seal": seal(root)}
    with open(os.path.join(root, STAMP), "w", encoding="utf-8") as file:
        json.dump(stamp, file, indent=1, sort_keys=True)


def plain(name):
    """A package's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def mismatches(text, ours, unmet):
    """`pip check` in the words people need (package, wanted, found), of our packages only, without what is accepted."""
    sentences = []
    for line in text.splitlines():
        wrong = re.match(r"(\S+) (\S+) has requirement (.+), but you have (\S+) (\S+)\.", line)
        absent = re.match(r"(\S+) (\S+) requires (\S+), which is not installed", line)
        if wrong:
            owner, version, wanted, package, found = wrong.groups()
            sentence = f"{package}: found {found}, but {owner} {version} wants {wanted}"
        elif absent:
            owner, version, package = absent.groups()
            sentence = f"{package}: not installed, but {owner} {version} wants it"
        elif line.strip() and line != "No broken requirements found.":
            owner, package, sentence = line.split()[0], "", line.strip()
        else:
            continue
        if plain(owner) in ours and plain(package) not in unmet:
            sentences.append(sentence)
    return "; ".join(sentences)


def replace(path, root):
    """`path` becomes a link to `root`; what it named before is removed, when it was ours."""
    before = os.path.realpath(path) if os.path.islink(path) else None
    if before is None and os.path.isdir(path):
        shutil.rmtree(path)
    link = f"{root}.link"
    os.symlink(os.path.basename(root), link)
    os.replace(link, path)
    if before and os.path.dirname(before) == os.path.dirname(root) and before != root:
        shutil.rmtree(before, ignore_errors=True)


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "locks": {"type": "list", "elements": "path"},
            "own": {"type": "bool", "default": False},
            "wheels": {"type": "list", "elements": "path", "default": []},
            "git": {"type": "dict"},
            "source": {"type": "str", "choices": ["controller", "index", "folder"], "default": "controller"},
            "folder": {"type": "path"},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "beside": {"type": "path"},
            "unmet": {"type": "list", "elements": "str", "default": []},
            "requirements": {"type": "list", "elements": "str"},
            "key": {"type": "str", "no_log": False},
            "wheelhouse": {"type": "path"},
        },
        required_if=[("source", "folder", ["folder"])],
        supports_check_mode=True,
        no_log=True,  # its arguments are long, and a poll would fill the journal
    )
    os.umask(0o022)  # whatever root's is: the service user reads what is made here
    path, python = module.params["path"], module.params["python"]
    target, why = ask(module, python)
    if why:
        module.fail_json(msg=f"python {python} does not run on this host: {why}; serving_python names another one")
    found, problems = problems_of(module, path, target)
    if not module.params["wheelhouse"]:
        module.exit_json(changed=False, key=found, problems=problems, target=target)

    parent = os.path.dirname(path)
    os.makedirs(parent, mode=0o755, exist_ok=True)
    root = tempfile.mkdtemp(prefix=f".{os.path.basename(path)}-{module.params['key'][:12]}-", dir=parent)
    os.chmod(root, 0o755)
    module.add_cleanup_file(f"{root}.link")
    try:
        install(module, root, target)
        replace(path, root)
    except BaseException:
        if os.path.realpath(path) != root:
            shutil.rmtree(root, ignore_errors=True)
        raise
    module.exit_json(changed=True, key=module.params["key"], problems=problems, target=target)


if __name__ == "__main__":
    main()
