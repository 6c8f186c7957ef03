"""Clients that do not read their answers, or do not finish their requests: what the server holds for them has limits, others are served,
and who reads late gets everything.
usage: slow_readers_test.py RENDEZVOUS [TEST...]"""
import contextlib
import os
import shutil
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.node import Node
from processes.runner import run_tests
from processes.waiting import Stopwatch
from processes.wire import Client, Closed, encode, frame, Server

BINARY = sys.argv[1]
JOBS, LIST = 500, dict(all=True, after_id=0, limit=500)
HALF = 900000  # of a submit, whose limit is 3 MiB
USER_MIB = 64  # BACKLOG_USER_BYTES_MAX
ROOM_MIB = 2 * USER_MIB + 32  # what is closed is free a little later; and one answer, and malloc's own


@contextlib.contextmanager
def server(jobs=JOBS, *args):
    root = tempfile.mkdtemp(prefix="ddp-slow-")
    process = Server(BINARY, os.path.join(root, "state"), *args)
    try:
        if jobs > 0:
            with Client(process.address) as client:
                client.submit(array="0-%d" % (jobs - 1), cwd="/" + "d" * 3000, wait_for_nodes=True)
        yield process
        assert process.alive()
    except BaseException:
        sys.stderr.write(process.log()[-4000:])
        raise
    finally:
        if process.alive():
            process.kill()
        shutil.rmtree(root)


def grown_mib(process, before_kib):
    return (process.rss_kib() - before_kib) / 1024


def check_others(process, before_kib, what):
    """The memory is within the limit, and another client gets its list."""
    with Client(process.address) as client:
        watch = Stopwatch()
        assert len(client.ask("job_list", **LIST)["jobs"]) == JOBS
    grown = grown_mib(process, before_kib)
    print("%s: %.0f MiB more; another client's list took %.3f s" % (what, grown, watch.passed_s))
    assert grown < ROOM_MIB, grown


def open_until_full(process, count, data):
    """Connections that send `data` and read nothing. Those that are closed meanwhile do not count."""
    clients = []
    for _ in range(count):
        clients.append(Client(process.address))
        with contextlib.suppress(Closed):
            clients[-1].send_bytes(data)
    return clients


def test_unread_answers():
    with server() as process:
        before = process.rss_kib()
        clients = open_until_full(process, 600, frame(encode("job_list", **LIST)) * 8)
        check_others(process, before, "600 connections with 8 unread lists each")
        for client in clients:
            client.close()


def test_unfinished_requests():
    with server() as process:
        before = process.rss_kib()
        clients = open_until_full(process, 300, struct.pack(">I", HALF + 1) + b"{" * HALF)
        check_others(process, before, "300 connections with half a submit each")
        for client in clients:
            client.close()
        assert "is the slowest of them" in process.log(), process.log()[-2000:]


def test_who_reads_late_gets_everything():
    """More answers than a connection may have queued wait as requests, also behind a request that waits by itself."""
    with server() as process, Client(process.address) as client:
        client.send_bytes(frame(encode("job_list", **LIST)) * 60)
        with Client(process.address) as other:  # the server has dealt with the first one's requests
            assert len(other.ask("job_list", **LIST)["jobs"]) == JOBS
        for _ in range(60):
            answer = client.answer()
            assert [job["job_id"] for job in answer["jobs"]] == list(range(1, JOBS + 1)), answer["type"]
        assert client.job(1)["jobs"][0]["job_id"] == 1


def test_waiting_requests_of_one_that_does_not_read():
    """64 requests that wait are all answered when it reads, not all at once when the job changes."""
    with server(0) as process, Client(process.address) as client, Client(process.address) as other:
        job = client.submit(argv=["/bin/true", *["x" * 4000] * 200], wait_for_nodes=True)["job_id"]
        version = other.job(job)["version"]
        before = process.rss_kib()
        for _ in range(60):
            client.send("job_get", job=str(job), after_version=version, wait_us=60000000, first_rank=0)
        node = Node(process.address, "n0", slots=1)
        try:
            other.wait_for(job, lambda j: j["state"] == "running")
            grown = grown_mib(process, before)
            states = {client.answer()["jobs"][0]["state"] for _ in range(60)}
            print("60 waiting requests about a job of 800 KB: %.0f MiB more" % grown)
            assert grown < 16 and "running" in states, (grown, states)
        finally:
            node.close()


def test_who_reads_slowly_is_not_closed_for_others():
    """A reader that is slow, but goes on, outlives connections of the same user that have stopped."""
    with server() as process, Client(process.address) as reader:
        reader.send_bytes(frame(encode("job_list", **LIST)) * 100)
        clients = []
        for _ in range(100):
            clients += open_until_full(process, 2, struct.pack(">I", HALF + 1) + b"{" * HALF)
            assert len(reader.answer()["jobs"]) == JOBS
        assert "is the slowest of them" in process.log(), process.log()[-2000:]
        for client in clients:
            client.close()


def test_input_leaves_room_for_orders():
    """A node reads nothing for a while. What a user types meanwhile does not end its connection."""
    with server(0) as process, contextlib.ExitStack() as stack:
        node = Node(process.address, "n1")
        stack.callback(node.close)
        clients = [stack.enter_context(Client(process.address)) for _ in range(5)]
        job = clients[0].submit()["job_id"]
        node.wait_phase(int(job), 1, "running")
        with node.lock:
            for client in clients:
                for request in range(64):
                    client.send("input", request_id=request, job_id=int(job), generation=1, rank=0, offset=0, bytes="A" * 21844, is_end=False, rows=0,
                                columns=0)
                client.send("server_get", request_id=99)
            said = [[] for _ in clients]
            for client, messages in zip(clients, said):
                while not messages or messages[-1]["type"] != "server_info":
                    messages.append(client.recv())
        before = len(node.orders)
        clients[0].send("cancel", job=str(job), signal=15, grace_us=0)  # an order arrives on the same connection
        node.wait(lambda n: n.error or any(order["type"] == "stop" for order in n.orders[before:]), "the stop")
        assert not node.error, node.error
        assert any("much waits" in one.get("problem", "") for messages in said for one in messages), said


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[2:]))
