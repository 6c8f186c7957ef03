"""The programs' protocol for tests: frames, a client, a scripted node, a server process.

Frames are a u32 big-endian byte count and one JSON object; 64-bit fields travel as decimal strings
(common/msg.h). Python's standard library alone."""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

PROTOCOL = 3
CLIENT_HELLO = dict(protocol=PROTOCOL, version="test", schema="")
# the end of a node_hello of a node that says nothing of its build and its history, and is always the launcherd that had its name before
NODE_IDENTITY = dict(drains_on_term=False, schema="", machine_id="machine", state_id="state", up_us=0, seen=[])
PATIENCE_S = 60  # generous: for slow machines, never for synchronisation

U64_FIELDS = frozenset(
    "job_id slot_mask instance lease_us sent_us grace_us time_limit_us hang_timeout_us warn_us warn_after_us array_job failed_age_us step steps "
    "checkpoint_step until_us version after_version wait_us after_id id at_ms request_id offset "
    "submitted_ms started_ms ended_ms beat_age_us incident since_ms drained_ms refused_ms keys_lost_ms baseline_bytes "
    "ecc_uncorrected created_ms rotated_ms seen_ms overlap_us old_until_ms size node_ms server_ms "
    "token collectives again_us timed_steps step_us data_us compute_us update_us up_us".split())


class Closed(Exception):
    """The peer ended the connection."""


def to_wire(value, key=None):
    if isinstance(value, dict):
        return value if key in ("env", "launch") else {k: to_wire(v, k) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_wire(v) for v in value]
    if key in U64_FIELDS and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def from_wire(value, key=None):
    if isinstance(value, dict):
        return {k: from_wire(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [from_wire(v) for v in value]
    if key in U64_FIELDS and isinstance(value, str) and value.lstrip("-").isdigit():
        return int(value)
    return value


def frame(payload):
    return struct.pack(">I", len(payload)) + payload


def encode(type_, **fields):
    """The JSON payload of a message; `type` comes first."""
    message = {"type": type_, **to_wire(fields)}
    return json.dumps(message, separators=(",", ":")).encode()


TLS_PEER = os.environ.get("DDP_TLS_PEER")  # the program of tests/lib/tls_peer.c


def open_tunnel(address, key):
    """A socket whose bytes go through TLS with that key (ddp://...), and the tls-peer process that does it."""
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()  # the key is in no file and in no argument
    os.write(writing, key.encode())
    os.close(writing)
    try:
        process = subprocess.Popen([TLS_PEER, "--raw", address, "--key-file", "/dev/fd/%d" % reading], stdin=theirs,
                                   stdout=theirs, stderr=subprocess.PIPE, text=True, pass_fds=[reading])
    finally:
        os.close(reading)
        theirs.close()
    return ours, process


class Peer:
    """One connection: "unix:PATH" or "HOST:PORT"; with a key (ddp://...) over TLS."""

    tunnel = None

    def __init__(self, address, timeout_s=PATIENCE_S, key=None):
        if key is not None:
            self.socket, self.tunnel = open_tunnel(address, key)
            self.socket.settimeout(timeout_s)
        elif address.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(address[5:])  # blocks while the backlog is full
            self.socket.settimeout(timeout_s)
        else:
            host, port = address.rsplit(":", 1)
            self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.received = b""

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        self.socket.close()
        self.tunnel_end()

    def tunnel_end(self):
        """Why the TLS connection ended, "REFUSED: ..."; None without TLS. Waits for the end."""
        if self.tunnel is None:
            return None
        if not self.tunnel.stderr.closed:
            self.end = self.tunnel.communicate(timeout=PATIENCE_S)[1].replace("tls-peer: ", "").strip()
        return self.end

    def send(self, type_, **fields):
        self.send_bytes(frame(encode(type_, **fields)))

    def send_bytes(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed(str(error)) from error

    def recv(self):
        """The next message as a dict. Raises Closed at the end of the connection."""
        while True:
            if len(self.received) >= 4:
                (count,) = struct.unpack(">I", self.received[:4])
                if len(self.received) >= 4 + count:
                    payload = self.received[4:4 + count]
                    self.received = self.received[4 + count:]
                    return from_wire(json.loads(payload))
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError as error:
                raise Closed(str(error)) from error
            if not data:
                raise Closed("end of connection")
            self.received += data

    def recv_until_closed(self):
        messages = []
        while True:
            try:
                messages.append(self.recv())
            except Closed:
                return messages


class Refused(Exception):
    """The server answered `error`."""

    def __init__(self, message):
        super().__init__("%s: %s" % (message["code"], message["message"]))
        self.code, self.message, self.hint = message["code"], message["message"], message["hint"]


class Client(Peer):
    """A client that has said hello and was welcomed."""

    def __init__(self, address, timeout_s=PATIENCE_S, key=None):
        super().__init__(address, timeout_s, key)
        self.send("client_hello", **CLIENT_HELLO)
        self.welcome = self.recv()
        if self.welcome["type"] != "client_welcome":
            raise Refused(self.welcome)

    def ask(self, type_, **fields):
        self.send(type_, **fields)
        return self.answer()

    def answer(self):
        message = self.recv()
        if message["type"] == "error":
            raise Refused(message)
        return message

    def submit(self, request_id=None, **fields):
        return self.ask("submit", **submission(request_id, **fields))

    def job(self, job, after_version=0, wait_us=0, first_rank=0):
        return self.ask("job_get", job=str(job), after_version=after_version, wait_us=wait_us, first_rank=first_rank)

    def nodes(self, all_=True, limit=256):
        """All pages of the list."""
        nodes, more = [], True
        while more:
            page = self.ask("node_list", all=all_, node="", after=nodes[-1]["name"] if nodes else "", limit=limit)
            nodes, more = nodes + page["nodes"], page["more"]
        return nodes

    def wait_for(self, job, accept):
        """Long-polls until accept(job summary) is true."""
        version, end = 0, time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            info = self.job(job, version, 2000000 if version else 0)
            if accept(info["jobs"][0]):
                return info
            version = info["version"]
        raise AssertionError("job %s never came to be as wanted: %s" % (job, info))


def request_id():
    return os.urandom(16).hex()


def submission(request=None, **fields):
    wanted = dict(name="job", nodes=1, nproc_per_node=1, max_restarts=0, restarts_given=True, grace_us=1000000,
                  time_limit_us=0, priority=0, wait_for_nodes=False, nodes_min=0, spares=0,
                  replace_stragglers=False, hang_timeout_us=0, warn_us=0, warn_signal=0, requeue_at_limit=False, after="", array="", cwd="/tmp", argv=["/bin/true"], env={}, launch={})
    wanted.update(fields, request_id=request or request_id())
    return wanted


class Node(threading.Thread):
    """A scripted launcherd: it carries out each order at once; the test ends its ranks (finish).

    `log` of a rank is served from self.logs[(job, generation, rank)]."""

    def __init__(self, address, name, slots=2, instance=None, beat_s=0.1, auto=True,
                 shims=None, logs=None, gpus=0, key=None):
        super().__init__(daemon=True)
        self.key = key
        self.address, self.name_, self.slots, self.beat_s = address, name, slots, beat_s
        self.instance = instance or int.from_bytes(os.urandom(7), "big")
        self.gpus = gpus
        self.closed = []  # slots that the server must not assign
        self.leaving = False  # True: ends once no job is on it
        self.warm = []  # jobs for which processes wait here: job_id, state
        self.auto = auto  # False: reports phases only when the test says so
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.shims, self.logs, self.orders = dict(shims or {}), dict(logs or {}), []
        for shim in self.shims.values():
            shim["acked"] = 0  # a new server gets every report again
        self.welcomed, self.error, self.closing = None, None, False
        self.silent = False  # True: reads, sends nothing
        self.blob = ""
        self.connect()
        self.start()

    def connect(self):
        self.peer = Peer(self.address, key=self.key)
        self.peer.send("node_hello", protocol=PROTOCOL, version="test", name=self.name_,
                       boot_id="boot", instance=self.instance, pid=os.getpid(),
                       address="127.0.0.1", slots=self.slots, gpus=self.gpus, shims=self.listing(),
                       closed=self.closed, **NODE_IDENTITY)

    def listing(self):
        with self.lock:
            return [dict(job_id=s["job_id"], generation=s["generation"], phase=s["phase"],
                         slot_mask=s["slot_mask"], unseen=s.get("unseen", False)) for s in self.shims.values()]

    def run(self):
        next_beat = 0
        try:
            while not self.closing:
                now = time.monotonic()
                if now >= next_beat:
                    next_beat = now + self.beat_s
                    with self.lock:
                        if self.silent:
                            continue
                        self.peer.send("beat", sent_us=int(now * 1e6), shims=self.listing(),
                                       closed=self.closed, leaving=self.leaving, warm=self.warm, silent=[])
                        for shim in self.shims.values():
                            if shim["acked"] < shim["revision"]:
                                self.report(shim)
                if not self.peer.received:
                    ready, _, _ = select.select([self.peer.socket], [], [],
                                                max(0, next_beat - time.monotonic()))
                    if not ready:
                        continue
                message = self.peer.recv()
                with self.lock:
                    self.orders.append(message)
                    self.obey(message)
                    self.changed.notify_all()
        except (Closed, OSError, ValueError) as error:
            if isinstance(error, OSError):
                self.take_last_words()
            with self.lock:
                self.error = self.error or str(error)
                self.changed.notify_all()

    def take_last_words(self):
        """Reads what is left: a beat to a server that has refused us fails before the reason is read."""
        try:
            while self.error is None and not self.closing:
                message = self.peer.recv()
                with self.lock:
                    self.orders.append(message)
                    self.obey(message)
        except (Closed, OSError, ValueError):
            pass

    def obey(self, message):
        kind, key = message["type"], (message.get("job_id"), message.get("generation"))
        shim = self.shims.get(key)
        if kind == "node_welcome":
            self.welcomed = message
        elif kind == "error":
            self.error = message["message"]
        elif kind == "start" and shim is None:
            self.shims[key] = shim = dict(
                job_id=key[0], generation=key[1], slot_mask=message["slot_mask"], phase="preparing",
                revision=0, acked=0, has_world=False, failed_rank=-1, cause="", tail="", error="",
                failed_oom=False, failed_core="", warm_late=False, notice="",
                ranks=[dict(rank=message["rank_base"] + i, state="waiting", pid=0, exit_code=0,
                            signal=0, joined=False) for i in range(message["local_count"])])
            if self.auto:
                self.change(shim, phase="ready")
        elif kind == "go" and shim and shim["phase"] == "ready":
            for rank in shim["ranks"]:
                rank.update(state="running", pid=1000 + rank["rank"], joined=True)
            self.change(shim, phase="running")
        elif kind == "world" and shim:
            self.change(shim, has_world=True)
        elif kind == "stop":
            if shim and shim["phase"] != "ended":
                for rank in shim["ranks"]:
                    if rank["state"] == "running":
                        rank.update(state="stopped", signal=message["signal"])
                self.change(shim, phase="ended")
        elif kind == "forget":
            self.shims.pop(key, None)
        elif kind == "report_ack" and shim:
            shim["acked"] = max(shim["acked"], message["revision"])
        elif kind == "log_read":
            self.serve_log(message)

    def change(self, shim, **fields):
        shim.update(fields)
        shim["revision"] += 1
        self.report(shim)

    def report(self, shim):
        fields = {k: v for k, v in shim.items() if k not in ("slot_mask", "acked")}
        first = shim["ranks"][0]["rank"] == 0 and shim["ranks"][0]["joined"]
        self.peer.send("shim_report", master_port=40000, blob=self.blob if first else "",
                       failed_age_us=0, failed_errno_exit=0, **{"failed_class": "unsaid", **fields})

    def serve_log(self, message):
        if self.logs.get("silent"):
            return
        import base64
        key = (message["job_id"], message["generation"], message["rank"])
        data = self.logs.get(key if message["what"] == "output" else (*key, message["what"]), b"")
        part = data[message["offset"]:message["offset"] + message["bytes_max"]]
        self.peer.send("log_data", runs=[], size=len(data), request_id=message["request_id"], offset=message["offset"],
                       bytes=base64.b64encode(part).decode(),
                       is_final=message["offset"] + len(part) == len(data), problem="")

    def progress(self, job_id, generation, **fields):
        wanted = dict(rank=0, epoch=1, epochs=2, step=1, steps=100, loss=0.5, samples_per_s=10.0,
                      checkpoint_step=0, phase="steps", doing="", collectives=0, in_collective=False, again_us=0, timed_steps=0,
                      step_us=0, data_us=0, compute_us=0, update_us=0, wait_us=0)
        wanted.update(fields)
        with self.lock:
            self.peer.send("progress", job_id=job_id, generation=generation, **wanted)

    def wait(self, accept, what="the node's state"):
        with self.lock:
            if not self.changed.wait_for(lambda: accept(self), PATIENCE_S):
                raise AssertionError("%s never came: %s" % (what, self.orders[-5:]))

    def wait_phase(self, job_id, generation, phase):
        self.wait(lambda n: n.shims.get((job_id, generation), {}).get("phase") == phase, phase)

    def finish(self, job_id, generation, exit_code=0, signal_=0):
        """Ends every rank of this node with that exit code or signal; a failure is reported for the first rank."""
        with self.lock:
            shim = self.shims[(job_id, generation)]
            for rank in shim["ranks"]:
                rank.update(state="exited", exit_code=exit_code, signal=signal_)
            if exit_code or signal_:
                shim.update(failed_rank=shim["ranks"][0]["rank"], tail="boom\n",
                            cause="rank %d exited %d" % (shim["ranks"][0]["rank"], exit_code))
            self.change(shim, phase="ended")

    def close(self):
        self.closing = True
        try:
            self.peer.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.join(PATIENCE_S)
        self.peer.close()


@contextlib.contextmanager
def new_boot():
    """Servers that start within know nothing of those before, as after a start of the machine."""
    folder, before = tempfile.mkdtemp(prefix="ddp-boot-", dir="/dev/shm"), os.environ.get("RUNTIME_DIRECTORY")
    os.environ["RUNTIME_DIRECTORY"] = folder
    try:
        yield
    finally:
        os.environ.pop("RUNTIME_DIRECTORY")
        if before is not None:
            os.environ["RUNTIME_DIRECTORY"] = before
        shutil.rmtree(folder)


class Server:
    """A rendezvous process on DIR/rendezvous.sock."""

    def __init__(self, binary, state_dir, *args):
        self.state_dir = state_dir
        self.log_path = os.path.join(os.path.dirname(state_dir.rstrip("/")), "server.log")
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([binary, "--state-dir", state_dir, *args],
                                            stdout=subprocess.PIPE, stderr=log)
        self.ready = self.process.stdout.readline().decode()
        if not self.ready.startswith("rendezvous: ready "):
            self.process.wait(PATIENCE_S)
            raise AssertionError("rendezvous did not start: %r, log: %s" % (self.ready, self.log()))
        self.addresses = self.ready.split()[2:]
        self.address = self.addresses[0]

    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def alive(self):
        return self.process.poll() is None

    def rss_kib(self):
        with open("/proc/%d/status" % self.process.pid) as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))

    def is_sanitized(self):
        """Whether it is built with AddressSanitizer: then its memory use means nothing."""
        with open("/proc/%d/maps" % self.process.pid) as file:
            return "libasan" in file.read()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()

    def stop(self):
        """Ends it in order; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        return code


def with_descriptors(binary, program, most):
    """Makes the script `program`, which runs `binary` with a limit on its descriptors. Returns `program`."""
    with open(program, "w", encoding="utf-8") as script:
        script.write('#!/bin/sh\nulimit -n %d\nexec "%s" "$@"\n' % (most, os.path.abspath(binary)))
    os.chmod(program, 0o755)
    return program


class Skip(Exception):
    """Raised by a test of run_tests() that cannot run here, with the reason."""


def run_tests(tests, names):
    """Runs test functions, prints a line for each, and returns the exit code."""
    import traceback
    failed = 0
    for test in tests:
        name = test.__name__.replace("test_", "", 1)
        if names and name not in names:
            continue
        begin = time.monotonic()
        try:
            word = test()
        except Skip as why:
            print("skipped %s: %s" % (name, why), flush=True)
        except Exception:  # any exception is this test's failure
            traceback.print_exc()
            failed += 1
            print("not ok %s" % name, flush=True)
        else:
            print("%s %s (%.2f s)" % (word or "ok", name, time.monotonic() - begin), flush=True)
    print("%d failed" % failed, flush=True)
    return 1 if failed else 0
