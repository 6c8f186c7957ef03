"""A job that trains on 1 to 3 nodes under the launcher: it loses a node, grows again and leaves a drained node, all within an epoch.
usage: elastic_test.py BUILD

Each change is a new generation that does not count against --max-restarts. Ranks stay in the order of their nodes, the learning rate follows
--elastic-lr, and each image is seen exactly once in the epoch, counting only the steps from which the training went on."""

import json
import os
import random
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from faults_lib import Cluster, wait_until  # noqa: E402
from pace import paced  # noqa: E402
from small_data import write_idx  # noqa: E402

IMAGES = 60000
BATCH = 20  # on three nodes the epoch has 1000 steps


def make_data(where):
    os.mkdir(where)
    for name, count in (("train", IMAGES), ("t10k", 10)):
        write_idx(f"{where}/{name}-images-idx3-ubyte", (count, 28, 28), random.Random(1).randbytes(count * 784))
        write_idx(f"{where}/{name}-labels-idx1-ubyte", (count,), bytes(i % 10 for i in range(count)))
    return where


def nodes_of(status):
    """The nodes in the order of their ranks, such as [0, 2]."""
    return [int(rank["node"][4:]) for rank in sorted(status["ranks"], key=lambda rank: rank["rank"])]


def wait_generation(cluster, job, generation):
    """Waits until this generation runs and has made a step."""
    def reached():
        status = cluster.status(job)
        assert status["state"] not in ("failed", "succeeded", "cancelled"), f"{status['state']}: {status['reason']}"
        if status["generation"] < generation or status["state"] != "running":
            return None
        return status if "Step [" in cluster.ctl("logs", str(job), "--rank", "0", "-g", str(generation)).stdout else None
    return wait_until(reached, f"generation {generation} of job {job}")


def steps_begun(cluster, job, generations):
    """The step that each generation resumed from, and its learning rate."""
    begun, rates = [], []
    for generation in range(1, generations + 1):
        log = cluster.ctl("logs", str(job), "--rank", "0", "-g", str(generation)).stdout
        found = re.search(r"resumed at step (\d+)", log)
        begun.append(int(found.group(1)) if found else 0)
        rates.append(float(re.search(r", lr ([0-9.e-]+),", log).group(1)))
    return begun, rates


def check_images(folder, worlds, begun):
    """For each step, only the lines of the last world that ran it count: each rank's last line."""
    lines = {}
    for rank in range(max(worlds)):
        with open(f"{folder}/{rank}.txt", encoding="ascii") as log:
            for line in log:
                epoch, step, *images = map(int, line.split())
                if epoch == 1:
                    lines[rank, step] = images
    seen = [0] * IMAGES
    last = max(step for _, step in lines)
    for step in range(1, last + 1):
        world = worlds[max(i for i, first in enumerate(begun) if step > first)]
        for rank in range(world):
            for image in lines[rank, step]:
                seen[image] += 1
    missing = sum(count == 0 for count in seen)
    twice = sum(count - 1 for count in seen if count > 1)
    assert missing == 0, f"{missing} images were not seen in the epoch"
    assert twice < max(worlds), f"{twice} images were seen twice; only those that fill the last step may be"


def change_nodes(cluster, job):
    """Takes a node away, gives it back, and drains another one."""
    status = wait_generation(cluster, job, 1)
    assert nodes_of(status) == [0, 1, 2], nodes_of(status)
    assert "3 of 3 ranks, 3 of 1:3 nodes" in cluster.ctl("status", str(job)).stdout, cluster.ctl("status", str(job)).stdout
    wait_until(lambda: cluster.status(job)["progress"]["checkpoint_step"], "a checkpoint")

    begin = time.monotonic()
    cluster.kill_node(0)
    status = wait_generation(cluster, job, 2)
    print(f"node lost: {time.monotonic() - begin:.1f} s to a step of the smaller world", flush=True)
    assert nodes_of(status) == [1, 2], nodes_of(status)
    assert (status["nodes"], status["nodes_min"], status["nodes_max"]) == (2, 1, 3), status

    cluster.nodes[0].start()
    status = wait_generation(cluster, job, 3)
    assert nodes_of(status) == [1, 2, 0], nodes_of(status)

    cluster.ctl("node", "drain", "node2", "--reason", "a new disk")
    status = wait_generation(cluster, job, 4)
    assert nodes_of(status) == [1, 0], nodes_of(status)


def main():
    with Cluster(sys.argv[1], nodes=3, slots=1, server_options=["--grow-after", "1s"]) as cluster:
        data = make_data(f"{cluster.folder}/data")
        job = cluster.submit("--name", "elastic", "--nodes", "1:3", "--max-restarts", "1", "--",
                             f"{cluster.build}/worker/ddp-worker", "-a", "convnet", "-b", str(BATCH), "--lr", "0.03",
                             "--elastic-lr", "linear", "--epochs", "1", "-p", "1", "--checkpoint-every", "20",
                             "--checkpoint-dir", f"{cluster.folder}/ckpt", "--sample-log", f"{cluster.folder}/%r.txt", data)
        with paced(f"{cluster.folder}/0.txt", f"{cluster.folder}/ckpt"):  # so that the epoch takes longer than all changes
            change_nodes(cluster, job)
        assert cluster.wait_end(job) == 0, cluster.status(job)["reason"]
        status = cluster.status(job)
        assert (status["generation"], status["restarts_used"]) == (4, 0), json.dumps(status)
        events = cluster.ctl("events", str(job)).stdout
        for text in ("node0 is gone: its connection closed", "it grows after checkpoint", "from 2 to 3 nodes",
                     "it leaves node node2, which was drained: it goes on with 2 nodes"):
            assert text in events, f"no {text!r} in {events}"
        begun, rates = steps_begun(cluster, job, 4)
        assert rates == [0.03, 0.02, 0.03, 0.02], rates
        assert all(a < b for a, b in zip(begun, begun[1:])), begun
        check_images(cluster.folder, [3, 2, 3, 2], begun)
    return 0


if __name__ == "__main__":
    sys.exit(main())
