#!/usr/bin/env python3
"""Jobs that hang, with real processes: how soon the hang is found, which rank `ddpctl why` names, and where the ranks stood.

usage: hang_test.py [NAME ...]

The bounds are the server's options, shortened: --hang-after 3s in place of 30 s. Every case prints how long it took from
the hang to the event that names it."""

import json
import os
import re
import shutil
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "pytorch"), os.path.join(HERE, "..", "..", "lib")]
import pytorch  # noqa: E402
from processes.case import BUILD, Case, Cluster
from processes.proc import ptrace_scope
from processes.runner import run_tests, Skip
from processes.waiting import wait_for

PATIENCE_S = 120
LEAST_S = 3


def wait_until(what, condition):
    return wait_for(what, condition, PATIENCE_S)


class Nodes(Cluster):
    """Two nodes of two slots."""

    def __init__(self, case, *options):
        super().__init__(case, nodes=2, slots=2, server_options=["--hang-after", f"{LEAST_S}s", *options])

    def submit(self, *args):
        """The job has the clock of the daemons."""
        return super().submit(*(word for name, value in self.case.preload.items() for word in ("--env", f"{name}={value}")), *args)

    def begin(self, text, *args, python=sys.executable):
        path = os.path.join(self.case.dir, "train.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return self.submit("--cwd", self.case.dir, *args, "--", python, "train.py")

    def events(self, job):
        return self.ctl("events", job).stdout

    def why(self, job, *args):
        done = self.ctl("why", "--json", *args, job)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["why"]

    def hang(self, job):
        """The failure, once the server has found the hang and decided how to react."""
        wait_until("the end of the hung generation", lambda: any(
            one["class"] == "hang" and one["decision"] for one in self.why(job)["failures"]))
        return next(one for one in self.why(job)["failures"] if one["class"] == "hang")

    def steps(self, job):
        return self.status(job)["progress"]["step"] or 0


STEPS = """
import os, time
import libddp

rank, generation = libddp.place().rank, libddp.place().generation
for step in range(1, 1000000):
    if generation == 1 and rank == 1 and step == 20:
        time.sleep(10000)  # it never comes
    time.sleep(0.1)
    if rank == 0 or generation == 1:
        libddp.report(step)
    if generation > 1 and step == 20:
        break
    if generation == 1 and rank == 0 and step == 22:
        time.sleep(10000)  # as in a collective that waits for rank 1
"""


def steps_of_a_script_stop():
    """Both ranks idle, and one is a step behind. The hang is found within the bound, and the next generation succeeds."""
    with Case(gated=True) as case, Nodes(case) as cluster:
        job = cluster.begin(STEPS, "--nodes", "2", "--nproc-per-node", "1", "--name", "steps")
        wait_until("step 19", lambda: cluster.steps(job) >= 19)
        watch = case.watch()
        failure = cluster.hang(job)
        print(f"  found and stopped after {watch.passed_s:.1f} s", flush=True)
        assert failure["rank"] == 1 and failure["node"] == "node1", failure
        assert re.match(r"hang: no step for ([3-9]|[1-5][0-9]) s after step 2[12]; the others wait for rank 1 on node1, which is at step 1[0-9] of 2[12]",
                        failure["cause"]), failure["cause"]
        assert "ranks 0-1" in failure["stacks"] and "state S" in failure["stacks"], failure["stacks"]
        assert failure["decision"].startswith("restarted at once (restart 1 of 3)"), failure["decision"]
        text = cluster.ctl("why", "-g", "1", job).stdout
        assert "where the ranks stood:" in text, text
        wait_until("the end", lambda: cluster.status(job)["state"] == "succeeded")


ALL_REDUCE = """
import datetime, os, time
import torch
import torch.distributed as dist

def never_comes():
    while True:
        time.sleep(1000)

dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=10))
for step in range(5):
    dist.all_reduce(torch.ones(1))
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
    never_comes()
dist.all_reduce(torch.ones(1))
print("six sums", flush=True)
dist.destroy_process_group()
"""


def an_all_reduce_without_rank_1():
    """A plain PyTorch script, which reports no progress: --hang-timeout finds the hang, since both ranks idle, and py-spy finds the rank."""
    bin_ = os.path.join(pytorch.folder(), "bin")
    if not os.access(os.path.join(bin_, "python"), os.X_OK):
        raise Skip(f"no PyTorch in {pytorch.folder()}")
    path = f"{bin_}:{os.environ['PATH']}"
    spy = shutil.which("py-spy", path=path) and (os.geteuid() == 0 or ptrace_scope() == 0)
    with Case(gated=True) as case, Nodes(case) as cluster:
        job = cluster.begin(ALL_REDUCE, "--nodes", "2", "--nproc-per-node", "1", "--hang-timeout", "3s", "--max-restarts", "1",
                            "--env", f"PATH={path}", python=os.path.join(bin_, "python"))
        failure = cluster.hang(job)
        cause = failure["cause"]
        print(f"  {cause}", flush=True)
        assert cause.startswith("hang: "), cause
        assert "state S" in failure["stacks"], failure["stacks"]
        if spy:
            assert (failure["rank"], failure["node"]) == (1, "node1"), failure
            assert "the others wait for rank 1 on node1, which is in no collective: never_comes (train.py:" in cause, cause
            groups = re.split(r"^(?=rank)", failure["stacks"], flags=re.MULTILINE)
            assert "never_comes (train.py:" in next(one for one in groups if one.startswith("rank 1\n")), groups
            assert "all_reduce (torch/distributed/" in next(one for one in groups if one.startswith("rank 0\n")), groups
        else:
            print("  no py-spy that may look: which rank the others wait for is not checked", flush=True)
            assert failure["rank"] == -1 and "all ranks stand in the same place, as far as is known" in cause, failure
        wait_until("the end", lambda: cluster.status(job)["state"] == "succeeded")
        assert cluster.status(job)["generation"] == 2, cluster.status(job)
        assert "never_comes" in cluster.ctl("why", job).stdout or not spy


IDLE = 'if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then exec sleep 10000; fi'
BUSY = 'end=$((SECONDS + 12)); while [ $SECONDS -lt $end ]; do :; done'


def programs_that_tell_nothing():
    """--hang-timeout ends the idle program; the busy program runs for four times as long, and without the option none is ended."""
    with Case() as case, Nodes(case) as cluster:
        one = ["--cwd", case.dir, "--nodes", "1", "--nproc-per-node", "1", "--max-restarts", "1"]
        unbounded = cluster.submit(*one, "--", "sh", "-c", IDLE)
        busy = cluster.submit(*one, "--hang-timeout", "3s", "--", "bash", "-c", BUSY)
        watch = case.watch()
        idle = cluster.submit(*one, "--hang-timeout", "3s", "--", "sh", "-c", IDLE)
        failure = cluster.hang(idle)
        print(f"  found and stopped {watch.passed_s:.1f} s after the submit", flush=True)
        assert failure["cause"].startswith("hang: ") and failure["decision"].startswith("restarted at once (restart 1 of 1)"), failure
        assert "rank 0" in failure["stacks"], failure
        for job in (idle, busy):
            wait_until("the end", lambda: cluster.status(job)["state"] not in ("queued", "starting", "running", "restarting"))
        assert [(cluster.status(job)["state"], cluster.status(job)["generation"]) for job in (idle, busy)] == \
            [("succeeded", 2), ("succeeded", 1)], (cluster.status(idle), cluster.status(busy))
        assert cluster.why(busy)["failures"] == [], cluster.why(busy)
        assert (cluster.status(unbounded)["state"], cluster.status(unbounded)["generation"]) == ("running", 1)
        cluster.ctl("cancel", unbounded)


def rank_process(case, rank):
    """The pid of that rank's ddp-worker; 0: it does not run."""
    for pid in case.processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = file.read().split(b"\0")
            with open(f"/proc/{pid}/comm", encoding="ascii") as file:
                name = file.read().strip()
        except OSError:
            continue
        if name == "ddp-worker" and b"RANK=%d" % rank in variables:
            return pid
    return 0


def begin_training(case, cluster):
    worker = os.path.join(BUILD, "worker", "ddp-worker")
    job = cluster.submit("--cwd", case.dir, "--nodes", "2", "--nproc-per-node", "1", "--max-restarts", "2", "--grace", "2s", "--", worker, "-a",
                         "convnet", "--dummy", "--device", "cpu", "-b", "16", "--epochs", "1000")
    wait_until("steps", lambda: cluster.steps(job) >= 5)
    return job


def stop_process(case, rank):
    pid = rank_process(case, rank)
    assert pid, f"rank {rank} does not run"
    os.kill(pid, signal.SIGSTOP)


def goes_on(cluster, job):
    """Until the second generation has made a step, the job's progress is that of the first one."""
    wait_until("the second generation", lambda: cluster.status(job)["generation"] == 2 and cluster.status(job)["state"] == "running")
    first = cluster.steps(job)
    wait_until("a step of the second generation", lambda: cluster.steps(job) != first)
    cluster.ctl("cancel", job)


def one_stopped_process_of_ddp_worker():
    """The heartbeats between the ranks find it first, and name the rank that did not answer."""
    with Case() as case, Nodes(case) as cluster:
        job = begin_training(case, cluster)
        stop_process(case, 1)
        wait_until("the second generation", lambda: cluster.status(job)["generation"] == 2)
        failure = cluster.why(job)["failures"][0]
        print(f"  {failure['class']}: {failure['cause']}", flush=True)
        assert "rank 1" in failure["cause"], failure
        goes_on(cluster, job)


def all_stopped_processes_of_ddp_worker():
    """No rank is left that could notice the others. The server notices, since the ranks stop repeating their reports."""
    with Case() as case, Nodes(case) as cluster:
        job = begin_training(case, cluster)
        watch = case.watch()
        for rank in (0, 1):
            stop_process(case, rank)
        failure = cluster.hang(job)
        print(f"  found and stopped after {watch.passed_s:.1f} s: {failure['cause']}", flush=True)
        assert "rank 0 (and 1 more) on node0, whose process is stopped (SIGSTOP, or a debugger): " in failure["cause"], failure
        assert failure["stacks"].count("state T") in (1, 2) and "state S" not in failure["stacks"], failure["stacks"]
        goes_on(cluster, job)


if __name__ == "__main__":
    sys.exit(run_tests([steps_of_a_script_stop, an_all_reduce_without_rank_1, programs_that_tell_nothing, one_stopped_process_of_ddp_worker,
                        all_stopped_processes_of_ddp_worker], sys.argv[1:]))
