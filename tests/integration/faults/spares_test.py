"""A job on two nodes with a spare node, under the launcher: it loses a node, and the spare takes its place.
usage: spares_test.py BUILD

A process of the job waits on the spare, and the same process is the rank there after the take-over. No other job gets the spare's slot while
the job runs. The survivor keeps its rank, the spare gets the lost node's rank, nothing counts against --max-restarts, and the losses equal those
of an undisturbed run. A node that comes back becomes the next spare. After the job's end no slot is held."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from faults_lib import Cluster, is_alive, losses, nodes_of, wait_status  # noqa: E402
from warm_lib import warm_processes  # noqa: E402
from pace import paced  # noqa: E402
from small_data import write_patterns  # noqa: E402

IMAGES = 40000
BATCH = 20
STEPS = IMAGES // BATCH // 2


def submit(cluster, data, name, *options):
    return cluster.submit("--name", name, "--nodes", "2", "--max-restarts", "1", *options, "--", f"{cluster.build}/worker/ddp-worker",
                          "-a", "convnet", "-b", str(BATCH), "--lr", "0.03", "--epochs", "1", "-p", "1", "--checkpoint-every", "20",
                          "--checkpoint-dir", f"{cluster.folder}/{name}", "--loss-log", f"{cluster.folder}/{name}.loss.%r", data)


def check_takeover(cluster, job):
    status = wait_status(cluster, job, lambda status: status["spares_warm"] == 1 and status["progress"]["checkpoint_step"],
                         "a warm spare and a checkpoint")
    first = nodes_of(status)
    spare = ({"node0", "node1", "node2"} - set(first)).pop()
    assert "spares     1 of 1 nodes held, 1 warm" in cluster.ctl("status", str(job)).stdout
    (warm, on), = warm_processes(cluster).items()
    assert on == spare, f"{warm} waits on {on}, the spare is {spare}"
    other = cluster.submit("--name", "other", "--", "true")
    assert cluster.status(other)["state"] == "queued", "another job has got the slot of the spare"
    cluster.kill_node(int(first[0][4:]))
    status = wait_status(cluster, job, lambda status: status["generation"] == 2 and status["state"] == "running", "the spare")
    assert nodes_of(status) == [spare, first[1]], (first, nodes_of(status))
    assert status["ranks"][0]["rank"] == 0 and status["ranks"][0]["pid"] == warm, (warm, status["ranks"])
    assert is_alive(warm)
    assert cluster.status(other)["state"] == "queued", "another job has got the slot of the spare"
    cluster.ctl("cancel", str(other))
    cluster.nodes[int(first[0][4:])].start()
    return spare


def main():
    with Cluster(sys.argv[1], nodes=3, slots=1) as cluster:
        data = write_patterns(f"{cluster.folder}/data", IMAGES)
        alone = submit(cluster, data, "alone")
        assert cluster.wait_end(alone) == 0, cluster.status(alone)["reason"]
        job = submit(cluster, data, "spared", "--spares", "1")
        with paced(f"{cluster.folder}/spared.loss.0", f"{cluster.folder}/spared"):  # so that it still trains when it loses its node
            spare = check_takeover(cluster, job)
        assert cluster.wait_end(job) == 0, cluster.status(job)["reason"]
        status = cluster.status(job)
        assert (status["generation"], status["restarts_used"]) == (2, 0), status
        events = cluster.ctl("events", str(job)).stdout
        for text in (f"node {spare} is held as a spare of the job", f"spare node {spare} is warm: its processes wait for their ranks",
                     f"spare node {spare} takes over as node rank 0"):
            assert text in events, f"no {text!r} in {events}"
        expected, _ = losses(cluster, alone, 1)
        found, resumed = losses(cluster, job, 2)
        assert len(expected) == STEPS, f"{len(expected)} steps, not {STEPS}"
        assert resumed > 0, "the spare began from the start"
        assert found == {step: loss for step, loss in expected.items() if step > resumed}, "the losses are not those of an undisturbed run"
        wide = cluster.submit("--name", "wide", "--nodes", "3", "--", "true")
        assert cluster.wait_end(wide) == 0, cluster.status(wide)["reason"]
    return 0


if __name__ == "__main__":
    sys.exit(main())
