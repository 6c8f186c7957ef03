"""The real server process against scripted clients and nodes: server_test.py RENDEZVOUS [TEST...]"""

import base64
import contextlib
import os
import pwd
import random
import resource
import select
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.node import Node
from processes.runner import run_tests
from processes.waiting import lasting, PATIENCE_S, Stopwatch, wait_for
from processes.wire import Client, CLIENT_HELLO, Closed, encode, frame, NODE_IDENTITY, Peer, Refused, request_id, Server, submission, with_descriptors
from hostile import Hostile
from malformed import NODE_HELLO, malformed_inputs

BINARY = sys.argv[1]


@contextlib.contextmanager
def state_dir():
    root = tempfile.mkdtemp(prefix="ddp-server-")
    try:
        yield os.path.join(root, "state")
    finally:
        shutil.rmtree(root)


@contextlib.contextmanager
def server(*args, directory=None):
    with contextlib.ExitStack() as stack:
        directory = directory or stack.enter_context(state_dir())
        process = Server(BINARY, directory, *args)
        try:
            yield process
        except BaseException:
            sys.stderr.write(process.log()[-4000:])
            raise
        finally:
            if process.alive():
                process.kill()


@contextlib.contextmanager
def node(address, name="node0", **fields):
    one = Node(address, name, **fields)
    try:
        one.wait(lambda n: n.welcomed or n.error, "a welcome")
        yield one
    finally:
        one.close()


def dump(directory):
    """All rows, read over a separate connection, including data still in the WAL."""
    with contextlib.closing(sqlite3.connect("file:%s/state.db?mode=ro" % directory,
                                            uri=True)) as db:
        return list(db.iterdump())


def rows_but_events(directory):
    """Nor the number of commits, which events need, too."""
    return [row for row in dump(directory) if '"events"' not in row and "'commits'" not in row]


def expect_refused(code, call, *args, **fields):
    try:
        call(*args, **fields)
    except Refused as error:
        assert error.code == code, error
        return error
    raise AssertionError("was not refused")


def test_acknowledged_means_durable():
    request = request_id()
    with state_dir() as directory:
        with server(directory=directory) as one:
            with Client(one.address) as client:
                answer = client.submit(request, argv=["echo", "a b", ""], env={"X": "1"})
                one.kill()
        with server(directory=directory) as two, Client(two.address) as client:
            jobs = client.ask("job_list", all=True, after_id=0, limit=500)["jobs"]
            assert [j["job_id"] for j in jobs] == [answer["job_id"]], jobs
            again = client.submit(request)
            assert again["job_id"] == answer["job_id"] and not again["is_new"], again
            info = client.job("@last")
            assert info["argv"] == ["echo", "a b", ""] and info["cwd"] == "/tmp", info
            assert client.submit()["job_id"] == answer["job_id"] + 1
            assert two.stop() == 0


def submit_all(address, requests, acked, stop_after):
    """Submits all requests at once, each on its own connection. Returns when `stop_after` more are answered or none is left. Answers go to `acked`."""
    sent, target = {}, len(acked) + stop_after
    for request in [r for r in requests if r not in acked]:
        try:
            peer = Peer(address)
            peer.send("client_hello", **CLIENT_HELLO)
            peer.send("submit", **submission(request, name="job-" + request[:8]))
        except (OSError, Closed):
            return sent
        sent[peer.socket] = (peer, request)
    open_sockets = list(sent)
    while open_sockets and len(acked) < target:
        ready, _, _ = select.select(open_sockets, [], [], PATIENCE_S)
        assert ready, "the server does not answer"
        for one in ready:
            peer, request = sent[one]
            message = peer.recv()
            if message["type"] == "client_welcome" and peer.received:
                message = peer.recv()  # select does not see what was read already
            if message["type"] == "submitted":
                acked[request] = message["job_id"]
                open_sockets.remove(one)
            else:
                assert message["type"] == "client_welcome", message
    return sent


def test_kill_under_100_submits():
    rng = random.Random(1)
    requests, acked = [request_id() for _ in range(100)], {}
    with state_dir() as directory:
        kills = 0
        while len(acked) < len(requests):
            with server(directory=directory) as process:
                sent = submit_all(process.address, requests, acked, rng.randrange(1, 20))
                process.kill()
                kills += 1
                for peer, request in sent.values():  # answers in flight when the server was killed
                    for message in peer.recv_until_closed():
                        if message["type"] == "submitted":
                            acked[request] = message["job_id"]
                    peer.close()
        with server(directory=directory) as process, Client(process.address) as client:
            for request in requests:
                again = client.submit(request)
                assert again["job_id"] == acked[request] and not again["is_new"], again
            jobs = client.ask("job_list", all=True, after_id=0, limit=500)["jobs"]
            assert len(jobs) == len(requests) == len(set(acked.values())), len(jobs)
            for request in requests:
                info = client.job(acked[request])
                assert info["jobs"][0]["name"] == "job-" + request[:8], info
        print("kills", kills)


def test_a_job_runs_to_its_end():
    with server() as process, node(process.address, slots=4) as one, \
            Client(process.address) as client:
        one.blob = "AAEC"
        job = client.submit(nproc_per_node=2, argv=["train"], env={"A": "b"}, launch={"role": "r"})["job_id"]
        one.wait_phase(job, 1, "running")
        one.wait(lambda n: n.shims[(job, 1)]["has_world"])
        start = next(m for m in one.orders if m["type"] == "start")
        assert start["argv"] == ["train"] and start["env"] == {"A": "b"}, start
        assert start["launch"] == {"role": "r"}, start
        assert start["world"] == 2 and start["local_count"] == 2, start
        assert next(m for m in one.orders if m["type"] == "world")["blob"] == "AAEC"
        info = client.wait_for(job, lambda j: j["state"] == "running" and j["ranks_running"] == 2)
        assert [r["rank"] for r in info["ranks"]] == [0, 1], info
        assert [r["node"] for r in info["ranks"]] == ["node0"] * 2, info
        one.progress(job, 1, step=42, loss=0.25)
        client.wait_for(job, lambda j: j["step"] == 42 and j["loss"] == 0.25)
        one.finish(job, 1)
        info = client.wait_for(job, lambda j: j["ended"])
        summary = info["jobs"][0]
        assert summary["state"] == "succeeded" and summary["exit_code"] == 0, info
        assert summary["step"] == 42 and summary["where"] == "node0", summary
        assert [r["state"] for r in info["ranks"]] == ["exited"] * 2, info
        assert [r["pid"] for r in info["ranks"]] == [1000, 1001], info
        events = client.ask("event_list", job_id=job, after_id=0, limit=200, wait_us=0)["events"]
        assert any("submitted" in e["text"] for e in events), events
        assert any("succeeded" in e["text"] for e in events), events
        assert process.stop() == 0


def test_a_failed_job_tells_why():
    with server() as process, node(process.address) as one, Client(process.address) as client:
        job = client.submit(max_restarts=0)["job_id"]
        one.wait_phase(job, 1, "running")
        one.finish(job, 1, exit_code=3)
        info = client.wait_for(job, lambda j: j["ended"])
        assert info["jobs"][0]["state"] == "failed" and info["jobs"][0]["exit_code"] == 3, info
        assert info["failed_rank"] == 0 and info["failed_node"] == "node0", info
        assert info["tail"] == "boom\n" and info["ranks"][0]["exit_code"] == 3, info
        assert client.ask("cancel", job=str(job), signal=15, grace_us=-1)["jobs"][0]["state"] == \
            "failed"


def test_why_outlives_the_node_and_the_server():
    """Every failure is kept: who failed, where, with which last lines, and what followed."""
    with state_dir() as directory:
        with server(directory=directory) as process, node(process.address) as one, Client(process.address) as client:
            job = client.submit(max_restarts=1, nproc_per_node=2)["job_id"]
            for generation in (1, 2):
                one.wait_phase(job, generation, "running")
                one.finish(job, generation, exit_code=2 + generation)
            client.wait_for(job, lambda j: j["ended"])
        with server(directory=directory) as process, Client(process.address) as client:
            why = client.ask("why_get", job="@last", ranks_of=0)
            assert why["jobs"][0]["job_id"] == job and why["ranks_of"] == 2, why
            one, two = why["failures"]
            assert (one["generation"], one["exit_code"], one["tail"]) == (1, 3, "boom\n"), one
            assert (two["generation"], two["exit_code"], two["tail"]) == (2, 4, "boom\n"), two
            assert one["decision"] == "restarted at once (restart 1 of 1)", one
            assert two["decision"].startswith("not restarted: --max-restarts is used up"), two
            assert one["node"] == "node0" and one["class"] == "program" and one["world"] == 2, one
            assert why["ranks"][0]["rank"] == two["rank"] and why["ranks"][0]["exit_code"] == 4, why
            assert [r["exit_code"] for r in client.ask("why_get", job=str(job), ranks_of=1)["ranks"]][0] == 3
            expect_refused("not_found", client.ask, "why_get", job="99", ranks_of=0)


def test_kill_the_server_under_a_running_job():
    with state_dir() as directory:
        with server(directory=directory) as process:
            one = Node(process.address, "node0")
            with Client(process.address) as client:
                job = client.submit(max_restarts=3)["job_id"]
                one.wait_phase(job, 1, "running")
                client.wait_for(job, lambda j: j["state"] == "running")
            process.kill()
            one.wait(lambda n: n.error, "the end of the connection")
        with server(directory=directory) as process, Client(process.address) as client:
            again = Node(process.address, "node0", instance=one.instance, shims=one.shims)
            again.wait(lambda n: n.welcomed, "a welcome")
            client.wait_for(job, lambda j: j["state"] == "running" and j["ranks_running"] == 1)
            again.finish(job, 1)
            summary = client.wait_for(job, lambda j: j["ended"])["jobs"][0]
            assert summary["state"] == "succeeded" and summary["restarts"] == 0, summary
            assert summary["generation"] == 1, summary
            again.close()
        one.close()


def test_long_poll():
    with server() as process, Client(process.address) as one, Client(process.address) as two:
        job = one.submit()["job_id"]
        info = one.job(job)
        with lasting("a long poll without news", at_least=0.19):
            late = one.job(job, info["version"], 200000)  # nothing happens, so the answer comes when the wait is over
        assert late["version"] == info["version"], late
        one.send("job_get", job=str(job), after_version=info["version"], wait_us=60000000, first_rank=0)
        with lasting("two answers that do not wait for the minute", at_most=30):
            two.ask("cancel", job=str(job), signal=15, grace_us=-1)
            woken = one.answer()
            assert woken["jobs"][0]["state"] == "cancelled", woken
            again = one.job(job, (1 << 64) - 1, 60000000)  # the job has ended, so the answer comes at once, whatever version is asked
        assert again["jobs"][0]["ended"], again


def test_event_long_poll():
    with server() as process, Client(process.address) as one, Client(process.address) as two:
        events = one.ask("event_list", job_id=0, after_id=0, limit=10, wait_us=100000)["events"]
        assert events == [], events
        one.send("event_list", job_id=0, after_id=0, limit=10, wait_us=60000000)
        job = two.submit()["job_id"]
        events = one.answer()["events"]
        assert events[0]["id"] == 1 and events[0]["job_id"] == job, events
        one.send("event_list", job_id=0, after_id=events[-1]["id"], limit=10, wait_us=60000000)
        with node(process.address):  # only an event: no row of a job is written with it
            events = one.answer()["events"]
            assert any("node0" in e["text"] for e in events), events
        expect_refused("not_found", one.ask, "event_list", job_id=99, after_id=0, limit=1,
                       wait_us=0)


def test_logs():
    with server() as process, Client(process.address) as client, Client(process.address) as other:
        def read(job, **fields):
            wanted = dict(what="output", request_id=7, job_id=job, generation=1, rank=0, offset=0, tail_lines=0,
                          bytes_max=1000, wait_us=0, submitted_ms=0)
            wanted.update(fields)
            return client.ask("log_read", **wanted)

        job = client.submit(nproc_per_node=2)["job_id"]
        data = read(job, wait_us=1000)
        assert data["problem"] == "" and data["bytes"] == "" and not data["is_final"], data
        client.send("log_read", what="output", request_id=8, job_id=job, generation=1, rank=0, offset=0,
                    tail_lines=0, bytes_max=1000, wait_us=50000000, submitted_ms=0)
        logs = {(job, 1, 0): b"hello\nworld\n", (job, 1, 1): b"one\n"}
        with node(process.address, logs=logs) as one:
            data = client.answer()  # the rank is on a node now, so the request is forwarded
            assert data["request_id"] == 8 and data["bytes"] == "aGVsbG8Kd29ybGQK", data
            other.send("log_read", what="output", request_id=7, job_id=job, generation=1, rank=1, offset=0,
                       tail_lines=0, bytes_max=1000, wait_us=0, submitted_ms=0)
            data = read(job, offset=6, rank=0)
            assert data["request_id"] == 7 and data["bytes"] == "d29ybGQK", data
            assert other.answer()["bytes"] == "b25lCg=="  # the same id of two clients
            one.finish(job, 1)
            client.wait_for(job, lambda j: j["ended"])
            assert read(job, rank=1)["bytes"] == "b25lCg=="  # of an ended job
            data = read(job, generation=2)
            assert data["is_final"] and "generation 2" in data["problem"], data
            one.logs["silent"] = True
            client.send("log_read", what="output", request_id=9, job_id=job, generation=1, rank=0, offset=0,
                        tail_lines=0, bytes_max=10, wait_us=50000000, submitted_ms=0)
            one.wait(lambda n: any(o["type"] == "log_read" and o["bytes_max"] == 10 for o in n.orders))
        data = client.answer()
        assert data["request_id"] == 9 and "node0" in data["problem"], data
        data = read(job)
        assert "node0 is not connected" in data["problem"] and not data["is_final"], data
        assert read(999)["problem"] != ""


def test_questions_to_nodes():
    """A question goes to its node with what the server knows, the answer comes back under the asker's id."""
    me = pwd.getpwuid(os.geteuid()).pw_name
    with server() as process, Client(process.address) as client, Client(process.address) as other:
        def ask(who, node_="node0", what="clock", job="", peers=(), args=None, request_id=7):
            who.send("node_read", request_id=request_id, node=node_, what=what, job=job, peers=list(peers), args=args or {})

        ask(client, "nobody")
        error = expect_refused("not_found", client.answer)
        assert "nobody" in error.message, error
        job = client.submit(name="mine", cwd="/tmp", argv=["/bin/true", "x"], env={"A": "b"}, wait_for_nodes=True)["job_id"]
        with node(process.address) as one, node(process.address, "node1"):
            ask(client, what="doctor", peers=["node1", "node1", "none"], args={"k": "v"})
            one.wait(lambda n: any(o["type"] == "node_ask" for o in n.orders))
            ask(other, what="doctor", job="mine")  # the same id of two clients
            one.wait(lambda n: sum(o["type"] == "node_ask" for o in n.orders) == 2)
            first, second = (o for o in one.orders if o["type"] == "node_ask")
            assert first["peers"] == {"node1": "127.0.0.1"} and first["args"] == {"k": "v"}, first
            assert first["what"] == "doctor" and first["user"] == me and first["job_id"] == 0 and first["env"] == {}, first
            assert second["job_id"] == job and second["user"] == me and second["cwd"] == "/tmp", second
            assert second["argv"] == ["/bin/true", "x"] and second["env"] == {"A": "b"}, second
            for asked, text in ((second, "second"), (first, "first")):
                one.peer.send("node_data", request_id=asked["request_id"], problem="", node_ms=5, server_ms=0,
                              bytes=base64.b64encode(text.encode()).decode())
            for who, text in ((client, b"first"), (other, b"second")):
                data = who.answer()
                assert data["request_id"] == 7 and base64.b64decode(data["bytes"]) == text, data
                assert data["node_ms"] == 5 and abs(data["server_ms"] / 1000 - time.time()) < 60, data
            ask(client, job="no-such-job")
            expect_refused("not_found", client.answer)
            one.peer.send("node_data", request_id=first["request_id"], problem="", node_ms=5, server_ms=0, bytes="")
            ask(client, request_id=9)  # an answer that nobody waits for is dropped
            one.wait(lambda n: sum(o["type"] == "node_ask" for o in n.orders) == 3)
        data = client.answer()
        assert data["request_id"] == 9 and "node0 was disconnected" in data["problem"], data
        ask(client)
        assert client.answer()["problem"] == "node0 is not connected"


def test_names_numbers_and_last():
    with server() as process, Client(process.address) as client:
        expect_refused("not_found", client.job, "@last")
        first = client.submit(name="sweep")["job_id"]
        second = client.submit(name="sweep")["job_id"]
        client.submit(name="other")
        assert client.job("sweep")["jobs"][0]["job_id"] == second
        assert client.job(first)["jobs"][0]["job_id"] == first
        assert client.job("@last")["jobs"][0]["name"] == "other"
        error = expect_refused("not_found", client.job, "nothing")
        assert "nothing" in error.message and error.hint, error
        listed = client.ask("job_list", all=False, after_id=0, limit=2)
        assert listed["more"] and [j["job_id"] for j in listed["jobs"]] == [first, second], listed
        listed = client.ask("job_list", all=False, after_id=second, limit=2)
        assert not listed["more"] and len(listed["jobs"]) == 1, listed
        client.ask("cancel", job="sweep", signal=15, grace_us=-1)
        listed = client.ask("job_list", all=False, after_id=0, limit=10)
        assert [j["job_id"] for j in listed["jobs"]] == [first, second + 1], listed
        listed = client.ask("job_list", all=True, after_id=0, limit=10)
        assert [j["state"] for j in listed["jobs"]] == ["queued", "cancelled", "queued"], listed
        assert all(j["reason"] for j in listed["jobs"]), listed  # why it waits, in words


def test_nodes_of_one_name():
    with server() as process, Client(process.address) as client, node(process.address) as one:
        with node(process.address) as two:
            two.wait(lambda n: n.error, "a refusal")
            assert "node0" in two.error and not two.welcomed, two.error
        nodes = client.nodes()
        assert len(nodes) == 1 and nodes[0]["state"] == "up" and nodes[0]["slots"] == 2, nodes
        assert nodes[0]["beat_age_us"] >= 0 and one.error is None, nodes


def test_protocol_version_is_checked():
    with server() as process:
        for kind, rest in (("client_hello", {}),
                           ("node_hello", dict(name="node0", boot_id="b", instance=1, pid=1,
                                               address="127.0.0.1", slots=1, gpus=0, shims=[], closed=[],
                                               **NODE_IDENTITY))):
            with Peer(process.address) as peer:
                peer.send(kind, protocol=99, version="9", **rest)
                messages = peer.recv_until_closed()
                assert len(messages) == 1 and messages[0]["code"] == "refused", messages
                assert "99" in messages[0]["message"], messages
        with Peer(process.address) as peer:
            peer.send("beat", sent_us=1, shims=[], closed=[], leaving=False, warm=[], silent=[])
            messages = peer.recv_until_closed()
            assert messages[0]["code"] == "bad_request" and "hello" in messages[0]["message"]
        with Client(process.address) as client:
            expect_refused("bad_request", client.ask, "beat", sent_us=1, shims=[], closed=[], leaving=False, warm=[], silent=[])
            client.submit()  # the connection is still good


def test_silent_connections_are_closed():
    with server() as process:
        watch = Stopwatch()
        silent, drip = Peer(process.address), Peer(process.address)
        drip.send_bytes(b"\0\0\1\0{")
        stop = threading.Event()

        def drop_by_drop():  # sending bytes does not extend the time limit
            with contextlib.suppress(OSError, Closed):
                while not stop.wait(0.5):
                    drip.send_bytes(b" ")

        thread = threading.Thread(target=drop_by_drop)
        thread.start()
        for peer in (silent, drip):
            peer.recv_until_closed()
        stop.set()
        thread.join()
        watch.check("the end of silent connections", 4, PATIENCE_S)
        with Client(process.address) as client:
            client.submit()
        silent.close()
        drip.close()


def test_a_crowd_of_connections():
    """64 connections without a hello delay later ones until they time out; clients that are already accepted are served."""
    with server() as process, Client(process.address) as before:
        crowd = [Peer(process.address) for _ in range(64)]
        with lasting("a submit beside the crowd", at_most=3):  # its connections end after 5 s
            before.submit()
        with Client(process.address) as client:
            client.submit()
        for peer in crowd:
            peer.recv_until_closed()
            peer.close()
        assert process.stop() == 0


def test_a_burst_of_clients():
    """200 clients at once, more than may be without a hello at a time: all are served."""
    with server() as process:
        crowd = []
        for _ in range(200):
            peer = Peer(process.address)
            peer.send("client_hello", **CLIENT_HELLO)
            peer.send("submit", **submission())
            crowd.append(peer)
        jobs = set()
        for peer in crowd:
            assert peer.recv()["type"] == "client_welcome"
            jobs.add(peer.recv()["job_id"])
            peer.close()
        assert jobs == set(range(1, 201)), sorted(jobs)


def test_the_cap_of_connections():
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(state_dir())
        # the cap follows from the limit on descriptors
        process = Server(with_descriptors(BINARY, directory + "-limited", 1500), directory, "--no-fsync")
        stack.callback(lambda: process.alive() and process.kill())
        clients = []
        with contextlib.suppress(Refused):
            while len(clients) <= 1024:
                clients.append(stack.enter_context(Client(process.address)))
        assert 200 < len(clients) < 1024, len(clients)
        with node(process.address) as one:  # there is still room for nodes
            clients[0].submit()
            one.wait(lambda n: n.shims, "a start")
        clients.pop().close()

        def has_room():
            try:
                with Client(process.address) as again:
                    return again.submit()
            except Refused as error:
                assert error.code == "full", error
                return None
        wait_for("room for a client", has_room)
        assert process.stop() == 0


def test_a_silent_node_is_lost():
    with server("--suspect", "3s", "--lost", "6s", "--lease", "7s") as process, \
            node(process.address) as one, Client(process.address) as client:
        job = client.submit(max_restarts=3)["job_id"]
        one.wait_phase(job, 1, "running")
        one.silent = True
        with node(process.address, "node1") as two:
            two.wait_phase(job, 2, "running")
            client.wait_for(job, lambda j: j["state"] == "running" and j["where"] == "node1")
            nodes = client.nodes()
            assert {n["name"]: n["state"] for n in nodes} == {"node0": "lost", "node1": "up"}, nodes
            one.wait(lambda n: n.error, "the reason")
            assert "silent" in one.error, one.error
            ranks = client.ask("log_read", what="output", request_id=1, job_id=job, generation=1, rank=0, offset=0,
                               tail_lines=0, bytes_max=1, wait_us=0, submitted_ms=0)
            assert "node0" in ranks["problem"], ranks  # of the older generation


def test_options():
    def run(*args):
        return subprocess.run([BINARY, *args], capture_output=True, text=True, timeout=PATIENCE_S,
                              check=False)

    assert run("--version").stdout.startswith("rendezvous ")
    assert "--state-dir" in run("--help").stdout
    for args, word in ((("--lsten", "x"), "--listen"), (("--lost", "1s", "--suspect", "2s"), "--lost"),
                       (("what",), "option"), (("--lease", "soon"), "--lease")):
        result = run(*args)
        assert result.returncode == 2 and word in result.stderr, result
    with state_dir() as directory:
        os.makedirs(directory + "/rendezvous.sock")
        result = run("--state-dir", directory)
        assert result.returncode == 1 and "rendezvous.sock" in result.stderr, result
        result = run("--state-dir", directory + "/state.db/x")
        assert result.returncode == 1 and "state.db" in result.stderr, result


def test_systemd_is_told():
    with state_dir() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        path = os.path.dirname(directory) + "/notify"
        notify.bind(path)
        notify.settimeout(PATIENCE_S)
        os.environ["NOTIFY_SOCKET"] = path
        try:
            with server(directory=directory) as process:
                assert notify.recv(100) == b"READY=1"
                assert process.stop() == 0
        finally:
            del os.environ["NOTIFY_SOCKET"]


def test_exit_with_parent():
    with state_dir() as directory:
        middle = subprocess.Popen(
            [sys.executable, "-c", "import subprocess, sys, signal\n"
             "subprocess.Popen(sys.argv[1:])\nsignal.pause()",
             BINARY, "--state-dir", directory, "--exit-with-parent"], stdout=subprocess.PIPE)
        assert middle.stdout.readline().startswith(b"rendezvous: ready")
        middle.kill()
        middle.wait(PATIENCE_S)
        assert middle.stdout.read() == b""  # ends when the server does
        middle.stdout.close()
        assert not os.path.exists(directory + "/rendezvous.sock")


def test_a_reader_that_does_not_read():
    with server() as process, Client(process.address) as good, Client(process.address) as slow:
        for _ in range(20):
            good.submit(argv=["x" * 1000] * 20)
        slow.socket.setblocking(False)
        request, rest, asked, blocked = frame(b'{"type":"job_list","all":true,"after_id":"0","limit":500}'), b"", 0, 0
        while blocked < 20000:  # the server does not read from it either
            if not rest:
                rest, asked = request, asked + 1
            try:
                rest = rest[slow.socket.send(rest):]
                blocked = 0
            except BlockingIOError:
                blocked += 1
            if (asked + blocked) % 1000 == 0:
                with lasting("an answer beside one who reads nothing", at_most=10):
                    good.job("@last")
        slow.socket.settimeout(PATIENCE_S)
        for _ in range(asked - 1):  # when it reads, it gets all
            assert len(slow.answer()["jobs"]) == 20
        good.submit()
        assert process.is_sanitized() or process.rss_kib() < 64 * 1024, process.rss_kib()
        assert process.stop() == 0


def test_plain_loopback():
    with server("--listen", "127.0.0.1:0") as process:
        assert len(process.addresses) == 2, process.addresses
        with Client(process.addresses[1]) as tcp, Client(process.address) as unix:
            job = tcp.submit()["job_id"]
            assert unix.job(job)["jobs"][0]["user"] == tcp.job(job)["jobs"][0]["user"] != ""


def test_orderly_close():
    with state_dir() as directory:
        with server("--listen", "127.0.0.1:0", directory=directory) as process:
            idle, silent = Client(process.address), Peer(process.addresses[1])
            waiting = Client(process.address)
            job = waiting.submit()["job_id"]
            version = waiting.job(job)["version"]
            waiting.send("job_get", job=str(job), after_version=version, wait_us=60000000, first_rank=0)
            with node(process.address):
                assert process.stop() == 0
            for peer in (idle, silent, waiting):
                peer.recv_until_closed()
                peer.close()
            left = sorted(os.listdir(directory))
            assert "rendezvous.sock" not in left and "state.db-wal" not in left, left
        with server(directory=directory) as process, Client(process.address) as client:
            assert client.job(job)["jobs"][0]["job_id"] == job


def test_one_server_for_a_directory():
    with server() as process:
        run = subprocess.run([BINARY, "--state-dir", process.state_dir], capture_output=True,
                             text=True, timeout=PATIENCE_S, check=False)
        assert run.returncode != 0 and str(process.process.pid) in run.stderr, run
        with Client(process.address) as client:
            client.submit()


def open_to_all(process):
    os.chmod(os.path.dirname(process.state_dir), 0o711)
    os.chmod(process.state_dir, 0o711)
    os.chmod(process.address[5:], 0o666)


def fork_as(uid, what):
    """A child of that user, which ends with 0 when `what` has returned. Returns its pid."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            what()
            code = 0
        finally:
            os._exit(code)
    return pid


def test_a_user_who_says_nothing():
    """300 silent connections of one user: root, another user and a node get in meanwhile."""
    if os.geteuid() != 0:
        return "skip (needs root, to be somebody else)"
    with server() as process, Client(process.address) as root:
        open_to_all(process)
        ready, say = os.pipe()
        hold, end = os.pipe()

        def say_nothing():
            os.close(end)
            crowd = {peer.socket: peer for peer in (Peer(process.address) for _ in range(300))}
            os.write(say, b"1")
            while True:  # a connection that is closed is made again
                closed, _, _ = select.select([hold, *crowd], [], [])
                if hold in closed:
                    return
                for one in closed:
                    crowd.pop(one).close()
                    peer = Peer(process.address)
                    crowd[peer.socket] = peer

        def call():
            with Client(process.address) as client:
                client.submit()

        silent = fork_as(65534, say_nothing)
        assert os.read(ready, 1) == b"1"
        for _ in range(20):
            with Client(process.address) as client:
                client.submit()
        with node(process.address):
            assert os.waitpid(fork_as(65533, call), 0)[1] == 0
        root.submit()
        os.close(end)
        os.close(hold)
        assert os.waitpid(silent, 0)[1] == 0
        os.close(ready)
        os.close(say)
    return None


def test_users_see_their_own():
    if os.geteuid() != 0:
        return "skip (needs root, to be somebody else)"
    with server() as process, Client(process.address) as root:
        open_to_all(process)
        mine = root.submit(name="secret")["job_id"]

        def look():
            nobody = Client(process.address)
            for name in ("secret", str(mine), "@last"):
                expect_refused("not_found", nobody.job, name)
                expect_refused("not_found", nobody.ask, "why_get", job=name, ranks_of=0)
                expect_refused("not_found", nobody.ask, "cancel", job=name, signal=9,
                               grace_us=0)
            assert nobody.ask("job_list", all=True, after_id=0, limit=9)["jobs"] == []
            assert nobody.ask("job_list", all=False, after_id=0, limit=9)["jobs"] == []
            assert nobody.ask("event_list", job_id=0, after_id=0, limit=9,
                              wait_us=0)["events"] == []
            assert nobody.ask("log_read", what="output", request_id=1, job_id=mine, generation=1, rank=0,
                              offset=0, tail_lines=0, bytes_max=9, wait_us=0, submitted_ms=0)["problem"]
            own = nobody.submit(name="own")["job_id"]
            assert nobody.job("@last")["jobs"][0]["job_id"] == own

        def ask():
            nobody = Client(process.address)
            for name in ("secret", str(mine)):
                nobody.send("node_read", request_id=1, node="asked", what="doctor", job=name, peers=[], args={})
                error = expect_refused("not_found", nobody.answer)
                assert name in error.message, error

        assert os.waitpid(fork_as(65534, look), 0)[1] == 0
        with node(process.address, "asked") as asked:
            assert os.waitpid(fork_as(65534, ask), 0)[1] == 0
            assert all(order["type"] != "node_ask" for order in asked.orders), asked.orders
            root.send("node_read", request_id=1, node="asked", what="doctor", job="own", peers=[], args={})
            asked.wait(lambda n: any(order["type"] == "node_ask" for order in n.orders))  # other orders may follow it
            (order,) = [order for order in asked.orders if order["type"] == "node_ask"]
            assert order["user"] == pwd.getpwuid(65534).pw_name, order
        assert "disconnected" in root.answer()["problem"]
        assert len(root.ask("job_list", all=True, after_id=0, limit=9)["jobs"]) == 2


def test_spares_are_kept_warm():
    """A spare is asked to keep warm processes only for ddp-worker, with all that a start order would have."""
    def warm_of(one, job):
        return [order for order in one.orders if order["type"] == "warm" and order["job_id"] == job]

    def beats(one):
        return sum(order["type"] == "beat_ack" for order in one.orders)

    with server() as process, Client(process.address) as client, node(process.address, "n0", slots=1) as first:
        wanted = dict(argv=["/opt/ddp-worker", "-b", "4"], env={"A": "1"}, cwd="/tmp", spares=1)
        job = client.submit(**wanted)["job_id"]
        first.wait_phase(job, 1, "running")
        with node(process.address, "n1", slots=1) as spare:
            spare.wait(lambda n: warm_of(n, job), "the wish")
            (start,) = [order for order in first.orders if order["type"] == "start"]
            (warm,) = warm_of(spare, job)
            for name in ("cluster", "job_id", "user", "slot_mask", "cwd", "argv", "env", "launch"):
                assert warm[name] == start[name], (name, warm, start)
            spare.warm = [dict(job_id=job, state="ready")]
            client.wait_for(job, lambda j: (j["spares_held"], j["spares_warm"]) == (1, 1))
            assert not warm_of(first, job)
            client.ask("cancel", job=str(job), signal=15, grace_us=0)
            spare.wait(lambda n: any(order["type"] == "cool" and order["job_id"] == job for order in n.orders), "its end")
            spare.warm = []
            client.wait_for(job, lambda j: j["ended"])
            for other in (dict(argv=["/opt/ddp-worker.py"]), dict(argv=["env", "ddp-worker"]), dict(launch={"tty": "24x80"})):
                job = client.submit(**{**wanted, **other})["job_id"]
                client.wait_for(job, lambda j: j["spares_held"] == 1)
                for one in (first, spare):
                    seen = beats(one)
                    one.wait(lambda n, seen=seen: beats(n) > seen + 2, "three beats more")
                    assert not warm_of(one, job), other
                client.ask("cancel", job=str(job), signal=15, grace_us=0)
                client.wait_for(job, lambda j: j["ended"])


def test_the_largest_job():
    """`submit` of exactly 3 MiB is taken, started and shown whole; one byte more is refused."""
    with server() as process, Client(process.address) as client:
        fields = submission(env={"V%d" % i: "x" * 500 for i in range(900)}, argv=["y"])

        def submit(byte_count):
            pad = byte_count - len(encode("submit", **fields))
            return client.ask("submit", **dict(fields, argv=["y" + "y" * pad]))

        job = submit(3 << 20)["job_id"]
        with node(process.address) as one:
            one.wait_phase(job, 1, "running")
            start = next(m for m in one.orders if m["type"] == "start")
            assert start["env"] == fields["env"] and len(start["argv"][0]) > 500000, "cut"
            assert client.job(job)["argv"] == start["argv"]
        fields["request_id"] = request_id()
        error = expect_refused("bad_request", submit, (3 << 20) + 1)
        assert "3145729" in error.message, error
        with Client(process.address) as again:
            assert len(again.ask("job_list", all=True, after_id=0, limit=9)["jobs"]) == 1


def hello_first(peer, after):
    if after == "client":
        peer.send("client_hello", **CLIENT_HELLO)
    elif after == "node":
        peer.send("node_hello", **NODE_HELLO)
    if after and peer.recv()["type"] not in ("client_welcome", "node_welcome"):
        raise AssertionError("no welcome")


def say_and_listen(peer, after, data):
    """Sends `data` after a hello; returns all answers until the server closes."""
    hello_first(peer, after)
    with contextlib.suppress(Closed):
        peer.send_bytes(data)
    with contextlib.suppress(OSError):
        peer.socket.shutdown(socket.SHUT_WR)
    return peer.recv_until_closed()


def written_inputs(*args):
    """The inputs of tests/fuzz, as (name, bytes)."""
    with tempfile.TemporaryDirectory(prefix="ddp-inputs-") as directory:
        subprocess.run([os.environ["DDP_INPUTS"], *args, directory], check=True,
                       stdout=subprocess.DEVNULL, timeout=PATIENCE_S)
        found = []
        for name in sorted(os.listdir(directory)):
            with open(os.path.join(directory, name), "rb") as file:
                found.append((name, file.read()))
        return found


def test_malformed_inputs():
    """Each input gets an error or a closed connection. The server survives, its state does not change, its memory does not grow."""
    inputs = malformed_inputs()
    inputs += [(name, data, None) for name, data in written_inputs()]
    assert len(inputs) >= 900, len(inputs)
    with server() as process, Client(process.address) as good, node(process.address) as one:
        job = good.submit()["job_id"]
        one.wait_phase(job, 1, "running")
        good.wait_for(job, lambda j: j["state"] == "running")
        with Peer(process.address) as peer:  # register the other node, with its events, before the comparison
            hello_first(peer, "node")
        before = rows_but_events(process.state_dir)
        info = good.job(job)
        rss, missed = process.rss_kib(), []
        for what, data, after in inputs:
            with Peer(process.address) as peer:
                messages = [m for m in say_and_listen(peer, after, data) if m["type"] != "beat_ack"]
                assert all(m["type"] == "error" for m in messages), (what, messages)
                missed.extend([] if messages or what.startswith("cut-") else [what])
        assert not missed, missed
        assert process.alive()
        assert rows_but_events(process.state_dir) == before
        now = good.job(job)
        assert now["jobs"] == info["jobs"] and now["ranks"] == info["ranks"], now
        assert process.is_sanitized() or process.rss_kib() < rss + 8 * 1024, process.rss_kib()
        print("%d inputs, rss %d -> %d KiB" % (len(inputs), rss, process.rss_kib()))
        assert process.stop() == 0


def test_valid_messages_in_any_order():
    """Every valid message at any time: the server survives and answers."""
    frames = written_inputs("--valid")
    with server("--no-fsync") as process:
        for after in ("client", "node", None):
            for name, data in frames:
                with Peer(process.address) as peer:
                    say_and_listen(peer, after, data)
                assert process.alive(), name
        with Client(process.address) as client:
            client.submit()
        print("%d messages, 3 ways" % len(frames))
        assert process.stop() == 0


def test_peers_that_follow_no_protocol():
    """Nodes and clients send random valid messages: the server survives, its memory is bounded, others are served."""
    seed = int(os.environ.get("DDP_SEED", "1"))
    total = int(os.environ.get("DDP_MESSAGES", "3000"))  # 100000 and more by hand
    rng, peers, orders, sent, slowest = random.Random(seed), [], [], 0, 0.0
    with state_dir() as directory:
        with server("--no-fsync", directory=directory) as process, Client(process.address) as good:
            while sent < total:
                while len(peers) < 10:
                    peers.append(Hostile(process.address, rng, orders))
                peer, count = rng.choice(peers), rng.choice([1, 5, 20])
                if not peer.speak(count) or rng.random() < 0.01:
                    peer.peer.close()
                    peers.remove(peer)
                sent += count
                watch = Stopwatch()
                good.ask("job_list", all=False, after_id=0, limit=500)
                slowest = max(slowest, watch.passed_s)
            assert process.alive(), "seed %d" % seed
            assert process.is_sanitized() or process.rss_kib() < 48 * 1024, process.rss_kib()
            kinds = sorted({order["type"] for order in orders})
            print("%d messages, slowest answer %.3f s, rss %d KiB, orders %s" % (sent, slowest, process.rss_kib(), kinds))
            for peer in peers:
                peer.peer.close()
            process.kill()
        with server("--no-fsync", directory=directory) as process, Client(process.address) as good:
            assert not [line for line in process.log().splitlines() if "could not be restored" in line]
            assert process.stop() == 0


def change_store(directory, statement):
    """Changes the store that the server will find at its next start. Call it only while the server is stopped."""
    with contextlib.closing(sqlite3.connect(os.path.join(directory, "state.db"))) as db, db:
        db.execute(statement)


def test_a_job_without_a_readable_command_fails_by_name():
    """Such a job is neither started nor dropped: it ends as failed, with the reason, and is not tried again."""
    for damage in ("delete from specs", "update specs set argv = '[\"x\"'", "update specs set argv = '[]'",
                   "update jobs set name = 'a b'"):
        with state_dir() as directory:
            with server(directory=directory) as process, Client(process.address) as client:
                job = client.submit(max_restarts=3)["job_id"]
                assert process.stop() == 0
            change_store(directory, damage)
            with server(directory=directory) as process, Client(process.address) as client, \
                    node(process.address) as one:
                if "name" in damage:  # a name that no message can carry: an error, never silence
                    assert "job.name" in expect_refused("internal", client.job, job).message.replace("jobs[0]", "job")
                    expect_refused("internal", client.ask, "job_list", all=True, after_id=0, limit=10)
                    wait_for("the event", lambda: any("start order cannot be sent: start.name" in e["text"] for e in client.ask(
                        "event_list", job_id=job, after_id=0, limit=200, wait_us=0)["events"]))  # pylint: disable=cell-var-from-loop
                else:
                    info = client.wait_for(job, lambda j: j["ended"])
                    assert info["jobs"][0]["state"] == "failed" and info["jobs"][0]["exit_code"] == 125, info
                    reason = "its command is lost: the server's state.db was damaged. Submit it again" if damage.startswith("delete") \
                        else "its command cannot be read from the server's store"
                    assert info["jobs"][0]["reason"] == reason, info
                    assert info["jobs"][0]["generation"] == 1, info
                assert not any(o["type"] == "start" for o in one.orders), one.orders
                assert client.submit()["job_id"] == job + 1
                one.wait_phase(job + 1, 1, "running")


def test_a_damaged_job_is_not_dropped():
    """A stored job that cannot continue ends as failed, with an event; the other jobs go on."""
    with state_dir() as directory:
        with server(directory=directory) as process, Client(process.address) as client, \
                node(process.address) as one:
            job, other = client.submit(nproc_per_node=2)["job_id"], client.submit()["job_id"]
            one.wait_phase(job, 1, "running")
            client.wait_for(job, lambda j: j["state"] == "running")
            assert process.stop() == 0
        change_store(directory, "update jobs set parts = '[{]' where id = %d" % job)
        with server(directory=directory) as process, Client(process.address) as client:
            info = client.job(job)["jobs"][0]
            assert info["state"] == "failed" and info["exit_code"] == 125, info
            assert info["reason"] == "it could not be restored: its parts do not fit its state", info
            events = client.ask("event_list", job_id=job, after_id=0, limit=200, wait_us=0)["events"]
            assert any(e["text"] == info["reason"] for e in events), events
            assert client.job(other)["jobs"][0]["state"] == "queued"
            assert "could not be restored" in process.log()


def test_a_damaged_number_hides_no_other_job():
    """The list of all jobs is still answered, and the job's own line too."""
    for change in ("max_restarts = -1", "steps = -1", "checkpoint_step = 9223372036854775807", "epoch = -5", "generation = 99999999"):
        with state_dir() as directory:
            with server(directory=directory) as process, Client(process.address) as client:
                jobs = [client.submit()["job_id"] for _ in range(3)]
                assert process.stop() == 0
            change_store(directory, "update jobs set %s where id = %d" % (change, jobs[1]))
            with server(directory=directory) as process, Client(process.address) as client:
                listed = client.ask("job_list", all=True, after_id=0, limit=9)["jobs"]
                assert [job["job_id"] for job in listed] == jobs[::-1] or [job["job_id"] for job in listed] == jobs, (change, listed)
                client.job(jobs[1])


def test_numbers_out_of_range_are_refused():
    """A state with such a number is damaged: the server says so and does not start."""
    for number in (-3, 0, 2**53 - 1, 2**63 - 1):
        with state_dir() as directory:
            with server(directory=directory) as process, Client(process.address) as client:
                client.submit()
                assert process.stop() == 0
            change_store(directory, "update jobs set id = %d" % number)
            result = subprocess.run([BINARY, "--state-dir", directory], capture_output=True, text=True, timeout=PATIENCE_S)
            assert result.returncode == 1 and "has the number %d" % number in result.stderr, result


def test_large_start_orders_do_not_cut_the_node_off():
    """More start orders at once than a connection's queue holds."""
    with server() as process, Client(process.address) as client:
        jobs = [client.submit(env={"X": "x" * 900_000})["job_id"] for _ in range(8)]
        with node(process.address, slots=8) as one:
            for job in jobs:
                client.wait_for(job, lambda j: j["state"] == "running")
                one.finish(job, 1)
                client.wait_for(job, lambda j: j["state"] == "succeeded" and j["generation"] == 1)
            assert process.log().count("node0 is up") == 1, process.log()


@contextlib.contextmanager
def small_disk(mib):
    """A separate file system for the state directory; None if mounting is not allowed."""
    with state_dir() as directory:
        os.mkdir(directory)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700,size=%dm" % mib, "ddp-test", directory],
                          capture_output=True, check=False).returncode != 0:
            yield None
            return
        try:
            yield directory
        finally:
            subprocess.run(["umount", "-l", directory], check=True)


def fill(path):
    """Fills all free space."""
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))


def test_full_disk():
    """Running jobs go on and end, new jobs are refused with the reason, and everything works again once there is space."""
    with small_disk(64) as directory:
        if directory is None:
            return "skip (mounting a tmpfs needs root)"
        with server(directory=directory) as process, node(process.address, slots=4) as one, Client(process.address) as client:
            jobs = [client.submit(env={"X": "x" * 8000}, max_restarts=9)["job_id"] for _ in range(40)]
            client.wait_for(jobs[0], lambda j: j["state"] == "running")
            fill(directory + "/filler")
            assert os.statvfs(directory).f_bavail == 0
            error = expect_refused("full", client.submit)
            assert "disk is nearly full" in str(error), error
            expect_refused("full", client.ask, "principal_add", name="n9", role="node")
            for step in range(3000):  # each is a commit
                one.progress(jobs[0], 1, step=step, checkpoint_step=step)
            client.wait_for(jobs[0], lambda j: j["step"] == 2999)
            for job in jobs[:30]:
                client.wait_for(job, lambda j: j["state"] == "running")
                one.finish(job, 1)
                client.wait_for(job, lambda j: j["state"] == "succeeded")
            assert process.stop() == 0
        with server(directory=directory) as process, node(process.address, slots=4) as one, Client(process.address) as client:
            for job in jobs[34:]:
                client.ask("cancel", job=str(job), signal=9, grace_us=0)
            os.unlink(directory + "/filler")
            assert client.submit()["job_id"] == jobs[-1] + 1
            assert "has room again" in process.log(), process.log()
            fill(directory + "/filler")
            for job in jobs[30:34]:  # the new node does not know the jobs that ran, so they start again
                info = client.wait_for(job, lambda j, job=job: j["state"] == "running" and (job, j["generation"]) in one.shims)
                one.finish(job, info["jobs"][0]["generation"])
            client.wait_for(jobs[33], lambda j: j["state"] == "succeeded")
            process.kill()
        with server(directory=directory) as process, Client(process.address) as client:
            states = [j["state"] for j in client.ask("job_list", all=True, after_id=0, limit=50)["jobs"]]
            assert states[:40] == ["succeeded"] * 34 + ["cancelled"] * 6, states


def test_no_descriptor_to_look_up_a_user():
    """A client whose user cannot be looked up is refused; it is never treated as another user."""
    with server() as process:
        pid = process.process.pid
        idle = len(os.listdir(f"/proc/{pid}/fd"))
        with Client(process.address) as client:
            first = client.job(str(client.submit(wait_for_nodes=True)["job_id"]))["jobs"][0]["user"]
        usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        seen = set()
        for more in range(6):  # one case: a descriptor for the connection and none for the user database
            wait_for("the end of the last connection", lambda: len(os.listdir(f"/proc/{pid}/fd")) <= idle)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (idle + more, usual[1]))
            try:
                with Client(process.address) as client:
                    job = client.submit(wait_for_nodes=True)["job_id"]
                    seen.add(client.job(str(job))["jobs"][0]["user"])
            except Refused as error:
                seen.add(error.code)
                assert "user database" in error.message and error.hint == "try again", error
            except (Closed, OSError):
                seen.add("no connection")
            resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)
        assert first in seen and "full" in seen and seen <= {first, "full", "no connection"}, seen
        assert process.stop() == 0


def test_memory():
    with server() as process, node(process.address) as one, Client(process.address) as client:
        job = client.submit()["job_id"]
        one.wait_phase(job, 1, "running")
        client.wait_for(job, lambda j: j["state"] == "running")
        print("rss with a running job: %d KiB" % process.rss_kib())
        assert process.is_sanitized() or process.rss_kib() < 16 * 1024, process.rss_kib()


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items())
                        if name.startswith("test_")], sys.argv[2:]))
