"""Random faults in real processes, chosen by a seed. usage: tests/chaos [--seed N] [--faults N] [--build DIR] [--submits KILLS]

--faults: a server, three nodes and jobs that train (ddp-worker, a PyTorch script where there is PyTorch) or are cancelled;
processes are killed and stopped, the server's disk fills up, descriptors and memory run out, links are cut and reset. Every job must end as
it should, final weights must equal those of undisturbed runs bit for bit, and nothing may be left: no processes, run directories, sockets
or temporary files. The same seed gives the same schedule of faults; which of several processes a fault hits depends on what runs at that
moment. --submits: kill -9 of the server under concurrent submits (submits.py)."""

import argparse
import contextlib
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib"), os.path.join(HERE, "..", "integration", "faults"),
                os.path.join(HERE, "..", "pytorch")]
import pytorch  # noqa: E402
import submits  # noqa: E402
from chaos_cluster import ChaosCluster  # noqa: E402
from faults import KILLED_MOST, Faults, schedule  # noqa: E402
from jobs import Endless, Job, Torch, Training  # noqa: E402


class Chaos:
    def __init__(self, cluster, seed):
        self.cluster, self.seed = cluster, seed
        self.kinds = [Training(cluster), Endless(cluster)]
        python = os.path.join(pytorch.folder(), "bin", "python")
        if os.access(python, os.X_OK):
            self.kinds.append(Torch(cluster, python))
        else:
            print("no PyTorch here: ddp-worker alone trains")
        if not cluster.has_tmpfs:
            print("no mounts here: no disk gets full")
        self.jobs, self.ended, self.numbers = [], [], itertools.count(1)
        self.faults = Faults(cluster, self.may_kill, self.note_kill, self.scripts)
        self.chance = random.Random(f"{seed}-cancel")

    def job_of(self, pid):
        """The job that a process belongs to; the name of the shim's run directory has the job's number."""
        for one in (pid, None):
            try:
                with open(f"/proc/{one or self.parent(pid)}/cmdline", "rb") as file:
                    words = file.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "--shim" in words:
                name = next((word for word in words if "/run/" in word), "").rstrip("/").rsplit("/", 1)[-1]
                return next((job for job in self.jobs if f"-{job.id}-g" in name), None)
        return None

    @staticmethod
    def parent(pid):
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rsplit(")", 1)[1].split()[1])

    def scripts(self):
        """Processes of PyTorch scripts that would resume from a checkpoint."""
        return [pid for shims in self.cluster.children().values() for shim, pids in shims.items() for pid in pids
                if getattr(self.job_of(shim), "has_checkpoint", bool)()]

    def may_kill(self, pid):
        job = self.job_of(pid)
        # each new checkpoint of ddp-worker resets its count of restarts
        return job is None or isinstance(job.kind, Training) or job.hits < KILLED_MOST

    def note_kill(self, pid):
        job = self.job_of(pid)
        if job is not None:
            job.hits += 1

    def submit(self, kind):
        job = Job(kind, next(self.numbers))
        job.cancel_at = time.monotonic() + self.chance.uniform(1, 6)
        self.jobs.append(job)

    def look(self):
        """Cancels jobs whose time has come, checks those that have ended, and keeps one job of each kind running."""
        for job in list(self.jobs):
            if isinstance(job.kind, Endless) and time.monotonic() > job.cancel_at:
                job.cancel()
                job.cancel_at = float("inf")
            if job.has_ended():
                if "not tried again" in job.summary["reason"]:  # lack of memory at three starts looks like a bug in the program
                    self.given_up += 1
                    print(f"job {job.id} was given up: {job.summary['reason']}", flush=True)
                    assert self.given_up <= 2 + self.count // 50, "too many jobs were given up"
                else:
                    job.check()
                self.jobs.remove(job)
                self.ended.append(job)
        for kind in self.kinds:
            if not any(job.kind is kind for job in self.jobs):
                self.submit(kind)

    def tend(self):
        self.faults.undo_due()
        self.faults.look_after()

    def run(self, count):
        self.given_up, self.count = 0, count
        self.calm()
        begin, left, looked_at = time.monotonic(), count, 0.0
        self.cluster.tend = self.tend
        for fault in schedule(self.seed):
            if left == 0:
                break
            end = time.monotonic() + fault.after_s
            while time.monotonic() < end:
                self.tend()
                if time.monotonic() > looked_at + 0.5:
                    self.look()
                    looked_at = time.monotonic()
                time.sleep(0.01)
            left -= self.faults.apply(fault)
        print(f"{count} faults in {time.monotonic() - begin:.0f} s: "
              + ", ".join(f"{number} {kind}" for kind, number in sorted(self.faults.done.items())), flush=True)
        self.settle()

    def calm(self):
        """Runs without faults, whose final weights are the reference."""
        for kind in self.kinds:
            if not isinstance(kind, Endless):
                self.submit(kind)
        for job in self.jobs:
            job.wait_end()
            job.check()
        self.jobs.clear()

    def settle(self):
        begin = time.monotonic()
        self.faults.undo_due(all_=True)
        for job in self.jobs:
            if isinstance(job.kind, Endless):
                job.cancel()
        for job in self.jobs:
            job.wait_end()
            job.check()
        self.ended += self.jobs
        self.jobs = []
        words = [f"{sum(job.kind is kind for job in self.ended)} of {kind.name}" for kind in self.kinds]
        restarts = sum(job.summary["restarts"] for job in self.ended)
        resumed = sum(job.resumed() for job in self.ended)
        print(f"all jobs as wanted: {', '.join(words)}, {restarts} restarts, {resumed} of the scripts' in the middle; the last {time.monotonic() - begin:.0f} s after the "
              "last fault", flush=True)


def chaos(build, seed, count):
    print(f"seed {seed}", flush=True)
    with ChaosCluster(build) as cluster:
        this = Chaos(cluster, seed)
        try:
            this.run(count)
            cluster.check_rest()
        except BaseException:
            with contextlib.suppress(OSError, AssertionError):
                this.faults.undo_due(all_=True)
            print(f"seed {seed}: what was done, by the monotonic clock:\n" + "\n".join(this.faults.log))
            kept = f"{cluster.folder}-logs"
            os.makedirs(kept)
            for name in os.listdir(cluster.folder):
                if name.endswith(".log"):
                    shutil.copy(f"{cluster.folder}/{name}", kept)
            for i in range(len(cluster.nodes)):
                shutil.copytree(f"{cluster.folder}/node{i}/logs", f"{kept}/node{i}", dirs_exist_ok=True)
            print(f"logs: {kept}; again: tests/chaos --seed {seed} --faults {count}", flush=True)
            raise
    print("nothing is left behind")


def inside():
    """Runs this program again in a mount namespace of its own, where a small tmpfs can be mounted; without a namespace if that is not
    allowed. The folder of temporary files is made and removed outside of the namespace."""
    if os.environ.get("DDP_CHAOS_INSIDE"):
        return
    program = next((words for words in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"])
                    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0), [])
    folder = tempfile.mkdtemp(prefix="ddp-chaos-")
    done = subprocess.run([*program, sys.executable, HERE, *sys.argv[1:]], check=False,
                          env={**os.environ, "DDP_CHAOS_INSIDE": "1", "TMPDIR": folder})
    if done.returncode == 0:
        left = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names]
        shutil.rmtree(folder)
        if left:
            sys.exit(f"left in {folder}: {left}")
    sys.exit(done.returncode)


def main():
    options = argparse.ArgumentParser(prog="tests/chaos")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--faults", type=int, default=100)
    options.add_argument("--submits", type=int, metavar="KILLS", help="instead: kills of the server under submits")
    options.add_argument("--build", default=os.path.join(HERE, "..", "..", "build"))
    chosen = options.parse_args()
    build = os.path.abspath(chosen.build)
    if chosen.submits:
        submits.run(build, chosen.seed, chosen.submits)
        return
    inside()
    chaos(build, chosen.seed, chosen.faults)


if __name__ == "__main__":
    main()
