"""A scripted server for tests of launcherd and its shim: it speaks the protocol of docs/protocol.md and sends the test's orders.

Tests wait for conditions, with a generous time-out; they never sleep to synchronise.
"""
import base64
import itertools
import json
import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from ddpproto import PROTOCOL  # noqa: E402  pylint: disable=wrong-import-position

TIMEOUT_S = 120.0
WIDE = {"job_id", "lease_us", "sent_us", "slot_mask", "grace_us", "offset", "request_id", "wait_us", "until_us",
        "instance", "failed_age_us", "step", "steps", "checkpoint_step", "size", "array_job", "warn_after_us", "submitted_ms"}
CLUSTER = "cluster0"

REQUESTS = itertools.count(1_000_000)

def user_name():
    """The test's own account, as the server would name it."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid{os.geteuid()}"


def wait_until(condition, what, timeout_s=TIMEOUT_S):
    """Polls for changes that no descriptor reports (processes, files)."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(0.002)


def encode(kind, fields):
    body = {"type": kind}
    for name, value in fields.items():
        body[name] = str(value) if name in WIDE else value
    data = json.dumps(body).encode()
    return struct.pack(">I", len(data)) + data


def widen(value):
    """Numbers that travel as strings become numbers."""
    if isinstance(value, dict):
        return {k: int(v) if k in WIDE and isinstance(v, str) else widen(v) for k, v in value.items()}
    if isinstance(value, list):
        return [widen(v) for v in value]
    return value


class Peer:
    """One framed connection."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = b""
        self.lock = threading.Lock()  # frames are sent whole

    def send(self, kind, **fields):
        with self.lock:
            self.sock.sendall(encode(kind, fields))

    def receive(self):
        """The next message; None at the end."""
        while True:
            if len(self.buffer) >= 4:
                size = struct.unpack(">I", self.buffer[:4])[0]
                if len(self.buffer) >= 4 + size:
                    message = widen(json.loads(self.buffer[4:4 + size]))
                    self.buffer = self.buffer[4 + size:]
                    return message
            try:
                data = self.sock.recv(1 << 20)
            except OSError:
                return None
            if not data:
                return None
            self.buffer += data


class Server:
    """Welcomes nodes, acks beats and reports, stores every message."""

    def __init__(self, path, lease_us=60_000_000, beat_us=500_000, cluster=CLUSTER):
        """`beat_us`: launcherd drops a server that is silent for five of them, and an order may be lost then. So they are not short."""
        self.path = path
        self.lease_us = lease_us
        self.beat_us = beat_us
        self.cluster = cluster
        self.acks_beats = True
        self.changed = threading.Condition()
        self.messages = []  # (monotonic seconds, message)
        self.reports = {}  # {(job, generation): newest report}
        self.node = None
        self.connections = 0
        self.listener = None
        self.listen()

    def listen(self):
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen(16)
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def _accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(Peer(sock),), daemon=True).start()

    def _serve(self, peer):
        while True:
            message = peer.receive()
            if message is None:
                peer.sock.close()
                with self.changed:
                    if self.node is peer:
                        self.node = None
                    self.changed.notify_all()
                return
            try:
                self._take(peer, message)
            except OSError:
                pass

    def _take(self, peer, message):
        kind = message["type"]
        if kind == "node_hello":
            peer.send("node_welcome", cluster=self.cluster, beat_interval_us=self.beat_us, lease_us=self.lease_us, protocol=PROTOCOL, schema="")
        elif kind == "beat" and self.acks_beats:
            peer.send("beat_ack", sent_us=message["sent_us"])
        elif kind == "shim_report":
            peer.send("report_ack", job_id=message["job_id"], generation=message["generation"],
                      revision=message["revision"])
        with self.changed:
            if kind == "node_hello":
                self.node = peer
                self.connections += 1
            if kind == "shim_report":
                self.reports[(message["job_id"], message["generation"])] = message
            self.messages.append((time.monotonic(), message))
            self.changed.notify_all()

    def wait(self, condition, what, timeout_s=TIMEOUT_S):
        with self.changed:
            end = time.monotonic() + timeout_s
            while True:
                value = condition()
                if value:
                    return value
                left = end - time.monotonic()
                if left <= 0 or not self.changed.wait(left):
                    last = [str(m)[:600] for _, m in self.messages if m["type"] != "beat"][-4:]
                    raise AssertionError("\n".join([f"not within {timeout_s} s: {what}; last said:", *last]))

    def send(self, kind, **fields):
        node = self.wait(lambda: self.node, "a node")
        node.send(kind, **fields)

    def find(self, kind, condition=lambda m: True, since=0):
        for _, message in self.messages[since:]:
            if message["type"] == kind and condition(message):
                return message
        return None

    def wait_for(self, kind, condition=lambda m: True, what=None, since=0):
        return self.wait(lambda: self.find(kind, condition, since), what or kind)

    def wait_report(self, job, generation, condition, what):
        def look():
            report = self.reports.get((job, generation))
            return report if report is not None and condition(report) else None
        return self.wait(look, f"job {job}, generation {generation}: {what}")

    def wait_phase(self, job, generation, phase):
        return self.wait_report(job, generation, lambda r: r["phase"] == phase, phase)

    def start(self, job, generation, argv, nproc=1, env=None, cwd="/", **more):
        fields = dict(cluster=self.cluster, job_id=job, generation=generation, name=f"job{job}", user=user_name(),
                      node_rank=0, node_count=1, rank_base=0, local_count=nproc, world=nproc,
                      slot_mask=(1 << nproc) - 1, restart_count=generation - 1, max_restarts=3, checkpoint_step=0,
                      grace_us=1_000_000, cwd=cwd, argv=argv, env={"PATH": os.environ["PATH"]} if env is None else env, nodes={}, launch={},
                      array_job=0, array_index=0, array_count=0, array_min=0, array_max=0, warn_after_us=0, warn_signal=0,
                      submitted_ms=0)
        fields.update(more)
        self.send("start", **fields)

    def go(self, job, generation):
        report = self.wait_phase(job, generation, "ready")
        self.send("go", job_id=job, generation=generation, master_addr="127.0.0.1",
                  master_port=report["master_port"] or 29500)
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
            if data["problem"]:
                raise AssertionError(data["problem"])
            out += data["bytes"]
            offset = data["offset"] + len(data["bytes"])
            if data["is_final"]:
                return out

    def log_read(self, job, generation, rank, offset=0, tail_lines=0, bytes_max=32768, wait_us=30_000_000, what="output"):
        request = next(REQUESTS)
        self.send("log_read", what=what, request_id=request, job_id=job, generation=generation, rank=rank, offset=offset,
                  tail_lines=tail_lines, bytes_max=bytes_max, wait_us=wait_us, submitted_ms=0)
        data = dict(self.wait_for("log_data", lambda m: m["request_id"] == request, what="log_data"))
        data["bytes"] = base64.b64decode(data["bytes"])
        return data

    def node_ask(self, what, **fields):
        request = len(self.messages) + 1
        self.send("node_ask", **dict(dict(request_id=request, what=what, peers={}, args={}, user=user_name(), job_id=0, cwd="", argv=[],
                                          env={}), **fields))
        data = dict(self.wait_for("node_data", lambda m: m["request_id"] == request, what="node_data"))
        data["bytes"] = base64.b64decode(data["bytes"])
        return data

    def cut(self):
        """Acts like a killed server: nothing listens, and the connection ends."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        os.unlink(self.path)
        node = self.node
        if node is not None:
            node.sock.shutdown(socket.SHUT_RDWR)
        self.wait(lambda: self.node is None, "the connection's end")

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        if self.node is not None:
            self.node.sock.close()


class Node:
    """launcherd as a process."""

    def __init__(self, launcherd, folder, slots=4, name="node0", extra=("--allow-root",)):
        self.launcherd = launcherd
        self.folder = folder
        self.name = name
        self.arguments = [launcherd, "--server", f"unix:{folder}/server.sock", "--name", name, "--slots", str(slots),
                          "--state-dir", f"{folder}/{name}", *extra]
        self.process = None

    def begin(self):
        self.log = open(f"{self.folder}/{self.name}.log", "ab")
        self.process = subprocess.Popen(self.arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=self.log)
        return self

    def ready(self):
        line = self.process.stdout.readline().decode()
        assert line.startswith("launcherd: ready "), f"not a ready line: {line!r}\n{self.log_text()}"
        return line

    def log_text(self):
        with open(f"{self.folder}/{self.name}.log", errors="replace") as file:
            return file.read()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.wait()

    def end(self):
        """SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self):
        code = self.process.wait(TIMEOUT_S)
        self.process.stdout.close()
        self.log.close()
        return code

    def run_dir(self, job, generation, cluster=CLUSTER):
        return f"{self.folder}/{self.name}/run/{cluster}-{job}-g{generation}"

    def log_dir(self, job, cluster=CLUSTER):
        return f"{self.folder}/{self.name}/logs/{cluster}-{job}"

    def shim(self, job, generation):
        with open(self.run_dir(job, generation) + "/shim.json") as file:
            return json.load(file)


def token_holders(token):
    """Processes that carry this token in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"DDP_JOB_TOKEN={token}".encode() in file.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def shims_below(folder):
    """Shims that were started with a run directory in the folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if words[1:2] == [b"--shim"] and words[2].startswith(f"{folder}/".encode()):
            found.append(int(pid))
    return found


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def write_file(path, text):
    with open(path, "w") as file:
        file.write(text)


class World:
    """A folder, a server and a node. At the end it checks that everything is gone."""

    def __init__(self, launcherd, **server):
        self.folder = tempfile.mkdtemp(prefix="ddp-node-")
        self.server = Server(f"{self.folder}/server.sock", **server)
        self.launcherd = launcherd
        self.nodes = []
        self.tokens = set()

    def node(self, **more):
        node = Node(self.launcherd, self.folder, **more).begin()
        self.nodes.append(node)
        node.ready()
        return node

    def note_token(self, node, job, generation):
        shim = node.shim(job, generation)
        self.tokens.add(shim["token"])
        return shim

    def forget(self, node, job, generation):
        """Sends `forget`, and waits until the shim's process, its folder and its descendants are gone."""
        shim = self.note_token(node, job, generation)
        self.server.forget(job, generation)
        wait_until(lambda: not os.path.exists(node.run_dir(job, generation)), "the run directory to go")
        wait_until(lambda: not is_alive(shim["pid"]), "the shim to go")
        assert token_holders(shim["token"]) == []

    def close(self):
        for node in self.nodes:
            if node.process.poll() is None:
                code = node.end()
                assert code == 0, f"launcherd's exit code is {code}\n{node.log_text()}"
        for token in self.tokens:
            for pid in token_holders(token):
                os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"process {pid} was left behind")
        self.server.close()
        for node in self.nodes:
            left = os.listdir(f"{self.folder}/{node.name}/run")
            assert left == [], f"run directories are left: {left}"
        shutil.rmtree(self.folder)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.close()
            return
        for node in self.nodes:
            if node.process.poll() is None:
                node.process.kill()
            print(f"--- {node.name}:\n{node.log_text()}", flush=True)
        for pid in [*shims_below(self.folder), *(holder for token in self.tokens for holder in token_holders(token))]:
            if is_alive(pid):  # also if its folder is gone
                os.kill(pid, signal.SIGKILL)
        for folder, _, files in os.walk(self.folder):
            for name in files:
                if name == "shim.json":
                    with open(os.path.join(folder, name)) as file:
                        shim = json.load(file)
                    for pid in [shim["pid"], *token_holders(shim["token"])]:
                        if is_alive(pid):
                            os.kill(pid, signal.SIGKILL)
                    if shim.get("cgroup") and os.path.exists(shim["cgroup"] + "/cgroup.kill"):
                        write_file(shim["cgroup"] + "/cgroup.kill", "1")
                if name.startswith("shim-g"):
                    with open(os.path.join(folder, name), errors="replace") as file:
                        print(f"--- {name}:\n{file.read()}", flush=True)
        shutil.rmtree(self.folder, ignore_errors=True)
