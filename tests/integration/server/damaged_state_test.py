"""What the server keeps on its disk was damaged while nobody looked: damaged_state_test.py RENDEZVOUS LAUNCHERD [TEST...]"""
import base64
import contextlib
import hashlib
import io
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.runner import run_tests
from processes.waiting import PATIENCE_S
from processes.wire import Client, Server

BINARY, LAUNCHERD = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
CHUNK = 512 * 1024
PAGE = 4096


class Place:
    """A server and its nodes in a folder of their own."""

    def __init__(self, root):
        self.root = root
        self.state_dir = os.path.join(root, "state")
        self.nodes = []
        self.start()

    def start(self):
        self.server = Server(BINARY, self.state_dir)

    def stop(self):
        assert self.server.stop() == 0

    def node(self, name):
        with open(os.path.join(self.root, name + ".log"), "wb") as log:
            self.nodes.append(subprocess.Popen(
                [LAUNCHERD, "--server", self.server.address, "--name", name, "--slots", "1", "--allow-root",
                 "--state-dir", os.path.join(self.root, name)], stdout=subprocess.DEVNULL, stderr=log))

    def close(self):
        for process in self.nodes:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
        if self.server.alive():
            self.server.kill()

    def archive(self, digest):
        return os.path.join(self.state_dir, "stage", digest + ".tar")


@contextlib.contextmanager
def a_place():
    root = tempfile.mkdtemp(prefix="ddp-damaged-")
    place = None
    try:
        place = Place(root)
        yield place
    finally:
        if place:
            place.close()
        shutil.rmtree(root)


def a_project(text):
    """A tar archive with one program that prints the text, and more bytes than one piece has."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in (("run.sh", b"#!/bin/sh\necho %s\n" % text), ("data", random.Random(1).randbytes(CHUNK + 1000))):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def upload(client, data):
    """How many bytes the server had to be sent."""
    digest = hashlib.sha256(data).hexdigest()
    answer = client.ask("stage_put", hash=digest, total=str(len(data)), offset=0, bytes="")
    have = len(data) if answer["is_complete"] else 0
    for offset in range(have, len(data), CHUNK):
        answer = client.ask("stage_put", hash=digest, total=str(len(data)), offset=offset,
                            bytes=base64.b64encode(data[offset:offset + CHUNK]).decode())
    assert answer["is_complete"], answer
    return len(data) - have


def submit(client, data):
    return client.submit(cwd="stage:" + hashlib.sha256(data).hexdigest(), argv=["./run.sh"], max_restarts=3)["job_id"]


def ended(client, job):
    return client.wait_for(job, lambda j: j["state"] in ("succeeded", "failed"))["jobs"][0]


def change_byte(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def test_a_damaged_archive():
    """The job that finds it fails once, with the cause; the next submit sends the archive anew."""
    for at in (0, CHUNK + 1):
        with a_place() as place, Client(place.server.address) as client:
            data = a_project(b"one")
            path = place.archive(hashlib.sha256(data).hexdigest())
            upload(client, data)
            change_byte(path, at)
            place.node("n1")
            job = ended(client, submit(client, data))
            assert job["state"] == "failed" and job["restarts"] == 0 and job["exit_code"] == 125, job
            assert job["reason"] == "node n1 cannot get the staged directory: the archive on the server was damaged, and is removed: " \
                "submit again with --stage", job
            assert not os.path.exists(path) and "was damaged, and is removed" in place.server.log()
            assert upload(client, data) == len(data)
            job = ended(client, submit(client, data))
            assert job["state"] == "succeeded", job


def test_an_archive_that_is_gone():
    with a_place() as place, Client(place.server.address) as client:
        data = a_project(b"two")
        upload(client, data)
        job = submit(client, data)
        os.unlink(place.archive(hashlib.sha256(data).hexdigest()))
        place.node("n1")
        job = ended(client, job)
        assert job["state"] == "failed" and job["restarts"] == 0, job
        assert "the server does not have it any more: submit again with --stage" in job["reason"], job


def test_an_archive_of_another_size():
    """It is sent anew at once; one whose size is said wrongly stays."""
    with a_place() as place, Client(place.server.address) as client:
        data = a_project(b"three")
        digest = hashlib.sha256(data).hexdigest()
        upload(client, data)
        assert client.ask("stage_put", hash=digest, total="77", offset=0, bytes="")["is_complete"]
        os.truncate(place.archive(digest), 1000)
        assert upload(client, data) == len(data)
        assert os.path.getsize(place.archive(digest)) == len(data)


def zero_leaf(path, table):
    """Zeroes a leaf in the middle of the table's tree (sqlite.org/fileformat2.html#b_tree_pages)."""
    database = sqlite3.connect(path)
    (page,) = database.execute("select rootpage from sqlite_schema where name = ?", (table,)).fetchone()
    database.execute("pragma wal_checkpoint(truncate)")
    database.close()
    with open(path, "r+b") as file:
        while True:
            file.seek((page - 1) * PAGE)
            data = file.read(PAGE)
            if data[0] not in (5, 2):
                break
            cell = 12 + 2 * (int.from_bytes(data[3:5], "big") // 2)
            at = int.from_bytes(data[cell:cell + 2], "big")
            page = int.from_bytes(data[at:at + 4], "big")
        file.seek((page - 1) * PAGE)
        file.write(bytes(PAGE))


def test_a_lost_page_of_commands():
    """Its jobs fail with that cause, and all others run."""
    with a_place() as place:
        with Client(place.server.address) as client:
            jobs = [client.submit(argv=["true"], env={"X": "x" * 600})["job_id"] for _ in range(24)]
        place.stop()
        zero_leaf(os.path.join(place.state_dir, "state.db"), "specs")
        place.start()
        assert "state.db was damaged (" in place.server.log() and os.path.exists(os.path.join(place.state_dir, "state.db.damaged"))
        place.node("n1")
        with Client(place.server.address) as client:
            done = [ended(client, job) for job in jobs]
            lost = [job for job in done if job["state"] == "failed"]
            assert 1 <= len(lost) <= 8, lost
            for job in lost:
                assert job["reason"] == "its command is lost: the server's state.db was damaged. Submit it again", job
            events = client.ask("event_list", job_id=0, after_id=0, limit=200, wait_us=0)["events"]
            assert any("state.db was damaged" in event["text"] for event in events), events


def test_a_lost_page_of_the_jobs():
    """The server does not start: status 1, and what to do."""
    with a_place() as place:
        with Client(place.server.address) as client:
            for _ in range(8):
                client.submit()
        place.stop()
        path = os.path.join(place.state_dir, "state.db")
        zero_leaf(path, "jobs")
        with open(path, "rb") as file:
            before = file.read()
        result = subprocess.run([BINARY, "--state-dir", place.state_dir], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert result.returncode == 1, result
        assert "state.db is damaged" in result.stderr and "move it and its -wal away, and restore a backup (ddpctl restore)" in result.stderr, result
        with open(path, "rb") as file:
            assert file.read() == before


if __name__ == "__main__":
    sys.exit(run_tests([test_a_damaged_archive, test_an_archive_that_is_gone, test_an_archive_of_another_size,
                        test_a_lost_page_of_commands, test_a_lost_page_of_the_jobs], sys.argv[3:]))
