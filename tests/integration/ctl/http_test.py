"""ddpctl http on a real cluster, with a stand-in for the GPUs: pages, metrics, keys, bad requests, slow clients and many clients."""
import base64
import concurrent.futures
import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster, DDPCTL
from processes.gpus import GpuCluster
from processes.relay import UnixRelay
from processes.runner import equal, run_and_exit
from processes.waiting import Gate, let_pass, PATIENCE_S, Stopwatch, wait_for

KEY = "a key of thirty-two characters..".replace(" ", "-")
SLOW_S = 120  # a connection that never asks is ended within 11 s; more on a busy machine
BUSY_S = 10  # so many seconds that a question more or less, one a second, does not matter

# Rank 0 writes metrics and reports progress as ddp-worker does. Both go on when the test opens the gate.
PROGRAM = r'''
import fcntl, json, os, struct, sys
rank, shim = int(os.environ["RANK"]), int(os.environ["DDP_SHIM_FD"])
print("<b>printed</b> by rank", rank, flush=True)
if rank == 0:
    with open(os.environ["DDP_METRICS"], "a", buffering=1) as file:
        for step in range(1, 51):
            file.write(json.dumps(dict(kind="step", step=step, loss=3 / step, images_per_s=100)) + "\n")
    data = json.dumps(dict(type="progress", job_id=os.environ["DDP_JOB_ID"], generation=int(os.environ["DDP_GENERATION"]), rank=0, epoch=1,
                           epochs=2, step="50", steps="200", loss=0.06, samples_per_s=100.0, checkpoint_step="40"), separators=(",", ":")).encode()
    os.write(shim, struct.pack(">I", len(data)) + data)
fcntl.flock(open(sys.argv[1]), fcntl.LOCK_SH)
sys.exit(int(sys.argv[2]) if rank == 1 else 0)
'''


class Http:
    """A running `ddpctl http`."""

    def __init__(self, case, server, *args, wrap=None):
        self.process = subprocess.Popen([DDPCTL, "--server", server, "http", "--listen", "127.0.0.1:0", *args], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=case.environ())
        line = self.process.stdout.readline()
        found = re.fullmatch(r"ddpctl http: ready https?://127\.0\.0\.1:(\d+)/\n", line)
        assert found, line + self.process.stderr.read()
        self.port = int(found.group(1))
        self.wrap = wrap

    def get(self, path, method="GET", **headers):
        """(status, headers, text)"""
        if self.wrap:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE_S, context=self.wrap)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def ok(self, path, **headers):
        status, _, text = self.get(path, **headers)
        equal(status, 200, f"{path}: {text[:300]}")
        return text

    def metric(self, name):
        """The value of the sample with that name and labels; None: there is none."""
        found = re.search("^" + re.escape(name) + r" (\S+)$", self.ok("/metrics"), re.MULTILINE)
        return float(found.group(1)) if found else None

    def raw(self, text):
        """Sends a request on a new connection; returns all bytes up to the connection's end."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as sock:
            sock.sendall(text)
            data = b""
            try:
                while more := sock.recv(65536):
                    data += more
            except ConnectionResetError:
                pass
            return data

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.process.terminate()
        stderr = self.process.communicate(timeout=PATIENCE_S)[1]
        if kind is None:
            equal((self.process.returncode, stderr), (0, ""))


def pages_and_metrics_show_the_cluster():
    with Case() as case, GpuCluster(case, gpus=2, lines={"g0": "gauges 0 87 64 412500 700000"}) as cluster:
        with Http(case, cluster.address) as page:
            go = Gate(f"{case.dir}/go")
            job = cluster.submit("-n", "2", "--max-restarts", "0", "--name", "r50", "--", sys.executable, "-c", PROGRAM, go.path, "3")
            waits = cluster.submit("-n", "2", "--name", "behind", "--", "true")
            of_job = f'{{job="{job}",name="r50",user="{cluster.status(job)["user"]}"}}'
            # A page may be a second older than the newest state.
            wait_for("the step", lambda: [page.metric(name) for name in ("ddp_job_step" + of_job, 'ddp_jobs{state="running"}',
                                                                           'ddp_jobs{state="queued"}')] == [50, 1, 1])
            for name, value in (("ddp_up", 1), ('ddp_jobs{state="running"}', 1), ('ddp_jobs{state="queued"}', 1), ('ddp_slots{state="busy"}', 2),
                                ('ddp_node_up{node="node0"}', 1), ("ddp_job_loss" + of_job, 0.06), ("ddp_job_restarts_total" + of_job, 0),
                                ("ddp_job_samples_per_second" + of_job, 100), ("ddp_job_checkpoint_step" + of_job, 40),
                                ("ddp_jobs_submitted_total", 2)):
                equal(page.metric(name), value, name)
            wait_for("the gauges", lambda: page.metric('ddp_gpu_utilization_ratio{node="node0",slot="0"}') == 0.87)
            equal(page.metric('ddp_gpu_power_watts{node="node0",slot="0"}'), 412.5)
            wait_for("the job on the GPU", lambda: page.metric('ddp_gpu_job{node="node0",slot="1"}') == float(job))
            check_with_promtool(page.ok("/metrics"))
            text = page.ok("/metrics", Accept="application/openmetrics-text; version=1.0.0,text/plain;q=0.5")
            assert text.endswith("# EOF\n") and "# TYPE ddp_jobs_submitted counter\nddp_jobs_submitted_total 2\n" in text, text[-500:]
            text = page.ok("/")
            for part in (f'<a href="jobs/{job}">{job} r50</a>', f'<a href="jobs/{waits}">', "50/200, 25 %", "0: 87 %", "64 &#176;C", "node0"):
                assert part in text, (part, text)
            text = page.ok(f"/jobs/{job}")
            for part in ("&lt;b&gt;printed&lt;/b&gt; by rank 0", '<polyline class="line c0"', "Log of rank 0", 'href="../style.css"', 'content="5"'):
                assert part in text, (part, text[:3000])
            assert "<script" not in text and "<b>printed" not in text
            wait_for("the line of rank 1", lambda: "printed&lt;/b&gt; by rank 1" in page.ok(f"/jobs/{job}?rank=1"))
            go.open()
            equal(cluster.ctl("wait", job).returncode, 3)
            wait_for("the end", lambda: page.metric('ddp_jobs_ended_total{state="failed"}') == 1)
            wait_for("the end on its page", lambda: "failed" in page.ok(f"/jobs/{job}"))
            text = page.ok(f"/jobs/{job}")
            assert "Log of rank 1" in text and "http-equiv" not in text, text[:3000]  # the rank that failed
            equal(cluster.ctl("wait", waits).returncode, 0)
            wait_for("the end of the other", lambda: page.metric('ddp_jobs_ended_total{state="succeeded"}') == 1)
            assert "The newest jobs that have ended" in page.ok("/")


def check_with_promtool(text):
    """Runs only where Prometheus is installed; the unit test checks the conventions everywhere."""
    program = shutil.which("promtool")
    if program is None:
        print("# promtool is not here, so it did not check the metrics", flush=True)
        return
    done = subprocess.run([program, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    equal((done.returncode, done.stderr), (0, ""), done.stdout)


def bad_requests_are_refused():
    with Case() as case, Cluster(case) as cluster, Http(case, cluster.address) as page:
        wait_for("health", lambda: page.get("/healthz")[::2] == (200, "ok\n"))
        for path, status in (("/jobs/999", 404), ("/nothing", 404), ("/jobs/x", 404), ("/%2e%2e/etc/passwd", 404), ("/?page=x", 400), ("/jobs/1?rank=-1", 400)):
            equal(page.get(path)[0], status, path)
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            status, headers, _ = page.get("/", method)
            equal((status, headers["Allow"]), (405, "GET, HEAD"), method)
        status, headers, text = page.get("/", "HEAD")
        equal((status, text, int(headers["Content-Length"]) > 500), (200, "", True))
        for path in ("/", "/metrics", "/jobs/999", "/style.css", "/healthz", "/nothing"):
            headers = page.get(path)[1]
            assert headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'self'; "), headers
            equal((headers["X-Content-Type-Options"], headers["X-Frame-Options"], headers["Cache-Control"]), ("nosniff", "DENY", "no-store"))
        equal(page.get("/", Host="evil.example")[0], 421)
        equal(page.get("/", Host="localhost:1234")[0], 200)
        equal(page.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc")[:15], b"HTTP/1.1 200 OK")


def odd_bytes_are_no_requests():
    with Case() as case, Cluster(case) as cluster, Http(case, cluster.address) as page:
        for text in (b"GET / HTTP/1.1\r\n\r\n", b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00",
                     b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20000 + b"\r\n", b"\r\n\r\n\0\0\0", b"GET\r\n\r\n",
                     b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", page.port), 1) as sock:  # some are half a request: no answer yet
                try:
                    sock.sendall(text)
                    answer = sock.recv(65536)
                except OSError:
                    answer = b""
                assert not answer.startswith(b"HTTP/1.1 200"), (text[:60], answer[:200])
        wait_for("health", lambda: page.get("/healthz")[::2] == (200, "ok\n"))


def hostile_names_are_text():
    with Case() as case, Cluster(case) as cluster, Http(case, cluster.address) as page:
        program = "import os, sys; os.write(1, b'<script>alert(1)</script>\\x1b[31m\\xff\\n'); sys.exit(3)"
        job = cluster.submit("--max-restarts", "0", "--name", "a.b-c_d", "--", sys.executable, "-c", program, "<img src=x onerror=alert(1)>", '"&\'')
        equal(cluster.ctl("wait", job).returncode, 3)
        text = page.ok(f"/jobs/{job}")
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m\\xff" in text, text
        assert "&lt;img src=x onerror=alert(1)&gt;" in text
        assert not re.search(r"<(script|img|iframe|object)|<[^>]*\son\w+=", text), text
        assert "alert" not in page.ok("/")


def a_key_is_wanted():
    with Case() as case, Cluster(case) as cluster:
        path = os.path.join(case.dir, "key")
        with open(path, "w", encoding="ascii") as file:
            file.write(KEY + "\n")
        os.chmod(path, 0o600)
        for args, text in ((("--listen", "0.0.0.0:0"), "needs --key-file"), (("--listen", "nonsense"), "nonsense"), (("extra",), "extra"),
                           (("--key-file", path + "x"), "cannot read"), (("--cert", path), "belong together")):
            done = cluster.ctl("http", *args)
            assert done.returncode in (1, 2) and text in done.stderr, (args, done)
        os.chmod(path, 0o644)
        done = cluster.ctl("http", "--key-file", path)
        assert done.returncode == 2 and "others may read" in done.stderr, done
        os.chmod(path, 0o600)
        with Http(case, cluster.address, "--key-file", path, "--host", "head.example") as page:
            status, headers, _ = page.get("/")
            equal((status, headers["WWW-Authenticate"].split()[0]), (401, "Basic"))
            equal(page.get("/metrics", Authorization="Bearer " + KEY[:-1] + "x")[0], 401)
            page.ok("/metrics", Authorization="Bearer " + KEY)
            page.ok("/", Authorization="Basic " + base64.b64encode(f"me:{KEY}".encode()).decode(), Host="head.example")
            equal(page.get("/", Authorization="Bearer " + KEY, Host="other.example")[0], 421)
            wait_for("health", lambda: page.get("/healthz")[0] == 200)
        process = subprocess.Popen([DDPCTL, "--server", cluster.address, "http", "--listen", "0.0.0.0:0", "--key-file", path],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=case.environ())
        assert process.stdout.readline().startswith("ddpctl http: ready http://0.0.0.0:")
        process.terminate()
        assert "not encrypted" in process.communicate(timeout=PATIENCE_S)[1]


def pages_are_served_over_tls():
    with Case() as case, Cluster(case) as cluster:
        cert, key = f"{case.dir}/cert.pem", f"{case.dir}/key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        os.chmod(key, 0o600)
        with Http(case, cluster.address, "--cert", cert, "--cert-key", key, wrap=ssl.create_default_context(cafile=cert)) as page:
            assert "ddp_up" in page.ok("/metrics")
        done = cluster.ctl("http", "--listen", "127.0.0.1:0", "--cert", key, "--cert-key", key)
        assert done.returncode == 1 and "PEM files that belong together" in done.stderr, done


def a_slow_reader_is_ended():
    """A client that sends a byte now and then would otherwise keep its connection for ever."""
    with Case() as case, Cluster(case) as cluster, Http(case, cluster.address) as page:
        slow = [socket.create_connection(("127.0.0.1", page.port), PATIENCE_S) for _ in range(40)]
        ended = set()
        for sock in slow:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
            sock.setblocking(False)

        def all_ended():
            for sock in set(slow) - ended:
                try:
                    sock.send(b"X")
                    if sock.recv(65536) == b"":
                        ended.add(sock)
                except BlockingIOError:
                    pass
                except OSError:
                    ended.add(sock)
            equal(page.get("/healthz")[0] in (200, 503), True)  # others are served meanwhile
            return len(ended) == len(slow)
        wait_for(lambda: f"the end of {len(slow) - len(ended)} slow connections", all_ended, SLOW_S)
        for sock in slow:
            sock.close()


class CountingRelay(UnixRelay):
    """Counts the bytes that pass."""

    def __init__(self, path, target):
        self.passed_bytes = 0
        self.lock = threading.Lock()
        super().__init__(path, target)

    def move(self, source, target, passed):
        while data := source.recv(65536):
            with self.lock:
                self.passed_bytes += len(data)
            target.sendall(data)


def many_readers_cost_the_server_what_one_costs():
    with Case() as case, Cluster(case) as cluster:
        with CountingRelay(f"{case.dir}/relay.sock", f"{case.dir}/rendezvous.sock") as relay, Http(case, relay.address) as page:
            job = cluster.submit("--", "true")
            equal(cluster.ctl("wait", job).returncode, 0)
            wait_for("the first answer", lambda: page.metric("ddp_up") == 1)

            def read(count, seconds=0.0):
                """Reads each page so often, and goes on until so many seconds are over."""
                watch, done = Stopwatch(), 0
                while done < count or watch.passed_s < seconds:
                    page.ok("/")
                    page.ok("/metrics")
                    page.ok(f"/jobs/{job}")
                    done += 1
                return done

            def bytes_a_second(what):
                before, watch = relay.passed_bytes, Stopwatch()
                what()
                return (relay.passed_bytes - before) / watch.passed_s

            read(1)
            quiet = bytes_a_second(lambda: let_pass(BUSY_S))
            with concurrent.futures.ThreadPoolExecutor(100) as pool:
                busy = bytes_a_second(lambda: equal(sum(pool.map(read, [10] * 100, [BUSY_S] * 100)) >= 1000, True))
            assert busy < 3 * quiet, f"{busy:.0f} bytes/s with 100 readers, {quiet:.0f} with none"


def a_server_that_is_gone_is_said():
    with Case() as case, Cluster(case) as cluster, Http(case, cluster.address) as page:
        wait_for("health", lambda: page.get("/healthz")[0] == 200)
        cluster.kill_server()
        wait_for("the loss", lambda: page.metric("ddp_up") == 0)
        equal(page.get("/healthz")[::2], (503, "the server does not answer\n"))
        text = page.ok("/")
        assert "The server does not answer" in text and "What follows is old" in text, text[:500]
        equal(page.ok("/metrics").count("\nddp_"), 1)
        status, headers, _ = page.get("/jobs/1")
        equal((status, headers["Retry-After"]), (502, "5"))
        cluster.start_server()
        wait_for("the return", lambda: page.metric("ddp_up") == 1)
        equal(page.get("/healthz")[0], 200)


if __name__ == "__main__":
    run_and_exit([a_slow_reader_is_ended, pages_and_metrics_show_the_cluster, bad_requests_are_refused, odd_bytes_are_no_requests, hostile_names_are_text,
               a_key_is_wanted, pages_are_served_over_tls, a_server_that_is_gone_is_said, many_readers_cost_the_server_what_one_costs], side_by_side=3)
