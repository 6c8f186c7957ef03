"""The faults: a seed determines their schedule; each is then applied to the processes that run at that moment."""

import contextlib
import heapq
import os
import random
import resource
import signal

from chaos_cluster import NODES
from processes.waiting import Stopwatch

# The relative frequency of each fault.
WEIGHTS = {
    "kill server": 8, "stop server": 6, "kill launcherd": 8, "stop launcherd": 6, "kill shim": 8, "stop shim": 6,
    "kill worker": 12, "kill script": 12, "stop worker": 8, "kill node": 4, "fill disk": 6, "few files server": 4, "few files launcherd": 4,
    "few files shim": 3, "no memory server": 3, "no memory launcherd": 3, "no memory worker": 4, "cut both": 5, "cut up": 3,
    "cut down": 3, "reset": 6}
STORE_FAILED = 74  # the server's exit code when it cannot write: a full disk is no excuse, since the server has reserved space
KILLED_MOST = 8  # at most this many kills for one job, since a job may restart 20 times


class Fault:
    """One fault: its kind, when it comes (seconds after the previous one), for how long, and two numbers that choose its victim."""

    def __init__(self, chance):
        self.kind = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        self.after_s = chance.uniform(0.05, 0.5)
        self.lasts_s = chance.uniform(5, 8) if chance.random() < 0.06 else chance.uniform(0.1, 1.8)
        self.node = chance.randrange(NODES)
        self.choice = chance.random()

    def __str__(self):
        return f"after {self.after_s:.2f} s: {self.kind}, node{self.node}, {self.choice:.3f}, for {self.lasts_s:.2f} s"


def schedule(seed):
    chance = random.Random(seed)
    while True:
        yield Fault(chance)


class Faults:
    """Applies and undoes faults. `may_kill(pid)`: whether that process may be killed; `note_kill(pid)`: it is killed; `scripts()`: the
    processes of scripts that have a checkpoint."""

    def __init__(self, cluster, may_kill, note_kill, scripts):
        self.cluster, self.may_kill, self.note_kill, self.scripts = cluster, may_kill, note_kill, scripts
        self.undo, self.serial, self.watch = [], 0, Stopwatch()
        self.busy = set()  # targets of faults that are not undone yet
        self.done = {}
        self.log = []

    # --- what is done ---

    def apply(self, fault):
        """Applies a fault. False: it has no target at present."""
        verb, _, whom = fault.kind.rpartition(" ")
        if fault.kind == "reset":
            self.cluster.relays[fault.node].reset()
            done = True
        elif verb == "cut":
            done = self.cut(fault, {"both": ("up", "down"), "up": ("up",), "down": ("down",)}[whom])
        elif whom == "disk":
            done = self.fill(fault)
        elif whom in ("server", "launcherd"):
            done = self.daemon(fault, verb, self.cluster.server if whom == "server" else self.cluster.nodes[fault.node])
        elif whom == "node":
            done = self.kill_node(fault)
        else:
            done = self.process(fault, verb, whom)
        if done:
            self.done[fault.kind] = self.done.get(fault.kind, 0) + 1
            self.log.append(f"{self.watch.passed_s:.2f} {fault}")
        return done

    def later(self, fault, what, name):
        self.busy.add(name)

        def undo():
            self.busy.discard(name)
            what()
        self.serial += 1
        heapq.heappush(self.undo, (self.watch.passed_s + fault.lasts_s, self.serial, undo))
        return True

    def undo_due(self, all_=False):
        while self.undo and (all_ or self.undo[0][0] <= self.watch.passed_s):
            heapq.heappop(self.undo)[2]()

    def cut(self, fault, directions):
        relay = self.cluster.relays[fault.node]
        if relay in self.busy:
            return False
        relay.cut(directions)
        return self.later(fault, relay.mend, relay)

    def fill(self, fault):
        if not self.cluster.has_tmpfs or "disk" in self.busy:
            return False
        self.cluster.fill()
        self.cluster.server.excuses.add("full disk")  # the server may refuse to start

        def empty():
            self.cluster.empty()
            self.cluster.server.excuses.discard("full disk")
        return self.later(fault, empty, "disk")

    def daemon(self, fault, verb, daemon):
        if daemon in self.busy or not daemon.is_up():
            return False
        if verb == "kill":
            daemon.kill()
            return self.later(fault, daemon.start, daemon)
        if verb == "stop":
            return self.stop(fault, daemon.pid, daemon)
        return self.limit(fault, verb, daemon.pid, daemon)

    def stop(self, fault, pid, name):
        os.kill(pid, signal.SIGSTOP)

        def go_on():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return self.later(fault, go_on, name)

    def limit(self, fault, verb, pid, name):
        """Limits a process to the descriptors that it has, or to 64 KiB of further memory."""
        which = resource.RLIMIT_NOFILE if verb == "few files" else resource.RLIMIT_AS
        try:
            if verb == "few files":
                now = len(os.listdir(f"/proc/{pid}/fd"))
            else:
                with open(f"/proc/{pid}/statm", encoding="ascii") as file:
                    now = int(file.read().split()[0]) * resource.getpagesize() + 65536
            before = resource.prlimit(pid, which)
            resource.prlimit(pid, which, (min(now, before[1]) if before[1] >= 0 else now, before[1]))
        except (OSError, ProcessLookupError):
            return False
        daemon = name if hasattr(name, "excuses") else None
        if daemon:
            daemon.excuses.add(verb)  # the daemon may still be starting

        def restore():
            if daemon:
                daemon.excuses.discard(verb)
            with contextlib.suppress(OSError, ProcessLookupError):
                resource.prlimit(pid, which, before)
        return self.later(fault, restore, name)

    def process(self, fault, verb, whom):
        found = self.cluster.children()[fault.node]
        all_ = {"shim": list(found), "script": self.scripts()}.get(whom, [pid for pids in found.values() for pid in pids])
        pids = [pid for pid in all_
                if pid not in self.busy and (verb == "stop" or self.may_kill(pid))]
        if not pids:
            return False
        pid = pids[int(fault.choice * len(pids))]
        try:
            if verb != "stop":
                self.note_kill(pid)
            if verb == "kill":
                os.kill(pid, signal.SIGKILL)
                return True
            return self.stop(fault, pid, pid) if verb == "stop" else self.limit(fault, verb, pid, pid)
        except ProcessLookupError:
            return False

    def kill_node(self, fault):
        """Kills launcherd, shims and workers, as a power failure of the node would."""
        node, found = self.cluster.nodes[fault.node], self.cluster.children()[fault.node]
        if node in self.busy or not node.is_up() or not all(map(self.may_kill, found)):
            return False
        for shim in found:
            self.note_kill(shim)
        node.kill()
        for pid in [*found, *[pid for pids in found.values() for pid in pids]]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return self.later(fault, node.start, node)

    # --- daemons that ended by themselves ---

    def look_after(self):
        """Restarts a daemon that exited for a permitted reason, as systemd would."""
        for name, daemon in [("server", self.cluster.server), *[(f"node{i}", one) for i, one in enumerate(self.cluster.nodes)]]:
            if daemon.is_up() or not daemon.is_wanted:
                continue
            code = daemon.process.returncode
            if not daemon.excuses or code < 0 or (code == STORE_FAILED and daemon.excuses == {"full disk"}):
                raise AssertionError(f"{name} ended by itself with {code}; see {daemon.log}")
            key = f"({name.rstrip('0123456789')} ended with {code}, {' and '.join(sorted(daemon.excuses))}, and was started again)"
            self.done[key] = self.done.get(key, 0) + 1
            daemon.process.stdout.close()
            daemon.start()
