"""A rank that is really slow: a thread of this test stops and continues its process all the time, so that it loses four fifths of its time.
usage: straggler_test.py BUILD

The server names the slow rank, using the times that ddp-worker reports, and says when it is no longer slow. With --replace-stragglers the spare
replaces its node after a checkpoint: the other nodes keep their ranks, nothing counts against --max-restarts, the slow node is excluded for the
job, and the losses equal those of the run that kept its slow rank."""

import contextlib
import os
import re
import signal
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from faults_lib import Cluster, losses, nodes_of, wait_status, wait_until  # noqa: E402
from small_data import write_patterns  # noqa: E402

NODES = 3
IMAGES = 60000
STOPPED_S, RUNS_S = 0.04, 0.01
COMPARED = 50  # steps after the take-over


def submit(cluster, data, name, *options):
    """Submits a job that trains until it is cancelled."""
    return cluster.submit("--name", name, "--nodes", str(NODES), "--max-restarts", "0" if name == "stays" else "1", *options, "--",
                          f"{cluster.build}/worker/ddp-worker", "-a", "convnet", "-b", "4", "--lr", "0.03", "--epochs", "1000", "-p", "1",
                          "--checkpoint-every", "50", "--checkpoint-dir", f"{cluster.folder}/{name}", data)


def step_of(status):
    return (status.get("progress") or {}).get("step") or 0


@contextlib.contextmanager
def slowed(pid):
    """Within this block the process runs only a fifth of the time. The process may end meanwhile."""
    is_over = threading.Event()

    def slow():
        with contextlib.suppress(ProcessLookupError):
            while not is_over.is_set():
                signal.pidfd_send_signal(handle, signal.SIGSTOP)
                is_over.wait(STOPPED_S)
                signal.pidfd_send_signal(handle, signal.SIGCONT)
                is_over.wait(RUNS_S)

    handle = os.pidfd_open(pid)
    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        os.close(handle)


def process_of(status, rank):
    return next(one["pid"] for one in status["ranks"] if one["rank"] == rank)


def is_named(rank):
    return lambda status: status.get("straggler", "").startswith(f"rank {rank} on ")


def the_spare_takes_its_place(cluster, data):
    job = submit(cluster, data, "moves", "--spares", "1", "--replace-stragglers")
    status = wait_status(cluster, job, lambda status: status["spares_held"] == 1 and step_of(status) >= 30, "a spare and steps")
    first = nodes_of(status)
    spare = ({f"node{i}" for i in range(NODES + 1)} - set(first)).pop()
    with slowed(process_of(status, 1)):
        status = wait_status(cluster, job, lambda status: status["generation"] >= 2 and status["state"] == "running", "the spare")
    assert nodes_of(status) == [first[0], spare, first[2]], (first, nodes_of(status))
    assert status["restarts_used"] == 0, status
    events = cluster.ctl("events", str(job)).stdout
    for text in (f"straggler: rank 1 on {first[1]}: ", f"spare node {spare} takes over as node rank 1"):
        assert text in events, f"no {text!r} in {events}"
    wait_until(lambda: len(losses(cluster, job, 2)[0]) > COMPARED, "steps of the spare")
    found, resumed = losses(cluster, job, 2)
    assert resumed > 0, "the spare began from the start"
    # Its node is excluded: it does not become a spare, though it is free.
    assert cluster.status(job)["spares_held"] == 0, cluster.status(job)
    cluster.ctl("cancel", str(job), "--wait")
    return {step: found[step] for step in range(resumed + 1, resumed + COMPARED + 1)}


def it_is_named_until_it_is_over(cluster, data, compared):
    job = submit(cluster, data, "stays")
    status = wait_status(cluster, job, lambda status: step_of(status) >= 30, "steps")
    with slowed(process_of(status, 1)):
        status = wait_status(cluster, job, is_named(1), "the straggler")
        told = status["straggler"]
        own, others, part, = re.match(r"rank 1 on node\d: ([0-9.]+) ms of its own for a step, the others ([0-9.]+) ms; ([a-z ]+): ", told).groups()
        assert float(own) > 1.2 * float(others), told
        assert part in ("forward and backward", "optimizer", "data", "the rest of the step"), told
        assert "straggler  rank 1 on " in cluster.ctl("status", str(job)).stdout
        assert "straggler: rank 1 on " in cluster.ctl("why", str(job)).stdout
    node = nodes_of(status)[1]
    wait_status(cluster, job, lambda status: not is_named(1)(status), "its end")
    events = cluster.ctl("events", str(job)).stdout
    assert f"straggler: rank 1 on {node}: " in events and f"rank 1 on {node} is no straggler any more" in events, events
    wait_until(lambda: max(losses(cluster, job, 1)[0], default=0) >= max(compared), "the steps to compare")
    assert cluster.status(job)["generation"] == 1
    found, _ = losses(cluster, job, 1)
    assert {step: found.get(step) for step in compared} == compared, "the losses are not those of a run whose slow rank stayed"
    cluster.ctl("cancel", str(job), "--wait")
    return told


def main():
    with Cluster(sys.argv[1], nodes=NODES + 1, slots=1, server_options=["--grow-after", "1s"]) as cluster:
        data = write_patterns(f"{cluster.folder}/data", IMAGES)
        compared = the_spare_takes_its_place(cluster, data)
        print(it_is_named_until_it_is_over(cluster, data, compared))
    return 0


if __name__ == "__main__":
    sys.exit(main())
