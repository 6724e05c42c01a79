"""ssh ProxyCommand: pipe stdin and stdout to a port of a lab host. Arguments: the labs' folder, host, port."""

import contextlib
import os
import select
import signal
import socket
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "module_utils"))

import lab_record

CHUNK = 1 << 18
DISCONNECT, SERVICE_NOT_AVAILABLE = 1, 7  # RFC 4253, 11.1


def refuse(reason: str) -> None:
    """Say why there is no connection as an ssh server would: ssh throws away the stderr of a ProxyCommand."""
    text = reason.encode()
    payload = struct.pack(">BII", DISCONNECT, SERVICE_NOT_AVAILABLE, len(text)) + text + struct.pack(">I", 0)
    padding = 16 - (5 + len(payload)) % 8  # RFC 4253, 6: at least 4, the whole a multiple of 8
    packet = struct.pack(">IB", 1 + len(payload) + padding, padding) + payload + bytes(padding)
    with outlived(os.getppid()):
        os.write(1, b"SSH-2.0-lab\r\n" + packet)
        while os.read(0, CHUNK):  # closing before the client has greeted would be all that it reports
            pass


@contextlib.contextmanager
def outlived(ssh: int):
    """Keep the reading end of ssh's stdin until ssh has ended: Ansible, cut off in the middle of a write, waits 1 ms
    for the exit status and then reports a broken pipe in place of the reason."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # with which ssh takes leave of a ProxyCommand
    process = os.pidfd_open(ssh)
    with contextlib.suppress(OSError):  # a socket, or closed
        os.open(f"/proc/{ssh}/fd/0", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    yield
    select.select([process], [], [], 1)


def pipe(remote: socket.socket) -> None:
    """Copy both ways until the lab host closes; the end of our input is passed on as a half close."""
    remote.settimeout(None)
    sources = [0, remote]
    while True:
        for source in select.select(sources, [], [])[0]:
            if source is remote:
                data = remote.recv(CHUNK)
                if not data:
                    return
                while data:
                    data = data[os.write(1, data) :]
            else:
                data = os.read(0, CHUNK)
                if data:
                    remote.sendall(data)
                else:
                    sources.remove(0)
                    remote.shutdown(socket.SHUT_WR)


def main(labs: str, host: str, port: str) -> None:
    machine = lab_record.find(Path(labs) / host)
    if machine is None:
        refuse(f"lab host '{host}' is not up; start it with: ansible-playbook playbooks/lab.yml")
        return
    try:
        remote = machine.dial(int(port))
    except OSError as error:
        refuse(f"lab host '{host}' is up but does not answer on port {port} yet: {error.strerror or error}")
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # as in a reboot: ssh itself says so
        pipe(remote)


if __name__ == "__main__":
    main(*sys.argv[1:])
