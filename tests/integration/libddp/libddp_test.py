#!/usr/bin/env python3
"""libddp in real jobs: the unchanged examples of docs/libddp.md, stops, restarts, and all-reduces. libddp_test.py BUILD"""
import ctypes
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "lib")]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import BUILD, Case, Cluster
from processes.runner import equal, run_and_exit
from processes.waiting import wait_for

SOURCE = os.path.join(HERE, "..", "..", "..")
EXAMPLES = os.path.join(SOURCE, "libddp", "examples")
FOREVER = "1000000000"
RUN = ("run", "--standalone", "--max-restarts", "0", "--raw")



def progress(cluster, job, what):
    return cluster.status(job)["progress"].get(what) or 0


def pid_of(cluster, job):
    return next(rank["pid"] for rank in cluster.status(job)["ranks"] if rank["state"] == "running")


def a_script_is_stopped_and_started_without_losing_a_step():
    with Case() as case, Cluster(case) as cluster:
        folder = case.dir + "/checkpoints"
        job = cluster.submit("--grace", "30s", "--env", "PYTHONPATH=/nowhere", "--", "python3", EXAMPLES + "/train.py", folder, FOREVER)
        wait_for("step", lambda: progress(cluster, job, "step") > 0)
        os.kill(pid_of(cluster, job), signal.SIGUSR1)
        wait_for("checkpoint_step", lambda: progress(cluster, job, "checkpoint_step") > 0)
        saved = progress(cluster, job, "checkpoint_step")
        os.kill(pid_of(cluster, job), signal.SIGKILL)
        wait_for("the restart", lambda: f"generation 2 begins after step {saved}\n" in cluster.ctl("logs", job).stdout)
        equal(cluster.ctl("cancel", job).returncode, 0)
        wait_for("the end", lambda: cluster.status(job)["state"] == "cancelled")
        last = progress(cluster, job, "checkpoint_step")
        assert last > saved, f"nothing was saved at the stop: {last}"
        left = set(os.listdir(folder))  # the first notice of a stop may save a checkpoint one step before the last
        assert {".lock", f"step-{saved}.json", f"step-{last}.json"} <= left <= {
            ".lock", f"step-{saved}.json", f"step-{last - 1}.json", f"step-{last}.json"}, left
        log = cluster.ctl("logs", job).stdout
        assert f"generation 2 begins after step {saved}\n" in log, log
        assert f"stopped after step {last}, True that 5 s are left\n" in log, log


def a_script_runs_alone_too():
    with Case() as case:
        module = os.path.join(BUILD, "libddp", "python")
        for _ in range(2):  # the second run does not resume, since no checkpoint was saved
            done = subprocess.run([sys.executable, EXAMPLES + "/train.py", case.dir + "/checkpoints", "5"],
                                  env=case.environ(PYTHONPATH=module), capture_output=True, text=True, timeout=60)
            equal((done.returncode, done.stdout, done.stderr), (0, "generation 1 begins after step 0\n", ""))


def failures_have_their_names():
    code = ("import libddp\n"
            "try: libddp.fence('/no/such/folder')\n"
            "except libddp.Error as error: print(error.status, '/no/such/folder' in str(error))\n"
            "try: libddp.commit(1)\n"
            "except libddp.Error as error: print(error.status)\n"
            "libddp.fail('the last words: \\0 \\ud800')\n"
            "raise SystemExit(3)\n")
    with Case() as case, Cluster(case) as cluster:
        job = cluster.submit("--max-restarts", "0", "--", "python3", "-c", code)
        wait_for("the end", lambda: cluster.status(job)["state"] == "failed")
        equal(cluster.ctl("logs", job).stdout, "DDP_IO True\nDDP_BAD_INPUT\n")
        assert "the last words: ? ?" in cluster.ctl("status", job).stdout, cluster.ctl("status", job).stdout


def ranks_reduce_and_stop_together():
    with Case() as case:
        done = case.ctl(*RUN, "-n", "4", "--", os.path.join(BUILD, "libddp/examples/allreduce-gloo"), "50")
        equal((done.returncode, done.stdout), (0, "4 ranks, Gloo: all sums are right\n"), done.stderr)
        done = case.ctl(*RUN, "--", os.path.join(BUILD, "libddp/examples/allreduce-gloo"), "5")
        equal((done.returncode, done.stdout), (0, "1 ranks, alone: all sums are right\n"), done.stderr)
    with Case() as case, Cluster(case) as cluster:
        job = cluster.submit("-n", "4", "--grace", "60s", "--", os.path.join(BUILD, "libddp/examples/allreduce-gloo"), FOREVER)
        wait_for("steps", lambda: progress(cluster, job, "step") > 0)
        equal(cluster.ctl("cancel", job).returncode, 0)
        wait_for("the end", lambda: cluster.status(job)["state"] == "cancelled")
        equal(cluster.ctl("logs", job, "--raw").stdout, "4 ranks, Gloo: stopped\n")


def structures_of_python_are_those_of_c():
    """C and Python lay out the same bytes: sizes and offsets of every field."""
    with Case() as case:
        sys.path.insert(0, os.path.join(BUILD, "libddp", "python"))
        import libddp

        lines = ["#include <ddp.h>", "#include <stdio.h>", "int main(void) {"]
        expected = []
        for name, python in (("ddp_place", libddp.Place), ("ddp_progress", libddp._Progress), ("ddp_error", libddp._Error)):
            for field, *_ in python._fields_:
                lines.append(f'printf("{name} {field} %zu\\n", offsetof(struct {name}, {field}));')
                expected.append(f"{name} {field} {getattr(python, field).offset}")
            lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
            expected.append(f"{name} {ctypes.sizeof(python)}")
        source, program = case.dir + "/sizes.c", case.dir + "/sizes"
        with open(source, "w", encoding="utf-8") as file:
            file.write("\n".join([*lines, "return 0; }"]))
        subprocess.run(["cc", "-I", SOURCE + "/libddp", source, "-o", program], check=True)
        equal(subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines(), expected)


def the_page_has_the_examples():
    with open(os.path.join(SOURCE, "docs", "libddp.md"), encoding="utf-8") as file:
        page = file.read()
    for name in ("train.py", "hello.c"):
        with open(os.path.join(EXAMPLES, name), encoding="utf-8") as file:
            text = "".join("    " + line if line.strip() else line for line in file)
        assert text in page, f"docs/libddp.md does not have libddp/examples/{name} as it is"


if __name__ == "__main__":
    run_and_exit([a_script_is_stopped_and_started_without_losing_a_step, a_script_runs_alone_too, failures_have_their_names,
               ranks_reduce_and_stop_together, structures_of_python_are_those_of_c, the_page_has_the_examples])
