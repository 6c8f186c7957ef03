"""A cluster in a folder of its own, for tests that kill its daemons, or a whole node, and start them again."""
import glob
import os
import re
import subprocess

from processes import proc
from processes.case import BUILD, Case, Cluster, Daemon, DDPCTL, program
from processes.waiting import LONG_S, wait_for, wait_gone


def digits_env():
    """The environment of now, with one thread a rank."""
    return {**{name: value for name, value in os.environ.items() if name != "DDP_SERVER"}, "OMP_NUM_THREADS": "1"}


class OwnCluster(Cluster):
    """`server` and `nodes` are its daemons. At the end all of them must end in order, and no process, socket, temporary file or run directory
    may be left. A command of ddpctl must succeed, unless `check` is false."""

    def __init__(self, nodes=2, slots=2, server_options=()):  # pylint: disable=super-init-not-called
        self.case = Case("ddp-own-")
        self.folder, self.build = self.case.dir, BUILD
        self.address = f"unix:{self.folder}/rendezvous.sock"
        self.server = self.daemon("server", [program("rendezvous"), "--socket", f"{self.folder}/rendezvous.sock", *server_options])
        self.nodes = [self.daemon(f"node{i}", [program("launcherd"), "--server", self.address, "--name", f"node{i}", "--slots", str(slots),
                                               "--allow-root"]) for i in range(nodes)]

    def daemon(self, name, argv):
        return Daemon([*argv, "--state-dir", f"{self.folder}/{name}"], f"{self.folder}/{name}.log", digits_env)

    def __enter__(self):
        self.server.start()
        for node in self.nodes:
            node.start()
        return self

    def ctl(self, *args, check=True):  # pylint: disable=arguments-differ
        done = subprocess.run([DDPCTL, "--server", self.address, *args], capture_output=True, text=True, timeout=LONG_S * 4, env=digits_env(),
                              cwd=self.folder, check=False)
        assert not check or done.returncode == 0, f"ddpctl {' '.join(args)}: exit {done.returncode}: {done.stderr}"
        return done

    def do(self, *args):  # pylint: disable=arguments-differ
        return self.ctl(*args).stdout

    def submit(self, *args):
        return int(super().submit(*args).split()[0])

    def wait_end(self, job):
        """The exit code of ddpctl wait."""
        return self.ctl("wait", str(job), check=False).returncode

    def wait_step(self, job, step, generation=1):
        """Its status when it has made that step, or has ended."""
        def reached():
            status = self.status(job)
            at_step = (status.get("progress") or {}).get("step") or 0
            return status if status["state"] in self.ended or (status["generation"] >= generation and at_step >= step) else None
        return wait_for(f"step {step} of job {job}", reached, LONG_S)

    def pids(self, job):
        return [rank["pid"] for rank in self.status(job)["ranks"] if rank["state"] == "running"]

    def processes(self):
        """Every process with our folder in its command line or environment: (pid, command)."""
        return [(pid, " ".join(proc.command_of(pid))) for pid in self.case.processes()]

    def processes_of(self, index):
        """All processes of that node: launcherd, shims, workers."""
        mark = f"{self.folder}/node{index}".encode()
        found = {self.nodes[index].pid}
        for pid in self.case.processes():
            words = (proc.read(pid, "cmdline") + b"\0" + proc.read(pid, "environ")).replace(b"=", b"\0").split(b"\0")
            if any(word == mark or word.startswith(mark + b"/") for word in words):
                found.add(pid)
        return sorted(found)

    def signal_node(self, index, number):
        pids = self.processes_of(index)
        for pid in pids:
            proc.kill_if_there(pid, number)
        return pids

    def kill_node(self, index):
        """Kills all processes of a node at once, like a kernel crash; self.nodes[index].start() starts it again."""
        pids = self.signal_node(index, 9)
        self.nodes[index].wait()
        wait_gone("the end of the node's processes", *pids, patience_s=LONG_S)

    def run_dirs(self):
        return glob.glob(f"{self.folder}/node*/run/*")

    def __exit__(self, kind, *rest):
        try:
            if kind is None:  # they go soon after the job's end
                wait_for(lambda: f"the run directories to go: {self.run_dirs()}", lambda: not self.run_dirs(), LONG_S)
            codes = [self.end_of(daemon) for daemon in [*self.nodes, self.server]]
            if kind is None:
                assert all(code == 0 for code in codes), f"daemons ended with {codes}"
                left = [os.path.join(where, name) for where, _, names in os.walk(self.folder) for name in names
                        if name.endswith((".sock", ".tmp", ".new")) or "/run/" in where]
                assert not left, f"left behind: {left}"
            else:
                for daemon in [self.server, *self.nodes]:
                    print(f"--- {daemon.log_path}\n" + "".join(daemon.log().splitlines(True)[-40:]), flush=True)
        finally:
            self.case.__exit__(kind, *rest)

    @staticmethod
    def end_of(daemon):
        """Its exit code; None if it was never started."""
        return daemon.end() if daemon.is_up() else daemon.process and daemon.process.returncode


def losses(cluster, job, generation):
    """The losses by step, as rank 0 of that generation has printed them, and the step that it resumed from. Steps are counted from the start."""
    log = cluster.do("logs", str(job), "--rank", "0", "-g", str(generation))
    resumed = re.search(r"resumed at step (\d+)", log)
    lines = re.findall(r"Epoch \[(\d+)/\d+\], Step \[(\d+)/(\d+)\], Loss: ([0-9.e+-]+),", log)
    return ({(int(epoch) - 1) * int(steps) + int(step): loss for epoch, step, steps, loss in lines}, int(resumed.group(1)) if resumed else 0)


def nodes_of(status):
    return [rank["node"] for rank in sorted(status["ranks"], key=lambda rank: rank["rank"])]


def warm_processes(cluster):
    """Workers that were started without a rank: {pid: name of the node}. Some may have got a rank since."""
    found = {}
    for pid in cluster.case.processes():
        environ = dict(entry.partition(b"=")[::2] for entry in proc.environ_of(pid))
        if b"DDP_WARM_FD" in environ:
            found[pid] = environ[b"DDP_NODE_NAME"].decode()
    return found


def warm_parents(cluster):
    """The processes that start warm workers: `launcherd --warm`."""
    return [pid for pid, command in cluster.processes() if command.startswith("launcherd --warm ")]
