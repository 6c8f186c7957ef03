"""Shared by the tests of ddpctl: running it, a private cluster, and a check that nothing is left behind."""
import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from unix_relay import Relay, UnixRelay  # noqa: E402, F401  pylint: disable=unused-import,wrong-import-position

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup, and ddpctl leaves it so

BUILD = os.environ.get("BUILD_ROOT", sys.argv[1] if len(sys.argv) > 1 else "build")
DDPCTL = os.path.join(BUILD, "ddpctl", "ddpctl")
WAIT_S = 60


def clean_environ(**more):
    environ = {k: v for k, v in os.environ.items() if not k.startswith("DDP_")}
    environ.update(more)
    return environ


def ptrace_scope():
    """Yama's setting; above 0, only root may inspect processes that are not its children."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as scope:
            return int(scope.read())
    except FileNotFoundError:  # a kernel without Yama
        return 0


LEFT_S = 40  # less than the lease of 60 s, after which what was forgotten would end by itself


class Case:
    """A temporary directory. At the end none of our files may be left, and no process that names the directory."""

    def __init__(self):
        self.dir = os.path.realpath(tempfile.mkdtemp(prefix="ddp-ctl-"))
        self.temp = os.path.join(self.dir, "tmp")
        os.mkdir(self.temp)

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        patience = time.monotonic() + (LEFT_S if kind is None else 0)
        while (left := self.processes()) and time.monotonic() < patience:  # processes that were told to end may need a moment
            time.sleep(0.02)
        temps = os.listdir(self.temp)
        for pid in left:
            kill_if_there(pid)
        shutil.rmtree(self.dir, ignore_errors=True)
        if kind is None:
            assert not left, f"processes are left: {left}"
            assert not temps, f"temporary files are left: {temps}"

    def processes(self):
        """Processes with our directory in their command line or environment, except this one."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/cmdline", "rb") as f:
                    text = f.read()
                with open(f"/proc/{name}/environ", "rb") as f:
                    text += f.read()
            except OSError:
                continue
            if self.dir.encode() in text and int(name) != os.getpid():
                found.append(int(name))
        return found

    def environ(self, **more):
        return clean_environ(**{"TMPDIR": self.temp, "XDG_CONFIG_HOME": f"{self.dir}/config", **more})

    def ctl(self, *args, **more):
        """Runs ddpctl to its end; .returncode, .stdout, .stderr (bytes with raw=True)."""
        raw = more.pop("raw", False)
        timeout = more.pop("timeout", WAIT_S)
        return subprocess.run([DDPCTL, *args], env=self.environ(**more), capture_output=True, text=not raw,
                              stdin=subprocess.DEVNULL, timeout=timeout)

    def start(self, *args, **more):
        return subprocess.Popen([DDPCTL, *args], env=self.environ(**more), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)


class Cluster:
    """rendezvous and launcherds of a Case, on a unix socket."""

    def __init__(self, case, nodes=1, slots=4, server_options=()):
        self.case = case
        self.server_options = server_options
        self.server = f"unix:{case.dir}/rendezvous.sock"
        self.daemons = {}
        self.start_server()
        for i in range(nodes):
            self.launch(f"node{i}", "launcherd", "--server", self.server, "--name", f"node{i}", "--slots", str(slots),
                        "--allow-root")

    def start_server(self):
        self.launch("rendezvous", "rendezvous", "--socket", f"{self.case.dir}/rendezvous.sock", *self.server_options)

    def launch(self, name, program, *args, **environ):
        log = open(f"{self.case.dir}/{name}.log", "ab")
        daemon = subprocess.Popen([os.path.join(BUILD, program, program), *args, "--state-dir",
                                   f"{self.case.dir}/{name}", "--exit-with-parent"],
                                  env=clean_environ(**environ), stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL)
        log.close()
        assert daemon.stdout.readline(), f"{name} did not get ready"
        self.daemons[name] = daemon

    def ctl(self, *args, **more):
        return self.case.ctl("--server", self.server, *args, **more)

    def submit(self, *args):
        done = self.ctl("submit", *args)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def status(self, job):
        done = self.ctl("status", job, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["job"]

    def kill_server(self):
        self.daemons["rendezvous"].kill()
        self.daemons["rendezvous"].wait()

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        for daemon in reversed(list(self.daemons.values())):
            daemon.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
            daemon.stdout.close()


def kill_if_there(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has ended meanwhile
        pass


def command_of(pid):
    """The words of its command line; none if it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode().split("\0")
    except (FileNotFoundError, ProcessLookupError):  # the second: it ended after open
        return []


def wait_until(what, condition, patience_s=WAIT_S):
    """Waits until `condition` returns a true value, and returns it."""
    end = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.01)
    return found


def equal(actual, expected, about=""):
    assert actual == expected, f"{actual!r} is not {expected!r} {about}"


def run_test(test):
    """Runs a test. Returns None, or the failure."""
    begin = time.monotonic()
    try:
        test()
    except Exception as error:  # pylint: disable=broad-except
        print(f"not ok {test.__name__}: {type(error).__name__}: {error}", flush=True)
        return test
    print(f"ok {test.__name__} {time.monotonic() - begin:.2f} s", flush=True)
    return None


def run_tests(tests, side_by_side=1):
    """`side_by_side`: how many tests run at a time, each with a Case of its own; for tests that mostly wait."""
    with concurrent.futures.ThreadPoolExecutor(side_by_side) as pool:
        sys.exit(1 if any(pool.map(run_test, tests)) else 0)
