"""Warm processes on a spare node, under the launcher: what ends them.
usage: warm_test.py BUILD CASE

    killed    one of them dies: the spare takes over with newly started processes
    silent    one of them gets its rank and does not take it: it is killed after 5 s, and another one is started in its place
    left      the process that keeps them is killed: their child processes end, too
    frozen    their launcherd dies while the process that keeps them is stopped: the next launcherd ends all of them
    stuck     the job ends, and they do not end by themselves: the next job does not start before they are killed"""

import glob
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
    """Waits until warm processes wait; returns the status and these processes."""
    status = wait_status(cluster, job, lambda status: status["state"] == "running" and status["spares_warm"] == 1, "a warm spare")
    # A child process that has not started its program yet looks like its parent, or has no environment.
    wait_until(lambda: len(warm_processes(cluster)) == count and len(warm_parents(cluster)) == 1, f"{count} processes that wait, and their parent")
    return status, warm_processes(cluster)


def wait_gone(cluster, pids):
    wait_until(lambda: not any(is_alive(pid) for pid in pids), f"the end of {pids}")


def wait_steps(cluster, job, generation):
    """The status once the job has made steps in this generation. Until then it shows the progress of the generation before."""
    first = wait_status(cluster, job, lambda status: status["generation"] == generation and status["state"] == "running", f"generation {generation}")
    return wait_status(cluster, job, lambda status: status["progress"]["step"] != first["progress"]["step"], f"a step of generation {generation}")


def spare_of(status):
    return ({"node0", "node1", "node2"} - {rank["node"] for rank in status["ranks"]}).pop()


def killed(cluster):
    job = submit(cluster)
    status, found = wait_warm(cluster, job)
    parents = warm_parents(cluster)
    os.kill(min(found), signal.SIGKILL)
    wait_gone(cluster, [*found, *parents])  # one process alone is of no use
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


def make_program(cluster, instead):
    """A ddp-worker whose local rank 0 waits warm, and then does something else. A shell starts it: a program of Python is python's to ddpctl."""
    program = f"{cluster.folder}/ddp-worker"
    with open(program, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\nexec {sys.executable} {program}.py \"$@\"\n")
    with open(f"{program}.py", "w", encoding="utf-8") as file:
        file.write("import os, signal, socket, sys\n"
                   "if os.environ.get('DDP_WARM_FD') and os.environ['LOCAL_RANK'] == '0':\n"
                   "    link = socket.socket(fileno=int(os.environ['DDP_WARM_FD']))\n    link.send(b'a')\n"
                   f"    {instead}\n"
                   f"os.execv('{cluster.build}/worker/ddp-worker', ['ddp-worker', *sys.argv[1:]])\n")
    os.chmod(program, 0o755)
    return program


def take_over_late(cluster, job, spare, begin):
    """Kills a node, after which the job must run on the spare although the warm processes there did not take over."""
    lost = cluster.status(job)["ranks"][0]["node"]
    cluster.kill_node(int(lost[4:]))
    begin()
    status = wait_steps(cluster, job, 2)
    assert spare in {rank["node"] for rank in status["ranks"] if rank["pid"]}, status["ranks"]
    late = f"node {spare}: processes that waited for their ranks have not taken them within 5 s"
    wait_until(lambda: late in cluster.ctl("events", str(job)).stdout, f"the event that says: {late}")
    assert cluster.ctl("events", str(job)).stdout.count(late) == 1, cluster.ctl("events", str(job)).stdout
    cluster.ctl("cancel", str(job))
    cluster.nodes[int(lost[4:])].start()


def take_over_not_taken(cluster, instead, text):
    job = submit(cluster, program=make_program(cluster, instead))
    status, _ = wait_warm(cluster, job)
    spare = spare_of(status)
    take_over_late(cluster, job, spare, lambda: None)
    (log,) = glob.glob(f"{cluster.folder}/{spare}/logs/*-{job}-*/shim-g2.log")
    with open(log, encoding="utf-8") as file:
        lines = file.read()
    assert lines.count("takes over warm") == 2 and lines.count("starts anew") == 1, lines
    assert text in lines and lines.count("is killed") == (1 if text else 0), lines


def silent(cluster):
    take_over_not_taken(cluster, "signal.pause()", "which waited for this rank, has not taken it in 5 s: it is killed")


def make_wrapper(cluster, line):
    program = f"{cluster.folder}/ddp-worker"
    with open(program, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\n{line}\nexec {cluster.build}/worker/ddp-worker \"$@\"\n")
    os.chmod(program, 0o755)
    return program


def left(cluster):
    job = submit(cluster, program=make_wrapper(cluster, "setsid sleep 1000 &"))
    wait_warm(cluster, job, 4)  # two sleeps have their environment
    found = warm_processes(cluster)
    os.kill(warm_parents(cluster)[0], signal.SIGKILL)
    wait_gone(cluster, found)
    cluster.ctl("cancel", str(job))


def frozen(cluster):
    job = submit(cluster)
    status, found = wait_warm(cluster, job)
    node = cluster.nodes[int(spare_of(status)[4:])]
    (keeper,) = warm_parents(cluster)
    os.kill(keeper, signal.SIGSTOP)
    node.kill()
    assert all(is_alive(pid) for pid in [keeper, *found])
    node.start()
    wait_gone(cluster, [keeper, *found])
    wait_warm(cluster, job)
    cluster.ctl("cancel", str(job))


def stuck(cluster):
    job = submit(cluster)
    wait_warm(cluster, job)
    (parent,) = warm_parents(cluster)
    os.kill(parent, signal.SIGSTOP)
    cluster.ctl("cancel", str(job))
    wide = cluster.submit("--nodes", "3", "--nproc-per-node", "2", "--", "test", "!", "-e", f"/proc/{parent}")
    assert cluster.wait_end(wide) == 0, cluster.status(wide)["reason"]


def main():
    cases = {"killed": killed, "silent": silent, "left": left, "frozen": frozen, "stuck": stuck}
    with Cluster(sys.argv[1], nodes=3, slots=2) as cluster:
        cases[sys.argv[2]](cluster)
        wait_until(lambda: not warm_processes(cluster) and not warm_parents(cluster), "the end of what waits")
        wait_until(lambda: not glob.glob(f"{cluster.folder}/node*/warm/*"), "the end of what it wrote about itself")


if __name__ == "__main__":
    main()
