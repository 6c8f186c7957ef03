"""A cluster of real daemons on unix sockets in a temporary folder, for tests that kill them."""

import contextlib
import glob
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

PATIENCE_S = 120  # generous: for slow machines, never for synchronisation


def digits_env():
    env = dict(os.environ)
    env["OMP_NUM_THREADS"] = "1"
    env.pop("DDP_SERVER", None)
    return env


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


def wait_until(condition, what, patience_s=PATIENCE_S):
    """Polls the state of processes and files, for which there are no events."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        select.select([], [], [], 0.01)
    raise AssertionError(f"waited {patience_s} s for {what}")


class Daemon:
    """One of our daemons; its ready line has been read."""

    def __init__(self, argv, log, word):
        self.argv, self.log, self.word = argv, log, word
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.argv, stdout=subprocess.PIPE, stderr=log,
                                            stdin=subprocess.DEVNULL, env=digits_env())
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        line = self.process.stdout.readline().decode() if ready else ""
        if self.word not in line:
            raise AssertionError(f"{self.argv[0]} said {line!r}, not {self.word!r}; see {self.log}")
        return self

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process is not None:
            self.process.stdout.close()
        return self.process.returncode


class Cluster:
    def __init__(self, build, nodes=2, slots=2, server_options=()):
        self.build = os.path.abspath(build)
        self.folder = tempfile.mkdtemp(prefix="ddp-faults-")
        self.address = f"unix:{self.folder}/rendezvous.sock"
        self.server = Daemon([f"{self.build}/rendezvous/rendezvous", "--state-dir",
                              f"{self.folder}/server", "--socket", f"{self.folder}/rendezvous.sock",
                              *server_options], f"{self.folder}/server.log", "ready")
        self.nodes = [
            Daemon([f"{self.build}/launcherd/launcherd", "--server", self.address, "--name",
                    f"node{i}", "--slots", str(slots), "--state-dir", f"{self.folder}/node{i}",
                    "--allow-root"],
                   f"{self.folder}/node{i}.log", "ready") for i in range(nodes)]

    def __enter__(self):
        self.server.start()
        for node in self.nodes:
            node.start()
        return self

    def ctl(self, *args, check=True):
        done = subprocess.run([f"{self.build}/ddpctl/ddpctl", "--server", self.address, *args],
                              capture_output=True, text=True, timeout=PATIENCE_S * 4,
                              env=digits_env(), cwd=self.folder, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"ddpctl {' '.join(args)}: exit {done.returncode}: {done.stderr}")
        return done

    def submit(self, *args):
        return int(self.ctl("submit", *args).stdout.split()[0])

    def status(self, job):
        return json.loads(self.ctl("status", str(job), "--json").stdout)["job"]

    def wait_end(self, job):
        return self.ctl("wait", str(job), check=False).returncode

    def wait_step(self, job, step, generation=1):
        def reached():
            status = self.status(job)
            done = status["state"] in ("succeeded", "failed", "cancelled")
            at_step = (status.get("progress") or {}).get("step") or 0
            return status if done or (status["generation"] >= generation and at_step >= step) else None
        return wait_until(reached, f"step {step} of job {job}")

    def pids(self, job):
        return [rank["pid"] for rank in self.status(job)["ranks"] if rank["state"] == "running"]

    def processes(self):
        """Every process with our folder in its command line or environment."""
        found = []
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    command = file.read()
                with open(f"/proc/{name}/environ", "rb") as file:
                    environment = file.read()
            except OSError:
                continue
            if (self.folder.encode() in command or self.folder.encode() in environment) and \
                    is_alive(int(name)):
                found.append((int(name), command.replace(b"\0", b" ").decode(errors="replace")))
        return found

    def processes_of(self, index):
        """All processes of that node: launcherd, shims, workers."""
        mark = f"{self.folder}/node{index}".encode()
        found = {self.nodes[index].process.pid}
        for pid, _ in self.processes():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as command, open(f"/proc/{pid}/environ", "rb") as environment:
                    words = (command.read() + b"\0" + environment.read()).replace(b"=", b"\0").split(b"\0")
            except OSError:
                continue
            if any(word == mark or word.startswith(mark + b"/") for word in words):
                found.add(pid)
        return sorted(found)

    def signal_node(self, index, number):
        pids = self.processes_of(index)
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        return pids

    def kill_node(self, index):
        """Kills all processes of a node at once, like a kernel crash; self.nodes[index].start() starts it again."""
        pids = self.signal_node(index, signal.SIGKILL)
        self.nodes[index].process.wait(PATIENCE_S)
        self.nodes[index].process.stdout.close()
        wait_until(lambda: not any(is_alive(pid) for pid in pids), "the end of the node's processes")

    def run_dirs(self):
        return glob.glob(f"{self.folder}/node*/run/*")

    def __exit__(self, kind, value, trace):
        if kind is None:  # they go soon after the job's end
            wait_until(lambda: not self.run_dirs(), "the run directories to go")
        codes = [daemon.stop() for daemon in [*self.nodes, self.server]]
        try:
            if kind is None:
                assert all(code == 0 for code in codes), f"daemons ended with {codes}"
                wait_until(lambda: not self.processes(), "the end of all processes")
                left = [os.path.join(where, name) for where, _, names in os.walk(self.folder)
                        for name in names
                        if name.endswith((".sock", ".tmp", ".new")) or "/run/" in where]
                assert not left, f"left behind: {left}"
            else:
                for name in os.listdir(self.folder):
                    if name.endswith(".log"):
                        with open(f"{self.folder}/{name}", encoding="utf-8", errors="replace") as log:
                            print(f"--- {name}\n" + "".join(log.readlines()[-40:]))
        finally:
            for pid, _ in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shutil.rmtree(self.folder, ignore_errors=True)


def losses(cluster, job, generation):
    """The losses by step, as rank 0 of that generation has printed them, and the step that it resumed from. Steps are counted from the start."""
    log = cluster.ctl("logs", str(job), "--rank", "0", "-g", str(generation)).stdout
    resumed = re.search(r"resumed at step (\d+)", log)
    lines = re.findall(r"Epoch \[(\d+)/\d+\], Step \[(\d+)/(\d+)\], Loss: ([0-9.e+-]+),", log)
    return ({(int(epoch) - 1) * int(steps) + int(step): loss for epoch, step, steps, loss in lines}, int(resumed.group(1)) if resumed else 0)


def nodes_of(status):
    return [rank["node"] for rank in sorted(status["ranks"], key=lambda rank: rank["rank"])]


def wait_status(cluster, job, condition, what):
    def reached():
        status = cluster.status(job)
        assert status["state"] not in ("failed", "succeeded", "cancelled"), f"{status['state']}: {status['reason']}"
        return status if condition(status) else None
    return wait_until(reached, what)
