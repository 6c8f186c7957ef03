#!/usr/bin/env python3
"""Xids, memory errors, and operators who drain and resume, seen through ddpctl."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case
from processes.gpus import GpuCluster
from processes.runner import equal, run_and_exit
from processes.waiting import Gate

OFF_THE_BUS = "Xid 79: the GPU has fallen off the bus; restart the machine"
FULL = "wants 2 slots on one node; 0 have them free, the best other has 1; "


def running_job(cluster, *args):
    go = Gate(f"{cluster.case.dir}/go")
    job = cluster.submit(*args, "--", "sh", "-c", f"{go.wait}")
    cluster.wait_job(job, "running")
    return job, go


def an_xid_drains_its_slot_and_no_other():
    with Case() as case, GpuCluster(case, gpus=2) as cluster:
        job, go = running_job(cluster)
        cluster.gpus.xid(0, 79)
        slot = cluster.wait_slot(0, "drained", OFF_THE_BUS)
        equal((slot["job_id"], slot["drained_by"]), (int(job), None))
        cluster.wait_event("node node0: GPU 0: Xid 79: the GPU has fallen off the bus")
        cluster.wait_event(f"node node0: slot 0 is drained: {OFF_THE_BUS}")
        equal(cluster.status(job)["state"], "running")  # the fault does not end the job
        go.open()
        equal(cluster.ctl("wait", job).returncode, 0)
        waiting = cluster.submit("-n", "2", "--", "true")
        cluster.wait_reason(waiting, FULL + f"slot 0 of node0 is drained: {OFF_THE_BUS}")
        equal(cluster.end_node(kill=True), -9)  # the fault is in the record
        cluster.start_node()
        cluster.wait_slot(1, "free")
        equal(cluster.slot(0)["reason"], OFF_THE_BUS)
        cluster.kill_server()
        cluster.start_server()
        cluster.wait_node()
        equal(cluster.slot(0)["state"], "drained")
        equal(cluster.ctl("node", "resume", "node0", "--slot", "1").returncode, 0)
        equal(cluster.slot(0)["state"], "drained")
        done = cluster.ctl("node", "resume", "node0", "--slot", "0")
        equal(done.returncode, 0)
        equal(done.stderr, "resumed: node0, slot 0\n  look  ddpctl node show node0\n")
        equal(cluster.ctl("wait", waiting).returncode, 0)


def a_damaged_record_is_reported_and_ignored():
    with Case() as case, GpuCluster(case, gpus=1) as cluster:
        cluster.gpus.xid(0, 79)
        cluster.wait_slot(0, "drained", OFF_THE_BUS)
        equal(cluster.end_node(), 0)
        record = os.path.join(case.dir, "node0", "slots.json")
        with open(record, encoding="utf-8") as file:
            whole = file.read()
        equal(whole[:13], '{"version":1,')
        with open(record, "w", encoding="utf-8") as file:
            file.write(whole[:-10])
        cluster.gpus.clear("xid1")
        cluster.start_node()
        cluster.wait_slot(0, "free")
        text = "the record of the slots is damaged: it is not JSON; slots that were drained are open again"
        assert text in cluster.log(), cluster.log()


def a_harmless_xid_is_an_event():
    with Case() as case, GpuCluster(case, gpus=1) as cluster:
        job, go = running_job(cluster)
        cluster.gpus.xid(0, 31)
        cluster.wait_event("node node0: GPU 0: Xid 31: a memory page fault, mostly a bad access of the program")
        equal(cluster.slot(0)["state"], "busy")
        go.open()
        equal(cluster.ctl("wait", job).returncode, 0)
        equal(cluster.ctl("wait", cluster.submit("--", "true")).returncode, 0)


def memory_errors():
    with Case() as case, GpuCluster(case, gpus=2, lines={"ecc": "ecc 0 3"}, timeout="1s") as cluster:
        for slot in range(2):
            cluster.wait_slot(slot, "free")
        cluster.gpus.set("ecc", "ecc 0 5")
        cluster.wait_slot(0, "drained",
                          "2 new uncorrectable memory errors (ECC); reset the GPU, then resume the slot")
        cluster.gpus.set("rows", "rows 1 1 0")
        cluster.wait_event("node node0: GPU 1: a memory row will be remapped at the next reset")
        equal(cluster.slot(1)["state"], "free")
        cluster.gpus.set("rows", "rows 1 1 1")
        cluster.wait_slot(1, "drained", "a memory row could not be remapped; reset the GPU, then resume the slot")
        equal(cluster.ctl("node", "resume", "node0").returncode, 0)
        for slot in range(2):
            cluster.wait_slot(slot, "free")


def operators_drain_and_resume():
    with Case() as case, GpuCluster(case, gpus=2) as cluster:
        for slot in range(2):
            cluster.wait_slot(slot, "free")
        job, go = running_job(cluster)
        done = cluster.ctl("node", "drain", "node0", "--slot", "0-1", "--reason", "fan is loud")
        equal((done.returncode, done.stdout), (0, ""))
        equal(done.stderr, "drained: node0, slot 0-1\n  look  ddpctl node show node0\n")
        user = cluster.status(job)["user"]
        slot = cluster.slot(0)
        equal((slot["state"], slot["job_id"], slot["reason"], slot["drained_by"]),
              ("drained", int(job), "fan is loud", user))
        equal(cluster.status(job)["state"], "running")
        go.open()
        equal(cluster.ctl("wait", job).returncode, 0)
        waiting = cluster.submit("--", "true")
        closed = "wants 1 slot on one node; 0 have them free, the best other has 0; 2 slots are closed: slot"
        # One of the two is named: not the one whose GPU was still being looked at after the job.
        reasons = [f"{closed} {slot} of node0 was drained by {user}: fan is loud" for slot in (0, 1)]
        cluster.wait_reason(waiting, *reasons)
        equal(cluster.ctl("node", "resume", "node0", "--slot", "1").returncode, 0)
        equal(cluster.ctl("wait", waiting).returncode, 0)
        equal(cluster.ctl("node", "drain", "node0", "--reason", "new cooler").returncode, 0)
        cluster.kill_server()
        cluster.start_server()  # a drain is durable
        cluster.wait_node()
        drained = cluster.node()["drained"]
        equal((drained["by"], drained["reason"]), (user, "new cooler"))
        assert f"node0 drained by {user}: new cooler\n" in cluster.ctl("nodes").stdout
        waiting = cluster.submit("--", "true")
        cluster.wait_reason(waiting, "wants 1 slot on one node; 0 have them free, the best other has 0; 2 slots are "
                                     f"closed: node node0 was drained by {user}: new cooler")
        equal(cluster.ctl("node", "resume", "node0").returncode, 0)
        equal(cluster.ctl("wait", waiting).returncode, 0)
        equal((cluster.node()["drained"], cluster.slot(0)["state"]), (None, "free"))


def mistakes_are_reported():
    with Case() as case, GpuCluster(case, gpus=1) as cluster:
        for args, code, text in ((("show", "gpu9"), 3, "there is no node gpu9"),
                                 (("drain", "gpu9"), 3, "there is no node gpu9"),
                                 (("resume", "node0", "--slot", "1"), 2, "node node0 has 1 slots, 0 to 0"),
                                 (("drain", "node0", "--slot", "x"), 2, "--slot: 'x' should be slots from 0 to 63"),
                                 (("drain", "node0", "--slot", "0-64"), 2, "should be slots"),
                                 (("drain", "node0", "--slot", "-1"), 2, ""),
                                 (("drian", "node0"), 2, "'drian' should be show, drain, resume, add"),
                                 (("show",), 2, "which node?"),
                                 (("add", "gpu 1"), 2, "gpu 1"),
                                 (("show", "node0", "node1"), 2, "nothing is known about 'node1'")):
            done = cluster.ctl("node", *args)
            equal(done.returncode, code, args)
            assert text in done.stderr, (args, done.stderr)


if __name__ == "__main__":
    run_and_exit([an_xid_drains_its_slot_and_no_other, a_damaged_record_is_reported_and_ignored,
               a_harmless_xid_is_an_event, memory_errors,
               operators_drain_and_resume, mistakes_are_reported], side_by_side=3)
