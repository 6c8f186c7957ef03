"""Keys, roles and strangers, with the real server over TLS: keys_test.py RENDEZVOUS [TEST...]

DDP_TLS_PEER: the program of tests/lib/tls_peer.c; DDP_INPUTS: that of tests/fuzz."""

import base64
import contextlib
import hashlib
import json
import os
import pwd
import select
import shutil
import socket
import subprocess
import sys
import time

from server_test import BINARY, dump, expect_refused, server, state_dir, written_inputs  # also finds tests/lib
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from edge import Edge
from processes.case import EDGE
from processes.node import Node
from processes.runner import run_tests, Skip
from processes.waiting import PATIENCE_S, Stopwatch, wait_for
from processes.wire import Client, CLIENT_HELLO, Closed, new_boot, NODE_IDENTITY, Peer, PROTOCOL, Refused, request_id, Server, with_descriptors
from full_disk import FullDisk

LISTEN = ("--listen", "127.0.0.1:0", "--require-key")
OF_NODES = {"node_hello", "beat", "node_event", "shim_report", "progress", "log_data", "node_data", "looked", "input_state", "stage_get"}
OF_USERS = {"client_hello", "submit", "stage_put", "job_get", "why_get", "job_list", "cancel", "event_list", "log_read", "input",
            "node_list", "node_read", "server_get"}
OF_ADMINS = OF_USERS | {"node_drain", "node_resume", "principal_add", "principal_rotate", "principal_remove",
                        "principal_list", "keys_checked"}


def network(process):
    """Where the server listens beside its unix socket, from this machine."""
    return "127.0.0.1:" + process.addresses[1].rsplit(":", 1)[1]


def add(admin, name, role="user"):
    return admin.ask("principal_add", name=name, role=role)["url"]


def names(admin, nodes):
    return [p["name"] for p in admin.ask("principal_list", nodes=nodes, after="", limit=500)["principals"]]


@contextlib.contextmanager
def node(address, name, key, **fields):
    one = Node(address, name, key=key, **fields)
    try:
        one.wait(lambda n: n.welcomed or n.error, "a welcome")
        yield one
    finally:
        one.close()


def refused_node(address, name, key, **fields):
    with node(address, name, key, **fields) as one:
        assert not one.welcomed, one.welcomed
        return one.error


def refused_key(address, key):
    """Why TLS with that key was refused, in the client's words."""
    with Peer(address, key=key) as peer:
        assert peer.recv_until_closed() == []
        return peer.tunnel_end()


def wait_for_log(process, text):
    wait_for(lambda: "%r in %s" % (text, process.log()[-2000:]), lambda: text in process.log())


def expect_no_connection(address):
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
    except ConnectionRefusedError:
        return
    raise AssertionError("%s is open" % address)


def test_closed_until_the_first_key():
    with state_dir() as directory:
        with server("--listen", "0.0.0.0:0", directory=directory) as process, Client(process.address) as admin:
            assert not process.addresses[1].endswith(":0"), process.ready
            expect_no_connection(network(process))
            assert "ddpctl --server %s node add NAME" % process.address in process.log(), process.log()
            key = add(admin, "n1", "node")
            assert key.split("#")[0].endswith(":%s/n1" % process.addresses[1].rsplit(":", 1)[1]), key.split("#")[0]
            with node(network(process), "n1", key):
                assert [n["name"] for n in admin.nodes(all_=False)] == ["n1"]
        with server("--listen", "0.0.0.0:0", directory=directory) as process:  # now there is a key
            with node(network(process), "n1", key):
                pass
            assert process.log().count("stays closed until there is a key") == 1, process.log()


def test_a_key_without_a_network_is_refused():
    for args in ((), ("--listen", "127.0.0.1:0")):
        with server(*args) as process, Client(process.address) as admin:
            error = expect_refused("refused", admin.ask, "principal_add", name="n1", role="node")
            assert "--listen" in error.hint, error.hint
            assert names(admin, True) == []


def test_options():
    may_pass = ("127.1:0", "nobody.invalid:0")  # a name that has no other address yet, as before the network is up
    for args, words in ((("--listen", may_pass[0]), "loopback address"), (("--listen", may_pass[1]), "has no address"), (("--listen", "0.0.0.0"), "HOST:PORT"),
                        (("--listen", "0.0.0.0:0", "--advertise", "head"), "--advertise head"),
                        (("--listen", "0.0.0.0:0", "--advertise", "0.0.0.0:7400"), "as other machines reach"),
                        (("--require-key",), "need --listen"), (("--advertise", "a:1"), "need --listen")):
        with state_dir() as directory:
            run = subprocess.run([BINARY, "--state-dir", directory, *args], capture_output=True, text=True,
                                 timeout=PATIENCE_S, check=False)
            assert run.returncode == (1 if args[-1] in may_pass else 2) and words in run.stderr and not run.stdout, run
    with server(*LISTEN, "--advertise", "head.example.org:7400") as process, Client(process.address) as admin:
        assert add(admin, "n1", "node").startswith("ddp://head.example.org:7400/n1#")


def test_roles():
    with server(*LISTEN) as process, Client(process.address) as admin:
        address = network(process)
        node_key, user_key = add(admin, "n1", "node"), add(admin, "ann")
        boss_key = add(admin, "boss", "admin")
        error = expect_refused("refused", Client, address, key=node_key)
        assert "the key of n1 is a node's" in error.message and "user add" in error.hint, error.message
        assert "the key of ann is a user's" in refused_node(address, "ann", user_key)
        assert "this key is of node n1, not of n2" in refused_node(address, "n2", node_key)
        for name in ("n2", "n1"):  # of another build: only a name that the key proves is remembered
            kind, fields = hello_of("node")
            with Peer(address, key=node_key) as peer:
                peer.send(kind, **{**fields, "name": name, "schema": "0123456789abcdef"})
                assert "different builds" in peer.recv()["message"]
        assert [(one["name"], one["refused_ms"] > 0) for one in admin.ask("node_list", all=True, node="", after="", limit=9)["nodes"]] == [("n1", True)]
        with Client(address, key=user_key) as ann, Client(address, key=boss_key) as boss:
            for kind, fields in (("principal_add", dict(name="x", role="admin")), ("node_drain", dict(
                    name="n1", slot_mask=0, reason="r")), ("principal_list", dict(nodes=False, after="", limit=1))):
                assert "ann is no admin" in expect_refused("refused", ann.ask, kind, **fields).message
            assert names(boss, False) == ["ann", "boss"] and names(boss, True) == ["n1"]
            job = ann.submit(name="hers")["job_id"]
            assert boss.job(job)["jobs"][0]["user"] == "ann"
            assert boss.ask("cancel", job=str(job), signal=15, grace_us=0)["jobs"][0]["state"] == "cancelled"
        assert process.stop() == 0


def test_one_user_does_not_take_all_places_to_wait():
    """limits of rendezvous/server/internal.h: 4096 requests may wait, 64 of a connection. One user gets half, and others still wait."""
    def wait(client):
        client.send("event_list", job_id=0, after_id=10**6, limit=1, wait_us=60_000_000)

    with server(*LISTEN) as process, contextlib.ExitStack() as clients, Client(process.address) as admin:
        ann = clients.enter_context(Client(network(process), key=add(admin, "ann")))
        for _ in range(2048 // 64):
            one = clients.enter_context(Client(process.address))
            for _ in range(64):
                wait(one)
            one.ask("node_list", all=True, node="", after="", limit=1)  # the others wait now
        wait(admin)
        answer = admin.recv()
        assert answer["type"] == "error" and answer["code"] == "full" and answer["message"].startswith("2048 requests of "), answer
        wait(ann)
        assert ann.ask("node_list", all=True, node="", after="", limit=1)["type"] == "nodes"


def answers(peer, data):
    with contextlib.suppress(Closed, OSError):
        peer.send_bytes(data)
    with contextlib.suppress(OSError):
        peer.socket.shutdown(socket.SHUT_WR)
    return [m for m in peer.recv_until_closed() if m["type"] not in ("beat_ack", "node_welcome", "client_welcome")]


def stored(process):
    return [row for row in dump(process.state_dir) if '"principals"' not in row and '"events"' not in row and "'commits'" not in row]


def hello_of(role):
    if role == "node":
        return "node_hello", dict(protocol=PROTOCOL, version="t", name="a-node", boot_id="b", instance=1, pid=1, slots=1, gpus=0,
                                  address="127.0.0.1", shims=[], closed=[], **NODE_IDENTITY)
    return "client_hello", CLIENT_HELLO


def test_every_message_by_every_role():
    """A valid message of each type after the hello of each role, and the other role's hello as first message: messages that the role may
    not send are refused and change nothing."""
    frames = {}
    for _name, data in written_inputs("--valid"):
        frames.setdefault(json.loads(data[4:])["type"], data)
    assert OF_NODES | OF_ADMINS < set(frames), sorted(frames)
    with server(*LISTEN, "--no-fsync") as process, Client(process.address) as admin:
        address = network(process)
        for role, allowed in (("node", OF_NODES), ("user", OF_USERS), ("admin", OF_ADMINS)):
            key = add(admin, "a-" + role, role)
            for kind in sorted(set(frames) - allowed):
                before = stored(process)
                with Peer(address, key=key) as peer:
                    if not kind.endswith("_hello"):
                        hello, fields = hello_of(role)
                        peer.send(hello, **fields)
                    found = answers(peer, frames[kind])
                assert [m["type"] for m in found] == ["error"], (role, kind, found)
                is_refused = role == "user" and kind in OF_ADMINS or kind in ("node_hello", "client_hello")
                assert found[0]["code"] == ("refused" if is_refused else "bad_request"), (role, kind, found)
                assert stored(process) == before, (role, kind)
        print("%d messages" % len(frames))
        assert process.stop() == 0


def test_jobs_belong_to_names():
    """The same account over the unix socket and with a key is one user; another is another."""
    me = pwd.getpwuid(os.geteuid()).pw_name
    with state_dir() as directory:
        with server(*LISTEN, directory=directory) as process, Client(process.address) as admin:
            mine, other = add(admin, me), add(admin, "somebody-else")
            request = request_id()
            job = admin.submit(request)["job_id"]
            with Client(network(process), key=mine) as same, Client(network(process), key=other) as stranger:
                again = same.submit(request)
                assert again["job_id"] == job and not again["is_new"], again
                assert same.job("@last")["jobs"][0]["job_id"] == job
                own = stranger.submit(request)
                assert own["is_new"] and own["job_id"] != job, own
                for call, fields in ((stranger.job, dict(job=job)), (same.job, dict(job=own["job_id"]))):
                    expect_refused("not_found", call, **fields)
                for client, ids in ((same, [job]), (stranger, [own["job_id"]]), (admin, [job, own["job_id"]])):
                    for everything in (True, False):
                        jobs = client.ask("job_list", all=everything, after_id=0, limit=9)["jobs"]
                        assert [j["job_id"] for j in jobs] == ids, jobs
                assert stranger.ask("event_list", job_id=0, after_id=0, limit=99, wait_us=0)["events"]
                expect_refused("not_found", stranger.ask, "event_list", job_id=job, after_id=0, limit=9, wait_us=0)
                for client, number, problem in ((same, job, "the rank does not run now"), (stranger, job, "there is no such job"),
                                                (admin, own["job_id"], "only the owner of a job gives it input")):
                    said = client.ask("input", request_id=1, job_id=int(number), generation=1, rank=0, offset=0, bytes="", is_end=True,
                                      rows=0, columns=0)
                    assert (said["problem"], said["is_closed"]) == (problem, client is not same), said
        with server(*LISTEN, directory=directory) as process:
            with Client(network(process), key=other) as stranger:
                assert stranger.submit(request)["job_id"] == own["job_id"]


def test_removal_cuts_connections():
    with server(*LISTEN) as process, Client(process.address) as admin:
        address = network(process)
        ann, n1, bob = add(admin, "ann"), add(admin, "n1", "node"), add(admin, "bob")
        with Client(address, key=ann) as one, Client(address, key=ann) as two, Client(address, key=bob) as other, \
                Peer(address, key=ann) as silent, node(address, "n1", n1) as gone:
            silent.tunnel.poll()
            shown = admin.ask("principal_list", nodes=False, after="", limit=9)["principals"]
            assert [(p["name"], p["is_connected"]) for p in shown] == [("ann", True), ("bob", True)], shown
            expect_refused("not_found", admin.ask, "principal_remove", name="ann", is_node=True)
            removed = admin.ask("principal_remove", name="ann", is_node=False)["principals"]
            assert removed[0]["name"] == "ann" and removed[0]["is_connected"], removed
            for peer in (one, two):
                last = peer.recv_until_closed()[-1]
                assert last["code"] == "refused" and "the key of ann was removed" in last["message"], last
            admin.ask("principal_remove", name="n1", is_node=True)
            gone.wait(lambda n: n.error, "the end")
            assert "the key of n1 was removed" in gone.error, gone.error
            other.submit()
            with contextlib.suppress(Closed):
                silent.send("client_hello", **CLIENT_HELLO)
            assert all(m["type"] == "error" for m in silent.recv_until_closed())
        assert "does not take this key" in refused_key(address, ann)
        new = add(admin, "ann")
        assert "does not take this key" in refused_key(address, ann)
        with Client(address, key=new) as again:
            again.submit()
        texts = [e["text"] for e in admin.ask("event_list", job_id=0, after_id=0, limit=99, wait_us=0)["events"]]
        for words in ("made a key for user ann", "removed the key of user ann", "removed the key of node n1",
                      "user ann has used its key for the first time"):
            assert any(words in text for text in texts), (words, texts)
        assert process.stop() == 0


def test_rotation():
    with state_dir() as directory:
        with server(*LISTEN, directory=directory) as process, Client(process.address) as admin:
            address, first = network(process), add(admin, "ann")
            old = Client(address, key=first)
            answer = admin.ask("principal_rotate", name="ann", is_node=False, overlap_us=3600 * 10**6)
            second = answer["url"]
            assert second != first and answer["old_until_ms"] > time.time() * 1000, answer["old_until_ms"]
            for key in (first, second):
                with Client(address, key=key) as client:
                    client.submit()
            assert admin.ask("principal_list", nodes=False, after="", limit=9)["principals"][0]["secrets"] == 2
        with server(*LISTEN, directory=directory) as process, Client(process.address) as admin:
            address = network(process)
            for key in (first, second):  # both survive a restart
                with Client(address, key=key) as client:
                    client.submit()
            with Client(address, key=second) as stays:
                third = admin.ask("principal_rotate", name="ann", is_node=False, overlap_us=300000)["url"]
                assert "does not take this key" in refused_key(address, first)  # two at most
                wait_for_log(process, "the old key of ann has run out")
                assert "does not take this key" in refused_key(address, second)
                stays.submit()  # this connection was made before
            fourth = admin.ask("principal_rotate", name="ann", is_node=False, overlap_us=0)
            assert fourth["old_until_ms"] == 0, fourth["old_until_ms"]
            assert "does not take this key" in refused_key(address, third)
            with Client(address, key=fourth["url"]) as client:
                client.submit()
            error = expect_refused("not_found", admin.ask, "principal_rotate", name="ann", is_node=True, overlap_us=0)
            assert "ann is a user, not a node" in error.message, error.message
            expect_refused("refused", admin.ask, "principal_add", name="ann", role="node")
            assert process.stop() == 0
        old.close()
        rows = "\n".join(row for row in dump(directory) if '"secrets"' in row)
        assert rows.count("INSERT") == 1, "an old secret is still stored"


def say_hello(address, key, job_id, cluster):
    """A node that has seen that job of the cluster, until it is welcomed."""
    with Peer(address, key=key) as peer:
        peer.send("node_hello", protocol=PROTOCOL, version="test", name="n1", boot_id="boot", instance=1, pid=1, address="127.0.0.1",
                  slots=1, gpus=0, shims=[], closed=[],
                  **{**NODE_IDENTITY, "seen": [dict(cluster=cluster, job_id=job_id, generation=1, lease_us=60000000)]})
        assert peer.recv()["type"] == "node_welcome"


LATER = "does not take this key now"
FINAL = "does not take this key: it was removed"


def test_keys_of_the_past():
    """The state directory is put back to an earlier copy. A key that was made since is unknown, which is no reason to give up once the
    server knows that it went back, until an admin has made that key again, or has checked the keys."""
    with state_dir() as directory:
        with server(*LISTEN, directory=directory) as process, Client(process.address) as admin:
            keys = {name: add(admin, name, "node") for name in ("n1", "gone")}
            assert process.stop() == 0
        shutil.copytree(directory, directory + "/copy", ignore=shutil.ignore_patterns("*.sock"))
        with server(*LISTEN, directory=directory) as process, Client(process.address) as admin:
            keys.update({name: add(admin, name, "node") for name in ("n2", "n3")})
            admin.ask("principal_remove", name="gone", is_node=True)
            assert process.stop() == 0
        for name in os.listdir(directory + "/copy"):
            if name.startswith("state"):
                shutil.copy2(directory + "/copy/" + name, directory)
        with new_boot(), server(*LISTEN, directory=directory) as process, Client(process.address) as admin:
            address = network(process)
            assert FINAL in refused_key(address, keys["n2"]), "it cannot know yet"
            assert admin.ask("server_get", request_id=1)["keys_lost_ms"] == 0
            with Client(address, key=add(admin, "ann")) as client:
                say_hello(address, keys["n1"], 7, client.welcome["cluster"])
            assert LATER in refused_key(address, keys["n2"])
            assert admin.ask("server_get", request_id=1)["keys_lost_ms"] > 0
            wait_for_log(process, "a key removed or rotated since is valid again")
            add(admin, "n3", "node")  # again: so its lost key is void
            assert FINAL in refused_key(address, keys["n3"])
            assert LATER in refused_key(address, keys["n2"])
            assert process.stop() == 0
        with server(*LISTEN, directory=directory) as process, Client(process.address) as admin:
            address = network(process)
            assert LATER in refused_key(address, keys["n2"])  # it is stored
            with node(address, "gone", keys["gone"]) as one:
                assert one.welcomed, one.error  # nobody here can know that it was removed
            with Client(address, key=add(admin, "bob")) as bob:
                expect_refused("refused", bob.ask, "keys_checked", request_id=1)
            assert admin.ask("keys_checked", request_id=1)["keys_lost_ms"] == 0
            assert FINAL in refused_key(address, keys["n2"])
            assert process.stop() == 0


def test_pages_of_principals():
    with server(*LISTEN, "--no-fsync") as process, Client(process.address) as admin:
        wanted = sorted("n%d" % i for i in range(25))
        for name in wanted:
            add(admin, name, "node")
        add(admin, "n111user")
        found, after = [], ""
        while True:
            page = admin.ask("principal_list", nodes=True, after=after, limit=7)
            found += [p["name"] for p in page["principals"]]
            if not page["more"]:
                break
            after = found[-1]
        assert found == wanted, found


def test_a_name_that_is_taken():
    with server(*LISTEN) as process, Client(process.address) as admin:
        address, key = network(process), add(admin, "n1", "node")
        with node(address, "n1", key, instance=1):
            with Peer(address, key=key) as second:
                second.send("node_hello", protocol=PROTOCOL, version="t", name="n1", boot_id="b", instance=2, pid=1,
                            address="127.0.0.1", slots=1, gpus=0, shims=[], closed=[], **NODE_IDENTITY)
                error = second.recv_until_closed()[-1]
                assert error["code"] == "busy" and "a node named n1 is connected already" in error["message"], error
            with node(address, "n1", key, instance=1):  # the same process connects again and takes over
                pass


def test_secrets_stay_inside():
    with state_dir() as directory:
        with server(*LISTEN, directory=directory) as process, Client(process.address) as admin:
            keys = [add(admin, "ann"), add(admin, "n1", "node"),
                    admin.ask("principal_rotate", name="ann", is_node=False, overlap_us=10**9)["url"]]
            with Client(network(process), key=keys[2]), node(network(process), "n1", keys[1]):
                pass
            refused_key(network(process), keys[0][:-4] + "AAAA")
            texts = json.dumps(admin.ask("event_list", job_id=0, after_id=0, limit=99, wait_us=0))
            with open("/proc/%d/limits" % process.process.pid) as file:
                core = next(line.split()[4:6] for line in file if line.startswith("Max core file size"))
            assert core in (["1", "1"], ["0", "0"]), core
            wait_for_log(process, '"ann:')
            for key in keys:
                secret = key.split("#")[1]
                assert len(secret) == 43 and secret not in process.log() and secret not in texts
        for name in os.listdir(directory):
            assert os.stat(os.path.join(directory, name)).st_mode & 0o77 == 0, name


def open_silent(address, source="127.0.0.1"):
    host, port = address.rsplit(":", 1)
    one = socket.create_connection((host, int(port)), timeout=PATIENCE_S, source_address=(source, 0))
    return one


@contextlib.contextmanager
def gated_server(*args):
    """One with the gated clock of tests/lib/edge.py, and that clock."""
    with state_dir() as directory, Edge(EDGE) as edge:
        edge.clock()
        process = Server(BINARY, directory, *args, environ={**os.environ, **edge.env})
        try:
            yield process, edge
        finally:
            if process.alive():
                process.kill()


def test_strangers():
    """Plain clients, half handshakes and slow ones end; others are served meanwhile."""
    with gated_server(*LISTEN) as (process, edge), Client(process.address) as admin:
        address = network(process)
        key = add(admin, "ann")
        with Client(address, key=key) as ann:
            with Peer(address) as plain:
                with contextlib.suppress(Closed):
                    plain.send("client_hello", **CLIENT_HELLO)
                with contextlib.suppress(OSError, ValueError):  # an alert, which is no frame
                    assert plain.recv_until_closed() == []
            watch = Stopwatch(edge.now)
            half, slow = open_silent(address), open_silent(address)
            for one in (half, slow):
                one.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # the head of a ClientHello of 508 bytes
            with contextlib.suppress(OSError):
                while not select.select([slow], [], [], 0)[0]:  # the end, or an alert before it: a byte now and then does not extend the deadline
                    edge.sleep(0.3)
                    slow.sendall(b"\x00")
                    ann.ask("job_list", all=True, after_id=0, limit=9)
            watch.check("half a handshake", 4, 7)
            with contextlib.suppress(ConnectionResetError):
                while half.recv(100):
                    pass
            proved = Peer(address, key=key)  # has the key, but sends no hello
            assert proved.recv_until_closed() == []
            proved.close()
            ann.submit()
        wait_for_log(process, "not TLS 1.3 with a key of this server")
        wait_for_log(process, "no hello within 5 s")
        assert process.stop() == 0


def still_open(crowd):
    """How many of these silent connections the server has not closed."""
    return len(crowd) - len(select.select(crowd, [], [], 0)[0])


def test_a_crowd_keeps_nobody_out():
    """Strangers have 256 places, those of one address 64. A newcomer gets in for the oldest of them, from the same address too."""
    with server(*LISTEN) as process, Client(process.address) as admin, contextlib.ExitStack() as stack:
        address = network(process)
        ann, n1 = add(admin, "ann"), add(admin, "n1", "node")
        slow = stack.enter_context(Peer(address, key=ann))  # says no hello yet
        with Client(address, key=ann):
            crowd = [stack.enter_context(open_silent(address)) for _ in range(100)]
        for one in crowd:
            with contextlib.suppress(OSError):
                one.sendall(b"\x16")
        with Client(address, key=ann) as client, node(address, "n1", n1):
            client.submit()
            assert 50 <= still_open(crowd) <= 64, still_open(crowd)  # so it was not their time-out that let others in
        slow.send("client_hello", **CLIENT_HELLO)  # it has shown a key, so no stranger has got its place
        assert slow.recv()["type"] == "client_welcome"
        crowd = [stack.enter_context(open_silent(address, "127.0.%d.9" % (1 + i % 150))) for i in range(300)]
        with Client(address, key=ann) as client, node(address, "n1", n1, instance=2):
            client.submit()
            assert 200 <= still_open(crowd) <= 256, still_open(crowd)
        assert process.stop() == 0


def test_a_crowd_from_one_address():
    watch = Stopwatch()
    with server(*LISTEN) as process, Client(process.address) as admin:
        address = network(process)
        key = add(admin, "ann")
        crowd = [open_silent(address, "127.0.0.9") for _ in range(100)]
        open_ones = set(crowd)
        while len(open_ones) > 64:
            ended = select.select(list(open_ones), [], [], PATIENCE_S)[0]
            assert ended, len(open_ones)
            for one in ended:
                with contextlib.suppress(ConnectionResetError):
                    assert one.recv(1) == b""
                open_ones.remove(one)
        assert len(open_ones) == 64, len(open_ones)
        assert open_ones == set(crowd[36:]), [crowd.index(one) for one in open_ones]
        with Client(address, key=key) as ann:  # from 127.0.0.1
            ann.submit()
        for one in crowd:
            one.close()
        for _ in range(200):  # and a flood of data that is not TLS
            with open_silent(address, "127.0.0.9") as one, contextlib.suppress(OSError):
                one.sendall(b"GET / HTTP/1.0\r\n\r\n")
                one.recv(100)
        with Client(address, key=key) as ann:
            ann.submit()
        lines = [line for line in process.log().splitlines() if "refused" in line]
        windows = int(watch.passed_s / 10) + 2  # ten lines in each, and how many more there were
        assert 0 < len(lines) <= 11 * windows, len(lines)
        assert process.stop() == 0


def test_accepted_connections_are_kept_alive():
    """An idle connection has TCP keep-alive, so the server notices a peer whose cable is cut."""
    with server("--listen", "127.0.0.1:0") as process, Client(network(process)) as one:
        ours = [":%04X" % int(network(process).rsplit(":", 1)[1]), ":%04X" % one.socket.getsockname()[1]]

        def timer():
            with open("/proc/net/tcp") as file:
                rows = [line.split() for line in file.readlines()[1:]]
            return next(row[5][:2] for row in rows if row[1].endswith(ours[0]) and row[2].endswith(ours[1]))
        wait_for("the timer of keep-alive", lambda: timer() == "02")  # 01: an answer is not acknowledged yet


def cpu_s(process):
    with open("/proc/%d/stat" % process.process.pid) as file:
        return sum(int(n) for n in file.read().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")


def wait_for_room(address, key):
    """The server sees that connections have ended when it comes to them."""
    def has_room():
        try:
            with Client(address, key=key) as client:
                return client.ask("job_list", all=True, after_id=0, limit=9)
        except (Closed, Refused):
            return None
    wait_for("room for a client", has_room)


def test_few_descriptors():
    """With hardly any descriptors left, the server serves its present clients, refuses others, and does not spin."""
    with state_dir() as directory:
        os.makedirs(directory, 0o700)
        program = with_descriptors(BINARY, os.path.join(os.path.dirname(directory), "with-few"), 64)
        process = Server(program, directory, *LISTEN, "--suspect", "1h", "--lost", "1h", "--lease", "2h")
        try:
            with Client(process.address) as admin, contextlib.ExitStack() as stack:
                address, key = network(process), add(admin, "ann")
                for i in range(15):  # with the admin that are 16, as many as there may be
                    peer = stack.enter_context(Client(process.address) if i < 7 else Peer(process.address))
                    if i >= 7:
                        peer.send("node_hello", protocol=PROTOCOL, version="t", name="n%d" % i, boot_id="b", instance=1, pid=1,
                                  address="127.0.0.1", slots=1, gpus=0, shims=[], closed=[], **NODE_IDENTITY)
                        assert peer.recv()["type"] == "node_welcome"
                silent = [open_silent(address, "127.0.0.%d" % (i + 2)) for i in range(40)]
                for _ in range(100):
                    with Peer(process.address) as peer:
                        assert [m["code"] for m in peer.recv_until_closed()] == ["full"]
                    admin.ask("job_list", all=True, after_id=0, limit=9)
                assert cpu_s(process) < 10, cpu_s(process)
                for one in silent:
                    one.close()
                stack.close()
                wait_for_room(address, key)
                assert len(process.log().splitlines()) < 500, process.log()[-3000:]
            assert process.stop() == 0
        finally:
            if process.alive():
                process.kill()


def test_one_user_does_not_lock_out_the_others():
    """A user may have a quarter of all client connections. A connection that is idle for long is closed; one that waits for an answer is not."""
    with state_dir() as directory:
        os.makedirs(directory, 0o700)
        program = with_descriptors(BINARY, os.path.join(os.path.dirname(directory), "with-few"), 512)
        process = Server(program, directory, *LISTEN, "--client-idle", "3s")
        try:
            with contextlib.ExitStack() as stack:
                with Client(process.address) as admin:
                    address, ann, bob = network(process), add(admin, "ann"), add(admin, "bob")
                crowd = [stack.enter_context(Client(address, key=ann))]
                job = crowd[0].submit()["job_id"]
                version = crowd[0].job(job)["version"]
                crowd[0].send("event_list", job_id=0, after_id=10**9, limit=9, wait_us=60_000_000)
                for _ in range(31):  # while a job is queued they wait for it, so none is idle before all are there
                    crowd.append(stack.enter_context(Client(address, key=ann)))
                    crowd[-1].send("job_get", job=str(job), after_version=version, wait_us=60_000_000, first_rank=0)
                for _ in range(3):
                    try:
                        stack.enter_context(Client(address, key=ann))
                        raise AssertionError("a quarter of 128 are 32")
                    except Refused as error:
                        assert error.code == "full" and "user ann has 32 connections" in str(error), error
                stack.enter_context(Client(address, key=bob)).submit()
                admin = stack.enter_context(Client(process.address))
                watch = Stopwatch()
                assert admin.ask("cancel", job=str(job), signal=15, grace_us=0)["jobs"][0]["state"] == "cancelled"
                for peer in crowd[1:]:
                    assert peer.answer()["jobs"][0]["ended"]
                assert crowd[1].recv_until_closed() == []  # a connection that ends without a message
                watch.check("an idle connection", 2)  # of 3 s; a busy server counts from the time of its last look at the clock
                for peer in crowd[2:]:
                    assert peer.recv_until_closed() == []
                again = stack.enter_context(Client(address, key=ann))
                again.ask("job_list", all=True, after_id=0, limit=9)
                ready, _, _ = select.select([crowd[0].socket], [], [], 0)
                assert not ready, "a client that waits for an answer was closed"
            assert process.stop() == 0
        finally:
            if process.alive():
                process.kill()


def test_what_a_node_may_run_that_has_not_called_does_not_begin():
    """The machine has started anew: the state may be an old one, in which a job is queued that in truth runs on a node that is cut off. That all
    nodes which it knows have called, or that the server starts once more, shows nothing. In the same boot the state is the newest, also after a kill."""
    with state_dir() as directory:
        process = Server(BINARY, directory, *LISTEN)
        try:
            with Client(process.address) as admin:
                keys = {name: add(admin, name, "node") for name in ("n1", "n2")}
                job = admin.submit(wait_for_nodes=True)["job_id"]
            process.kill()
            with new_boot():
                process = Server(BINARY, directory, *LISTEN)
                with Client(process.address) as admin, node(network(process), "n2", keys["n2"]) as second:
                    new = admin.submit()["job_id"]
                    second.wait(lambda n: (new, 1) in n.shims, "the start of a new job")
                    info = admin.job(job)["jobs"][0]
                    assert info["state"] == "queued" and "whether the server's state is the newest is not known" in info["reason"], info
                assert process.stop() == 0
                process = Server(BINARY, directory, *LISTEN)
                with Client(process.address) as admin, node(network(process), "n1", keys["n1"]), node(network(process), "n2", keys["n2"]):
                    admin.wait_for(admin.submit()["job_id"], lambda j: j["state"] != "queued")
                    assert admin.job(job)["jobs"][0]["state"] == "queued"
                process.kill()
        finally:
            if process.alive():
                process.kill()
    with state_dir() as directory:
        process = Server(BINARY, directory, *LISTEN)
        try:
            with Client(process.address) as admin:
                key, job = add(admin, "n1", "node"), admin.submit(wait_for_nodes=True)["job_id"]
            process.kill()
            process = Server(BINARY, directory, *LISTEN)
            with Client(process.address) as admin, node(network(process), "n1", key):
                admin.wait_for(job, lambda j: j["state"] != "queued")
            assert process.stop() == 0
        finally:
            if process.alive():
                process.kill()


BIG = {"FILLER": "x" * 900_000}


def cancelled(client, **fields):
    job = client.submit(wait_for_nodes=True, env=BIG, **fields)["job_id"]
    client.ask("cancel", job=str(job), signal=15, grace_us=0)
    return job


def bytes_of(folder):
    return sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))


def test_what_a_user_may_store():
    """Ended jobs keep what is shown, and drop the rest; those that wait count in full, for their own user."""
    with state_dir() as directory, server(*LISTEN, "--max-stored-per-user", "4M", directory=directory) as process:
        address = network(process)
        with Client(process.address) as admin:
            ann, bob = add(admin, "ann"), add(admin, "bob")
        with Client(address, key=ann) as client, Client(address, key=bob) as other:
            for _ in range(40):
                last = cancelled(client, argv=["/bin/echo", "told"])
            assert client.job(last)["argv"] == ["/bin/echo", "told"]
            assert bytes_of(directory) < 28 << 20, bytes_of(directory)  # 36 MB were sent, and 12 MiB are reserved
            for _ in range(4):
                client.submit(wait_for_nodes=True, env=BIG)
            error = expect_refused("full", client.submit, wait_for_nodes=True, env=BIG)
            assert "a user may have 4.0 (--max-stored-per-user of the server)" in str(error), error
            other.submit(wait_for_nodes=True, env=BIG)


def test_one_user_leaves_room_on_a_small_disk():
    """With the default quota, which is more than the whole disk."""
    with state_dir() as directory:
        os.mkdir(directory)
        with FullDisk(directory, 96 << 10) as disk:
            if disk is None:
                raise Skip("mounting a tmpfs is not allowed here")
            with server(*LISTEN, directory=disk + "/server") as process:
                address = network(process)
                with Client(process.address) as admin:
                    ann, bob = add(admin, "ann"), add(admin, "bob")
                with Client(address, key=ann) as client, Client(address, key=bob) as other:
                    for _ in range(20):
                        cancelled(client)
                    error = None
                    while error is None:
                        try:
                            client.submit(wait_for_nodes=True, env=BIG)
                        except Refused as refused:
                            error = refused
                    assert "a user may have half" in str(error), error
                    for _ in range(5):
                        other.submit(wait_for_nodes=True, env=BIG)
                    with Client(process.address) as admin:
                        add(admin, "eve")


def test_staged_archives_leave_room_on_a_small_disk():
    with state_dir() as directory:
        os.mkdir(directory)
        with FullDisk(directory, 96 << 10) as disk:
            if disk is None:
                raise Skip("mounting a tmpfs is not allowed here")
            with server(directory=disk + "/server") as process, Client(process.address) as client:
                data = bytes(16 << 20)
                digest = hashlib.sha256(data).hexdigest()
                client.ask("stage_put", hash=digest, total=str(len(data)), offset=0, bytes="")
                for at in range(0, len(data), 1 << 19):
                    part = base64.b64encode(data[at:at + (1 << 19)]).decode()
                    state = client.ask("stage_put", hash=digest, total=str(len(data)), offset=at, bytes=part)
                assert state["is_complete"], state
                error = expect_refused("full", client.ask, "stage_put", hash="0" * 64, total=str(len(data)), offset=0, bytes="")
                assert "half of what others leave" in str(error), error
                client.submit(wait_for_nodes=True)


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[2:]))
