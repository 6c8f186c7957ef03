"""A temporary folder with ddpctl, and clusters in it."""
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from edge import Edge
from processes import proc
from processes.waiting import LONG_S, PATIENCE_S, read_line, Stopwatch, wait_for


def find_build():
    """$BUILD_ROOT; the test's first argument, or the build of the program that it names; the source tree's build."""
    if "BUILD_ROOT" in os.environ:
        return os.path.abspath(os.environ["BUILD_ROOT"])
    named = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
    if os.path.isdir(named):
        return named
    if os.path.isfile(named):
        return os.path.dirname(os.path.dirname(named))
    return os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..", "build"))


BUILD = find_build()
GATED = threading.Lock()  # one gated clock at a time: the driver of one would hold the other's time, as all children of the test do
LEFT_S = 40  # less than the lease of 60 s, after which what was forgotten would end by itself
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup, and ddpctl leaves it so


def program(name, build=BUILD):
    return os.path.join(build, name, name)


DDPCTL = program("ddpctl")
EDGE = os.environ.get("EDGE_LIBRARY", os.path.join(BUILD, "tests", "lib", "edge", "libedge.so"))


def clean_environ(**more):
    return {**{name: value for name, value in os.environ.items() if not name.startswith("DDP_")}, **more}


class Case:
    """A temporary folder. At the end none of our temporary files may be left, and no process that names the folder.
    `gated`: the daemons and ddpctl have the gated clock of tests/lib/edge.py, so that what waits long ends soon."""

    def __init__(self, prefix="ddp-case-", gated=False):
        self.edge, self.preload, self.now = None, {}, time.monotonic
        if gated:
            GATED.acquire()
            self.edge = Edge(EDGE).__enter__()
            self.edge.clock()
            self.preload, self.now = self.edge.env, self.edge.now
        self.dir = os.path.realpath(tempfile.mkdtemp(prefix=prefix))
        self.temp = os.path.join(self.dir, "tmp")
        os.mkdir(self.temp)

    def __enter__(self):
        return self

    def watch(self):
        return Stopwatch(self.now)

    def __exit__(self, kind, *rest):
        try:
            self.clean_up(kind is None)
        finally:
            if self.edge is not None:
                self.edge.__exit__()
                GATED.release()

    def clean_up(self, is_good):
        problem = None
        if is_good:
            try:
                wait_for("the end of all processes", lambda: not self.processes(), LEFT_S)
            except AssertionError:
                problem = f"processes are left: {[(pid, proc.command_of(pid)) for pid in self.processes()]}"
            if temps := os.listdir(self.temp):
                problem = f"temporary files are left: {temps}"
        for pid in self.processes():
            proc.kill_if_there(pid)
        shutil.rmtree(self.dir, ignore_errors=True)
        assert not problem, problem

    def processes(self):
        """Processes with our folder in their command line or environment, except this one and zombies."""
        return [pid for pid in proc.with_text(self.dir) if proc.is_alive(pid)]

    def environ(self, **more):
        return clean_environ(**{"TMPDIR": self.temp, "XDG_CONFIG_HOME": f"{self.dir}/config", **self.preload, **more})

    def ctl(self, *args, raw=False, timeout=PATIENCE_S, **more):
        """Runs ddpctl to its end; .returncode, .stdout, .stderr (bytes with raw=True)."""
        return subprocess.run([DDPCTL, *args], env=self.environ(**more), capture_output=True, text=not raw, stdin=subprocess.DEVNULL, timeout=timeout)

    def start(self, *args, **more):
        return subprocess.Popen([DDPCTL, *args], env=self.environ(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                text=True)


class Daemon:
    """One of our daemons, which can be started again. `environ`: its environment, or a function that makes it when it starts; None: the test's."""

    def __init__(self, argv, log, environ=None):
        self.argv, self.log_path, self.environ = argv, log, environ
        self.process, self.line = None, ""

    def begin(self):
        with open(self.log_path, "ab") as log:
            environ = self.environ() if callable(self.environ) else self.environ
            self.process = subprocess.Popen(self.argv, env=environ, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL)
        return self

    def ready(self):
        """Its ready line."""
        self.line = read_line(self.process, f"the ready line of {self.argv[0]}", LONG_S)
        assert " ready " in self.line, f"{self.argv[0]} said {self.line!r}, not that it is ready\n{self.log()}"
        return self.line

    def start(self):
        self.begin().ready()
        return self

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    @property
    def pid(self):
        return self.process.pid

    def is_up(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, patience_s=LONG_S):
        """Its exit code, when it has ended. Popen.wait would sleep between looks, and a gated clock leap meanwhile."""
        if self.process.returncode is None:
            handle = os.pidfd_open(self.pid)
            select.select([handle], [], [], patience_s)
            os.close(handle)
        code = self.process.wait(0)
        self.process.stdout.close()
        return code

    def kill(self):
        self.process.kill()
        return self.wait()

    def end(self):
        """Ends it in order. Returns its exit code."""
        self.process.terminate()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise


class Cluster:
    """rendezvous and launcherds of a Case, on a unix socket. They end with the test's process, whatever becomes of it."""

    ended = ("succeeded", "failed", "cancelled")

    def __init__(self, case, nodes=1, slots=4, server_options=()):
        self.case, self.server_options = case, server_options
        self.address = f"unix:{case.dir}/rendezvous.sock"
        self.daemons = {}
        self.start_server()
        for i in range(nodes):
            self.start_node(f"node{i}", slots)

    def start_server(self):
        self.launch("rendezvous", "rendezvous", "--socket", f"{self.case.dir}/rendezvous.sock", *self.server_options)

    def start_node(self, name, slots=4, *args, **environ):
        return self.launch(name, "launcherd", "--server", self.address, "--name", name, "--slots", str(slots), "--allow-root", *args, **environ)

    def launch(self, name, which, *args, prefix=(), state=None, outlives=False, ready=True, **environ):
        """`prefix`: a command that runs it. `state`: its state directory. `outlives`: it does not end with the test's process. `ready`: waits for
        its ready line."""
        argv = [*prefix, program(which), *args, "--state-dir", state or f"{self.case.dir}/{name}", *(() if outlives else ["--exit-with-parent"])]
        daemon = self.daemons[name] = Daemon(argv, f"{self.case.dir}/{name}.log", clean_environ(**self.case.preload, **environ)).begin()
        if ready:
            daemon.ready()
        return daemon

    def kill_machine(self, name):
        """Kills the launcherd of that name, and all processes of its node."""
        self.daemons.pop(name).kill()
        for pid in self.case.processes():
            if f"{self.case.dir}/{name}/" in " ".join(proc.command_of(pid)):
                proc.kill_if_there(pid)

    def kill_server(self):
        self.daemons["rendezvous"].kill()

    def ctl(self, *args, **more):
        return self.case.ctl("--server", self.address, *args, **more)

    def do(self, *args, **more):
        """What ddpctl prints; it must succeed."""
        done = self.ctl(*args, **more)
        assert done.returncode == 0, f"ddpctl {' '.join(args)}: exit {done.returncode}: {done.stderr}"
        return done.stdout

    def submit(self, *args):
        return self.do("submit", *args).strip()

    def status(self, job):
        return json.loads(self.do("status", str(job), "--json"))["job"]

    def wait_status(self, job, accept, what, patience_s=PATIENCE_S):
        """The first status that is accepted. It fails when the job has ended without one."""
        def look():
            seen = self.status(job)
            found = accept(seen)
            assert found or seen["state"] not in self.ended, f"job {job} is {seen['state']}, not as wanted: {what}: {seen}"
            return seen if found else None
        return wait_for(what, look, patience_s)

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        for daemon in reversed(list(self.daemons.values())):
            if daemon.is_up():
                daemon.signal(signal.SIGTERM)
        for daemon in self.daemons.values():
            if daemon.is_up():
                try:
                    daemon.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    daemon.kill()


def write_file(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
