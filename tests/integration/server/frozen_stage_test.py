"""The disk of the staged directories does not answer: frozen_stage_test.py RENDEZVOUS STUCK_LIBRARY [TEST...]

The library (tests/lib/stuck_disk.c) is preloaded into the server. While that disk is frozen, every call that names a path in STATE/stage hangs."""
import base64
import contextlib
import hashlib
import os
import random
import re
import shutil
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from edge import Edge
from processes.case import EDGE
from processes.runner import run_tests
from processes.waiting import Stopwatch, wait_for, LONG_S
from processes.wire import Client, NODE_IDENTITY, Peer, PROTOCOL, Refused, Server

BINARY, LIBRARY = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
CHUNK = 512 * 1024
LATE_S = 10  # FILE_WORK_LATE_MS
LONGEST_ANSWER_S = 1.0  # to a beat or a question meanwhile


class Disk:
    """And the server's clock, the gated one of tests/lib/edge.py."""

    def __init__(self, root, edge):
        self.mark = os.path.join(root, "stuck.stage")
        self.edge = edge
        self.environ = {"LD_PRELOAD": f"{LIBRARY} {edge.env['LD_PRELOAD']}", "EDGE_FILE": edge.env["EDGE_FILE"],
                        "DDP_STUCK_FILE": os.path.join(root, "stuck"), "ASAN_OPTIONS": "verify_asan_link_order=0"}

    def freeze(self):
        open(self.mark, "w").close()

    def thaw(self):
        if os.path.exists(self.mark):
            os.unlink(self.mark)

    def watch(self):
        return Stopwatch(self.edge.now)


@contextlib.contextmanager
def a_server():
    root = tempfile.mkdtemp(prefix="ddp-frozen-")
    with Edge(EDGE) as edge:
        edge.clock()
        disk = Disk(root, edge)
        process = Server(BINARY, os.path.join(root, "state"), environ={**os.environ, **disk.environ})
        try:
            yield process, disk
        finally:
            disk.thaw()
            if process.alive():
                process.kill()
            shutil.rmtree(root)


def open_node(address):
    peer = Peer(address)
    peer.send("node_hello", protocol=PROTOCOL, version="test", name="n1", boot_id="boot", instance=1, pid=1,
              address="127.0.0.1", slots=1, gpus=0, shims=[], closed=[], **NODE_IDENTITY)
    assert peer.recv()["type"] == "node_welcome"
    return peer


def piece(digest, total, offset=0, data=b""):
    return dict(hash=digest, total=str(total), offset=offset, bytes=base64.b64encode(data).decode())


def upload(client, data):
    digest = hashlib.sha256(data).hexdigest()
    client.ask("stage_put", **piece(digest, len(data)))
    assert client.ask("stage_put", **piece(digest, len(data), 0, data))["is_complete"]
    return digest


def is_late(process, before, text):
    """Two threads hang; what waits for one of them says so."""
    path = re.escape(f"{process.state_dir}/stage"[:100])
    return re.fullmatch(rf"{before}the disk of {path} \(staged directories\) does not answer: open( of an earlier order)? took longer than {LATE_S} s", text)


def refusal(ask):
    try:
        return f"answered: {ask()}"
    except Refused as error:
        return str(error)


class Background:
    """An answer that takes long."""

    def __init__(self, ask):
        self.thread = threading.Thread(target=lambda: setattr(self, "text", refusal(ask)), daemon=True)
        self.thread.start()

    def get(self):
        self.thread.join(60)
        return self.text


def beat(node, number, watch):
    """Returns how long its answer took, and what else came."""
    others = []
    node.send("beat", sent_us=number, shims=[], closed=[], leaving=False, warm=[], silent=[])
    while True:
        message = node.recv()
        if message["type"] == "beat_ack":
            return watch.passed_s, others
        others.append(message)


def test_everybody_else_goes_on():
    """A staged submit, an upload and the fetch of a node fail by the folder's name; beats, questions and other submits are answered."""
    with a_server() as (process, disk), Client(process.address) as one, Client(process.address) as two, Client(process.address) as other:
        node = open_node(process.address)
        digest = upload(one, b"archive")
        job = other.submit(cwd=f"stage:{digest}")["job_id"]
        disk.freeze()
        whole = disk.watch()
        begin = Background(lambda: one.ask("stage_put", **piece(hashlib.sha256(b"new").hexdigest(), 3)))
        submit = Background(lambda: two.submit(cwd=f"stage:{digest}"))
        node.send("stage_get", hash=digest, offset=0)
        longest, got, number = 0.0, [], 0
        while not any(m["type"] == "stage_data" for m in got):
            number += 1
            took, others = beat(node, number, disk.watch())
            got += others
            watch = disk.watch()
            assert other.job(job)["jobs"][0]["state"] in ("queued", "starting")
            if number <= 100:
                other.submit(name="plain")
            longest = max(longest, took, watch.passed_s)
            disk.edge.sleep(0.1)
        whole.check("the failure of the fetch", LATE_S - 1, LATE_S + 10)
        assert longest < LONGEST_ANSWER_S, longest
        (data,) = [m for m in got if m["type"] == "stage_data"]
        assert is_late(process, "the server: ", data["problem"]), data
        for late in begin, submit:
            assert is_late(process, "internal: the staged directory: ", late.get()), late.get()
        log = process.log()
        assert log.count("staged directories fail: the disk of ") == 1 and "does not answer" in log, log
        disk.thaw()
        upload(one, b"another")
        assert process.log().count("the disk of staged directories answers again") == 1, process.log()
        two.submit(cwd=f"stage:{digest}")
        node.send("stage_get", hash=digest, offset=0)
        while True:
            message = node.recv()
            if message["type"] == "stage_data":
                break
        assert base64.b64decode(message["bytes"]) == b"archive" and message["problem"] == "", message
        names = sorted(os.listdir(f"{process.state_dir}/stage"))
        assert [name[64:] for name in names] == [".tar", ".tar"], names
        assert process.stop() == 0


def test_clients_fill_no_memory():
    """Each client has one piece in the server at a time, and one user's pieces have a limit."""
    most = 32 * 2**20 // CHUNK
    with a_server() as (process, disk):
        clients = [Client(process.address) for _ in range(most + 3)]
        data = random.Random(1).randbytes(CHUNK)
        for number, client in enumerate(clients):
            client.ask("stage_put", **piece("%064x" % number, 2 * CHUNK))
        disk.freeze()
        for number, client in enumerate(clients):
            client.send("stage_put", **piece("%064x" % number, 2 * CHUNK, 0, data))
        answers = [refusal(client.answer) for client in clients]
        full = [text for text in answers if text.startswith("full: the staged directory: 33.6 MB wait already to be written to ")]
        late = [text for text in answers if is_late(process, "internal: the staged directory: ", text)]
        assert (len(full), len(late)) == (3, most), answers
        disk.thaw()
        with Client(process.address) as client:
            upload(client, b"archive")
        for client in clients:
            client.close()
        assert process.stop() == 0


def test_the_server_ends_all_the_same():
    with a_server() as (process, disk), Client(process.address) as client:
        disk.freeze()
        client.send("stage_put", **piece(hashlib.sha256(b"x").hexdigest(), 1))
        with Client(process.address) as other:
            other.submit()  # the server has read what was sent before
        watch = disk.watch()
        assert process.stop() == 0
        watch.check("the end of the server", at_most=15)


def wait_log(process, text):
    wait_for(process.log, lambda: text in process.log(), LONG_S)


def test_the_log_says_that_the_server_stands_still():
    """As in a commit to a disk that hangs, which is done on the loop."""
    with a_server() as (process, disk):
        watch = disk.watch()
        disk.mark = disk.mark.replace(".stage", ".loop")
        with open(disk.mark + ".new", "w", encoding="ascii") as mark:
            mark.write(str(process.process.pid))
        os.rename(disk.mark + ".new", disk.mark)
        wait_log(process, f"this server has stood still for 10 s, in a call that does not return, and answers nobody: does the disk of {process.state_dir} answer? "
                          "Nodes that hear from no server end their workers when their lease of 60 s is over")
        disk.thaw()
        wait_log(process, "this server goes on after it stood still for ")
        assert 10 <= int(re.search(r"after it stood still for (\d+) s", process.log()).group(1)) <= watch.passed_s, process.log()
        with Client(process.address) as client:
            client.submit()
        assert process.stop() == 0


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[3:]))
