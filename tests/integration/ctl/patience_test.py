"""What ddpctl does about a server that welcomes it and then closes, or talks nonsense: it tries ever more slowly, says so, and ends."""
import json
import os
import signal
import socket
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster
from processes.relay import UnixRelay
from processes.runner import equal, run_and_exit
from processes.waiting import lasting, Stopwatch, wait_for

WELCOME = {"type": "client_welcome", "version": "0.1.0", "cluster": "c" * 32, "protocol": 3, "schema": ""}
WAITING = "-- the server does not answer ("


def frame(message):
    payload = json.dumps(message).encode()
    return struct.pack(">I", len(payload)) + payload


class FalseServer:
    """Answers each connection with `says`, and closes it."""

    def __init__(self, case, says):
        self.says, self.calls = says, 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{case.dir}/false.sock")
        self.listener.listen(64)
        self.address = f"unix:{case.dir}/false.sock"
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while True:
            try:
                one = self.listener.accept()[0]
            except OSError:
                return
            self.calls += 1
            with one:
                try:
                    one.recv(4096)  # its hello
                    one.sendall(self.says)
                except OSError:
                    pass  # it has closed

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


class ShortRelay(UnixRelay):
    """A relay to the real server that ends each connection when the answer to a request has passed: the welcome, and one more message."""

    calls = 0

    def connect(self):
        self.calls += 1
        return super().connect()

    def move(self, source, target, passed):
        data, frames, at = b"", 0, 0
        while frames < 2 and (more := source.recv(65536)):
            target.sendall(more)
            data += more if passed else b""  # from the server
            while len(data) >= at + 4 and len(data) >= at + 4 + struct.unpack_from(">I", data, at)[0]:
                at += 4 + struct.unpack_from(">I", data, at)[0]
                frames += 1


class FullRelay(UnixRelay):
    """A relay to the real server. When `is_full`, a new connection gets what a server says that has all its clients, and is closed."""

    is_full, refused = False, 0

    def connect(self):
        if not self.is_full:
            return super().connect()
        self.refused += 1
        ours, far = socket.socketpair()
        threading.Thread(target=self.refuse, args=(far,)).start()
        return ours

    @staticmethod
    def refuse(far):
        with far:
            far.recv(4096)  # its hello
            far.sendall(frame({"type": "error", "code": "full", "message": "the server has its 2 clients", "hint": "try again later"}))


class CrowdedRelay(UnixRelay):
    """A relay to the real server. `crowded` connections are closed before anything is read from them."""

    crowded = 0

    def connect(self):
        if self.crowded == 0:
            return super().connect()
        self.crowded -= 1
        raise OSError("no place")


def next_frame(sock):
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">I", data)[0]:
        more = sock.recv(4 + struct.unpack_from(">I", data)[0] - len(data) if len(data) >= 4 else 4 - len(data))
        if not more:
            return None
        data += more
    return json.loads(data[4:])


class TalkingServer(FalseServer):
    """Answers each request with what `answers` has for its type: a message, or bytes. It counts the requests."""

    def __init__(self, case, answers):
        self.answers, self.asked, self.talks = {"client_hello": WELCOME, **answers}, 0, []
        super().__init__(case, b"")

    def serve(self):
        while True:
            try:
                one = self.listener.accept()[0]
            except OSError:
                return
            self.calls += 1
            self.talks.append((threading.Thread(target=self.talk, args=(one,)), one))
            self.talks[-1][0].start()

    def talk(self, one):
        try:
            while request := next_frame(one):
                answer = self.answers.get(request["type"])
                self.asked += 1
                if isinstance(answer, dict) and answer.get("type") == "log_data" and answer["request_id"] is None:
                    answer = dict(answer, request_id=request["request_id"])
                if answer is not None:
                    one.sendall(answer if isinstance(answer, bytes) else frame(answer))
        except OSError:
            pass

    def __exit__(self, *rest):
        super().__exit__(*rest)
        for thread, one in self.talks:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            thread.join()
            one.close()


def real_answers(case):
    """What a real server answers about job 1, which runs, by request."""
    answers = {}
    with Cluster(case) as cluster:
        case.ctl("--server", cluster.address, "submit", "--", "sh", "-c", "echo up; exec sleep 1000")
        case.ctl("--server", cluster.address, "wait", "--for", "running", "1")
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(f"{case.dir}/rendezvous.sock")
            for request in ({"type": "client_hello", "protocol": 3, "version": "test", "schema": ""},
                            {"type": "job_get", "job": "1", "after_version": "0", "wait_us": "0", "first_rank": 0},
                            {"type": "server_get", "request_id": "1"},
                            {"type": "node_list", "all": True, "node": "", "after": "", "limit": 256}):
                one.sendall(frame(request))
                answers[request["type"]] = next_frame(one)
        case.ctl("--server", cluster.address, "cancel", "1")
        case.ctl("--server", cluster.address, "wait", "1")
    assert answers["job_get"]["ranks"] and answers["node_list"]["nodes"], answers
    answers["event_list"] = {"type": "events", "events": []}
    answers["log_read"] = {"type": "log_data", "request_id": None, "offset": "0", "bytes": "dXAK", "is_final": True, "problem": "", "size": "3", "runs": []}
    return answers


def with_pages_that_do_not_advance(answers):
    answers["job_get"]["more_ranks"] = answers["node_list"]["more"] = True


def pages_that_do_not_advance():
    with Case() as case:
        answers = real_answers(case)
        with_pages_that_do_not_advance(answers)
        with TalkingServer(case, answers) as server:
            for words in ("logs", "1"), ("metrics", "1"), ("nodes",), ("report", "1", "-o", f"{case.dir}/report.html"), ("status", "1"):
                before = server.asked
                done = case.ctl("--server", server.address, *words, timeout=20)
                equal(done.returncode, 0, f"{words}: {done.stderr}")
                assert server.asked - before <= 20, f"{words}: {server.asked - before} requests"


def news_without_news():
    """Whoever waits for a server that answers at once that nothing is new asks a few times a second."""
    with Case() as case:
        answers = real_answers(case)
        with_pages_that_do_not_advance(answers)
        answers["log_read"] = dict(answers["log_read"], bytes="", is_final=False)
        for words in ("wait", "1"), ("logs", "-f", "1"), ("metrics", "-f", "1"), ("status", "-w", "1"), ("events", "-f", "1"):
            with TalkingServer(case, answers) as server:
                run = case.start("--server", server.address, *words)
                try:
                    watch = Stopwatch()
                    wait_for("it asks", lambda: server.asked >= 12 or run.poll() is not None)
                    wait_for("2 s", lambda: watch.passed_s >= 2 or run.poll() is not None)  # pylint: disable=cell-var-from-loop
                    equal(run.poll(), None)
                    assert server.asked < 1000, f"{words}: {server.asked} requests in 2 s"
                finally:
                    run.kill()
                    run.communicate()
                os.unlink(f"{case.dir}/false.sock")


def logs_end(answer, limit_s, said, *words):
    with Case(gated=True) as case:
        answers = real_answers(case)
        answers["log_read"] = answer(answers["log_read"])
        with TalkingServer(case, answers) as server:
            watch = case.watch()
            done = case.ctl("--server", server.address, *words, timeout=60)
            watch.check("the end of the logs", 0, limit_s)
            equal(done.returncode, 5, done.stderr)
            assert "cannot be reached" in done.stderr, done.stderr
            equal(done.stderr.count("does not answer for the logs ("), said, done.stderr)
            assert server.asked < 1500, server.asked


def logs_that_nobody_asked_for():
    logs_end(lambda log: dict(log, request_id="77"), 30, 0, "logs", "1")


def followed_logs_that_nobody_asked_for():
    logs_end(lambda log: dict(log, request_id="77"), 50, 0, "logs", "-f", "1", "--patience", "4s")


def logs_that_cannot_be_read():
    logs_end(lambda log: frame({"type": "log_data", "what": "nonsense"}), 20, 1, "logs", "1")


def followed_logs_that_cannot_be_read():
    logs_end(lambda log: frame({"type": "log_data", "what": "nonsense"}), 20, 1, "logs", "-f", "1", "--patience", "4s")


def ends_slowly(says, code, *words):
    with Case(gated=True) as case, FalseServer(case, says) as server:
        done = case.ctl("--server", server.address, *words, timeout=30)
        equal(done.returncode, code, done.stderr)
        assert "cannot be reached" in done.stderr, done.stderr
        equal(done.stderr.count(WAITING), 1, done.stderr)
        assert 5 <= server.calls <= 40, server.calls  # in 5 s; the last ones are 0.25 to 0.5 s apart


class LaterServer(TalkingServer):
    """Says "later" to the first `times` requests of a job, as a server does that has no memory for the answer."""

    def __init__(self, case, answers, times):
        self.left, self.answer = times, answers["job_get"]
        later = {"type": "error", "code": "later", "message": "job 1 cannot be read now: the server's log says why", "hint": ""}
        super().__init__(case, dict(answers, job_get=later))

    def talk(self, one):
        super().talk(one)  # until the client closes: once for each "later"
        self.left -= 1
        if self.left == 0:
            self.answers["job_get"] = self.answer


def a_server_that_says_later_is_asked_again():
    with Case(gated=True) as case:
        answers = real_answers(case)
        with LaterServer(case, answers, 3) as server:
            done = case.ctl("--server", server.address, "status", "--json", "1", timeout=30)
            equal((done.returncode, done.stderr), (0, ""))
            equal(json.loads(done.stdout)["job"]["id"], 1)
            equal(server.calls, 4)
        os.unlink(f"{case.dir}/false.sock")
        with LaterServer(case, answers, 1000) as server:
            done = case.ctl("--server", server.address, "status", "1", timeout=30)
            equal(done.returncode, 5, done.stderr)
            assert "job 1 cannot be read now" in done.stderr, done.stderr


def a_server_that_closes_before_its_welcome_is_called_again():
    """It had no place, or no descriptor."""
    with Case() as case, Cluster(case) as cluster, CrowdedRelay(f"{case.dir}/crowded.sock", f"{case.dir}/rendezvous.sock") as relay:
        case.ctl("--server", cluster.address, "submit", "--", "sleep", "1000")
        for words in ("ps",), ("nodes",), ("status", "1"), ("submit", "--", "true"), ("cancel", "1"):
            relay.crowded = 3
            done = case.ctl("--server", relay.address, *words, timeout=30)
            equal((words, done.returncode, relay.crowded), (words, 0, 0), done.stderr)
    ends_slowly(b"", 5, "status", "1")


def fill(path):
    """Listens there, with no room for a further connection. Returns the listener, and what fills its queue."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(0)
    waiting = []
    while True:
        waiting.append(socket.socket(socket.AF_UNIX))
        waiting[-1].setblocking(False)
        try:
            waiting[-1].connect(path)
        except BlockingIOError:
            waiting.pop().close()
            return listener, waiting


def a_full_queue_of_connections_has_room_later():
    """connect() of a unix socket fails at once while the queue is full. The one way in is to try again."""
    with Case() as case, Cluster(case) as cluster:
        job = case.ctl("--server", cluster.address, "submit", "-q", "--", "sleep", "1000").stdout.strip()
        path = f"{case.dir}/full.sock"
        listener, waiting = fill(path)
        run = case.start("--server", f"unix:{path}", "wait", "--for", "running", job)
        try:
            line = run.stderr.readline()
            assert WAITING in line and "its queue of connections is full" in line, line
            os.unlink(path)
            relay = UnixRelay(path, f"{case.dir}/rendezvous.sock")  # in its place: the flood is over
            with relay:
                errors = run.communicate(timeout=30)[1]
                equal(run.returncode, 0, errors)
        finally:
            run.kill()
            run.communicate()
            for one in (listener, *waiting):
                one.close()
        case.ctl("--server", cluster.address, "cancel", job)


def a_queue_that_stays_full_is_named():
    with Case(gated=True) as case:
        path = f"{case.dir}/full.sock"
        listener, waiting = fill(path)
        for words in ("ps",), ("nodes",), ("status", "1"):
            done = case.ctl("--server", f"unix:{path}", *words, timeout=30)
            equal(done.returncode, 5, done.stderr)
            assert "its queue of connections is full" in done.stderr and "a local process opens many connections" in done.stderr, done.stderr
            assert "etcd" not in done.stderr and "no server that leads" not in done.stderr, done.stderr
        for one in (listener, *waiting):
            one.close()


def a_welcome_is_no_answer():
    ends_slowly(frame(WELCOME), 5, "status", "1")


def nonsense_is_no_answer():
    ends_slowly(frame(WELCOME) + frame({"type": "no such message"}), 125, "wait", "1", "--patience", "5s")


def what_speaks_another_protocol_takes_no_clients_at_all():
    """Only TLS means that a key is missing."""
    for words, code, text in ((b"HTTP/1.1 400 Bad Request\r\n\r\n", 5, "cannot be reached: the peer speaks HTTP, not this program's protocol"),
                              (b"SSH-2.0-OpenSSH_9\r\n", 5, "cannot be reached: the peer speaks SSH, not this program's protocol"),
                              (b"\x15\x03\x03\x00\x02\x02\x28", 4, "refuses: it takes only clients with a key")):
        with Case() as case, socket.create_server(("127.0.0.1", 0)) as listener:
            def answer(listener=listener, words=words):
                while True:
                    try:
                        peer, _ = listener.accept()
                    except OSError:  # closed
                        return
                    with peer:
                        peer.recv(100)
                        peer.sendall(words)

            thread = threading.Thread(target=answer)
            thread.start()
            try:
                done = case.ctl("--server", "127.0.0.1:%d" % listener.getsockname()[1], "ps")
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                thread.join()
            assert done.returncode == code and text in done.stderr, (words, done)


def a_refused_build_is_told_the_server_s_remedy():
    """Neither a new start of the server nor a new key would help."""
    refusal = {"type": "error", "code": "refused", "message": "both speak protocol 3, but they are different builds", "hint": "install the same build"}
    with Case() as case, TalkingServer(case, {"client_hello": refusal}) as server:
        done = case.ctl("--server", server.address, "doctor", "--json")
        equal([(one["check"], one["level"], one["text"]) for one in json.loads(done.stdout)["findings"]][1:],
              [("welcome", "fail", f"{server.address} refuses this client: both speak protocol 3, but they are different builds: install the same build")])
        done = case.ctl("--server", server.address, "upgrade", "--plan")
        equal((done.returncode, done.stderr), (4, "ddpctl: both speak protocol 3, but they are different builds\n  install the same build\n"))


def a_state_of_the_past_has_remedies_of_its_own():
    """The server answers: to start it would mend nothing."""
    with Case() as case:
        answers = real_answers(case)
        answers["server_get"].update(is_of_past=True, keys_lost_ms="1", store_is_low=True)
        answers["node_list"].update(nodes=[], more=False)
        with TalkingServer(case, answers) as server:
            shown = json.loads(case.ctl("--server", server.address, "doctor", "--json").stdout)
        remedies = {one["check"]: one["remedy"] for one in shown["findings"] if one["level"] in ("warn", "fail")}
        assert "server" not in remedies and "submit again" in remedies["state"] and "make room" in remedies["store"], remedies
        assert "ddpctl server --keys-checked" in remedies["server-keys"], remedies


def a_server_that_says_nothing_ends_the_wait():
    """The kernel takes the connections of a server that is stopped, or whose disk hangs."""
    with Case(gated=True) as case, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{case.dir}/mute.sock")
        listener.listen()
        for verb in ("ps",), ("wait", "1"):
            done = case.ctl("--server", f"unix:{case.dir}/mute.sock", "--patience", "3s", *verb)
            equal(done.stderr, f"ddpctl: the server at unix:{case.dir}/mute.sock cannot be reached: no answer within 10 s\n"
                               "  it may be stopped, or wait for a disk: look at its log (journalctl -u rendezvous); or a firewall drops what is sent\n")


def patience_holds_for_staging():
    """The server takes the connection and the first piece, and then says nothing."""
    with Case(gated=True) as case, TalkingServer(case, {}) as server:
        os.mkdir(f"{case.dir}/top")
        watch = case.watch()
        done = case.ctl("--server", server.address, "submit", "--stage", f"{case.dir}/top", "--patience", "3s", "--", "true", timeout=25)
        watch.check("its patience", 3, 15)
        equal(done.returncode, 5, done.stderr)
        assert "cannot be reached: no answer within 3 s" in done.stderr, done.stderr


def a_server_that_closes_after_each_answer_is_called_slowly():
    """It answers, so patience does not end; but it is not called in a tight loop."""
    with Case() as case, Cluster(case, nodes=0) as cluster:
        with ShortRelay(f"{case.dir}/relay.sock", f"{case.dir}/rendezvous.sock") as relay:
            run = case.start("--server", relay.address, "top", "--json", "--patience", "1s")
            try:
                with lasting("12 delays of 0.25 to 0.5 s", at_least=2.5):
                    wait_for("it calls again", lambda: relay.calls >= 20 or run.poll() is not None)
                equal(run.poll(), None)
            finally:
                run.kill()
                run.communicate()


def a_cancel_that_a_full_server_refuses():
    """Its words come when they are new and at the end, and patience ends."""
    with Case() as case, Cluster(case) as cluster:
        with FullRelay(f"{case.dir}/relay.sock", f"{case.dir}/rendezvous.sock") as relay:
            run = case.start("--server", relay.address, "run", "--patience", "3s", "--", "sh", "-c", "echo up; exec sleep 1000")
            equal(run.stdout.readline(), "up\n")
            relay.is_full = True
            run.send_signal(signal.SIGTERM)
            try:
                errors = run.communicate(timeout=30)[1]
            finally:
                run.kill()
            equal(run.returncode, 125, errors)
            equal(errors.count("the server has its 2 clients"), 2, errors)
            assert relay.refused >= 4, relay.refused
        case.ctl("--server", cluster.address, "cancel", "@last")


if __name__ == "__main__":
    run_and_exit([a_server_that_says_later_is_asked_again, a_server_that_says_nothing_ends_the_wait, patience_holds_for_staging, a_server_that_closes_before_its_welcome_is_called_again,
               a_full_queue_of_connections_has_room_later, a_queue_that_stays_full_is_named, a_welcome_is_no_answer,
               nonsense_is_no_answer, what_speaks_another_protocol_takes_no_clients_at_all, a_server_that_closes_after_each_answer_is_called_slowly,
               a_cancel_that_a_full_server_refuses, a_refused_build_is_told_the_server_s_remedy,
               a_state_of_the_past_has_remedies_of_its_own, pages_that_do_not_advance, news_without_news, logs_that_nobody_asked_for,
               followed_logs_that_nobody_asked_for, logs_that_cannot_be_read, followed_logs_that_cannot_be_read], side_by_side=4)
