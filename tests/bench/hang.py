#!/usr/bin/env python3
"""From a hang to its discovery, and to the first step of the next generation: hang.py BUILD [--rounds N] [--torchrun-rounds N] [--after TIME] [--only NAME].

worker    ddp-worker, two ranks that are both stopped (SIGSTOP): their process lives, and nothing goes on.
script    an ordinary PyTorch script (DDP, gloo) that tells its steps by libddp; rank 1 never comes to the next all-reduce.
silent    the same script telling nothing, with `ddpctl submit --hang-timeout TIME`.
torchrun  the same script under torchrun, where a hang ends by the time-out of the process group: here TIME, as above. (By default it is 30 minutes
          for gloo, 10 for NCCL.)

TIME is `rendezvous --hang-after`, 30 s by default. The bound is max(TIME, 5 x the time of 99 of 100 steps). A node is one launcherd with one slot;
both are on this machine. Seconds, from the hang to the event that reports it, and to the first step of the next generation."""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime

HERE = os.path.dirname(os.path.abspath(__file__))
for name in ("integration/faults", "pytorch", "lib"):
    sys.path.insert(0, os.path.join(HERE, "..", name))
HANG_AT = 40
PATIENCE_S = 600


def worker(folder, tells, timeout_s):
    """Each rank writes "rank generation step nanoseconds" for each step; in the first generation rank 1 hangs at step HANG_AT."""
    from datetime import timedelta
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    if tells:
        import libddp
    generation = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    # The time-out is also for the ranks to meet. Later generations have the default, so that they do not fail of it on a busy machine.
    dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s) if generation == 0 else None)
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(20, 10))
    with open(os.path.join(folder, "steps"), "a", encoding="ascii") as file:
        for step in range(1, 1000000):
            if generation == 0 and rank == 1 and step == HANG_AT:
                while True:
                    time.sleep(1000)
            model(torch.ones(32, 20)).sum().backward()
            if tells:
                libddp.report(step)
            file.write(f"{rank} {generation} {step} {time.time_ns()}\n")
            file.flush()
            time.sleep(0.05)


def stamps(folder, rank, generation):
    """Seconds of the wall clock of each step."""
    try:
        with open(f"{folder}/steps", encoding="ascii") as file:
            rows = [line.split() for line in file if line.endswith("\n")]
    except OSError:
        return []
    return [int(row[3]) / 1e9 for row in rows if row[:2] == [str(rank), str(generation)]]


def seconds(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def found_at(cluster, job, wait_until):
    """When the event says so that reports the hang."""
    def look():
        events = json.loads(cluster.ctl("events", str(job), "--json").stdout)["events"]
        return next((seconds(event["at"]) for event in events if "hang: " in event["text"]), None)
    return wait_until(look, "the event of the hang", PATIENCE_S)


def script_once(build, python, after, tells):
    from faults_lib import Cluster, wait_until
    with Cluster(build, nodes=2, slots=1, server_options=["--hang-after", after]) as cluster, tempfile.TemporaryDirectory() as folder:
        options = [] if tells else ["--hang-timeout", after]
        job = cluster.submit("--nodes", "2", "--nproc-per-node", "1", *options, "--", python, os.path.abspath(__file__), "--worker", folder,
                             str(int(tells)), "1800")
        wait_until(lambda: len(stamps(folder, 1, 0)) == HANG_AT - 1, "the last step before the hang", PATIENCE_S)
        begin = stamps(folder, 1, 0)[-1]
        found = found_at(cluster, job, wait_until)
        step = wait_until(lambda: stamps(folder, 0, 1), "a step of the next generation", PATIENCE_S)[0]
        cluster.ctl("cancel", str(job))
        cluster.wait_end(job)
        return found - begin, step - begin


def worker_once(build, after):
    from faults_lib import Cluster, wait_until
    with Cluster(build, nodes=2, slots=1, server_options=["--hang-after", after]) as cluster:
        job = cluster.submit("--nodes", "2", "--nproc-per-node", "1", "--grace", "2s", "--", f"{build}/worker/ddp-worker", "-a", "convnet", "--dummy",
                             "--device", "cpu", "-b", "16", "--epochs", "1000", "-p", "1")
        status = cluster.wait_step(job, HANG_AT)
        assert status["state"] == "running", status["reason"]
        begin = time.time()
        for rank in status["ranks"]:
            os.kill(rank["pid"], signal.SIGSTOP)
        found = found_at(cluster, job, wait_until)

        def step():
            log = cluster.ctl("logs", str(job), "--rank", "0", "-g", "2", "--timestamps", check=False).stdout
            line = re.search(r"^(\S+) .*Step \[", log, re.MULTILINE)
            return line and seconds(line.group(1))
        first = wait_until(step, "a step of the next generation", PATIENCE_S)
        cluster.ctl("cancel", str(job))
        cluster.wait_end(job)
        return found - begin, first - begin


def torchrun_once(python, after_s):
    from control import tree
    from faults_lib import wait_until
    with tempfile.TemporaryDirectory() as folder:
        agent = subprocess.Popen([os.path.join(os.path.dirname(python), "torchrun"), "--standalone", "--nproc-per-node", "2", "--max-restarts", "1",
                                  os.path.abspath(__file__), "--worker", folder, "0", str(after_s)],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        try:
            wait_until(lambda: len(stamps(folder, 1, 0)) == HANG_AT - 1, "the last step before the hang", PATIENCE_S)
            begin = stamps(folder, 1, 0)[-1]
            wait_until(lambda: stamps(folder, 0, 1) or agent.poll() is not None, "a step of the next generation", PATIENCE_S)
            assert agent.poll() is None, f"torchrun has ended with exit code {agent.returncode}"
            step = stamps(folder, 0, 1)[0]
        finally:
            for pid in tree(agent.pid):
                os.kill(pid, signal.SIGKILL)
            agent.wait(PATIENCE_S)
        return None, step - begin


def summary(rounds):
    def of(values):
        ordered = sorted(value for value in values if value is not None)
        return {"median": round(ordered[len(ordered) // 2], 1), "most": round(ordered[-1], 1), "n": len(ordered)} if ordered else None
    return {"found_s": of([one[0] for one in rounds]), "first_step_s": of([one[1] for one in rounds])}


def main():
    import pytorch

    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=os.path.abspath)
    parser.add_argument("--only", metavar="NAME", help="worker, script, silent, torchrun")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torchrun-rounds", type=int, default=3)
    parser.add_argument("--after", default="30s", help="seconds, as 30s")
    args = parser.parse_args()
    python, after_s = pytorch.python_or_skip(), int(args.after.removesuffix("s"))
    print("load of the machine: " + " ".join(f"{one:.1f}" for one in os.getloadavg()), flush=True)
    for name, count, once in (("worker", args.rounds, lambda: worker_once(args.build, args.after)),
                              ("script", args.rounds, lambda: script_once(args.build, python, args.after, True)),
                              ("silent", args.rounds, lambda: script_once(args.build, python, args.after, False)),
                              ("torchrun", args.torchrun_rounds, lambda: torchrun_once(python, after_s))):
        if args.only in (None, name) and count > 0:
            print(f"{name:10} {json.dumps(summary([once() for _ in range(count)]))}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], sys.argv[3] == "1", float(sys.argv[4]))
    else:
        main()
