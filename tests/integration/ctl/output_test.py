#!/usr/bin/env python3
"""Output that ddpctl cannot write is said, once, and is a failure; a reader that has closed its pipe is neither. /dev/full is a disk
without space."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster, DDPCTL
from processes.runner import equal, run_and_exit
from processes.waiting import PATIENCE_S

LOST = "ddpctl: cannot write to standard output: No space left on device\n"


def written_to(case, path, *args, **more):
    with open(path, "wb") as out:
        return subprocess.run([DDPCTL, *args], env=case.environ(**more), stdout=out, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                              text=True, timeout=PATIENCE_S, check=False)


def said_once(done, code):
    equal((done.returncode, done.stderr.count(LOST)), (code, 1), done.args[1:] + [done.stderr])


def every_verb_says_it():
    with Case() as case, Cluster(case) as cluster:
        job = cluster.submit("--", "echo", "hello")
        equal(cluster.ctl("wait", job).returncode, 0)
        server = ("--server", cluster.address)
        for verb in (("logs", job), ("logs", "--raw", job), ("status", job), ("ps", "-a"), ("nodes",), ("node", "show", "node0"), ("events", job), ("why", job),
                     ("server",), ("version",), ("doctor",), ("top", "--once"), ("submit", "--dry-run", "--", "true"), ("submit", "--", "true"),
                     ("report", "-o", "-", job)):
            said_once(written_to(case, "/dev/full", *server, *verb), 1)
        for verb in (("help",), ("help", "run"), ("completion", "bash"), ("--help=man",)):
            said_once(written_to(case, "/dev/full", *verb), 1)
        said_once(written_to(case, "/dev/full", *server, "run", "--", "echo", "hello"), 125)
        said_once(written_to(case, "/dev/full", *server, "submit", "--wait", "--", "true"), 125)
        done = written_to(case, "/dev/full", *server, "--json", "ps", "-a")
        equal(done.returncode, 1)
        assert '"code":"failed","message":"cannot write to standard output: No space left on device"' in done.stderr, done.stderr
        state = f"{case.dir}/rendezvous"
        done = written_to(case, "/dev/full", "backup", "--state-dir", state, f"{case.dir}/backup")
        assert done.returncode == 1 and "cannot be written to standard output: No space left" in done.stderr, done.stderr


def a_run_ends_in_one_way():
    """Its job is cancelled, but may have ended before: the exit code is the same."""
    with Case() as case:
        for command in (["echo", "hello"], ["sh", "-c", "echo hello; exit 7"], ["sh", "-c", "echo hello; exec sleep 600"]) * 2:
            said_once(written_to(case, "/dev/full", "run", "--standalone", "--max-restarts", "0", "--", *command), 125)


def a_closed_pipe_is_no_failure_of_ours():
    with Case() as case, Cluster(case) as cluster:
        job = cluster.submit("--", "echo", "hello")
        equal(cluster.ctl("wait", job).returncode, 0)
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([DDPCTL, "--server", cluster.address, "logs", job], env=case.environ(), stdout=writer, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True, timeout=PATIENCE_S, check=False)
        os.close(writer)
        equal((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    run_and_exit([every_verb_says_it, a_run_ends_in_one_way, a_closed_pipe_is_no_failure_of_ours])
