#!/usr/bin/env python3
"""What a failed start means. A job on two nodes of which one lacks the working directory or the program: one error that names the node and
the path. What may pass, or is so on one node only, is tried elsewhere and again.

The second node's launcherd is in a mount namespace of its own with an empty home, so that the two are like two machines that
share no disk. That needs root; without it only the tests of one node run."""
import os
import shutil
import subprocess
import sys

BUILD = os.environ["BUILD_ROOT"]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster
from processes.runner import equal, run_and_exit
from processes.waiting import wait_for

REMEDY = "make it there, share the disk, or submit with --stage DIR"


class Machines(Cluster):
    """node0 sees all files, node1 a `home` with nothing but a program `only1`."""

    def __init__(self, case):
        super().__init__(case, nodes=1, slots=1)
        self.home = f"{case.dir}/home"
        os.mkdir(self.home)
        script = ('mount -t tmpfs -o size=1m none "$1" && printf "#!/bin/sh\\necho it runs\\n" > "$1/only1" && chmod 755 "$1/only1" && '
                  'shift && exec "$@"')
        self.start_node("node1", 1, prefix=["unshare", "-m", "sh", "-c", script, "sh", self.home])


def has_mount_namespaces():
    done = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    if os.geteuid() != 0 or done.returncode != 0:
        print("skipped: only root, where it may make mount namespaces, has two machines here", flush=True)
        return False
    return True


def user(cluster, job):
    return cluster.status(job)["user"]


def fails_once(cluster, job, reason, code):
    """The job ends without a restart, with this one reason, and no rank ever ran."""
    equal(cluster.ctl("wait", job).returncode, code)
    status = cluster.status(job)
    equal((status["state"], status["exit"]["code"], status["restarts"], status["reason"]), ("failed", code, 0, reason))
    text = cluster.ctl("events", "--job", job).stdout
    equal(text.count("node node"), text.count(reason), text)


def one_node_without_the_directory():
    with Case() as case, Cluster(case) as cluster:
        gone = f"{case.temp}/gone"
        os.mkdir(gone)
        command = ["submit", "--max-restarts", "3", "--cwd", gone, "--", "true"]
        os.rmdir(gone)
        job = cluster.submit(*command[1:])
        fails_once(cluster, job, f"node node0: working directory {gone} does not exist (job of {user(cluster, job)}): {REMEDY}",
                   126)


def one_of_two_nodes_without_the_directory():
    if not has_mount_namespaces():
        return
    with Case() as case, Machines(case) as cluster:
        os.mkdir(f"{cluster.home}/work")
        job = cluster.submit("--nodes", "2", "--max-restarts", "3", "--cwd", f"{cluster.home}/work", "--", "touch", "ran")
        fails_once(cluster, job, f"node node1: working directory {cluster.home}/work does not exist "
                   f"(job of {user(cluster, job)}): {REMEDY}", 126)
        equal(os.listdir(f"{cluster.home}/work"), [], "a rank ran")


def one_of_two_nodes_without_the_program():
    if not has_mount_namespaces():
        return
    with Case() as case, Machines(case) as cluster:
        program = f"{cluster.home}/program"
        with open(program, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\ntouch ran\n")
        os.chmod(program, 0o755)
        job = cluster.submit("--nodes", "2", "--max-restarts", "3", "--cwd", case.temp, "--", program)
        fails_once(cluster, job, f"node node1: program {program} does not exist (job of {user(cluster, job)}): put it there, "
                   "or share the disk", 127)
        equal(os.listdir(case.temp), [], "a rank ran")


def a_program_that_only_the_other_node_has():
    if not has_mount_namespaces():
        return
    with Case() as case, Machines(case) as cluster:
        job = cluster.submit("--max-restarts", "3", "--cwd", case.temp, "--", f"{cluster.home}/only1")
        equal(cluster.ctl("wait", job).returncode, 0)
        status = cluster.status(job)
        equal((status["state"], status["generation"], status["restarts_used"]), ("succeeded", 2, 0), status)
        equal(cluster.ctl("logs", job, "--raw").stdout, "it runs\n")


def a_program_that_is_being_written():
    with Case() as case, Cluster(case) as cluster:
        program = f"{case.dir}/program"
        shutil.copy("/bin/true", program)
        with open(program, "r+b"):
            job = cluster.submit("--max-restarts", "1", "--", program)
            status = wait_for("the first failure", lambda: (now := cluster.status(job))["state"] in ("restarting", "failed") and now)
            equal(status["state"], "restarting", status)
            for text in ("it is being written now", ": no other node can run it: it is tried again after "):
                assert text in status["reason"], status
        equal(cluster.ctl("wait", job).returncode, 0)
        equal(cluster.status(job)["restarts_used"], 0)


def a_given_number_of_restarts_is_kept():
    """The fifth try succeeds, and whoever waits is told what for."""
    with Case() as case, Cluster(case) as cluster:
        script = "echo >> tries; test $(wc -l < tries) -ge 5 || { echo no; exit 3; }"
        done = cluster.ctl("run", "--max-restarts", "10", "--cwd", case.dir, "--", "sh", "-c", script)
        equal(done.returncode, 0, done)
        for text in ("three times in a row the same: restart 4 of --max-restarts 10 follows after ", " s, since they are spread over a minute"):
            assert text in done.stderr, done  # this wait is longer than the second after which waits are shown


if __name__ == "__main__":
    run_and_exit([a_program_that_only_the_other_node_has, a_program_that_is_being_written, a_given_number_of_restarts_is_kept, one_node_without_the_directory, one_of_two_nodes_without_the_directory, one_of_two_nodes_without_the_program])
