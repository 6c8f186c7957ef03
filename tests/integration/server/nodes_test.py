"""The list of nodes in pages: more nodes than a page has, and ddpctl's one list of them. usage: nodes_test.py RENDEZVOUS DDPCTL [TEST...]"""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from ddpproto import PATIENCE_S, PROTOCOL, Client, Peer, Server, run_tests

BINARY, DDPCTL = sys.argv[1:3]
NODES, PAGE, SLOTS, SLOTS_PAGE = 600, 256, 64, 1024  # limits.h: NODES_LISTED_MAX, SLOTS_PER_NODE_MAX, SLOTS_LISTED_MAX


def closed_of(i):
    """Some nodes have all their slots closed, so a page of these nodes ends for want of room for slots."""
    return SLOTS if 100 <= i < 140 else i % 3


def say_hello(address, i):
    peer = Peer(address)
    closed = [dict(slot=k, state="quarantined", incident=0, reason="slot %d of %d" % (k, i)) for k in range(closed_of(i))]
    peer.send("node_hello", protocol=PROTOCOL, version="test", name="node%d" % i, boot_id="boot", instance=i + 1, pid=1,
              address="127.0.0.1", slots=SLOTS, gpus=SLOTS, shims=[], closed=closed)
    assert peer.recv()["type"] == "node_welcome"
    return peer


@contextlib.contextmanager
def cluster():
    """A server with NODES nodes, which are never lost."""
    root = tempfile.mkdtemp(prefix="ddp-nodes-")
    server = Server(BINARY, os.path.join(root, "state"), "--suspect", "1h", "--lost", "1h", "--lease", "1h")
    peers = []
    try:
        peers = [say_hello(server.address, i) for i in range(NODES)]
        yield server, peers
    finally:
        for peer in peers:
            peer.close()
        server.kill()
        shutil.rmtree(root)


def pages_of(client, limit):
    pages, after = [], ""
    while not pages or pages[-1]["more"]:
        pages.append(client.ask("node_list", all=True, node="", after=after, limit=limit))
        after = pages[-1]["nodes"][-1]["name"]
    return pages


def check_pages(pages, limit):
    names = [node["name"] for page in pages for node in page["nodes"]]
    assert names == ["node%d" % i for i in range(NODES)], names[:20]  # by name, numbers by their value
    for page in pages:
        assert len(page["nodes"]) <= limit and len(page["slots"]) <= SLOTS_PAGE, (len(page["nodes"]), len(page["slots"]))
        want = [(n["name"], k) for n in page["nodes"] for k in range(closed_of(int(n["name"][4:])))]
        assert [(s["node"], s["slot"]) for s in page["slots"]] == want, page["nodes"][0]
    short = [p for p in pages[:-1] if len(p["nodes"]) < limit]
    assert len(short) == (2 if limit == PAGE else 0), [len(p["nodes"]) for p in pages]  # 40 nodes of 64 closed slots


def ddpctl(server, *args):
    done = subprocess.run([DDPCTL, "--server", server.address, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done
    return done.stdout


def test_more_nodes_than_a_page():
    with cluster() as (server, peers), Client(server.address) as client:
        check_pages(pages_of(client, PAGE), PAGE)
        check_pages(pages_of(client, 7), 7)
        document = json.loads(ddpctl(server, "nodes", "--json"))
        assert [n["name"] for n in document["nodes"]] == ["node%d" % i for i in range(NODES)]
        assert all(len(n["closed_slots"]) == closed_of(i) for i, n in enumerate(document["nodes"]))
        assert document["nodes"][139]["closed_slots"][63]["reason"] == "slot 63 of 139"
        assert ddpctl(server, "nodes", "-q").split() == ["node%d" % i for i in range(NODES)]
        one = client.ask("node_list", all=True, node="node139", after="", limit=1)
        assert len(one["slots"]) == SLOTS and not one["more"] and len(one["nodes"]) == 1, one
        peers[300].close()  # it keeps its place, as suspect
        states = {n["name"]: n["state"] for n in client.nodes()}
        assert len(states) == NODES and states["node299"] == "up", len(states)


def test_a_cursor_that_is_no_node():
    with cluster() as (server, _), Client(server.address) as client:
        for after, first in (("node7x", "node8"), ("a", "node0"), ("node598", "node599")):
            page = client.ask("node_list", all=True, node="", after=after, limit=1)
            assert page["nodes"][0]["name"] == first, (after, page)
        page = client.ask("node_list", all=True, node="", after="z", limit=1)
        assert page["nodes"] == [] and not page["more"], page


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[3:]))
