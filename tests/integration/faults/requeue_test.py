"""A training that takes longer than its time limit, with --requeue-at-limit: each time it resumes from its checkpoint.
usage: requeue_test.py BUILD

It is stopped at the limit at least twice, no restart is counted, and its losses equal those of an undisturbed run. The speed of the machine
does not matter: before each of the two limits the worker is paused (SIGSTOP) once it has made progress."""

import contextlib
import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from faults_lib import Cluster, wait_until  # noqa: E402
from pace import paced  # noqa: E402
from small_data import write_patterns  # noqa: E402

IMAGES = 40000
BATCH = 20
STEPS = IMAGES // BATCH
VALIDATED = 150000  # images one by one: about 8 s on two cores, so the validation is still going on when the test looks at the job
ENDED = ("failed", "succeeded", "cancelled")


def submit(cluster, data, name, *options):
    return cluster.submit("--name", name, "--max-restarts", "0", "--hang-timeout", "off", "--grace", "120s", *options, "--",
                          f"{cluster.build}/worker/ddp-worker", "-a", "convnet", "-b", str(BATCH), "--lr", "0.03", "--epochs", "1", "-p", "1",
                          "--checkpoint-dir", f"{cluster.folder}/{name}", "--loss-log", f"{cluster.folder}/{name}.loss", data)


def losses(cluster, job, generation):
    log = cluster.ctl("logs", str(job), "--rank", "0", "-g", str(generation)).stdout
    return [(int(step), loss) for step, loss in re.findall(r"Step \[(\d+)/\d+\], Loss: ([0-9.e+-]+),", log)]


def wait_status(cluster, job, condition, what):
    def reached():
        status = cluster.status(job)
        return status if status["state"] in ENDED or condition(status) else None
    return wait_until(reached, what)


def send(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def pause_until_the_limit(cluster, job, generation, before):
    """The step of the checkpoint with which the job is back in the queue."""
    with paced(f"{cluster.folder}/limited.loss", f"{cluster.folder}/limited"):  # so that it is not at its end when its progress is seen
        status = wait_status(cluster, job, lambda status: status["generation"] > generation or (
            status["generation"] == generation and status["state"] == "running" and (status["progress"]["step"] or 0) > before), "progress")
    assert status["state"] not in ENDED, f"{status['state']}: {status['reason']}"
    pids = cluster.pids(job) if status["generation"] == generation else []
    try:
        send(pids, signal.SIGSTOP)
        wait_status(cluster, job, lambda status: status["generation"] > generation or status["state"] != "running"
                    or (status["reason"] or "").startswith("the time limit of 15 s is over"), "the time limit")
    finally:
        send(pids, signal.SIGCONT)
    status = wait_status(cluster, job, lambda status: status["generation"] > generation, "the next generation")
    assert status["state"] not in ENDED, f"{status['state']}: {status['reason']}"
    assert status["progress"]["checkpoint_step"] > before, status["progress"]
    return status["progress"]["checkpoint_step"]


def check_validation(cluster):
    """The server must hear of the last checkpoint while the validation after it still runs, since the time limit may come then."""
    data = write_patterns(f"{cluster.folder}/many", 10, VALIDATED)
    job = cluster.submit("--name", "validates", "--", f"{cluster.build}/worker/ddp-worker", "-a", "convnet", "-b", "1", "--max-steps", "3",
                         "-p", "1", "--checkpoint-dir", f"{cluster.folder}/validates", data)
    wait_status(cluster, job, lambda status: status["progress"]["checkpoint_step"] == 3, "the checkpoint")
    assert cluster.status(job)["state"] == "running", cluster.status(job)
    assert "Val: Acc@1" not in cluster.ctl("logs", str(job)).stdout, "the validation was over"
    cluster.ctl("cancel", str(job))
    cluster.wait_end(job)


def main():
    with Cluster(sys.argv[1], nodes=1, slots=1) as cluster:
        data = write_patterns(f"{cluster.folder}/data", IMAGES)
        alone = submit(cluster, data, "alone")
        assert cluster.wait_end(alone) == 0, cluster.status(alone)["reason"]
        expected = losses(cluster, alone, 1)
        assert [step for step, _ in expected] == list(range(1, STEPS + 1)), f"{len(expected)} steps, not {STEPS}"

        job = submit(cluster, data, "limited", "--time", "15s", "--requeue-at-limit")
        step = 0
        for generation in (1, 2):
            step = pause_until_the_limit(cluster, job, generation, step)
        assert cluster.wait_end(job) == 0, cluster.status(job)["reason"]
        status = cluster.status(job)
        assert status["generation"] >= 3 and status["restarts_used"] == 0, status
        events = cluster.ctl("events", str(job)).stdout
        assert events.count("the time limit of 15 s is over: it is queued again, and goes on from the checkpoint of step ") \
            == status["generation"] - 1, events
        found = [line for generation in range(1, status["generation"] + 1) for line in losses(cluster, job, generation)]
        assert found == expected, f"the losses are not those of an undisturbed run: {len(found)} steps of {len(expected)}"
        check_validation(cluster)
        print(f"{status['generation']} generations, {len(found)} losses as without a limit")


if __name__ == "__main__":
    main()
