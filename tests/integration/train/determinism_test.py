"""Bit-identical results wherever the ranks run: with --deterministic the order of sums depends only on the ranks and --threads.
usage: determinism_test.py BUILD

Placement: four nodes with one rank each, two with two, one with four. Threads: a single rank, with OMP_NUM_THREADS unset, 1 to 3, and
--threads; the checkpoint records the number of threads, and a resume with another number is refused."""

import filecmp
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.own import OwnCluster

BUILD = os.path.abspath(sys.argv[1])
WORKER = os.path.join(BUILD, "worker", "ddp-worker")
OPTIONS = ["--device", "cpu", "--dummy", "--deterministic", "-b", "8", "--lr", "0.01", "--momentum", "0.9", "--seed", "3"]
STEPS = 3


def environ(threads):
    """Without OMP_NUM_THREADS if `threads` is None."""
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return env if threads is None else {**env, "OMP_NUM_THREADS": str(threads)}


def weights(folder, step=STEPS):
    return f"{folder}/step-{step:08d}.safetensors"


def threads_in(folder, step=STEPS):
    with open(f"{folder}/step-{step:08d}.json", encoding="utf-8") as file:
        return json.load(file)["threads"]


def train(folder, threads, *args, steps=STEPS):
    return subprocess.run([WORKER, *OPTIONS, "--max-steps", str(steps), "--checkpoint-dir", folder, "--resume", "auto", *args],
                          env=environ(threads), capture_output=True, text=True, timeout=600, check=False)


def check_places():
    with OwnCluster(nodes=4, slots=4) as cluster:
        folders = []
        for nodes, ranks, threads in ((4, 1, []), (2, 2, []), (1, 4, []), (4, 1, ["OMP_NUM_THREADS=1"])):
            folder = f"{cluster.folder}/{nodes}x{ranks}-{len(threads)}"
            job = cluster.submit("--nodes", str(nodes), "--nproc-per-node", str(ranks), "--", "env", "-u", "OMP_NUM_THREADS", *threads,
                                 WORKER, *OPTIONS, "--max-steps", str(STEPS), "--checkpoint-dir", folder)
            assert cluster.wait_end(job) == 0, cluster.ctl("logs", str(job), check=False).stdout[-2000:]
            assert threads_in(folder) == 1, f"{nodes} x {ranks}: {threads_in(folder)} threads a rank"
            folders.append(folder)
        for folder in folders[1:]:
            assert filecmp.cmp(weights(folders[0]), weights(folder), shallow=False), f"{folder} has other bits than {folders[0]}"
    print("ok four ranks have the same bits on 4, 2 and 1 nodes, with one thread each")


def check_threads():
    with tempfile.TemporaryDirectory(prefix="ddp-threads-") as top:
        for name, threads, args, expected in (("usual", None, [], 1), ("one", 1, [], 1), ("asked", 3, ["--threads", "1"], 1),
                                              ("two", 2, [], 2), ("again", None, ["--threads", "2"], 2), ("three", 3, [], 3)):
            done = train(f"{top}/{name}", threads, *args)
            assert done.returncode == 0, done.stderr
            assert threads_in(f"{top}/{name}") == expected, f"{name}: {threads_in(f'{top}/{name}')} threads"
        for a, b in (("usual", "one"), ("usual", "asked"), ("two", "again")):
            assert filecmp.cmp(weights(f"{top}/{a}"), weights(f"{top}/{b}"), shallow=False), f"{a} and {b} have other bits"
        same = filecmp.cmp(weights(f"{top}/one"), weights(f"{top}/two"), shallow=False)
        print(f"ok a lone rank: equal threads, equal bits; one and two threads have {'the same' if same else 'other'} bits")


def check_resume():
    with tempfile.TemporaryDirectory(prefix="ddp-threads-") as top:
        for name, steps in (("whole", [2 * STEPS]), ("parts", [STEPS, 2 * STEPS])):
            for count in steps:
                done = train(f"{top}/{name}", None, "--threads", "2", "--checkpoint-every", str(STEPS), steps=count)
                assert done.returncode == 0, done.stderr
        assert filecmp.cmp(weights(f"{top}/whole", 2 * STEPS), weights(f"{top}/parts", 2 * STEPS), shallow=False)
        refused = train(f"{top}/parts", None, steps=3 * STEPS)
        said = "was made with 2 threads a rank, now there are 1"
        assert refused.returncode != 0 and said in refused.stderr, f"exit {refused.returncode}: {refused.stderr}"
        assert os.path.exists(weights(f"{top}/parts", 2 * STEPS)), "the refusal moved the checkpoint away"
        free = subprocess.run([WORKER, "--device", "cpu", "--dummy", "--max-steps", str(2 * STEPS + 1), "--momentum", "0.9", "-b", "8", "--seed", "3",
                               "--threads", "1", "--resume", "auto", "--checkpoint-dir", f"{top}/parts"], env=environ(None),
                              capture_output=True, text=True, timeout=600, check=False)
        assert free.returncode == 0, free.stderr
    print("ok a resume with another thread count is refused with --deterministic, and not without")


check_threads()
check_resume()
check_places()
