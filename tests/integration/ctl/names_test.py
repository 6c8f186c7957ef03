#!/usr/bin/env python3
"""A node's name comes back from another state directory: nothing runs twice, nothing of others is stopped, and people are told."""
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster
from processes.waiting import wait_for

# Notes whether the process of an earlier generation still lives.
PROGRAM = """if [ -f {0}/pid ] && kill -0 $(cat {0}/pid) 2> {0}/dead; then touch {0}/both; fi
echo $$ > {0}/pid.new; mv {0}/pid.new {0}/pid; trap '' TERM; exec sleep 600"""


def launch(case, cluster, name, state, ready=True):
    """Not with --exit-with-parent: its shims outlive it."""
    return cluster.launch(state, "launcherd", "--server", cluster.address, "--name", name, "--slots", "1", "--allow-root", outlives=True, ready=ready)


def end(cluster, state, kill=False):
    daemon = cluster.daemons.pop(state)
    return daemon.kill() if kill else daemon.end()


def said(case, state, words):
    with open(f"{case.dir}/{state}.log", encoding="utf-8") as log:
        return words in log.read()


def a_twin_is_refused_and_shown(case, cluster, first):
    launch(case, cluster, "n", "twin", ready=False)
    wait_for("the refusal", lambda: said(case, "twin", f"a node named n is connected already: pid {first.pid} at 127.0.0.1; make a key for this machine"))
    shown = cluster.ctl("nodes").stdout
    assert f"n: another launcherd wants this name: pid {cluster.daemons['twin'].pid} at 127.0.0.1" in shown, shown
    end(cluster, "twin", kill=True)


def a_copy_touches_nothing(case, cluster, job):
    shutil.copytree(f"{case.dir}/first", f"{case.dir}/copy", symlinks=True, ignore=lambda _, names: [n for n in names if n.endswith(".sock")])
    launch(case, cluster, "other", "copy")
    assert said(case, "copy", "it is a copy of another state directory"), "the copy was not found"
    assert any(name.startswith("run-of-copy-") for name in os.listdir(f"{case.dir}/copy"))
    end(cluster, "copy")
    status = cluster.status(job)
    assert status["state"] == "running" and status["generation"] == 1, status


def another_state_directory_waits_for_the_lease(case, cluster, job):
    with open(f"{case.dir}/pid", encoding="utf-8") as file:
        pid = int(file.read())
    end(cluster, "first", kill=True)
    os.kill(pid, 0)  # its shim and worker live on
    launch(case, cluster, "n", "second")
    assert said(case, "second", "whose ranks may run for"), "it had to wait"
    wait_for("the second generation", lambda: (s := cluster.status(job))["generation"] == 2 and s["state"] == "running")
    assert cluster.status(job)["ranks"][0]["node"] == "n"
    wait_for("its process", lambda: open(f"{case.dir}/pid", encoding="utf-8").read().strip() != str(pid))
    assert not os.path.exists(f"{case.dir}/both"), "two generations ran at once"


def main():
    with Case() as case, Cluster(case, nodes=0, server_options=("--lease", "8s", "--lost", "3s", "--suspect", "2s")) as cluster:
        first = launch(case, cluster, "n", "first")
        job = cluster.submit("--name", "j", "--nodes", "1", "--nproc-per-node", "1", "--cwd", "/", "--grace", "1s", "--", "sh", "-c",
                             PROGRAM.format(case.dir))
        wait_for("it runs", lambda: os.path.exists(f"{case.dir}/pid"))
        wait_for("it is shown", lambda: cluster.status(job)["state"] == "running")
        a_twin_is_refused_and_shown(case, cluster, first)
        print("ok a twin is refused and shown")
        a_copy_touches_nothing(case, cluster, job)
        print("ok a copy touches nothing")
        another_state_directory_waits_for_the_lease(case, cluster, job)
        print("ok another state directory waits for the lease")
        cluster.ctl("cancel", "--now", job)
        wait_for("its end", lambda: cluster.status(job)["exit"] is not None)
        wait_for("no shim", lambda: not os.listdir(f"{case.dir}/second/run"))
        end(cluster, "second")
        launch(case, cluster, "n", "first")  # nothing is on the node, so the name moves at once; the ended shim is forgotten
        wait_for("no shim", lambda: not os.listdir(f"{case.dir}/first/run"))
        end(cluster, "first")
        print("ok the first one comes back")


if __name__ == "__main__":
    main()
