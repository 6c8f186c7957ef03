"""Attacks from a machine in the same network: the state does not change, memory stays bounded, and other clients are served meanwhile.

DDP_FRAMES: number of hostile frames in each test that sends them (1,200; 100,000 by hand). DDP_SEED: the seed."""
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading

from cluster_lib import PORT, Cluster, Session, main
from processes.waiting import LONG_S, Stopwatch, wait_for

FRAMES = int(os.environ.get("DDP_FRAMES", "1200"))
SEED = int(os.environ.get("DDP_SEED", "1"))
GROWTH_KIB = 24 * 1024  # the most by which the server's memory may grow under any attack here
SERVED_S = 10.0  # the longest wait of another client's request: less than twice the time-out of a silent connection

USER_ONLY = ["submit", "cancel", "node_drain", "node_resume", "principal_add", "principal_rotate", "principal_remove",
             "principal_list", "job_list", "job_get", "event_list", "node_list", "log_read",
             "node_read"]
ADMIN_ONLY = ["node_drain", "node_resume", "principal_add", "principal_rotate", "principal_remove", "principal_list", "keys_checked"]
NODE_ONLY = ["beat", "shim_report", "progress", "node_event", "log_data", "node_data"]
NOBODY = ["start", "node_ask", "go", "world", "stop", "forget", "report_ack", "node_welcome", "beat_ack", "slot_resume", "shim_hello",
          "lease", "report_request", "worker_join", "worker_error", "worker_stop", "client_welcome", "submitted", "job_info", "jobs", "nodes",
          "events", "principals", "principal_key", "error"]


class Bystander(threading.Thread):
    """A user on another machine who sends requests all the time. Records the slowest answer in seconds, over new connections and over an old one."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.machine = cluster, cluster.machine("bystander")
        self.key = cluster.key_file("user", "root", "--admin")
        self.session = Session(cluster, self.machine, self.key)
        assert self.session.as_client()["type"] == "client_welcome"
        self.running, self.slowest, self.slowest_new, self.count, self.error = True, 0.0, 0.0, 0, None

    def run(self):
        try:
            while self.running:
                watch = Stopwatch()
                assert self.session.ask("job_list", all=True, after_id=0, limit=10)["type"] == "jobs"
                self.slowest = max(self.slowest, watch.passed_s)
                self.count += 1
        except Exception as error:  # pylint: disable=broad-except
            self.error = error

    def call_anew(self):
        watch = Stopwatch()
        session = Session(self.cluster, self.machine, self.key)
        answer = session.as_client()
        session.close()
        assert answer["type"] == "client_welcome", answer
        self.slowest_new = max(self.slowest_new, watch.passed_s)


@contextlib.contextmanager
def attacked(what):
    """A cluster with a node, and a stranger's machine. At the end the state must be as before, the server's memory must not have grown, and
    the bystander must have been served."""
    with Cluster() as cluster:
        cluster.node("a")
        stranger, bystander = cluster.machine("stranger"), Bystander(cluster)
        cluster.stranger_node = cluster.key_file("node", "other")
        cluster.stranger_user = cluster.key_file("user", "eve")
        bystander.call_anew()
        before, rss = cluster.state(), cluster.rss_kib()
        bystander.start()
        try:
            yield cluster, stranger, bystander
            bystander.call_anew()
        finally:
            bystander.running = False
            bystander.join(60)
            bystander.session.close()
        grown = cluster.rss_kib() - rss
        after = cluster.state()
        assert after == before, f"{before}\nbecame\n{after}"
        assert bystander.error is None, bystander.error
        assert bystander.count > 0
        assert grown < GROWTH_KIB, f"{grown} KiB more"
        assert bystander.slowest < SERVED_S and bystander.slowest_new < SERVED_S, (bystander.slowest, bystander.slowest_new)
        said = [line.split(": ", 1)[1] for line in cluster.server.log().splitlines() if ": node a is " in line]
        assert said == ["node a is up"], said
        print(f"  {what}: {bystander.count} requests of others meanwhile, the slowest {1000 * bystander.slowest:.0f} ms, with a new "
              f"connection {1000 * bystander.slowest_new:.0f} ms; memory {rss} KiB, then {grown:+} KiB", flush=True)


def client_hello(cluster, machine):
    """The first bytes of a real session: a listener takes them from tls-peer."""
    with machine.network():
        listener = socket.socket()
    listener.bind((machine.address, 0))
    listener.listen()
    argv = machine.command(f"{cluster.build}/tests/tls-peer", "%s:%d" % listener.getsockname(), "--key-file", cluster.stranger_user)
    with contextlib.closing(listener):
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as peer:
            sock, _ = listener.accept()
            data = sock.recv(65536)
            sock.close()
            peer.stdin.close()
            peer.wait()
    return data


def is_closed(sock):
    """Whether the server closes the connection within its time limit for a hello, plus some."""
    sock.settimeout(30)
    with contextlib.suppress(ConnectionResetError):
        while sock.recv(65536):
            pass
    sock.close()
    return True


def test_half_handshakes_and_slow_ones():
    with attacked("half handshakes") as (cluster, stranger, bystander):
        hello = client_hello(cluster, stranger)
        assert len(hello) > 100, len(hello)
        socks = []
        for i in range(60):
            sock = stranger.connect(cluster.head.address, PORT, timeout_s=5)
            sock.sendall([b"", hello[:1], hello[:len(hello) // 2], hello][i % 4])
            socks.append(sock)
        bystander.call_anew()
        drip = stranger.connect(cluster.head.address, PORT)
        watch = Stopwatch()
        try:
            for byte in hello:  # a byte a second, until the deadline closes the connection
                drip.sendall(bytes([byte]))
                drip.settimeout(1)
                try:
                    if not drip.recv(100):
                        break
                except TimeoutError:
                    continue
        except OSError:
            pass
        watch.check("a byte a second", 0, 30)
        drip.close()
        assert all(is_closed(sock) for sock in socks)


def test_flood():
    """As many connections as one machine can make; some are silent, some send nonsense."""
    with attacked("flood") as (cluster, stranger, bystander):
        count, refused, watch, asked = 0, 0, Stopwatch(), Stopwatch()
        open_socks = []
        while watch.passed_s < 4:
            try:
                sock = stranger.connect(cluster.head.address, PORT, timeout_s=0.2)
                if count % 3 == 0:
                    sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
                open_socks.append(sock)
                count += 1
            except OSError:
                refused += 1
            if len(open_socks) > 500:
                open_socks.pop(0).close()
            if asked.passed_s > 1:
                bystander.call_anew()
                asked = Stopwatch()
        for sock in open_socks:
            sock.close()
        print(f"  {count} connections, {refused} refused", flush=True)
        assert count > 100, count


def hostile(cluster, machine, key, kind, hello="none", types=(), count=None):
    done = machine.run(f"{cluster.build}/tests/cluster/hostile", f"{cluster.bracketed(cluster.head)}:{PORT}", key, str(count or FRAMES),
                       str(SEED), kind, hello, *types, timeout=3600)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    print(f"  {kind} {hello} {' '.join(types)[:40]}: {result}", flush=True)
    return result


def test_frames_before_authentication():
    with attacked("before authentication") as (cluster, stranger, _):
        for kind in ("bytes", "frames", "json"):
            assert hostile(cluster, stranger, "-", kind, count=FRAMES // 4)["welcomes"] == 0
        assert hostile(cluster, stranger, "-", "messages", count=FRAMES // 4)["welcomes"] == 0


def test_frames_after_authentication():
    """With stolen keys of a user and of a node: requests that their roles do not allow change nothing."""
    with attacked("after authentication") as (cluster, stranger, _):
        node, user = cluster.stranger_node, cluster.stranger_user
        for kind in ("bytes", "frames", "json"):
            hostile(cluster, stranger, user, kind, "client", count=FRAMES // 6)
        hostile(cluster, stranger, user, "json", count=FRAMES // 20)
        hostile(cluster, stranger, user, "messages", "none", NOBODY + NODE_ONLY, count=FRAMES // 6)
        hostile(cluster, stranger, user, "messages", "client", NOBODY + NODE_ONLY + ADMIN_ONLY, count=FRAMES // 6)
        hostile(cluster, stranger, node, "messages", "client", USER_ONLY, count=FRAMES // 20)
        hostile(cluster, stranger, node, "messages", "none", USER_ONLY + NOBODY, count=FRAMES // 20)


def test_frames_as_a_node():
    """A stolen node key lets its user act as that node only. The node's own entry may change, nothing else."""
    with Cluster() as cluster:
        cluster.node("a")
        stranger = cluster.machine("stranger")
        key = cluster.key_file("node", "other")
        job = cluster.submit("--nodes", "1", "--nproc-per-node", "1", "--", "sleep", "1000")
        cluster.wait_job(job, lambda found: found["state"] == "running", "running")
        rss, before = cluster.rss_kib(), cluster.state()
        pid = cluster.status(job)["ranks"][0]["pid"]
        for kind in ("json", "frames"):
            hostile(cluster, stranger, key, kind, "node:other", count=FRAMES // 6)
        hostile(cluster, stranger, key, "messages", "node:other", NODE_ONLY, count=FRAMES)
        hostile(cluster, stranger, key, "messages", "node:other", USER_ONLY + NOBODY, count=FRAMES // 20)
        wait_for("node other gone", lambda: cluster.node_states().get("other") in ("lost", "suspect", "up"), LONG_S)
        after = cluster.state()
        grown = cluster.rss_kib() - rss
        for one in (before, after):
            one["nodes"] = [row for row in one["nodes"] if row["name"] != "other"]
        assert after == before, f"{before}\nbecame\n{after}"
        assert cluster.status(job)["ranks"][0]["pid"] == pid and cluster.status(job)["state"] == "running"
        assert grown < GROWTH_KIB, grown
        print(f"  memory {rss} KiB, then {grown:+} KiB", flush=True)


if __name__ == "__main__":
    sys.exit(main([test_half_handshakes_and_slow_ones, test_flood, test_frames_before_authentication, test_frames_after_authentication,
                   test_frames_as_a_node]))
