#!/usr/bin/env python3
"""From the loss of a node to the first completed step of the smaller world, of a job on 1 to 3 nodes: elastic.py BUILD [--rounds N] [--torch-rounds N]
[--torchrun-rounds N].

reset    kill -9 of all that is on one of three nodes (launcherd, shim, worker): its connections are reset, as when a process or a kernel
         ends. The clock starts at the kill.
silent   all that is on it is stopped (SIGSTOP), as when the power goes: no connection closes. The clock starts when the server calls the node
         lost (--lost); the time before is that option's, 15 s by default.
spare    as reset, of a job on two nodes with --spares 1: the third node takes the place of the lost one.
torch    reset, with an ordinary PyTorch script (DDP, gloo) and rendezvous --no-fence; the same script under torchrun --nnodes 1:3, c10d,
         with its own settings and with last_call_timeout=1.

A node is one launcherd with one slot, or one agent of torchrun; all are on this machine. Times in milliseconds."""
import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration", "faults"))
sys.path.insert(0, os.path.join(HERE, "..", "pytorch"))
PATIENCE_S = 300


def worker(folder):
    """Rank 0 writes a line for each step: world, nanoseconds."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(20, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with open(os.path.join(folder, "steps"), "a", encoding="ascii") as file:
        while not os.path.exists(os.path.join(folder, "end")):
            optimizer.zero_grad()
            model(torch.ones(32, 20)).sum().backward()
            optimizer.step()
            if dist.get_rank() == 0:
                file.write(f"{dist.get_world_size()} {time.time_ns()}\n")
                file.flush()
            time.sleep(0.01)


def summary(values):
    ordered = sorted(values)
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.99)]
    return {"n": len(values), "p50": round(at[0]), "p99": round(at[1]), "values": [round(value) for value in values]}


def restart_node(cluster, index):
    cluster.nodes[index].process.wait(60)
    cluster.nodes[index].process.stdout.close()
    cluster.nodes[index].start()


def first_step(cluster, job, generation, wait_until):
    """When rank 0 of that generation printed its first step; seconds of the wall clock."""
    def find():
        log = cluster.ctl("logs", str(job), "--rank", "0", "-g", str(generation), "--timestamps", check=False).stdout
        found = re.search(r"^(\S+) .*Step \[", log, re.MULTILINE)
        return found and datetime.fromisoformat(found.group(1).replace("Z", "+00:00")).timestamp()
    return wait_until(find, f"a step of generation {generation}")


def submit(cluster, *nodes):
    return cluster.submit(*nodes, "--grace", "2s", "--max-restarts", "1000", "--", f"{cluster.build}/worker/ddp-worker", "-a", "convnet", "--dummy",
                          "-b", "20", "--epochs", "1000", "-p", "1", "--checkpoint-every", "20", "--checkpoint-dir", f"{cluster.folder}/ckpt")


def wait_world(cluster, job, world, wait_until):
    """Generation of the job, once it runs on so many nodes and has a checkpoint."""
    def reached():
        status = cluster.status(job)
        assert status["state"] not in ("failed", "succeeded"), status["reason"]
        return status if status["state"] == "running" and status["nodes"] == world and status["progress"]["checkpoint_step"] else None
    return wait_until(reached, f"{world} nodes")["generation"]


def ours(build, rounds, is_silent):
    from faults_lib import Cluster, wait_until
    times = []
    options = ["--grow-after", "0s"] + (["--suspect", "1s", "--lost", "2s"] if is_silent else [])
    with Cluster(build, nodes=3, slots=1, server_options=options) as cluster:
        job = submit(cluster, "--nodes", "1:3")
        for i in range(rounds + 1):
            generation = wait_world(cluster, job, 3, wait_until)
            first_step(cluster, job, generation, wait_until)
            begin = time.time()
            cluster.signal_node(i % 3, signal.SIGSTOP if is_silent else signal.SIGKILL)
            end = first_step(cluster, job, generation + 1, wait_until)
            if is_silent:
                lost = [event for event in json.loads(cluster.ctl("events", "--json").stdout)["events"] if f"node{i % 3} was lost" in event["text"]]
                begin = datetime.fromisoformat(lost[-1]["at"].replace("Z", "+00:00")).timestamp()
                cluster.signal_node(i % 3, signal.SIGKILL)
            if i > 0:  # before that, files come from the disk
                times.append((end - begin) * 1e3)
                print(f"{times[-1]:.0f}", file=sys.stderr, flush=True)
            restart_node(cluster, i % 3)
        cluster.ctl("cancel", str(job))
        cluster.wait_end(job)
    return summary(times)


def new_checkpoint(cluster, job, last):
    step = cluster.status(job)["progress"]["checkpoint_step"] or 0
    return step if step > last else None


def spare(build, rounds):
    from faults_lib import Cluster, wait_until
    times = []
    with Cluster(build, nodes=3, slots=1) as cluster:
        job = submit(cluster, "--nodes", "2", "--spares", "1")
        checkpoint = 0
        for i in range(rounds + 1):
            wait_until(lambda: cluster.status(job)["spares_held"] == 1, "a spare")
            generation = wait_world(cluster, job, 2, wait_until)
            first_step(cluster, job, generation, wait_until)
            checkpoint = wait_until(lambda last=checkpoint: new_checkpoint(cluster, job, last), "a checkpoint")  # else the back-off grows
            lost = int(cluster.status(job)["ranks"][i % 2]["node"][4:])
            begin = time.time()
            cluster.signal_node(lost, signal.SIGKILL)
            end = first_step(cluster, job, generation + 1, wait_until)
            if i > 0:  # before that, files come from the disk
                times.append((end - begin) * 1e3)
                print(f"{times[-1]:.0f}", file=sys.stderr, flush=True)
            restart_node(cluster, lost)
        cluster.ctl("cancel", str(job))
        cluster.wait_end(job)
    return summary(times)


def stamps(folder, world):
    try:
        with open(f"{folder}/steps", encoding="ascii") as file:
            return [int(line.split()[1]) / 1e9 for line in file if line.endswith("\n") and line.split()[0] == str(world)]
    except OSError:
        return []


def script(python, folder):
    return [python, os.path.abspath(__file__), "--worker", folder]


def torch_ours(build, python, rounds):
    from faults_lib import Cluster, wait_until
    times = []
    for i in range(rounds):
        with Cluster(build, nodes=3, slots=1, server_options=["--no-fence"]) as cluster, tempfile.TemporaryDirectory() as folder:
            job = cluster.submit("--nodes", "1:3", "--grace", "2s", "--", *script(python, folder))
            wait_until(lambda: len(stamps(folder, 3)) > 20, "steps of three ranks", PATIENCE_S)
            begin = time.time()
            cluster.signal_node(i % 3, signal.SIGKILL)
            times.append((wait_until(lambda: stamps(folder, 2), "a step of two ranks", PATIENCE_S)[0] - begin) * 1e3)
            cluster.ctl("cancel", str(job))
            cluster.wait_end(job)
            restart_node(cluster, i % 3)
    return summary(times)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def torchrun(python, rounds, conf):
    from control import tree
    from faults_lib import wait_until
    times = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            command = [os.path.join(os.path.dirname(python), "torchrun"), "--nnodes", "1:3", "--nproc-per-node", "1", "--max-restarts", "3", "--rdzv-backend",
                       "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "bench"]
            agents = []
            for i in range(3):  # the first has the store: it must live
                agents.append(subprocess.Popen([*command, "--rdzv-conf", ",".join([f"is_host={int(i == 0)}", *conf]), os.path.abspath(__file__), "--worker", folder],
                                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                                               env={**os.environ, "OMP_NUM_THREADS": "1"}))
            try:
                wait_until(lambda: len(stamps(folder, 3)) > 20, "steps of three ranks", PATIENCE_S)
                begin = time.time()
                for pid in tree(agents[2].pid):
                    os.kill(pid, signal.SIGKILL)
                times.append((wait_until(lambda: stamps(folder, 2), "a step of two ranks", PATIENCE_S)[0] - begin) * 1e3)
            finally:
                with open(f"{folder}/end", "w", encoding="ascii"):
                    pass
                for agent in agents:
                    agent.terminate()
                for agent in agents:
                    agent.wait(PATIENCE_S)
    return summary(times)


def main():
    import pytorch

    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--only", metavar="NAME", help="reset, silent, spare, torch, torchrun")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--torch-rounds", type=int, default=5)
    parser.add_argument("--torchrun-rounds", type=int, default=3)
    args = parser.parse_args()
    print("load of the machine: " + " ".join(f"{one:.1f}" for one in os.getloadavg()), flush=True)
    figures = [("reset", lambda: ours(args.build, args.rounds, False)), ("silent", lambda: ours(args.build, args.rounds, True)),
               ("spare", lambda: spare(args.build, args.rounds))]
    if args.torch_rounds + args.torchrun_rounds > 0:
        python = pytorch.python_or_skip()
        figures += [("torch", lambda: torch_ours(args.build, python, args.torch_rounds)),
                    ("torchrun, last_call_timeout=1", lambda: torchrun(python, args.torchrun_rounds, ["last_call_timeout=1"])),
                    ("torchrun", lambda: torchrun(python, args.torchrun_rounds, []))]
    for name, measure in figures:
        if args.only in (None, name.split(",")[0]):
            print(f"{name:30} {json.dumps(measure())}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2])
    else:
        main()
