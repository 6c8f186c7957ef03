"""Restart of a gang over machines of their own (tests/cluster/machines.py), beside torchrun: SIGKILL of one rank, until the first
other rank is gone, until all are, until the first and the last rank of the next generation is in main. Milliseconds.

usage: BUILD_ROOT=build python3 tests/bench/gang_restart.py [--machines 8] [--ranks 8] [--rounds 10] [--torchrun PATH] [--torchrun-rounds 3] [--tmpfs]
Every rank is tests/bench/stamp, which writes the time when it is in main. One JSON object is printed. All machines share this computer's
cores, so the figures are those of one computer that starts and stops all ranks itself. --tmpfs: logs and state of both are on a tmpfs, not in the file
system of /tmp. An ext4 without a journal looks, for each new file, for inodes that were deleted in the last 5 s, and the rounds before have deleted many."""
import argparse
import glob
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../cluster"))
from cluster_lib import Cluster
from processes.waiting import LONG_S, wait_for
from machines import enter  # pylint: disable=wrong-import-position


def put_tmpfs_on_tmp():
    """In a mount namespace of this program's own."""
    if "DDP_BENCH_TMPFS" not in os.environ:
        os.environ["DDP_BENCH_TMPFS"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--", sys.executable, *sys.argv])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp"], check=True)


def stamps(path, count):
    """`count` lines of stamp, of which each is [rank, generation, pid there, nanoseconds]."""
    def look():
        if not os.path.exists(path):
            return None
        with open(path, encoding="ascii") as file:
            lines = [line.split() for line in file]
        return lines if len(lines) >= count else None
    return wait_for(f"{count} ranks in main", look, LONG_S)


def ranks_of(path):
    """Process ids, as seen here, of all ranks that stamp `path`."""
    found = []
    for name in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(name, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if len(words) > 1 and os.path.basename(words[0]) == b"stamp" and words[1] == path.encode():
            found.append(int(name.split("/")[2]))
    return found


def restart(path, world):
    """Kills one rank of a gang that runs, and follows the others to their ends and the next generation to its main."""
    stamps(path, world)
    pids = ranks_of(path)
    assert len(pids) == world, f"{len(pids)} of {world} ranks found"
    victim = pids[world // 2]
    poll, left = select.poll(), set()
    for pid in pids:
        if pid != victim:
            handle = os.pidfd_open(pid)
            poll.register(handle, select.POLLIN)
            left.add(handle)
    gone = []
    killed = time.time_ns()
    os.kill(victim, signal.SIGKILL)
    while left:
        for handle, _ in poll.poll(120000):
            gone.append((time.time_ns() - killed) / 1e6)
            poll.unregister(handle)
            left.remove(handle)
            os.close(handle)
    again = [(int(stamp[3]) - killed) / 1e6 for stamp in stamps(path, 2 * world)[world:]]
    return {"first_gone": gone[0], "all_gone": gone[-1], "first_in_main": min(again), "all_in_main": max(again)}


def ours(cluster, args, path):
    job = cluster.submit("--nodes", str(args.machines), "-n", str(args.ranks), "--max-restarts", "3", "--",
                         f"{cluster.build}/tests/bench/stamp", path)
    try:
        return restart(path, args.machines * args.ranks)
    finally:
        cluster.ctl("cancel", job, "--now", "--wait")


def torchrun(cluster, machines, args, path):
    """One agent on each machine, as its documentation says for several nodes."""
    agents = [machine.start("torchrun", args.torchrun, "--nnodes", str(args.machines), "--nproc-per-node", str(args.ranks),
                            "--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-id", os.path.basename(path),
                            "--rdzv-endpoint", f"{machines[0].address}:29400", "--no-python",
                            f"{cluster.build}/tests/bench/stamp", path) for machine in machines]
    try:
        return restart(path, args.machines * args.ranks)
    finally:
        for agent in agents:
            agent.kill(signal.SIGTERM)
        for agent in agents:
            agent.wait()
        wait_for("no rank of torchrun is left", lambda: not ranks_of(path), LONG_S)


def summary(rounds):
    return {name: {"median": round(statistics.median(one[name] for one in rounds), 1),
                   "min": round(min(one[name] for one in rounds), 1), "max": round(max(one[name] for one in rounds), 1),
                   "n": len(rounds)} for name in (rounds[0] if rounds else ())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--machines", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--torchrun")
    parser.add_argument("--torchrun-rounds", type=int, default=3)
    parser.add_argument("--tmpfs", action="store_true")
    args = parser.parse_args()
    enter()
    if args.tmpfs:
        put_tmpfs_on_tmp()
    found = {"ours": [], "torchrun": []}
    with Cluster() as cluster, tempfile.TemporaryDirectory(prefix="ddp-gang-") as folder:
        machines = [cluster.node(f"node{i}", slots=args.ranks) for i in range(args.machines)]
        for i in range(args.rounds):
            found["ours"].append(ours(cluster, args, f"{folder}/ours{i}"))
            if args.torchrun and i < args.torchrun_rounds:
                found["torchrun"].append(torchrun(cluster, machines, args, f"{folder}/torchrun{i}"))
    print(json.dumps({"bench": "gang_restart", "machines": args.machines, "ranks": args.machines * args.ranks,
                      "ms": {who: summary(rounds) for who, rounds in found.items() if rounds}}, indent=1))


if __name__ == "__main__":
    main()
