#!/usr/bin/env python3
"""Checks which libraries our programs load at start: shims and ddpctl's verbs start often, and OpenSSL alone takes as long to load as all
other libraries, and 4 MB of memory."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import BUILD, Case, Cluster, DDPCTL
from processes.proc import command_of
from processes.runner import equal, run_and_exit
from processes.waiting import wait_for

LATER = ("libssl", "libcrypto", "libarchive", "libcurl", "libmicrohttpd")  # loaded when they are first needed
LAUNCHERD, RENDEZVOUS = (os.path.join(os.path.abspath(BUILD), name, name) for name in ("launcherd", "rendezvous"))


def loaded(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        maps = file.read()
    return sorted(name for name in LATER if f"/{name}." in maps)


def loaded_by(program):
    """The libraries that the dynamic loader loads before main."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
    return sorted(name for name in LATER if f"{name}." in done.stdout)


def the_programs_start_without_them():
    for program in (DDPCTL, LAUNCHERD, RENDEZVOUS):
        equal(loaded_by(program), [], program)


def a_shim_needs_none():
    with Case() as case, Cluster(case) as cluster:
        job = cluster.submit("--nproc-per-node", "2", "--", "sleep", "600")
        wait_for("the job runs", lambda: cluster.status(job)["ranks_running"] == 2)  # so each child of the shim has become its program
        shims = [pid for pid in case.processes() if "--shim" in command_of(pid)]
        equal(len(shims), 1)
        equal(loaded(shims[0]), [])
        equal(cluster.ctl("cancel", "--now", "--wait", job).returncode, 0)


def daemons_on_a_unix_socket_need_none():
    with Case() as case, Cluster(case) as cluster:
        job = cluster.submit("--", "/bin/true")
        equal(cluster.ctl("wait", job).returncode, 0)
        for name, daemon in cluster.daemons.items():
            equal(loaded(daemon.pid), [], name)


def a_server_with_tls_needs_openssl():
    with Case() as case, Cluster(case, nodes=0, server_options=("--listen", "127.0.0.1:0", "--require-key")) as cluster:
        equal(loaded(cluster.daemons["rendezvous"].pid), ["libcrypto", "libssl"])


def libraries_of_an_environment_do_not_replace_ours():
    """A conda environment in LD_LIBRARY_PATH has libraries of the same names. Here none is one at all, and the ranks get the variable."""
    with Case() as case:
        others = os.path.join(case.dir, "lib")
        os.mkdir(others)
        for program in (DDPCTL, LAUNCHERD, RENDEZVOUS):
            text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
            for name in (line.split()[0] for line in text.splitlines() if " => " in line):
                if not name.startswith(("libc.", "libm.", "libdl.", "libpthread.", "librt.", "libgcc_s.", "libstdc++.")):  # which the shell needs, too
                    open(os.path.join(others, name), "w", encoding="ascii").close()
        assert os.listdir(others)
        done = subprocess.run([DDPCTL, "run", "--standalone", "--max-restarts", "0", "--", "sh", "-c", "echo $LD_LIBRARY_PATH"], text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=60, env=case.environ(LD_LIBRARY_PATH=others))
        equal((done.returncode, done.stdout), (0, others + "\n"), done.stderr)


if __name__ == "__main__":
    run_and_exit([libraries_of_an_environment_do_not_replace_ours, the_programs_start_without_them, a_shim_needs_none, daemons_on_a_unix_socket_need_none, a_server_with_tls_needs_openssl])
