#!/usr/bin/env python3
"""libddp's callbacks with the real Lightning and transformers: callbacks_test.py BUILD; skips (77) without tests/pytorch/setup-callbacks.

A job of two ranks is asked for a checkpoint, loses a rank, resumes from that checkpoint, and is cancelled: it then saves once more, after
the same step on both ranks."""
import os
import re
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "lib"), os.path.join(HERE, "..", "..", "pytorch")]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster
from processes.runner import equal, run_and_exit
from processes.waiting import PATIENCE_S, wait_for
import pytorch  # noqa: E402
from libddp_test import FOREVER, pid_of, progress  # noqa: E402

PATIENCE_S = 240  # two ranks import Lightning, in two generations
PYTHON = os.path.join(pytorch.cache(), "callbacks", "bin", "python")
if not os.access(PYTHON, os.X_OK):
    print(f"skip: no Lightning and transformers in {PYTHON} (tests/pytorch/setup-callbacks makes it)")
    sys.exit(77)


def wait_until(what, condition):
    return wait_for(what, condition, PATIENCE_S)


def ends(text):
    return [int(step) for step in re.findall(r"ends after step (\d+)", text)]


def check(script, name):
    with Case() as case, Cluster(case) as cluster:
        folder = case.dir + "/checkpoints"
        job = cluster.submit("-n", "2", "--grace", "60s", "--env", f"HOME={case.dir}", "--env", f"TMPDIR={case.dir}", "--", PYTHON,
                             os.path.join(HERE, script), folder, FOREVER)
        logs = lambda: cluster.ctl("logs", job).stdout  # noqa: E731
        wait_until("the first steps", lambda: progress(cluster, job, "step") > 0)
        os.kill(pid_of(cluster, job), signal.SIGUSR1)
        wait_until("a checkpoint", lambda: progress(cluster, job, "checkpoint_step") > 0)
        saved = progress(cluster, job, "checkpoint_step")
        os.kill(pid_of(cluster, job), signal.SIGKILL)
        path = os.path.join(folder, name.format(saved))
        wait_until("both ranks again", lambda: logs().count(f"resumes from {path}\n") == 2)
        before = progress(cluster, job, "step")  # of the first generation
        wait_until("steps after the restart", lambda: progress(cluster, job, "step") != before)
        equal(cluster.ctl("cancel", job).returncode, 0)
        wait_until("the end", lambda: cluster.status(job)["state"] == "cancelled")
        last = progress(cluster, job, "checkpoint_step")
        assert last > saved, (last, saved, logs())
        equal(ends(logs())[-2:], [last, last], logs())
        assert os.path.exists(os.path.join(folder, name.format(last))), os.listdir(folder)
        assert not [left for left in os.listdir(folder) if left.endswith(".tmp")], os.listdir(folder)


def lightning_saves_stops_and_resumes():
    check("train_lightning.py", "step-{:08d}.ckpt")


def transformers_saves_stops_and_resumes():
    check("train_transformers.py", "checkpoint-{}")


if __name__ == "__main__":
    run_and_exit([lightning_saves_stops_and_resumes, transformers_saves_stops_and_resumes])
