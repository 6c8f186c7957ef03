"""Submits that arrive together share one transaction: submit_test.py RENDEZVOUS [TEST...]

Clients must not notice that: each submit is durable before its answer, a request id leads to one job, and a client's answers
come in the order of its requests."""
import contextlib
import os
import shutil
import signal
import sqlite3
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.runner import run_tests
from processes.waiting import let_pass
from processes.wire import Client, encode, frame, Refused, request_id, Server, submission

BINARY = sys.argv[1]


@contextlib.contextmanager
def server():
    root = tempfile.mkdtemp(prefix="ddp-submit-")
    process = Server(BINARY, os.path.join(root, "state"))
    try:
        yield process
    finally:
        if process.alive():
            process.kill()
        shutil.rmtree(root)


@contextlib.contextmanager
def stopped(process):
    """Messages sent within this block arrive together."""
    process.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.process.send_signal(signal.SIGCONT)


def stored(process):
    with contextlib.closing(sqlite3.connect(f"file:{process.state_dir}/state.db?mode=ro", uri=True)) as db:
        return {row[0] for row in db.execute("select id from jobs")}


def test_together():
    with server() as process, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(process.address)) for _ in range(40)]
        with stopped(process):
            for client in clients:
                client.send("submit", **submission())
        ids = [client.answer()["job_id"] for client in clients]
        assert sorted(ids) == list(range(1, 41)), ids
        process.kill()
        assert set(ids) <= stored(process)


def test_one_request_id_is_one_job():
    request = request_id()
    with server() as process, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(process.address)) for _ in range(10)]
        with stopped(process):
            for client in clients:
                client.send("submit", **submission(request))
        answers = [client.answer() for client in clients]
        assert {answer["job_id"] for answer in answers} == {1}, answers
        assert sum(answer["is_new"] for answer in answers) == 1, answers
        process.kill()
        assert stored(process) == {1}


def test_answers_keep_their_order():
    with server() as process, Client(process.address) as client, Client(process.address) as other:
        with stopped(process):
            other.send("submit", **submission())
            requests = [("submit", submission(name="a")), ("job_get", dict(job="a", after_version=0, wait_us=0, first_rank=0)),
                        ("submit", submission(name="b")), ("submit", submission(name="b")),
                        ("submit", submission(name="c")), ("job_list", dict(all=True, after_id=0, limit=10))]
            client.send_bytes(b"".join(frame(encode(kind, **fields)) for kind, fields in requests))
        kinds = [client.answer()["type"] for _ in requests]
        assert kinds == ["submitted", "job_info", "submitted", "submitted", "submitted", "jobs"], kinds
        assert other.answer()["type"] == "submitted"


def test_a_submit_is_answered_when_the_server_stops():
    with server() as process, Client(process.address) as client:
        with stopped(process):
            client.send("submit", **submission())
            process.process.send_signal(signal.SIGTERM)
        messages = client.recv_until_closed()
        process.process.wait()
        assert len(stored(process)) >= len([m for m in messages if m["type"] == "submitted"])


def array_jobs(process, request):
    """The jobs of the request, by index."""
    with contextlib.closing(sqlite3.connect(f"file:{process.state_dir}/state.db?mode=ro", uri=True)) as db:
        return [row for row in db.execute("select array_index from jobs where array_job = (select job_id from request_ids "
                                          "where request_id = ?) order by id", (request,))]


def test_an_array_is_there_whole_or_not_at_all():
    """The server dies while it stores an array; the client repeats the request with the same id."""
    kept = []
    for delay in range(8):
        with server() as process:
            request = request_id()
            with Client(process.address) as client:
                client.send("submit", **submission(request, array="0-999"))
                let_pass(delay * 0.004)  # the moment at which the server dies: all of these must work
                process.kill()
            found = stored(process)
            assert found in (set(), set(range(1, 1001))), f"{len(found)} jobs of an array of 1000 are stored"
            kept.append(len(found))
            again = Server(BINARY, process.state_dir)
            try:
                with Client(again.address) as client:
                    client.send("submit", **submission(request, array="0-999"))
                    answer = client.answer()
                    assert (answer["type"], answer["job_id"], answer["is_new"]) == ("submitted", 1, not found), answer
                    assert len(client.ask("job_list", all=True, after_id=990, limit=100)["jobs"]) == 10
                assert array_jobs(again, request) == [(i,) for i in range(1000)]
            finally:
                again.kill()
    print("# stored before the death of the server:", kept)


def test_an_array_over_the_limit_leaves_nothing():
    with server() as process, Client(process.address) as client:
        assert client.submit(array="0-998") is not None
        for array, why in (("0-1", "999 jobs of"), ("5-1", "indices from 0 to 999999 are expected")):
            try:
                client.submit(array=array)
            except Refused as refused:
                assert why in str(refused), refused
            else:
                raise AssertionError(f"array {array} was taken")
        assert len(stored(process)) == 999


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in sorted(globals().items()) if name.startswith("test_")], sys.argv[2:]))
