"""Warm processes on a spare node, through the launcher: what ends them.
usage: warm_test.py BUILD CASE

    killed    one of them dies: the spare takes over with processes that are started then
    stopped   all of them are stopped (SIGSTOP), as is the process that keeps them: the same
    worker    one of them is stopped: the same
    left      the process that keeps them is killed: what they had started has ended, too
    launcherd its launcherd dies: they end with it, and the next one has others
    cancel    the job is cancelled: they end
    order     the job ends while they wait: the next job has the slot, and succeeds
    stuck     likewise, but they do not end by themselves: the next job does not start before they are killed
    beside    the shim of another job dies on that node, and what it left is swept: they stay"""

import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from faults_lib import Cluster, is_alive, wait_until  # noqa: E402
from warm_lib import warm_parents, warm_processes  # noqa: E402

ENDED = ("failed", "succeeded", "cancelled")


def submit(cluster, nproc=2, program=None):
    return cluster.submit("--nodes", "2", "--nproc-per-node", str(nproc), "--spares", "1", "--max-restarts", "1", "--",
                          program or f"{cluster.build}/worker/ddp-worker", "-a", "toynet", "-b", "4", "--epochs", "1000", "-p", "1000",
                          "--checkpoint-every", "50", "--checkpoint-dir", f"{cluster.folder}/checkpoints")


def wait_status(cluster, job, condition, what):
    def reached():
        status = cluster.status(job)
        assert status["state"] not in ENDED, f"{status['state']}: {status['reason']}"
        return status if condition(status) else None
    return wait_until(reached, what)


def wait_warm(cluster, job, count=2):
    """The status, and what waits there."""
    status = wait_status(cluster, job, lambda status: status["state"] == "running" and status["spares_warm"] == 1, "a warm spare")
    found = warm_processes(cluster)
    assert len(found) == count and len(warm_parents(cluster)) == 1, (found, warm_parents(cluster))
    return status, found


def wait_gone(cluster, pids):
    wait_until(lambda: not any(is_alive(pid) for pid in pids), f"the end of {pids}")


def spare_of(status):
    return ({"node0", "node1", "node2"} - {rank["node"] for rank in status["ranks"]}).pop()


def killed(cluster):
    job = submit(cluster)
    status, found = wait_warm(cluster, job)
    parents = warm_parents(cluster)
    os.kill(min(found), signal.SIGKILL)
    wait_gone(cluster, [*found, *parents])  # one alone is of no use
    status = wait_status(cluster, job, lambda status: status["spares_warm"] == 0, "a spare that is not warm")
    assert status["spares_held"] == 1 and status["generation"] == 1, status
    wait_until(lambda: f"spare node {spare_of(status)} is not warm" in cluster.ctl("events", str(job)).stdout, "the event")
    spare, lost = spare_of(status), status["ranks"][0]["node"]
    cluster.kill_node(int(lost[4:]))
    status = wait_status(cluster, job, lambda status: status["generation"] == 2 and status["state"] == "running", "the spare")
    assert {rank["node"] for rank in status["ranks"] if rank["pid"]} & {spare}, status["ranks"]
    assert not warm_processes(cluster)
    cluster.ctl("cancel", str(job))
    cluster.nodes[int(lost[4:])].start()


def take_over_stopped(cluster, choose):
    job = submit(cluster)
    status, found = wait_warm(cluster, job)
    for pid in choose(found):
        os.kill(pid, signal.SIGSTOP)
    spare, lost = spare_of(status), status["ranks"][0]["node"]
    cluster.kill_node(int(lost[4:]))
    status = wait_status(cluster, job, lambda status: status["generation"] == 2 and status["state"] == "running" and (status["progress"]["step"] or 0) > 0,
                         "the spare")
    assert spare in {rank["node"] for rank in status["ranks"] if rank["pid"]}, status["ranks"]
    cluster.ctl("cancel", str(job))
    cluster.nodes[int(lost[4:])].start()


def stopped(cluster):
    take_over_stopped(cluster, lambda found: [*warm_parents(cluster), *found])


def worker(cluster):
    take_over_stopped(cluster, lambda found: [min(found)])


def left(cluster):
    program = f"{cluster.folder}/ddp-worker"
    with open(program, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\nsetsid sleep 1000 &\nexec {cluster.build}/worker/ddp-worker \"$@\"\n")
    os.chmod(program, 0o755)
    job = submit(cluster, program=program)
    wait_warm(cluster, job, 4)  # two sleeps have their environment
    found = warm_processes(cluster)
    os.kill(warm_parents(cluster)[0], signal.SIGKILL)
    wait_gone(cluster, found)
    cluster.ctl("cancel", str(job))


def launcherd(cluster):
    job = submit(cluster)
    status, found = wait_warm(cluster, job)
    node = cluster.nodes[int(spare_of(status)[4:])]
    parents = warm_parents(cluster)
    node.kill()
    wait_gone(cluster, [*found, *parents])
    node.start()
    wait_until(lambda: len(warm_processes(cluster)) == 2, "others")
    status, others = wait_warm(cluster, job)
    assert not set(found) & set(others) and status["generation"] == 1, (found, others, status)
    cluster.ctl("cancel", str(job))


def cancel(cluster):
    job = submit(cluster)
    _, found = wait_warm(cluster, job)
    parents = warm_parents(cluster)
    cluster.ctl("cancel", str(job))
    wait_gone(cluster, [*found, *parents])


def order(cluster):
    job = submit(cluster)
    _, found = wait_warm(cluster, job)
    cluster.ctl("cancel", str(job))
    wide = cluster.submit("--nodes", "3", "--nproc-per-node", "2", "--", "true")
    assert cluster.wait_end(wide) == 0, cluster.status(wide)["reason"]
    wait_gone(cluster, found)


def stuck(cluster):
    job = submit(cluster)
    wait_warm(cluster, job)
    (parent,) = warm_parents(cluster)
    os.kill(parent, signal.SIGSTOP)
    cluster.ctl("cancel", str(job))
    wide = cluster.submit("--nodes", "3", "--nproc-per-node", "2", "--", "test", "!", "-e", f"/proc/{parent}")
    assert cluster.wait_end(wide) == 0, cluster.status(wide)["reason"]


def beside(cluster):
    job = submit(cluster, nproc=1)
    status, found = wait_warm(cluster, job, 1)
    other = cluster.submit("--nodes", "3", "--max-restarts", "0", "--", "sleep", "1000")
    wait_status(cluster, other, lambda status: status["state"] == "running", "the other job")
    mark = f"launcherd --shim {cluster.folder}/{spare_of(status)}/run/"
    (shim,) = [pid for pid, command in cluster.processes() if command.startswith(mark)]
    os.kill(shim, signal.SIGKILL)
    assert cluster.wait_end(other) != 0
    wait_until(lambda: not any(command.startswith(mark) for _, command in cluster.processes()), "the end of its shim")
    assert warm_processes(cluster) == found and cluster.status(job)["spares_warm"] == 1
    cluster.ctl("cancel", str(job))


def main():
    cases = {"killed": killed, "stopped": stopped, "worker": worker, "left": left, "launcherd": launcherd, "cancel": cancel, "order": order, "stuck": stuck, "beside": beside}
    with Cluster(sys.argv[1], nodes=3, slots=2) as cluster:
        cases[sys.argv[2]](cluster)
        wait_until(lambda: not warm_processes(cluster) and not warm_parents(cluster), "the end of what waits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
