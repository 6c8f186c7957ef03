"""What ddpctl does about a server that welcomes it and then closes, or talks nonsense: it tries ever more slowly, says so, and ends."""
import json
import signal
import socket
import struct
import threading
import time

from ctl_lib import Case, Cluster, UnixRelay, equal, run_tests, wait_until

WELCOME = {"type": "client_welcome", "version": "0.1.0", "cluster": "c" * 32, "protocol": 2}
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


def ends_slowly(says, code, *words):
    with Case() as case, FalseServer(case, says) as server:
        done = case.ctl("--server", server.address, *words, timeout=30)
        equal(done.returncode, code, done.stderr)
        assert "cannot be reached" in done.stderr, done.stderr
        equal(done.stderr.count(WAITING), 1, done.stderr)
        assert 5 <= server.calls <= 40, server.calls  # in 5 s; the last ones are 0.25 to 0.5 s apart


def a_welcome_is_no_answer():
    ends_slowly(frame(WELCOME), 5, "status", "1")


def nonsense_is_no_answer():
    ends_slowly(frame(WELCOME) + frame({"type": "no such message"}), 125, "wait", "1", "--patience", "5s")


def a_server_that_closes_after_each_answer_is_called_slowly():
    """It answers, so patience does not end; but it is not called in a tight loop."""
    with Case() as case, Cluster(case, nodes=0) as cluster:
        with ShortRelay(f"{case.dir}/relay.sock", f"{case.dir}/rendezvous.sock") as relay:
            run = case.start("--server", relay.address, "top", "--json", "--patience", "1s")
            try:
                begun = time.monotonic()
                wait_until("it calls again", lambda: relay.calls >= 20 or run.poll() is not None)
                equal(run.poll(), None)
                assert time.monotonic() - begun > 2.5, time.monotonic() - begun  # 12 delays of 0.25 to 0.5 s
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
        case.ctl("--server", cluster.server, "cancel", "@last")


if __name__ == "__main__":
    run_tests([a_welcome_is_no_answer, nonsense_is_no_answer, a_server_that_closes_after_each_answer_is_called_slowly,
               a_cancel_that_a_full_server_refuses], side_by_side=4)
