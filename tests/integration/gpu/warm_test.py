#!/usr/bin/env python3
"""A process that waits on the GPU of a spare node does not count as a stranger, and launcherd checks that it is gone when it should be."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import BUILD, Case
from processes.gpus import GpuCluster
from processes.runner import equal, run_and_exit
from processes.waiting import wait_for


def warm_pid(folder):
    """The process that waits, on a node with its state in `folder`."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read().split(b"\0")
        except OSError:
            continue
        if any(entry.startswith(b"DDP_WARM_FD=") for entry in environment) and \
                any(entry.startswith(b"DDP_METRICS=" + folder.encode()) for entry in environment):
            return int(name)
    return None


def begin(case, cluster):
    """A job on a node without GPUs, whose spare is node0, and the process that waits there."""
    equal(cluster.ctl("node", "drain", "node0", "--reason", "later").returncode, 0)
    cluster.launch("cpus", "launcherd", "--server", cluster.address, "--name", "cpus", "--slots", "1", "--allow-root")
    job = cluster.submit("--spares", "1", "--", os.path.join(BUILD, "worker", "ddp-worker"), "--device", "cpu", "-a", "toynet", "-b", "4",
                         "--epochs", "1000", "-p", "1000")
    cluster.wait_job(job, "running")
    equal(cluster.ctl("node", "resume", "node0").returncode, 0)
    wait_for("a warm spare", lambda: cluster.status(job)["spares_warm"] == 1)
    return job, wait_for("its process", lambda: warm_pid(f"{case.dir}/node0/"))


def what_waits_is_no_stranger():
    with Case() as case, GpuCluster(case, gpus=2, timeout="1s") as cluster:
        cluster.wait_slot(0, "free")
        job, pid = begin(case, cluster)
        for turn in range(2):  # once the other slot has closed and opened, NVML was asked again
            cluster.gpus.set("process", f"process 0 {pid} 600")
            cluster.gpus.set("memory", "memory 0 1100")
            cluster.gpus.set("stranger", f"process 1 {os.getpid()} {700 + turn}")
            wait_for("a stranger", lambda: cluster.slot(1)["state"] == "quarantined")
            cluster.gpus.clear("stranger")
            cluster.wait_slot(1, "free")
        assert cluster.slot(0)["state"] != "quarantined", cluster.slot(0)
        equal((cluster.status(job)["spares_held"], cluster.status(job)["spares_warm"]), (1, 1))
        cluster.ctl("cancel", job)
        wait_for("its end", lambda: warm_pid(f"{case.dir}/node0/") is None)
        cluster.wait_slot(0, "quarantined", f"pid {pid} (gone, or in another container) holds 600 MiB")
        cluster.gpus.clear("process", "memory")
        cluster.wait_slot(0, "free")


def a_stranger_beside_it_is_named():
    with Case() as case, GpuCluster(case, gpus=1, timeout="1s") as cluster:
        cluster.wait_slot(0, "free")
        job, pid = begin(case, cluster)
        cluster.gpus.set("process", f"process 0 {pid} 600")
        cluster.gpus.set("stranger", f"process 0 {os.getpid()} 700")
        slot = wait_for("a stranger", lambda: cluster.slot(0) if cluster.slot(0)["state"] == "quarantined" else None)
        assert slot["reason"].startswith(f"pid {os.getpid()} "), slot
        wait_for("no spare", lambda: cluster.status(job)["spares_held"] == 0)  # and the waiting process ends
        wait_for("its end", lambda: warm_pid(f"{case.dir}/node0/") is None)


if __name__ == "__main__":
    run_and_exit([what_waits_is_no_stranger, a_stranger_beside_it_is_named])
