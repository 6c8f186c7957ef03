"""Many nodes: the list of nodes and the ranks of a job on many nodes come in pages, and ddpctl shows one list of each.
usage: nodes_test.py RENDEZVOUS DDPCTL [TEST...]"""
import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.runner import run_tests
from processes.waiting import PATIENCE_S
from processes.wire import Client, new_boot, NODE_IDENTITY, Peer, PROTOCOL, Server
from server_test import dump, node, server, state_dir

BINARY, DDPCTL = sys.argv[1:3]
NODES, PAGE, SLOTS, SLOTS_PAGE = 600, 256, 64, 1024  # limits.h: NODES_LISTED_MAX, SLOTS_PER_NODE_MAX, SLOTS_LISTED_MAX


def closed_of(i):
    """Some nodes have all their slots closed, so a page with these nodes is full when it has no room for more slots."""
    return SLOTS if 100 <= i < 140 else i % 3


def say_hello(address, i, closed_count):
    peer = Peer(address)
    closed = [dict(slot=k, state="quarantined", incident=0, reason="slot %d of %d" % (k, i)) for k in range(closed_count(i))]
    peer.send("node_hello", protocol=PROTOCOL, version="test", name="node%d" % i, boot_id="boot", instance=i + 1, pid=1,
              address="127.0.0.1", slots=SLOTS, gpus=SLOTS, shims=[], closed=closed,
              **NODE_IDENTITY)
    assert peer.recv()["type"] == "node_welcome"
    return peer


@contextlib.contextmanager
def cluster(nodes=NODES, closed_count=closed_of):
    """A server with this many nodes, which are never lost."""
    root = tempfile.mkdtemp(prefix="ddp-nodes-")
    server = Server(BINARY, os.path.join(root, "state"), "--suspect", "1h", "--lost", "1h", "--lease", "1h")
    peers = []
    try:
        peers = [say_hello(server.address, i, closed_count) for i in range(nodes)]
        yield server, peers
    finally:
        for peer in peers:
            peer.close()
        if server.alive():
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
        peers[300].close()  # the node keeps its place in the list, as suspect
        states = {n["name"]: n["state"] for n in client.nodes()}
        assert len(states) == NODES and states["node299"] == "up", len(states)


def test_a_cursor_that_is_no_node():
    with cluster() as (server, _), Client(server.address) as client:
        for after, first in (("node7x", "node8"), ("a", "node0"), ("node598", "node599")):
            page = client.ask("node_list", all=True, node="", after=after, limit=1)
            assert page["nodes"][0]["name"] == first, (after, page)
        page = client.ask("node_list", all=True, node="", after="z", limit=1)
        assert page["nodes"] == [] and not page["more"], page


def test_drained_nodes_that_are_away():
    """A drain is shown and resumed after a restart of the server, although its node has not connected since."""
    with cluster(12, lambda i: 0) as (server, peers), Client(server.address) as client:
        for i in (2, 10, 3):
            client.ask("node_drain", name="node%d" % i, slot_mask=0 if i != 3 else 6, reason="fan %d" % i)
        server.kill()
        again = Server(BINARY, server.state_dir)
        try:
            with Client(again.address) as later:
                peers += [say_hello(again.address, i, lambda i: 0) for i in (0, 5)]
                assert [n["name"] for n in later.nodes(all_=False)] == ["node0", "node5"]
                for limit in (1, 2, 256):
                    nodes = later.nodes(limit=limit)
                    assert [n["name"] for n in nodes] == ["node0", "node2", "node3", "node5", "node10"], nodes
                    assert [n["state"] for n in nodes] == ["up", "lost", "lost", "up", "lost"], nodes
                    assert [n["drain_reason"] for n in nodes] == ["", "fan 2", "", "", "fan 10"], nodes
                page = later.ask("node_list", all=True, node="", after="", limit=256)
                assert [(s["node"], s["slot"], s["state"], s["reason"]) for s in page["slots"]] == [
                    ("node3", 1, "drained", "fan 3"), ("node3", 2, "drained", "fan 3")], page["slots"]
                assert "node10" in ddpctl(again, "nodes", "-a") and "fan 3" in ddpctl(again, "node", "show", "node3")
                ddpctl(again, "node", "resume", "node3", "--slot", "2")
                assert [n["name"] for n in later.nodes()] == ["node0", "node2", "node3", "node5", "node10"]
                for name in ("node3", "node2"):
                    (node,) = later.ask("node_resume", name=name, slot_mask=0)["nodes"]
                    assert (node["name"], node["state"], node["drained"]) == (name, "lost", False), node
                peers += [say_hello(again.address, i, lambda i: 0) for i in (2, 10)]
                assert [n["drained"] for n in later.nodes()] == [False, False, False, True]
        finally:
            again.kill()


WIDTH, NPROC, RANKS_PAGE = 200, 8, 1024  # RANKS_PER_JOB_MAX is more, RANKS_LISTED_MAX


def ranks_of(client, job):
    """The ranks of all pages; each page continues after the last rank of the page before."""
    ranks, page = [], {"more_ranks": True}
    while page["more_ranks"]:
        page = client.job(job, first_rank=len(ranks))
        ranks += page["ranks"]
        assert len(page["ranks"]) == (RANKS_PAGE if page["more_ranks"] else WIDTH * NPROC % RANKS_PAGE), len(page["ranks"])
    assert [r["rank"] for r in ranks] == list(range(WIDTH * NPROC))
    return ranks


def start_of(peer):
    message = peer.recv()
    while message["type"] != "start":
        message = peer.recv()
    return message


def end_part(peer, start):
    ranks = [dict(rank=start["rank_base"] + i, state="stopped", pid=100 + i, exit_code=0, signal=15, joined=False) for i in range(NPROC)]
    peer.send("shim_report", job_id=start["job_id"], generation=1, revision=1, phase="ended", master_port=0, blob="", has_world=False,
              failed_rank=-1, failed_age_us=0, failed_errno_exit=0, failed_class="unsaid", cause="", tail="", error="", failed_oom=False, failed_core="",
              warm_late=False, failed_by_peer=False, notice="", ranks=ranks)


def check_status(server, job, states):
    document = json.loads(ddpctl(server, "status", str(job), "--json"))
    assert [r["rank"] for r in document["job"]["ranks"]] == list(range(WIDTH * NPROC))
    assert {r["state"] for r in document["job"]["ranks"]} == states
    assert document["job"]["argv"] == ["/bin/true"] and document["job"]["nodes"] == WIDTH, document["job"]["argv"]
    lines = ddpctl(server, "status", str(job)).splitlines()
    assert any(line.split()[:1] == [str(WIDTH * NPROC - 1)] for line in lines), lines[-3:]


def test_more_ranks_than_a_page():
    with cluster(WIDTH, lambda i: 0) as (server, peers), Client(server.address) as client:
        job = client.submit(nodes=WIDTH, nproc_per_node=NPROC)["job_id"]
        starts = [start_of(peer) for peer in peers]
        assert sorted(s["rank_base"] for s in starts) == list(range(0, WIDTH * NPROC, NPROC))
        assert all(s["world"] == WIDTH * NPROC and s["node_count"] == WIDTH for s in starts)
        for start in starts:  # only the first node needs the addresses of all
            assert start["nodes"] == ({"node%d" % i: "127.0.0.1" for i in range(WIDTH if start["node_rank"] == 0 else 1)}), start["nodes"]
        where = {r["rank"]: r["node"] for r in ranks_of(client, job)}
        assert all(where[s["rank_base"]] == "node%d" % i for i, s in enumerate(starts))
        check_status(server, job, {"waiting"})
        client.ask("cancel", job=str(job), signal=15, grace_us=-1)
        for peer, start in zip(peers, starts):
            end_part(peer, start)
        client.wait_for(job, lambda j: j["state"] == "cancelled")
        assert {r["pid"] for r in ranks_of(client, job)} == set(range(100, 100 + NPROC))  # from the store now
        check_status(server, job, {"stopped"})


def test_a_wide_job_outlives_the_server():
    with cluster(WIDTH, lambda i: 0) as (server, peers), Client(server.address) as client:
        job = client.submit(nodes=WIDTH, nproc_per_node=NPROC)["job_id"]
        for peer in peers:
            start_of(peer)
        before = ranks_of(client, job)
        server.kill()
        again = Server(BINARY, server.state_dir, "--suspect", "1h", "--lost", "1h", "--lease", "1h")
        try:
            with Client(again.address) as later:
                info = later.job(job)["jobs"][0]
                assert info["state"] == "starting" and info["generation"] == 1, info
                assert [(r["node"], r["slot"]) for r in ranks_of(later, job)] == [(r["node"], r["slot"]) for r in before]
                peers += [say_hello(again.address, i, lambda i: 0) for i in range(WIDTH)]  # they list no shim: the start orders were lost
                peers[WIDTH].send("beat", sent_us=1, shims=[], closed=[], leaving=False, warm=[], silent=[])  # the first order had to wait for the others' addresses
                start = start_of(peers[WIDTH])
                assert start["rank_base"] == next(r["rank"] for r in before if r["node"] == "node0") == 0
                assert len(start["nodes"]) == WIDTH, start["nodes"]
        finally:
            again.kill()


def test_the_log_of_a_late_rank():
    """ddpctl finds the node of the job although it is not on the first page."""
    with cluster(WIDTH, lambda i: 0) as (server, peers), Client(server.address) as client:
        job = client.submit(nodes=WIDTH, nproc_per_node=NPROC)["job_id"]
        starts = [start_of(peer) for peer in peers]
        rank = WIDTH * NPROC - 1
        index = next(i for i, s in enumerate(starts) if s["rank_base"] + NPROC > rank >= s["rank_base"])
        process = subprocess.Popen([DDPCTL, "--server", server.address, "logs", str(job), "--rank", "0,%d" % rank], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for i, number in ((index, rank), (0, 0)):
            read = peers[i].recv()
            while read["type"] != "log_read":
                read = peers[i].recv()
            assert read["rank"] == number, read
            peers[i].send("log_data", runs=[], size=6, request_id=read["request_id"], offset=0, bytes=base64.b64encode(b"hello\n").decode(),
                          is_final=True, problem="")
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        lines = {tuple(line.replace("|", " ").split()) for line in out.splitlines()}
        assert lines == {(str(rank), "node%d" % index, "hello"), ("0", starts_node(starts, 0), "hello")}, out


def starts_node(starts, rank):
    return next("node%d" % i for i, s in enumerate(starts) if s["rank_base"] == rank)


SINCE_3 = {"schema", "machine_id", "state_id", "up_us", "seen"}


def greet(address, kind, protocol, **more):
    fields = dict(name="n%d" % protocol, boot_id="boot", instance=1, pid=1, address="127.0.0.1", slots=1, gpus=0, shims=[],
                  closed=[], **NODE_IDENTITY) if kind == "node_hello" else {"schema": ""}
    if protocol < 3:
        fields = {name: value for name, value in fields.items() if name not in SINCE_3}
    fields.update(more)
    peer = Peer(address)
    peer.send(kind, protocol=protocol, version="test", **fields)
    return peer, peer.recv()


def test_versions():
    """The server understands this version, the one before and the next one; clients of others are told what to do."""
    with tempfile.TemporaryDirectory() as directory:
        process = Server(sys.argv[1], directory)
        for kind, welcome in (("client_hello", "client_welcome"), ("node_hello", "node_welcome")):
            for protocol in (0, PROTOCOL + 2, 2**32 - 1):
                peer, answer = greet(process.address, kind, protocol)
                assert answer["type"] == "error" and answer["code"] == "refused", answer
                assert "speaks protocol %d, " % protocol in answer["message"], answer
                assert "understands %d to %d" % (PROTOCOL - 1, PROTOCOL + 1) in answer["message"], answer
                assert answer["hint"].startswith("upgrade the programs" if protocol == 0 else "upgrade the server"), answer
                assert peer.recv_until_closed() == []
            for protocol in (PROTOCOL - 1, PROTOCOL):
                peer, answer = greet(process.address, kind, protocol)
                assert answer["type"] == welcome and answer.get("protocol") == PROTOCOL, answer
                peer, answer = greet(process.address, kind, protocol, mood="good")
                assert answer["type"] == "error" and "unknown field" in answer["message"], answer
            peer, answer = greet(process.address, kind, PROTOCOL + 1, mood="good")
            assert answer["type"] == welcome, answer
            if kind == "node_hello":
                peer.send("beat", sent_us=1, shims=[], closed=[], leaving=False, warm=[], silent=[], mood={"a": [1]})
                assert peer.recv() == dict(type="beat_ack", sent_us=1)
            else:
                peer.send("job_list", all=True, after_id=0, limit=5, mood=1)
                assert peer.recv()["type"] == "jobs"
        assert process.stop() == 0


def test_another_build_with_the_same_protocol_is_refused():
    """Even if its hello has other fields: the answer says that the builds differ, and both hashes."""
    with tempfile.TemporaryDirectory() as directory:
        process = Server(sys.argv[1], directory + "/state")  # its log is beside it
        with Client(process.address) as client:
            own = client.welcome["schema"]
        assert len(own) == 16, own
        for kind, who in (("client_hello", "this client"), ("node_hello", "n%d" % PROTOCOL)):
            for more in ({}, {"mood": "good"}):
                peer, answer = greet(process.address, kind, PROTOCOL, schema="0123456789abcdef", **more)
                assert (answer["type"], answer["code"]) == ("error", "refused"), answer
                assert answer["message"].startswith(who) and "different builds" in answer["message"], answer
                assert "0123456789abcdef" in answer["message"] and own in answer["message"], answer
                assert answer["hint"] == "install the same build on both sides", answer
                assert peer.recv_until_closed() == []
            peer, answer = greet(process.address, kind, PROTOCOL, schema=own)
            assert answer["type"].endswith("_welcome"), answer
        for who in ("this client", "n%d" % PROTOCOL):  # an operator sees it too: once, however often it calls
            lines = [line for line in process.log().splitlines() if f" is refused: {who}, version test, and this server, " in line]
            assert len(lines) == 1 and "(schema 0123456789abcdef there, %s here): install the same build on both sides" % own in lines[0], process.log()
        for kind in ("client_hello", "node_hello"):
            for protocol in (1, 1, PROTOCOL + 2):
                greet(process.address, kind, protocol)[0].recv_until_closed()
        for who in ("this client", "n1"):
            lines = [line for line in process.log().splitlines() if f" is refused: {who}, version test, speaks protocol 1, and this server, " in line]
            assert len(lines) == 1 and "understands %d to %d: upgrade the programs there" % (PROTOCOL - 1, PROTOCOL + 1) in lines[0], process.log()
        assert "speaks protocol %d," % (PROTOCOL + 2) not in process.log()  # one line for the reason
        assert process.stop() == 0


def run(process, *words):
    return subprocess.run([DDPCTL, "--server", process.address, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                          stdin=subprocess.DEVNULL)


def rows(process, *words):
    done = run(process, "nodes", "--json", *words)
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)["nodes"]}


def test_a_refused_node_is_seen():
    """Another build, one with a field renamed, calls: `nodes`, `doctor` and `upgrade --plan` say so, until the right build calls."""
    with tempfile.TemporaryDirectory() as directory:
        process = Server(sys.argv[1], directory + "/state", "--suspect", "1h", "--lost", "1h", "--lease", "1h")
        with Client(process.address) as client:
            own = client.welcome["schema"]
        up, answer = greet(process.address, "node_hello", PROTOCOL, name="n1", schema=own)
        assert answer["type"] == "node_welcome", answer
        assert list(rows(process)) == ["n1"]
        for name in ("n2", "n10", "n2"):
            peer, answer = greet(process.address, "node_hello", PROTOCOL, name=name, schema="0123456789abcdef", mood="good")
            assert answer["code"] == "refused" and peer.recv_until_closed() == [], answer
        for words in ((), ("-a",)):
            seen = rows(process, *words)
            assert list(seen) == ["n1", "n2", "n10"], seen
            assert seen["n1"]["refused_since"] is None and seen["n2"]["refused_since"] is not None, seen
            assert seen["n2"]["notice"].startswith("another build: ") and "(schema 0123456789abcdef there, %s here)" % own in seen["n2"]["notice"]
            assert seen["n2"]["version"] == "test" and seen["n2"]["seen_s_ago"] is not None, seen
        text = run(process, "nodes").stdout
        assert [line.split()[1] for line in text.splitlines()[1:4]] == ["up", "refused", "refused"], text
        assert "\nn2: refused since " in text and "install the server's build there\n" in text, text
        assert run(process, "node", "show", "n2").stdout.split("\n")[1].split()[1] == "refused"
        done = run(process, "doctor", "--node", "n2", "--node", "n10", "--net", "--json")
        found = [(f["node"], f["check"], f["level"]) for f in json.loads(done.stdout)["findings"]]
        assert done.returncode == 1 and ("n2", "build", "fail") in found and ("n10", "build", "fail") in found, found
        done = run(process, "upgrade", "--plan")
        assert done.returncode == 1 and "not safe: n2 is refused: another build" in done.stdout and "nothing to do" not in done.stdout, done
        plan = json.loads(run(process, "upgrade", "--plan", "--json").stdout)["upgrade"]
        assert not plan["safe"] and [step["name"] for step in plan["steps"] if step["kind"] == "node"] == ["n1", "n2", "n10"], plan
        for name in ("n2", "n10"):
            assert greet(process.address, "node_hello", PROTOCOL, name=name, schema=own)[1]["type"] == "node_welcome"
        assert all(row["refused_since"] is None for row in rows(process, "-a").values())
        greet(process.address, "node_hello", PROTOCOL, name="n1", instance=2, schema="0123456789abcdef")[0].recv_until_closed()
        seen = rows(process)["n1"]  # another launcherd with the name of one that is up
        assert (seen["state"], seen["version"]) == ("up", "test") and seen["refused_since"] is not None, seen
        assert "n1: another launcherd of this name is refused since " in run(process, "nodes").stdout
        greet(process.address, "node_hello", 0, name="old")[0].recv_until_closed()
        assert "another build: it speaks protocol 0, and the server, " in rows(process)["old"]["notice"]
        up.close()
        assert process.stop() == 0


def test_a_longer_lease_outlives_the_server():
    """A node tells a longer lease than the state knows, of which nobody knows whether it is the newest. A server that starts before that
    lease is over knows it, too: what waits is still held, and the state still a copy."""
    with state_dir() as directory:
        with server(directory=directory) as process, Client(process.address) as client:
            job = client.submit()["job_id"]
            cluster_id = client.welcome["cluster"]
            assert process.stop() == 0
        with new_boot(), server(directory=directory) as process:
            seen = [dict(cluster=cluster_id, job_id=job, generation=0, lease_us=900_000_000)]
            peer, answer = greet(process.address, "node_hello", PROTOCOL, name="n1", seen=seen)
            assert answer["type"] == "node_welcome", answer
            process.kill()
            peer.close()
            rows = [row for row in dump(directory) if '"meta"' in row]
            assert any("'lease_us'" in row and "900000000" in row for row in rows), rows
            assert any("'copy_ms'" in row for row in rows), rows
            with server(directory=directory) as process, Client(process.address) as client, node(process.address):
                info = client.job(job)["jobs"][0]
                assert info["state"] == "queued" and "leases" in info["reason"], info


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[3:]))
