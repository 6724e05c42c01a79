"""Weights from elsewhere: another host and the hub are believed only by hash, and taken up where they ended."""

import hashlib
import json
import os
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub.constants
import pytest

from gauntlet.errors import GauntletError
from gauntlet.weights import digests, manifest, serve, staging
from gauntlet.weights.hub import Hub
from gauntlet.weights.options import Options
from gauntlet.weights.peer import Peer
from gauntlet.weights.shelf import Shelf
from gauntlet.weights.sources import Places

COMMIT = "93760be4f1f69842a46bc13dbdc0f19e291392a3"
FILES = {"config.json": b'{"model_type": "tiny"}\n', "m.gguf": b"GGUF" + os.urandom(300_000), "other.bin": b"x" * 99}
WEIGHTS = {
    "id": "tiny",
    "format": "gguf",
    "entry": "m.gguf",
    "source": {"kind": "hub", "repository": "acme/tiny", "revision": "main"},
    "size_bytes": 300_004,
}


class Host:
    def __init__(self, root):
        self.mount, self.store = Shelf(root / "memory", memory=True), Shelf(root / "store", memory=False)
        for shelf in (self.mount, self.store):
            shelf.root.mkdir(parents=True)

    def present(self, **places):
        dry = places.pop("dry", False)
        result = staging.present([WEIGHTS], self.mount, Places(self.store, **places), Options(jobs=2, dry=dry))
        return result["snapshots"][0]

    def staged(self):
        path = self.mount.path("tiny") / "m.gguf"
        return path.read_bytes() if path.exists() else None

    def peer(self, name="other"):
        """The other side of ssh without ssh: the words arrive as sshd gives them to a forced command."""
        roots = [str(self.mount.root), str(self.store.root)]
        code = f"import os, sys; os.environ['SSH_ORIGINAL_COMMAND'] = ' '.join(sys.argv[1:]); sys.argv[1:] = {roots}"
        return Peer(name, [sys.executable, "-c", f"{code}; from gauntlet.weights import serve; serve.main()"])


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path / "here")


class FakeHub(BaseHTTPRequestHandler):
    """As much of the hub as huggingface_hub asks for, after its own requests; `files` and `faults` are the test's."""

    files: dict
    faults: dict
    asked: list

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        type(self).asked.append((self.command, self.path, self.headers.get("Range"), self.headers.get("Authorization")))
        if self.path.startswith("/api/models/acme/tiny/revision/"):
            return self.send(
                200, json.dumps({"id": "acme/tiny", "sha": COMMIT, "siblings": self.siblings()}).encode(), {}, body
            )
        if not (match := re.fullmatch(rf"/acme/tiny/resolve/{COMMIT}/(.*)", self.path)) or match[1] not in self.files:
            return self.send(404, b"", {"X-Error-Code": "RepoNotFound"}, body)
        data, name = self.files[match[1]], match[1]
        sha = hashlib.sha256(data).hexdigest()
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{sha}"', "Accept-Ranges": "bytes"}
        if body and (fault := self.faults.pop(name, None)):
            return fault(self, data, headers)
        status = 200
        if wanted := self.headers.get("Range"):
            start = int(re.match(r"bytes=(\d+)-", wanted)[1])
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            data, status = data[start:], 206
        self.send(status, data, headers, body)

    def siblings(self):
        found = []
        for name, data in self.files.items():
            entry = {"rfilename": name, "size": len(data)}
            if name.endswith((".gguf", ".bin")):
                entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 1}
            else:
                entry["blobId"] = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            found.append(entry)
        return found

    def send(self, status, data, headers, body):
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(data))} | headers).items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    FakeHub.files, FakeHub.faults, FakeHub.asked = dict(FILES), {}, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Hub(endpoint=f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


class TestHub:
    def test_only_what_is_the_model_is_fetched_kept_and_staged(self, host, hub):
        line = host.present(hub=hub)
        assert (line["state"], line["source"], line["left_out"]) == ("staged", "hub", ["config.json", "other.bin"])
        assert host.staged() == FILES["m.gguf"]
        assert not [path for _, path, _, _ in FakeHub.asked if path.endswith("other.bin")]
        host.mount.remove("tiny")
        FakeHub.asked.clear()
        assert host.present(hub=hub)["source"] == "store"
        assert FakeHub.asked == []

    def test_check_mode_says_how_much_and_fetches_nothing(self, host, hub):
        line = host.present(hub=hub, dry=True)
        assert line["state"] == "would_stage"
        assert line["where"].startswith(f"acme/tiny@{COMMIT[:12]}: 300.0 kB in 1 files")
        assert not [path for _, path, _, _ in FakeHub.asked if path.endswith(".gguf")]
        assert not any(host.store.root.iterdir())

    def test_damaged_bytes_are_refused_by_name_and_fetched_again_by_the_next_run(self, host, hub):
        FakeHub.faults["m.gguf"] = lambda self, data, headers: self.send(200, b"?" + data[1:], headers, True)
        with pytest.raises(GauntletError, match="m.gguf was not fetched, or arrived damaged"):
            host.present(hub=hub)
        assert host.staged() is None
        assert host.present(hub=hub)["state"] == "staged"
        assert host.staged() == FILES["m.gguf"]

    def test_a_download_that_was_cut_is_taken_up_where_it_ended(self, host, hub, monkeypatch):
        """55 GB over a line that drops must not begin again: the second request asks for the rest."""

        def cut(self, data, headers):
            self.send_response(200)
            for key, value in ({"Content-Length": str(len(data))} | headers).items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(data[:200_000])
            self.wfile.flush()
            self.connection.close()

        monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 1 << 16)
        FakeHub.faults["m.gguf"] = cut
        host.present(hub=hub)
        assert host.staged() == FILES["m.gguf"]
        ranges = [wanted for command, path, wanted, _ in FakeHub.asked if command == "GET" and path.endswith("m.gguf")]
        assert ranges[0] is None and re.match(r"bytes=[1-9]\d*-", ranges[1])

    def test_unreachable_says_what_is_missing_and_where_else_it_could_come_from(self, host):
        hub = Hub(endpoint="http://127.0.0.1:9")
        with pytest.raises(GauntletError, match=r"hub: acme/tiny cannot be had.*all files of acme/tiny.*another host"):
            host.present(hub=hub)

    def test_offline_asks_nothing(self, host, hub, monkeypatch):
        with pytest.raises(GauntletError, match="hub: offline by choice"):
            host.present(hub=Hub(endpoint=hub.endpoint, offline=True))
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(GauntletError, match="hub: offline by choice"):
            host.present(hub=hub)
        assert FakeHub.asked == []

    def test_the_token_comes_from_its_file_and_only_from_there(self, host, hub, tmp_path, monkeypatch):
        monkeypatch.setenv("HF_TOKEN", "hf_of_somebody_else")
        (tmp_path / "token").write_text("hf_ours\n")
        host.present(hub=Hub(hub.endpoint, tmp_path / "none"))
        assert {authorization for *_, authorization in FakeHub.asked} == {None}
        host.mount.remove("tiny")
        host.store.remove("tiny")
        FakeHub.asked.clear()
        line = host.present(hub=Hub(hub.endpoint, tmp_path / "token"))
        assert {authorization for *_, authorization in FakeHub.asked} == {"Bearer hf_ours"}
        assert "hf_ours" not in json.dumps(line)


class TestPeer:
    def test_another_host_that_has_it_is_asked_before_the_hub(self, host, hub, tmp_path):
        other = Host(tmp_path / "there")
        other.present(hub=hub)
        FakeHub.asked.clear()
        line = host.present(peers=[other.peer()], hub=hub)
        assert (line["state"], line["source"], line["where"]) == ("staged", "peer", "other")
        assert host.staged() == FILES["m.gguf"]
        assert FakeHub.asked == []
        assert "stored again from memory" in line["notes"][0], "the next reboot must not need the other host"
        host.mount.remove("tiny")
        assert host.present()["source"] == "store"

    def test_its_store_is_good_enough(self, host, hub, tmp_path):
        other = Host(tmp_path / "there")
        other.present(hub=hub)
        other.mount.remove("tiny")
        assert host.present(peers=[other.peer()])["source"] == "peer"

    def test_a_byte_that_it_lost_is_named_and_nothing_is_served(self, host, hub, tmp_path):
        other = Host(tmp_path / "there")
        other.present(hub=hub)
        path = other.mount.path("tiny") / "m.gguf"
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        with pytest.raises(GauntletError, match=r"damaged in other: m\.gguf"):
            host.present(peers=[other.peer()])
        assert host.staged() is None

    def test_one_that_dies_in_mid_copy_gives_the_next_its_turn(self, host, hub, tmp_path):
        """Here by a cable that is pulled after 1,000 bytes; the hub has the rest of it."""
        other = Host(tmp_path / "there")
        other.present(hub=hub)
        peer, torn = other.peer(), "(sys.stdout.buffer.write(bytes(1000)), sys.exit('the cable'))"
        peer.ssh[2] = f"import sys; 'm.gguf' in sys.argv and {torn}; {peer.ssh[2]}"
        line = host.present(peers=[peer], hub=hub)
        assert (line["state"], line["source"]) == ("staged", "hub") and host.staged() == FILES["m.gguf"]
        assert any("other: m.gguf could not be copied: other: the cable" in why for why in line["why"])
        assert not line["wrong"]

    def test_its_quick_hash_is_not_believed(self, host, hub, tmp_path):
        """Anybody can make a file to it: what crosses from host to host is proven by sha256."""
        other = Host(tmp_path / "there")
        other.present(hub=hub)
        (other.mount.path("tiny") / "m.gguf").write_bytes(b"GGUF" + bytes(300_000))
        record = other.mount.manifest("tiny")
        quick = digests.of_file(other.mount.path("tiny") / "m.gguf", [digests.XXH3])
        record["files"]["m.gguf"] |= quick
        manifest.write(other.mount.path("tiny"), record)
        with pytest.raises(GauntletError, match=r"damaged in other: m\.gguf \(sha256 is"):
            host.present(peers=[other.peer()])

    def test_one_that_does_not_have_it_or_goes_away_is_named(self, host, hub, tmp_path):
        other = Host(tmp_path / "there")
        with pytest.raises(GauntletError, match="other: other: has no verified tiny"):
            host.present(peers=[other.peer()])
        with pytest.raises(GauntletError, match="gone: gone does not answer"):
            host.present(peers=[Peer("gone", ["/no/such/ssh"])])
        other.present(hub=hub)
        (other.mount.path("tiny") / "m.gguf").unlink()
        with pytest.raises(GauntletError, match=r"m\.gguf could not be copied: other: .*No such file"):
            host.present(peers=[other.peer()])


@pytest.mark.parametrize(
    "words",
    [
        "",
        "manifest",
        "manifest ../../etc",
        "file tiny ../../../etc/passwd",
        "file tiny /etc/passwd",
        f"file tiny {manifest.NAME}",
        "file tiny secret",
        "sh -c id",
        "file tiny m.gguf extra",
    ],
)
def test_what_a_host_gives_to_others_is_published_weights_and_nothing_else(host, hub, words, tmp_path):
    """The key that other hosts hold opens no shell and no other file, whatever it asks for."""
    host.present(hub=hub)
    (host.mount.path("tiny") / "secret").write_text("not in the manifest")
    with open(tmp_path / "out", "wb") as out, pytest.raises(GauntletError):
        serve.answer(words.split(" "), [host.mount], out.fileno())
    assert (tmp_path / "out").read_bytes() == b""
