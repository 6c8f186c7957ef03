"""launcherd with a scripted server, in a folder."""
import json
import os
import shutil
import signal
import tempfile
import time

from edge import Edge
from processes import proc
from processes.case import Daemon, EDGE
from processes.server import CLUSTER, Server
from processes.waiting import LONG_S, Stopwatch, wait_for, wait_gone


class Node(Daemon):
    """launcherd as a process."""

    def __init__(self, launcherd, folder, slots=4, name="node0", extra=("--allow-root",), environ=None):
        self.folder, self.name = folder, name
        super().__init__([launcherd, "--server", f"unix:{folder}/server.sock", "--name", name, "--slots", str(slots),
                          "--state-dir", f"{folder}/{name}", *extra], f"{folder}/{name}.log", environ)

    def end(self):
        """SIGTERM; the exit code."""
        return super().end() if self.is_up() else self.wait()

    def run_dir(self, job, generation, cluster=CLUSTER):
        return f"{self.folder}/{self.name}/run/{cluster}-{job}-g{generation}"

    def log_dir(self, job, cluster=CLUSTER):
        return f"{self.folder}/{self.name}/logs/{cluster}-{job}"

    def shim(self, job, generation):
        with open(self.run_dir(job, generation) + "/shim.json", encoding="utf-8") as file:
            return json.load(file)


def token_holders(token):
    """Processes that carry this token in their environment."""
    return [pid for pid in proc.pids() if f"DDP_JOB_TOKEN={token}".encode() in proc.read(pid, "environ")]


def shims_below(folder):
    """Shims that were started with a run directory in the folder."""
    return [pid for pid in proc.pids() if (words := proc.command_of(pid))[1:2] == ["--shim"] and words[2].startswith(f"{folder}/")]


class World:
    """A folder, a server and a node. At the end it checks that everything is gone."""

    def __init__(self, launcherd, gated=False, **server):
        """`gated`: launcherd and its shims have the gated clock of tests/lib/edge.py, by which `now`, `watch` and the server's notes go. Ranks, which
        have the real one, should wait for events: while they sleep, hours may pass for the others."""
        self.edge = Edge(EDGE) if gated else None
        self.now = time.monotonic
        if gated:
            self.edge.__enter__().clock()
            self.now = self.edge.now
        self.folder = tempfile.mkdtemp(prefix="ddp-node-")
        self.server = Server(f"{self.folder}/server.sock", now=self.now, **server)
        self.launcherd = launcherd
        self.nodes = []
        self.tokens = set()

    def environ(self):
        if self.edge is None:
            return None
        return {**os.environ, **self.edge.env, "LD_PRELOAD": f"{self.edge.env['LD_PRELOAD']} {os.environ.get('LD_PRELOAD', '')}".strip()}

    def watch(self):
        return Stopwatch(self.now)

    def sleep_until(self, at):
        """Until just after that time of the gated clock."""
        self.edge.sleep(max(0, at - self.now()) + 0.01)

    def node(self, **more):
        self.nodes.append(Node(self.launcherd, self.folder, environ=self.environ(), **more))
        return self.nodes[-1].start()

    def note_token(self, node, job, generation):
        shim = node.shim(job, generation)
        self.tokens.add(shim["token"])
        return shim

    def forget(self, node, job, generation):
        """Sends `forget`, and waits until the shim's process, its folder and its descendants are gone."""
        shim = self.note_token(node, job, generation)
        self.server.forget(job, generation)
        wait_for("the end of the run directory", lambda: not os.path.exists(node.run_dir(job, generation)), LONG_S)
        wait_gone("the end of the shim", shim["pid"], patience_s=LONG_S)
        assert token_holders(shim["token"]) == []

    def close(self):
        for node in self.nodes:
            if node.is_up():
                code = node.end()
                assert code == 0, f"launcherd's exit code is {code}\n{node.log()}"
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
        try:
            if kind is None:
                self.close()
            else:
                self.give_up()
        finally:
            if self.edge is not None:
                self.edge.__exit__()

    def give_up(self):
        """After a failure: shows the logs, and ends all."""
        for node in self.nodes:
            if node.is_up():
                node.process.kill()
            print(f"--- {node.name}:\n{node.log()}", flush=True)
        for pid in [*shims_below(self.folder), *(holder for token in self.tokens for holder in token_holders(token))]:
            proc.kill_if_there(pid)  # also if its folder is gone
        for folder, _, files in os.walk(self.folder):
            for name in files:
                self._clean_up(os.path.join(folder, name))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _clean_up(self, path):
        name = os.path.basename(path)
        if name == "shim.json":
            with open(path, encoding="utf-8") as file:
                shim = json.load(file)
            for pid in [shim["pid"], *token_holders(shim["token"])]:
                proc.kill_if_there(pid)
            if shim.get("cgroup") and os.path.exists(shim["cgroup"] + "/cgroup.kill"):
                with open(shim["cgroup"] + "/cgroup.kill", "w", encoding="ascii") as file:
                    file.write("1")
        if name.startswith("shim-g"):
            with open(path, errors="replace", encoding="utf-8") as file:
                print(f"--- {name}:\n{file.read()}", flush=True)
