#!/usr/bin/env python3
"""A GPU counts as free only when NVML proves it: processes that a job leaves, processes of others, memory that is not released, NVML that
hangs, fails or is missing."""
import json
import os
import pwd
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster
from processes.gpus import GpuCluster
from processes.runner import equal, run_and_exit
from processes.waiting import Gate, lasting, Stopwatch, wait_for

USER = pwd.getpwuid(os.getuid()).pw_name


def the_slots_are_the_gpus():
    with Case() as case, GpuCluster(case, gpus=3) as cluster:
        assert "3 slots" in cluster.ready, cluster.ready
        node = cluster.node()
        equal((node["slots"], node["gpus"]), (3, 3))
        for slot in range(3):
            cluster.wait_slot(slot, "free", None)
        job = cluster.submit("-n", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER")
        equal(cluster.ctl("wait", job).returncode, 0)
        equal(cluster.ctl("logs", job, "--rank", "0", "--raw").stdout, "0,1 PCI_BUS_ID\n")
        equal(json.loads(cluster.ctl("nodes", "--json").stdout)["nodes"][0]["closed_slots"], [])


def what_a_job_leaves_holds_its_slot():
    """A GPU process of the job that NVML still lists after the job's end."""
    with Case() as case, GpuCluster(case, gpus=1, timeout="2s") as cluster:
        pid_file = os.path.join(case.dir, "pid")
        go = Gate(f"{case.dir}/go")
        job = cluster.submit("--", "sh", "-c",
                             f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; "
                             f"{go.wait}")
        wait_for("the worker", lambda: os.path.exists(pid_file))
        with open(pid_file, encoding="ascii") as file:
            pid = int(file.read())
        cluster.gpus.set("process", f"process 0 {pid} 1830")
        cluster.gpus.set("memory", f"memory 0 2330")
        go.open()
        equal(cluster.ctl("wait", job).returncode, 0)
        watch = Stopwatch()
        second = cluster.submit("--", "true")
        cluster.wait_reason(second, "wants 1 slot on one node; 0 have them free, the best other has 0; slot 0 of node0 "
                                    "is being proved free after its last job")
        equal((cluster.slot(0)["state"], cluster.slot(0)["reason"]), ("checking", None))
        reason = f"pid {pid} (gone, or in another container) holds 1830 MiB"
        slot = cluster.wait_slot(0, "quarantined", reason)
        watch.check("the time for the usual end of a process", 1)
        assert slot["since"] and slot["drained_by"] is None, slot
        cluster.wait_reason(second, "wants 1 slot on one node; 0 have them free, the best other has 0; slot 0 of node0 "
                                    f"is quarantined: {reason}")
        cluster.wait_event(f"node node0: slot 0 is quarantined: {reason}")
        text = cluster.ctl("nodes").stdout
        assert f"node0 slot 0 quarantined: {reason}\n" in text, text
        cluster.gpus.clear("process", "memory")
        equal(cluster.ctl("wait", second).returncode, 0)
        cluster.wait_event("node node0: slot 0 is open again")
        cluster.wait_slot(0, "free", None)


def a_gpu_is_free_again_at_once():
    """The usual case: the job's process disappears from NVML some moments after its end."""
    with Case() as case, GpuCluster(case, gpus=1) as cluster:
        cluster.wait_slot(0, "free")
        cluster.gpus.set("memory", "memory 0 9000")
        job = cluster.submit("--", "true")
        equal(cluster.ctl("wait", job).returncode, 0)
        second = cluster.submit("--", "true")
        equal(cluster.status(second)["state"], "queued")
        cluster.gpus.clear("memory")
        with lasting("the proof that a slot is free", at_most=5):
            equal(cluster.ctl("wait", second).returncode, 0)
        assert not [e for e in cluster.events() if "quarantined" in e], cluster.events()


def a_stranger_is_named():
    with Case() as case, GpuCluster(case, gpus=2, timeout="1s") as cluster:
        cluster.wait_slot(1, "free")
        stranger = subprocess.Popen(["sleep", "600"])
        try:
            cluster.gpus.set("process", f"process 1 {stranger.pid} 700")
            reason = f"pid {stranger.pid} (sleep of {USER}) holds 700 MiB"
            cluster.wait_slot(1, "quarantined", reason)
            job = cluster.submit("-n", "2", "--", "true")
            cluster.wait_reason(job, "wants 2 slots on one node; 0 have them free, the best other has 1; slot 1 of "
                                     f"node0 is quarantined: {reason}")
            other = json.loads(cluster.ctl("nodes", "--json").stdout)["nodes"][0]
            equal((other["slots_free"], other["slots_closed"]), (1, 1))
            equal([(s["slot"], s["state"], s["reason"]) for s in other["closed_slots"]], [(1, "quarantined", reason)])
            cluster.gpus.set("process", f"process 1 {stranger.pid} -1")
            cluster.wait_slot(1, "quarantined", f"pid {stranger.pid} (sleep of {USER}) holds memory")
        finally:
            stranger.kill()
            stranger.wait()
        cluster.gpus.clear("process")
        equal(cluster.ctl("wait", job).returncode, 0)


def memory_without_a_process():
    with Case() as case, GpuCluster(case, gpus=1, timeout="1s") as cluster:
        cluster.wait_slot(0, "free")
        cluster.gpus.set("memory", "memory 0 1500")
        equal(cluster.ctl("wait", cluster.submit("--", "true")).returncode, 0)
        cluster.wait_slot(0, "quarantined", "1500 MiB are in use, 500 MiB when idle, and NVML names no process")
        equal(cluster.end_node(), 0)
        cluster.start_node()  # the baseline is in the record
        cluster.wait_slot(0, "quarantined", "1500 MiB are in use, 500 MiB when idle, and NVML names no process")
        cluster.gpus.set("memory", "memory 0 563")
        cluster.wait_slot(0, "free")


def what_is_no_idle_gpu_at_the_first_look():
    """Memory in use without a process that NVML lists does not become the baseline; a GPU in MIG mode is not a slot."""
    with Case() as case, GpuCluster(case, gpus=2, lines={"memory": "memory 0 40000", "mig": "mig 1 1"}) as cluster:
        cluster.wait_slot(0, "quarantined", "40000 MiB are in use before the first job, an idle GPU uses at most 2048, and NVML names "
                                            "no process")
        cluster.wait_slot(1, "quarantined", "the GPU is in MIG mode, which is not supported: nvidia-smi -i N -mig 0 turns it off")
        cluster.gpus.clear("memory")
        cluster.gpus.set("mig", "mig 1 0")
        cluster.wait_slot(0, "free")
        cluster.wait_slot(1, "free")


def a_hanging_nvml_stops_nothing():
    with Case() as case, GpuCluster(case, gpus=1, slots=2, timeout="1s") as cluster:  # slot 1 has no GPU
        cluster.wait_slot(0, "free")
        cluster.gpus.set("hang", "hang")
        reason = "NVML has not answered for 1 s: the driver hangs, or the GPU does"
        with lasting("a hang of NVML until it is told", at_most=15):
            cluster.wait_slot(0, "unknown", reason)
        job = cluster.submit("--", "sh", "-c", "echo alive")  # on the other slot
        equal(cluster.ctl("wait", job).returncode, 0)
        equal(cluster.ctl("logs", job, "--raw").stdout, "alive\n")
        waiting = cluster.submit("-n", "2", "--", "true")
        cluster.wait_reason(waiting, "wants 2 slots on one node; 0 have them free, the best other has 1; slot 0 of "
                                     f"node0 is unknown: {reason}")
        cluster.gpus.clear("hang")
        equal(cluster.ctl("wait", waiting).returncode, 0)
        cluster.wait_event("node node0: slot 0 is open again")
        cluster.gpus.set("hang", "hang")
        cluster.wait_slot(0, "unknown", reason)
        with lasting("the end with a thread that is stuck", at_most=10):
            equal(cluster.end_node(), 0)


def a_node_whose_nvml_hangs_from_the_start():
    with Case() as case, GpuCluster(case, gpus=1, timeout="1s") as cluster:
        cluster.wait_slot(0, "free")
        equal(cluster.end_node(), 0)
        cluster.gpus.set("hang", "hang")
        cluster.start_node()
        assert "1 slot," in cluster.ready, cluster.ready
        assert "NVML does not answer: the driver hangs; the slots of 1 GPUs stay closed until it does" in cluster.log()
        cluster.wait_slot(0, "unknown")
        job = cluster.submit("--", "true")
        equal(cluster.status(job)["state"], "queued")
        cluster.gpus.clear("hang")
        equal(cluster.ctl("wait", job).returncode, 0)


def errors_of_nvml():
    with Case() as case, GpuCluster(case, gpus=1, timeout="1s") as cluster:
        cluster.wait_slot(0, "free")
        cluster.gpus.set("error", "error 0 999")
        cluster.wait_slot(0, "unknown", "NVML answers with error 999 (Unknown Error)")
        cluster.gpus.set("error", "init 9")
        cluster.wait_slot(0, "unknown", "NVML answers with error 9 (Unknown Error)")
        cluster.gpus.clear("error")
        cluster.wait_slot(0, "free")
        cluster.gpus.set("error", "error 0 15")
        cluster.wait_slot(0, "drained", "the GPU has fallen off the bus; restart the machine")


def without_nvml_slots_are_cpu_shares():
    with Case() as case, Cluster(case, slots=2) as cluster:
        node = json.loads(cluster.ctl("node", "show", "node0", "--json").stdout)["node"]
        if node["gpus"] > 0:
            return  # this machine has a driver
        equal([s["state"] for s in node["slot_list"]], ["free", "free"])
        job = cluster.submit("-n", "2", "--", "sh", "-c", "echo ${CUDA_VISIBLE_DEVICES-none}")
        equal(cluster.ctl("wait", job).returncode, 0)
        equal(cluster.ctl("logs", job, "--rank", "1", "--raw").stdout, "none\n")


if __name__ == "__main__":
    run_and_exit([the_slots_are_the_gpus, what_a_job_leaves_holds_its_slot, a_gpu_is_free_again_at_once,
               a_stranger_is_named, memory_without_a_process, what_is_no_idle_gpu_at_the_first_look, a_hanging_nvml_stops_nothing,
               a_node_whose_nvml_hangs_from_the_start, errors_of_nvml, without_nvml_slots_are_cpu_shares], side_by_side=3)
