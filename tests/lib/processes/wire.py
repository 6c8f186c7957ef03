"""The programs' protocol for tests: frames, a client, a server process.

Frames are a u32 big-endian byte count and one JSON object; 64-bit fields travel as decimal strings
(common/msg.h). Python's standard library alone."""

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

from processes import proc
from processes.waiting import PATIENCE_S

PROTOCOL = 4
CLIENT_HELLO = dict(protocol=PROTOCOL, version="test", schema="")
# the end of a node_hello of a node that says nothing of its build and its history, and is always the launcherd that had its name before
NODE_IDENTITY = dict(drains_on_term=False, schema="", machine_id="machine", state_id="state", up_us=0, seen=[])

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


class Link:
    """A connection of frames."""

    def __init__(self, sock):
        self.socket, self.received = sock, b""
        self.sending = threading.Lock()  # frames are sent whole

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, type_, **fields):
        self.send_bytes(frame(encode(type_, **fields)))

    def send_bytes(self, data):
        try:
            with self.sending:
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
                data = self.socket.recv(1 << 20)
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


class Peer(Link):
    """A connection to a server: "unix:PATH" or "HOST:PORT"; with a key (ddp://...) over TLS."""

    tunnel = None

    def __init__(self, address, timeout_s=PATIENCE_S, key=None):
        if key is not None:
            made, self.tunnel = open_tunnel(address, key)
        elif address.startswith("unix:"):
            made = socket.socket(socket.AF_UNIX)
            made.connect(address[5:])  # blocks while the backlog is full
        else:
            host, port = address.rsplit(":", 1)
            made = socket.create_connection((host, int(port)), timeout=timeout_s)
        made.settimeout(timeout_s)
        super().__init__(made)

    def close(self):
        super().close()
        self.tunnel_end()

    def tunnel_end(self):
        """Why the TLS connection ended, "REFUSED: ..."; None without TLS. Waits for the end."""
        if self.tunnel is None:
            return None
        if not self.tunnel.stderr.closed:
            self.end = self.tunnel.communicate(timeout=PATIENCE_S)[1].replace("tls-peer: ", "").strip()
        return self.end


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
    """A rendezvous process with its socket in its state directory."""

    def __init__(self, binary, state_dir, *args, environ=None):
        self.state_dir = state_dir
        self.log_path = os.path.join(os.path.dirname(state_dir.rstrip("/")), "server.log")
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([binary, "--state-dir", state_dir, *args],
                                            stdout=subprocess.PIPE, stderr=log, env=environ)
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
        return proc.rss_kib(self.process.pid)

    def is_sanitized(self):
        """Whether it is built with AddressSanitizer: then its memory use means nothing."""
        return b"libasan" in proc.read(self.process.pid, "maps")

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
