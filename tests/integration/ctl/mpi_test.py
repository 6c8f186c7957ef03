#!/usr/bin/env python3
"""MPI programs under ddpctl run, with real Open MPI and MPICH. With --env-style mpi, MPI_Init of a rank fails where it would otherwise make
a world of one. A single rank works, and so does mpirun as the program. Skips (77) where neither has a compiler (libopenmpi-dev,
libmpich-dev) and its mpirun."""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster
from processes.runner import equal, run_and_exit
from processes.waiting import PATIENCE_S, wait_for

PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("a world of %d\n", size);
    fflush(stdout);
    return MPI_Finalize();
}
"""
KINDS = [kind for kind in ("openmpi", "mpich") if shutil.which(f"mpicc.{kind}") and shutil.which(f"mpirun.{kind}")]
AS_ROOT = ["--env", "OMPI_ALLOW_RUN_AS_ROOT=1", "--env", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]  # Open MPI requires both
# The first rank runs mpirun, the others end at once, as in docs/from-mpi.md.
ONE_MPIRUN = 'test "$LOCAL_RANK" = 0 || exit 0; exec mpirun.%s -np "$LOCAL_WORLD_SIZE" %s %s'
OPTIONS = {"openmpi": "--oversubscribe", "mpich": ""}


def program(case, kind):
    with open(f"{case.dir}/world.c", "w", encoding="ascii") as source:
        source.write(PROGRAM)
    subprocess.run([f"mpicc.{kind}", "-o", f"{case.dir}/world", f"{case.dir}/world.c"], check=True)
    return f"{case.dir}/world"


def run(case, ranks, *command):
    return case.ctl("run", "--standalone", "--max-restarts", "0", "--nproc-per-node", str(ranks), "--env-style", "mpi", *AS_ROOT,
                    "--", *command, timeout=4 * PATIENCE_S)


def ranks_are_refused_and_why_says_what_works():
    for kind in KINDS:
        with Case() as case, Cluster(case) as cluster:
            job = cluster.submit("--max-restarts", "0", "--nproc-per-node", "2", "--env-style", "mpi", *AS_ROOT, "--", program(case, kind))
            wait_for("the end", lambda: cluster.status(job)["state"] == "failed")
            assert "a world of" not in cluster.ctl("logs", job).stdout, kind
            why = cluster.ctl("why", job).stdout
            assert "hint: ranks that ddpctl starts are no MPI world: run mpirun as the program" in why, (kind, why)


def a_rank_alone_works():
    for kind in KINDS:
        with Case() as case:
            done = run(case, 1, program(case, kind))
            equal((done.returncode, done.stdout), (0, "a world of 1\n"), (kind, done.stderr))


def mpirun_as_the_program_works():
    for kind in KINDS:
        with Case() as case:
            done = run(case, 3, "sh", "-c", ONE_MPIRUN % (kind, OPTIONS[kind], program(case, kind)))
            equal((done.returncode, done.stdout), (0, "a world of 3\n" * 3), (kind, done.stderr))


if __name__ == "__main__":
    if not KINDS:
        print("skip: neither Open MPI nor MPICH with its compiler is installed (openmpi-bin libopenmpi-dev mpich libmpich-dev)")
        sys.exit(77)
    print("with", *KINDS)
    run_and_exit([ranks_are_refused_and_why_says_what_works, a_rank_alone_works, mpirun_as_the_program_works])
