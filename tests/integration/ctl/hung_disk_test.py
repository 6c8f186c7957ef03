#!/usr/bin/env python3
"""ddpctl report and backup write to a disk that hangs: they end, and say why.

The library tests/lib/stuck_disk.c is preloaded: while a file exists, what names a path in a folder "logs" hangs."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster
from processes.runner import equal, run_and_exit

LIBRARY = os.environ["STUCK_DISK"]


def ends(case, limit_s, *words):
    os.mkdir(f"{case.dir}/logs")
    stuck = f"{case.dir}/stuck"
    for name in stuck, f"{stuck}.logs":
        with open(name, "w", encoding="ascii"):
            pass
    watch = case.watch()
    done = case.ctl(*words, LD_PRELOAD=f"{case.preload['LD_PRELOAD']} {LIBRARY}", DDP_STUCK_FILE=stuck)
    watch.check(words[0], limit_s, limit_s + 25)
    assert done.returncode == 1, done
    return done.stderr


def a_report():
    with Case(gated=True) as case, Cluster(case) as cluster:
        cluster.submit("--", "true")
        cluster.ctl("wait", "1")
        path = f"{case.dir}/logs/page.html"
        equal(ends(case, 30, "--server", cluster.address, "report", "1", "-o", path).split("\n")[0],
              f"ddpctl: cannot write {path}: its disk does not answer: nothing was read or written for 30 s")


def a_backup():
    with Case(gated=True) as case, Cluster(case) as cluster:
        cluster.submit("--", "true")
        path = f"{case.dir}/logs/state.ddp"
        equal(ends(case, 60, "backup", "--state-dir", f"{case.dir}/rendezvous", path),
              f"rendezvous: the backup is given up: nothing was read or written for 60 s. Does the disk of {path} answer, or that of the state? "
              "Remove the file, if it is there, before the next try\n")


if __name__ == "__main__":
    run_and_exit([a_report, a_backup])
