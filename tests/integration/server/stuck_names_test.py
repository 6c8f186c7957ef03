"""A user database that does not answer. usage: stuck_names_test.py RENDEZVOUS STUCK_LIBRARY [TEST...]

The library (tests/lib/stuck_disk.c) is preloaded into the server, where getpwuid_r hangs on demand."""
import contextlib
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.runner import run_tests
from processes.wire import Client, CLIENT_HELLO, NODE_IDENTITY, Peer, PROTOCOL, Server

BINARY, LIBRARY = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])


@contextlib.contextmanager
def hanging_server():
    root = tempfile.mkdtemp(prefix="ddp-names-")
    stuck = os.path.join(root, "stuck")
    os.environ.update(LD_PRELOAD=LIBRARY, DDP_STUCK_FILE=stuck, ASAN_OPTIONS="verify_asan_link_order=0")
    process = Server(BINARY, os.path.join(root, "state"))
    del os.environ["LD_PRELOAD"]
    try:
        yield process, stuck
    finally:
        if process.alive():
            process.kill()
        shutil.rmtree(root)


def open_node(address):
    peer = Peer(address)
    peer.send("node_hello", protocol=PROTOCOL, version="test", name="n1", boot_id="boot", instance=1, pid=1,
              address="127.0.0.1", slots=1, gpus=0, shims=[], closed=[], **NODE_IDENTITY)
    assert peer.recv()["type"] == "node_welcome"
    return peer


def test_nodes_are_heard_meanwhile():
    """Users who connected before are accepted, with the name known from then."""
    with hanging_server() as (process, stuck):
        node = open_node(process.address)
        with Client(process.address) as client:
            user = client.job(str(client.submit()["job_id"]))["jobs"][0]["user"]
        open(stuck, "w").close()
        waiting = Peer(process.address)
        waiting.send("client_hello", **CLIENT_HELLO)
        for i in range(3):
            node.send("beat", sent_us=i + 1, shims=[], closed=[], leaving=False, warm=[], silent=[])
            while True:
                message = node.recv()
                if message["type"] == "beat_ack":
                    assert message["sent_us"] == i + 1
                    break
        assert waiting.recv()["type"] == "client_welcome"
        waiting.send("job_get", job="1", after_version=0, wait_us=0, first_rank=0)
        assert waiting.recv()["jobs"][0]["user"] == user
        os.unlink(stuck)
        with Client(process.address) as client:
            client.submit()
        assert process.stop() == 0


def test_the_server_ends_all_the_same():
    with hanging_server() as (process, stuck):
        open(stuck, "w").close()
        peers = [Peer(process.address) for _ in range(8)]
        for peer in peers:
            peer.send("client_hello", **CLIENT_HELLO)
        assert peers[0].recv()["type"] == "client_welcome"
        assert process.stop() == 0
        assert "the user database does not answer" in process.log(), process.log()


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[3:]))
