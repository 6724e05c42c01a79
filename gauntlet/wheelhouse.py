"""Wheels for a host that reaches no index: gathered on the controller for the host's Python, pinned by hash.

A *target* is what the host says of its Python: {'python': '3.11.2', 'machine': 'x86_64', 'libc': '2.36'}.
A *pin* is one line of a lock that holds for the target: 'requests==2.34.2 --hash=sha256:… --hash=sha256:…'.
Runs on the controller only (needs `packaging`, which ansible-core brings).
"""

import base64
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from fcntl import LOCK_EX, flock
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

import gauntlet
from gauntlet.errors import GauntletError

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gauntlet" / "wheelhouses"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest time a zip can hold: the same source gives the same bytes
VERSION = "0.1.0"


def pins(lock: str, target: dict, where: str = "the lock") -> list[str]:
    """The lines of a pip lock (`--generate-hashes --universal`) that hold for the target, without their markers."""
    environment = {
        "python_version": ".".join(target["python"].split(".")[:2]),
        "python_full_version": target["python"],
        "platform_machine": target["machine"],
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    found = []
    for line in lock.replace("\\\n", " ").splitlines():
        text = line.partition(" #")[0].strip()
        if not text or text.startswith(("#", "--")):
            continue
        specification, *hashes = re.split(r"\s+--hash=", text)
        try:
            requirement = Requirement(specification)
        except InvalidRequirement as error:
            raise GauntletError(f"{where}: '{specification}' is not a requirement: {error}") from None
        if not hashes:
            raise GauntletError(f"{where}: '{specification}' has no hash; make the lock with --generate-hashes")
        if requirement.marker is None or requirement.marker.evaluate(environment):
            found.append(" ".join([f"{requirement.name}{requirement.specifier}", *(f"--hash={h}" for h in hashes)]))
    return sorted(found, key=str.lower)


def key(lines: Iterable[str], target: dict) -> str:
    """64 hex that name an environment: what is in it and for which Python. Equal keys, equal environments."""
    text = "\n".join([target["python"], target["machine"], *lines])
    return hashlib.sha256(text.encode()).hexdigest()


def platforms(target: dict) -> list[str]:
    """Every wheel platform that the target's libc can load, newest first (PEP 600 and its older names)."""
    machine, (major, minor) = target["machine"], map(int, target["libc"].split(".")[:2])
    legacy = {17: ["manylinux2014"], 12: ["manylinux2010"], 5: ["manylinux1"]}
    names = [n for m in range(minor, 4, -1) for n in (f"manylinux_{major}_{m}", *legacy.get(m, []))]
    return [f"{name}_{machine}" for name in names]


def download(lines: list[str], target: dict, cache: Path = CACHE) -> Path:
    """The folder of wheels for these pins, from the index that pip is configured for, or from the cache."""
    folder = cache / key(lines, target)
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / ".lock", "w") as lock:
        flock(lock, LOCK_EX)  # several hosts of one play ask for the same wheels at once
        if folder.is_dir():
            return folder
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            wheels, requirements = Path(scratch) / "wheels", Path(scratch) / "requirements.txt"
            requirements.write_text("\n".join(lines) + "\n")
            minor = "".join(target["python"].split(".")[:2])
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
            command += ["--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement", str(requirements)]
            command += ["--dest", str(wheels), "--python-version", target["python"], "--implementation", "cp"]
            command += [word for abi in (f"cp{minor}", "abi3", "none") for word in ("--abi", abi)]
            command += [word for platform in platforms(target) for word in ("--platform", platform)]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                errors = [line for line in run.stderr.splitlines() if line.startswith("ERROR")]
                raise GauntletError(
                    f"no wheels for Python {target['python']} on {target['machine']}: "
                    + (" ".join(errors) or run.stderr[-500:] or "pip said nothing")
                )
            wheels.rename(folder)
    return folder


def own_wheel(folder: Path) -> tuple[Path, str]:
    """(wheel of the package `gauntlet`, its pin). The version carries the content, so that a change is an upgrade."""
    root = Path(gauntlet.__file__).parent
    files = {
        f"gauntlet/{path.relative_to(root)}": path.read_bytes()
        for path in sorted(root.rglob("*.py"))
        if "__pycache__" not in path.parts
    }
    content = hashlib.sha256()
    for name, data in files.items():
        content.update(f"{name}\0{len(data)}\0".encode() + data)
    version = f"{VERSION}+{content.hexdigest()[:12]}"
    information = f"gauntlet-{version}.dist-info"
    files[f"{information}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: gauntlet\nVersion: {version}\nRequires-Dist: requests\n".encode()
    )
    files[f"{information}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: gauntlet\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = f"{information}/RECORD"
    rows = [f"{name},sha256={_record_hash(data)},{len(data)}" for name, data in files.items()]
    files[record] = ("\n".join([*rows, f"{record},,"]) + "\n").encode()

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), data)
    path = folder / f"gauntlet-{version}-py3-none-any.whl"
    path.write_bytes(buffer.getvalue())
    return pin_of(path)


def _record_hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def git_wheel(source: dict, cache: Path = CACHE) -> Path:
    """The wheel of a package at a commit, built here once: {'url', 'commit': 40 hex, 'subdirectory'?}.

    A branch moves and would make two builds of one name, so it takes a commit. Compiled parts fit hosts of
    the controller's own Python and platform.
    """
    commit = str(source.get("commit") or "")
    if not source.get("url") or not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise GauntletError(f"a git build needs a url and a commit of 40 hex digits, not '{commit}': a branch moves")
    where = f"{source['url']}@{commit}"
    if subdirectory := source.get("subdirectory"):
        where += f"#subdirectory={subdirectory}"
    folder = cache / "git" / hashlib.sha256(where.encode()).hexdigest()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / ".lock", "w") as lock:
        flock(lock, LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
                run = subprocess.run([*command, "--wheel-dir", scratch, f"git+{where}"], capture_output=True, text=True)
                if run.returncode:
                    raise GauntletError(f"{where} cannot be built: {run.stderr.strip()[-800:]}")
                folder.parent.mkdir(exist_ok=True)
                Path(scratch).rename(folder)
                Path(scratch).mkdir()  # for the context to remove
    (wheel,) = folder.glob("*.whl")
    return wheel


def pin_of(wheel: Path) -> tuple[Path, str]:
    """(wheel, its pin) of a wheel file that no index has."""
    if not wheel.is_file():
        raise GauntletError(f"there is no wheel {wheel} on the controller")
    name, version = wheel.name.split("-")[:2]
    return wheel, f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"


def only(lines: Iterable[str], name: str) -> list[str]:
    """The pins of one package."""
    return [line for line in lines if re.match(rf"{re.escape(name)}\b", line)]


def pack(wheels: Iterable[Path], archive: Path) -> Path:
    """One uncompressed tar of the wheels, to be carried over in one go."""
    with tarfile.open(archive, "w") as tar:
        for wheel in sorted(wheels):
            tar.add(wheel, wheel.name)
    return archive
