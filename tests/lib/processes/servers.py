"""Several servers on an etcd: the processes, and threads that watch them."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from processes import proc, wire
from processes.case import Daemon
from processes.etcd import Etcd, Links, wait_for
from processes.runner import run_test
from processes.waiting import LONG_S

WORK_S = 5 * LONG_S  # for computations, and for many jobs that wait in the queue, on a busy machine
NO_ANSWER = (OSError, wire.Closed, wire.Refused, KeyError)  # also if another server leads now
ANSWER_S = 0.5  # a server that does not answer a probe within this time counts as stopped


class Member(Daemon):
    """A daemon whose log is read from its last start on."""

    log_begin = 0

    def begin(self):
        self.log_begin = os.path.getsize(self.log_path) if os.path.exists(self.log_path) else 0
        return super().begin()

    def said(self):
        """Its log since it was started, or since it began again as a standby."""
        with open(self.log_path, "rb") as log:
            log.seek(self.log_begin)
            return log.read().decode().rsplit("starting again as a standby", 1)[-1]

    def end_by(self, number):
        """Its exit code."""
        if self.is_up():
            self.signal(number)
            self.signal(signal.SIGCONT)
            self.wait()
        return None if self.process is None else self.process.returncode


class Server(Member):
    """One rendezvous; it keeps its port when it is started again."""

    def __init__(self, build, folder, i, etcd, options):
        self.links = Links(etcd.scheme, etcd.client_ports())
        super().__init__([build + "/rendezvous/rendezvous", "--state-dir", "%s/s%d" % (folder, i), "--listen",
                          "127.0.0.1:0", "--store", self.links.url, *etcd.options, *options], "%s/server%d.log" % (folder, i))
        self.begin()
        self.address = self.ready().split()[3]
        # the address for clients without a key
        self.asked = "unix:%s/s%d/rendezvous.sock" % (folder, i) if "--require-key" in options else self.address
        self.argv[self.argv.index("--listen") + 1] = self.address


class Seen:
    """The tokens in all answers: they must never go back. A token must be at least the newest one seen when its request was sent."""

    def __init__(self):
        self.lock = threading.Condition()
        self.token, self.first_at, self.problem = 0, {}, None
        self.leader, self.forgotten = None, None

    def newest(self):
        with self.lock:
            return self.token

    def add(self, newest_at_request, token, who):
        with self.lock:
            if self.forgotten == (who, token):
                return
            if token < newest_at_request:
                self.problem = "%s acted with token %d although %d had been seen before" % (who, token, newest_at_request)
            if token > self.token:
                self.token, self.leader = token, who
                self.first_at[token] = time.monotonic()
                self.lock.notify_all()

    def forget(self):
        """When etcd is restored to an earlier state, its revisions go back, and tokens with them. Until the leader knows, it answers
        with its token for a while; these answers do not count."""
        with self.lock:
            self.forgotten, self.token = (self.leader, self.token), 0

    def does_not_lead(self, who):
        with self.lock:
            if self.forgotten and self.forgotten[0] == who:
                self.forgotten = None

    def wait_above(self, token):
        with self.lock:
            assert self.lock.wait_for(lambda: self.token > token or self.problem, LONG_S), "nobody leads"
            return self.first_at.get(self.token)


class Probe(threading.Thread):
    """Asks one server repeatedly whether it leads."""

    def __init__(self, server, seen):
        super().__init__(daemon=True)
        self.server, self.seen, self.is_ending, self.leads_with = server, seen, False, 0
        self.start()

    def run(self):
        while not self.is_ending:
            newest = self.seen.newest()
            self.leads_with = self.ask(newest)
            time.sleep(0.02)  # sets the rate

    def ask(self, newest):
        try:
            with wire.Client(self.server.asked, ANSWER_S) as client:
                token = client.ask("server_get", request_id=1)["token"]
        except NO_ANSWER:
            self.seen.does_not_lead(self.server.address)
            return 0
        self.seen.add(newest, token, self.server.address)
        return token


class Submitter(threading.Thread):
    """Submits small jobs. If an answer is lost, the submit is repeated with the same request id until it is answered."""

    def __init__(self, servers, folder, every_s):
        super().__init__(daemon=True)
        self.servers, self.folder, self.every_s = servers, folder, every_s
        self.acked, self.is_ending, self.problem = {}, False, None
        self.turn = threading.Lock()  # held during one submit, until it is answered
        self.start()

    def run(self):
        while not self.is_ending:
            with self.turn:
                self.submit(wire.request_id())
            time.sleep(self.every_s)  # sets the rate

    def pause(self):
        """Returns once the pending submit is answered; no other follows."""
        self.turn.acquire()

    def go_on(self):
        self.turn.release()

    def submit(self, request):
        argv = ["/bin/sh", "-c", "echo %s >> %s/ran" % (request, self.folder)]
        for attempt in range(10000):
            server = self.servers[attempt % len(self.servers)]
            try:
                with wire.Client(server.asked, 2) as client:
                    job = client.submit(request, name=request, argv=argv)["job_id"]
            except NO_ANSWER:
                time.sleep(0.02)  # between two tries
                continue
            self.acked[request] = job
            return
        self.problem = "request %s was never answered" % request


def all_jobs(client):
    jobs, more = [], True
    while more:
        page = client.ask("job_list", all=True, after_id=jobs[-1]["job_id"] if jobs else 0, limit=500)
        jobs, more = jobs + page["jobs"], page["more"]
    return jobs


def count_servers(cluster):
    """The number of servers that the leader sees: those whose lease in etcd is alive."""
    try:
        with cluster.client() as client:
            return len(client.ask("server_get", request_id=1)["servers"])
    except NO_ANSWER:
        return 0  # another server leads now


class Cluster:
    def __init__(self, build, options=(), servers=3, nodes=2, every_s=0.01, fill=None, make_etcd=Etcd):
        if shutil.which("etcd") is None:
            print("skipped: etcd is not installed (Debian: etcd-server)")
            sys.exit(77)
        self.build, self.folder = build, tempfile.mkdtemp(prefix="ddp-ha-")
        self.servers, self.probes, self.nodes, self.submitter = [], [], [], None
        self.etcd = make_etcd(self.folder)
        try:
            self.start(options, servers, nodes, fill)
        except BaseException:
            self.close()
            raise
        self.submitter = Submitter(self.servers, self.folder, every_s)

    def start(self, options, servers, nodes, fill):
        if fill is not None:
            fill(self.etcd)
        for i in range(servers):
            self.servers.append(Server(self.build, self.folder, i, self.etcd, options))
        self.seen = Seen()
        self.probes = [Probe(server, self.seen) for server in self.servers]
        self.seen.wait_above(0)
        self.list = ",".join(server.asked for server in self.servers)
        for i in range(nodes):
            self.nodes.append(Member(
                [self.build + "/launcherd/launcherd", "--server", self.list, "--name", "n%d" % i, "--slots", "4", "--allow-root",
                 "--state-dir", "%s/n%d" % (self.folder, i)], "%s/node%d.log" % (self.folder, i)).begin())
        for node in self.nodes:
            node.ready()

    def leader(self):
        def find():
            token = self.seen.newest()
            for server, probe in zip(self.servers, self.probes):
                if probe.leads_with == token:
                    return server
            return None
        return wait_for("a server leads", find)

    def check(self):
        for problem in (self.seen.problem, self.submitter.problem):
            assert problem is None, problem

    def client(self):
        return wire.Client(self.leader().asked)

    def ran(self):
        """The small jobs that have started, in order."""
        try:
            with open(self.folder + "/ran", encoding="ascii") as lines:
                return lines.read().split()
        except FileNotFoundError:
            return []

    def check_jobs(self, training=None):
        """Checks that each acknowledged small job is stored once and ran once; `training` need not have ended. Returns all jobs by name."""
        submitter = self.submitter
        submitter.is_ending = True
        submitter.join(LONG_S)
        self.check()

        def ended():
            try:
                with self.client() as client:
                    jobs = all_jobs(client)
            except NO_ANSWER:
                return None
            return jobs if all(job["ended"] for job in jobs if job["job_id"] != training) else None

        by_name = {}
        for job in wait_for("all jobs have ended", ended, WORK_S):
            by_name.setdefault(job["name"], []).append(job)
        for request, number in submitter.acked.items():
            found = by_name.get(request, [])
            assert [job["job_id"] for job in found] == [number], "%s: answered %d, stored %s" % (request, number, found)
            assert found[0]["state"] == "succeeded", found
        begun = self.ran()
        assert sorted(begun) == sorted(submitter.acked), "ran %d times, answered %d" % (len(begun), len(submitter.acked))
        return by_name

    def ctl(self, *words, servers=None, patience_s=LONG_S):
        return subprocess.run([self.build + "/ddpctl/ddpctl", "--server", servers or self.list, *words],
                              capture_output=True, text=True, timeout=patience_s, check=False)

    def end_shims(self):
        """Kills the shims of jobs that still run: they would wait for a server that will not come back. Their workers end with them."""
        for pid in proc.pids():
            if "--shim\0" + self.folder in "\0".join(proc.command_of(pid)):
                proc.kill_if_there(pid)

    def close(self):
        if self.submitter is not None:
            self.submitter.is_ending = True
        for probe in self.probes:
            probe.is_ending = True
        for daemon in self.nodes + self.servers:
            daemon.end_by(signal.SIGKILL if daemon in self.servers else signal.SIGTERM)
        self.end_shims()
        for server in self.servers:
            server.links.close()
        self.etcd.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def run_tests(cluster, tests):
    """Runs each test, then checks the servers. Returns how many tests failed; a failure does not stop the others."""
    def checked(test):
        def run(given):
            test(given)
            given.check()
        run.__name__ = test.__name__
        return run
    return sum(run_test(checked(test), cluster) for test in tests)
