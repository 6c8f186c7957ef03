#!/usr/bin/env python3
"""Checks which libraries our programs load at start: shims and ddpctl's verbs start often, and OpenSSL alone takes as long to load as all
other libraries."""
import os
import subprocess

from ctl_lib import BUILD, Case, Cluster, DDPCTL, command_of, equal, run_tests, wait_until

LATER = ("libssl", "libcrypto", "libarchive", "libcurl", "libmicrohttpd")  # loaded when they are first needed
LAUNCHERD = os.path.join(os.path.abspath(BUILD), "launcherd", "launcherd")


def loaded(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        maps = file.read()
    return sorted(name for name in LATER if f"/{name}." in maps)


def loaded_by(program):
    """The libraries that the dynamic loader loads before main."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
    return sorted(name for name in LATER if f"{name}." in done.stdout)


def the_programs_start_without_them():
    for program in (DDPCTL, LAUNCHERD):
        equal(loaded_by(program), [], program)


def a_shim_needs_none():
    with Case() as case, Cluster(case) as cluster:
        job = cluster.submit("--nproc-per-node", "2", "--", "sleep", "600")
        wait_until("the job runs", lambda: cluster.status(job)["ranks_running"] == 2)  # so each child of the shim has become its program
        shims = [pid for pid in case.processes() if "--shim" in command_of(pid)]
        equal(len(shims), 1)
        equal(loaded(shims[0]), [])
        equal(cluster.ctl("cancel", "--now", "--wait", job).returncode, 0)


if __name__ == "__main__":
    run_tests([the_programs_start_without_them, a_shim_needs_none])
