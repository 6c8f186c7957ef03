"""A scripted server, for tests of launcherd and its shims: it speaks the protocol of docs/protocol.md and sends the test's orders."""
import base64
import itertools
import os
import pwd
import signal
import socket
import threading
import time

from processes.waiting import LONG_S
from processes.wire import PROTOCOL, Closed, Link

CLUSTER = "cluster0"
REQUESTS = itertools.count(1_000_000)


def user_name():
    """The test's own account, as the server would name it."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid{os.geteuid()}"


class Server:
    """Welcomes nodes, acks beats and reports, stores every message."""

    def __init__(self, path, lease_us=60_000_000, beat_us=500_000, cluster=CLUSTER, now=time.monotonic):
        """`beat_us`: launcherd drops a server that is silent for five of them, and an order may be lost then. So they are not short.
        `now`: the clock by which messages are noted."""
        self.path, self.lease_us, self.beat_us, self.cluster, self.now = path, lease_us, beat_us, cluster, now
        self.acks_beats = True
        self.changed = threading.Condition()
        self.messages = []  # (seconds, message)
        self.reports = {}  # {(job, generation): newest report}
        self.node = None
        self.connections = 0
        self.listener = None
        self.listen()

    def listen(self):
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(16)
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def _accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(Link(sock),), daemon=True).start()

    def _serve(self, link):
        while True:
            try:
                message = link.recv()
            except (Closed, OSError):
                link.close()
                with self.changed:
                    if self.node is link:
                        self.node = None
                    self.changed.notify_all()
                return
            try:
                self._take(link, message)
            except (Closed, OSError):
                pass

    def _take(self, link, message):
        """Answers, and notes the message, as one step for those who wait: what a message begins is noted before anybody sees it go on."""
        with self.changed:
            self._answer(link, message)
            self._note(link, message)

    def _answer(self, link, message):
        kind = message["type"]
        if kind == "node_hello":
            link.send("node_welcome", cluster=self.cluster, beat_interval_us=self.beat_us, lease_us=self.lease_us, protocol=PROTOCOL, schema="")
        elif kind == "beat" and self.acks_beats:
            link.send("beat_ack", sent_us=message["sent_us"])
        elif kind == "shim_report":
            link.send("report_ack", **{name: message[name] for name in ("job_id", "generation", "revision")})

    def _note(self, link, message):
        if message["type"] == "node_hello":
            self.node = link
            self.connections += 1
        if message["type"] == "shim_report":
            self.reports[(message["job_id"], message["generation"])] = message
        self.messages.append((self.now(), message))
        self.changed.notify_all()

    def mark(self):
        """Where the messages from now on begin: for `since`."""
        with self.changed:
            return len(self.messages)

    def wait(self, condition, what, timeout_s=LONG_S):
        found = None

        def is_true():
            nonlocal found
            found = condition()
            return found
        with self.changed:
            if not self.changed.wait_for(is_true, timeout_s):
                last = [str(m)[:600] for _, m in self.messages if m["type"] != "beat"][-4:]
                raise AssertionError("\n".join([f"not within {timeout_s} s: {what}; last said:", *last]))
        return found

    def send(self, kind, **fields):
        self.wait(lambda: self.node, "a node").send(kind, **fields)

    def find(self, kind, condition=lambda m: True, since=0):
        return next((message for _, message in self.messages[since:] if message["type"] == kind and condition(message)), None)

    def wait_for(self, kind, condition=lambda m: True, what=None, since=0):
        return self.wait(lambda: self.find(kind, condition, since), what or kind)

    def wait_report(self, job, generation, condition, what):
        def look():
            report = self.reports.get((job, generation))
            return report if report is not None and condition(report) else None
        return self.wait(look, f"job {job}, generation {generation}: {what}")

    def wait_phase(self, job, generation, phase):
        return self.wait_report(job, generation, lambda r: r["phase"] == phase, phase)

    def start(self, job, generation, argv, nproc=1, env=None, **more):
        fields = dict(cluster=self.cluster, job_id=job, generation=generation, name=f"job{job}", user=user_name(),
                      node_rank=0, node_count=1, rank_base=0, local_count=nproc, world=nproc,
                      slot_mask=(1 << nproc) - 1, restart_count=generation - 1, max_restarts=3, checkpoint_step=0,
                      grace_us=1_000_000, cwd="/", argv=argv, env={"PATH": os.environ["PATH"]} if env is None else env, nodes={}, launch={},
                      array_job=0, array_index=0, array_count=0, array_min=0, array_max=0, warn_after_us=0, warn_signal=0,
                      submitted_ms=0)
        self.send("start", **{**fields, **more})

    def go(self, job, generation):
        report = self.wait_phase(job, generation, "ready")
        self.send("go", job_id=job, generation=generation, master_addr="127.0.0.1", master_port=report["master_port"] or 29500)
        return report

    def stop(self, job, generation, number=signal.SIGTERM, grace_us=0):
        self.send("stop", job_id=job, generation=generation, signal=int(number), grace_us=grace_us, reason="told to")

    def forget(self, job, generation):
        self.send("forget", job_id=job, generation=generation)

    def run(self, job, argv, **more):
        """Sends start and go, and waits for the end. Returns the last report."""
        self.start(job, 1, argv, **more)
        self.go(job, 1)
        return self.wait_phase(job, 1, "ended")

    def log_bytes(self, job, generation, rank, **more):
        """The whole log, read by cursor until it is final."""
        out, offset = b"", 0
        while True:
            data = self.log_read(job, generation, rank, offset=offset, **more)
            assert not data["problem"], data["problem"]
            out += data["bytes"]
            offset = data["offset"] + len(data["bytes"])
            if data["is_final"]:
                return out

    def log_read(self, job, generation, rank, offset=0, tail_lines=0, bytes_max=32768, wait_us=30_000_000, what="output"):
        return self._ask("log_read", "log_data", next(REQUESTS), what=what, job_id=job, generation=generation, rank=rank, offset=offset,
                         tail_lines=tail_lines, bytes_max=bytes_max, wait_us=wait_us, submitted_ms=0)

    def node_ask(self, what, **fields):
        return self._ask("node_ask", "node_data", len(self.messages) + 1, what=what, **{**dict(peers={}, args={}, user=user_name(), job_id=0, cwd="",
                                                                                                 argv=[], env={}), **fields})

    def _ask(self, kind, answer, request, **fields):
        self.send(kind, request_id=request, **fields)
        data = dict(self.wait_for(answer, lambda m: m["request_id"] == request, what=answer))
        data["bytes"] = base64.b64decode(data["bytes"])
        return data

    def cut(self):
        """Acts like a killed server: nothing listens, and the connection ends."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        os.unlink(self.path)
        node = self.node
        if node is not None:
            node.socket.shutdown(socket.SHUT_RDWR)
        self.wait(lambda: self.node is None, "the connection's end")

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        if self.node is not None:
            self.node.close()
