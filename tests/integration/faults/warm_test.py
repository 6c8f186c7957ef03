"""Warm processes on a spare node, under the launcher: what ends them.
usage: warm_test.py BUILD CASE [STUCK_DISK_LIBRARY]   (tests/lib/stuck_disk.c, which is preloaded into the daemons)

    killed    one of them dies: the spare takes over with newly started processes
    stopped   all of them and the process that keeps them are stopped (SIGSTOP): the same
    worker    one of them is stopped: the same
    silent    one of them gets its rank and does not take it: it is killed after 5 s, and another one is started in its place
    ended     one of them ends instead of taking its rank: the same, at once
    parent    the process that keeps them does not take the start order: all are killed after 5 s, and others are started
    left      the process that keeps them is killed: their child processes end, too
    launcherd their launcherd dies: they end with it, and the next launcherd starts others
    both      their launcherd and the process that keeps them die: the next launcherd ends their child processes
    frozen    their launcherd dies while the process that keeps them is stopped: the next launcherd ends all of them
    group     they are in a cgroup, with all their child processes, even those that try to hide. It becomes the job's cgroup on that node,
              and is removed in every case: a killed keeper, a killed launcherd, a cancel, the job's end
    cancel    the job is cancelled: they end
    order     the job ends while they wait: the next job gets the slot, and succeeds
    stuck     the same, but they do not end by themselves: the next job does not start before they are killed
    beside    the shim of another job dies on that node, and its leftover processes are swept: the warm processes stay"""

import contextlib
import glob
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from faults_lib import Cluster, is_alive, wait_until  # noqa: E402
from warm_lib import warm_parents, warm_processes  # noqa: E402

ENDED = ("failed", "succeeded", "cancelled")
SKIPPED = 77


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


def take_over_stopped(cluster, choose):
    job = submit(cluster)
    status, found = wait_warm(cluster, job)
    for pid in choose(found):
        os.kill(pid, signal.SIGSTOP)
    spare, lost = spare_of(status), status["ranks"][0]["node"]
    cluster.kill_node(int(lost[4:]))
    status = wait_steps(cluster, job, 2)
    assert spare in {rank["node"] for rank in status["ranks"] if rank["pid"]}, status["ranks"]
    cluster.ctl("cancel", str(job))
    cluster.nodes[int(lost[4:])].start()


def stopped(cluster):
    take_over_stopped(cluster, lambda found: [*warm_parents(cluster), *found])


def worker(cluster):
    take_over_stopped(cluster, lambda found: [min(found)])


def make_program(cluster, instead):
    """A ddp-worker whose local rank 0 waits warm, and then does something else."""
    program = f"{cluster.folder}/ddp-worker"
    with open(program, "w", encoding="utf-8") as file:
        file.write("#!/usr/bin/env python3\nimport os, signal, socket, sys\n"
                   "if os.environ.get('DDP_WARM_FD') and os.environ['LOCAL_RANK'] == '0':\n"
                   "    link = socket.socket(fileno=int(os.environ['DDP_WARM_FD']))\n    link.send(b'a')\n"
                   f"    {instead}\n"
                   f"os.execv('{cluster.build}/worker/ddp-worker', sys.argv)\n")
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


def ended(cluster):
    take_over_not_taken(cluster, "link.recv(1); sys.exit(1)", "")


def parent(cluster):
    """It gets the order, and hangs where it opens the log of its shim: a process that is stopped would not get the order."""
    job = submit(cluster)
    status, found = wait_warm(cluster, job)
    spare = spare_of(status)
    (keeper,) = warm_parents(cluster)
    stuck = f"{os.environ['DDP_STUCK_FILE']}.logs"
    with open(f"{stuck}.new", "w", encoding="ascii") as file:
        file.write(f"{keeper}\n")
    os.rename(f"{stuck}.new", stuck)
    take_over_late(cluster, job, spare, lambda: wait_gone(cluster, [keeper, *found]))
    with open(f"{cluster.folder}/{spare}.log", encoding="utf-8") as file:
        lines = file.read()
    assert f"process {keeper}, which was warm, is its shim" in lines, lines
    assert "its shim is killed: it was warm, and has not taken the start order in 5 s" in lines, lines


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


def kill_stopped(cluster, node, pids):
    """Kills launcherd and these processes, so that none of them sees another end."""
    os.kill(node.process.pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_gone(cluster, pids)
    node.kill()


def both(cluster):
    job = submit(cluster, program=make_wrapper(cluster, "setsid sleep 1000 &"))
    status, _ = wait_warm(cluster, job, 4)
    node = cluster.nodes[int(spare_of(status)[4:])]
    found = warm_processes(cluster)
    kill_stopped(cluster, node, warm_parents(cluster))
    wait_until(lambda: len([pid for pid in found if is_alive(pid)]) == 2, "the end of the workers alone: nobody is there to end what is in another session")
    node.start()
    wait_gone(cluster, found)
    wait_warm(cluster, job, 4)
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


def group_of(pid):
    """The folder of a process's cgroup (version 2)."""
    with open("/proc/self/mountinfo", encoding="ascii") as mounts:
        (mount, *_) = [line.split()[4] for line in mounts if " - cgroup2 " in line]
    with open(f"/proc/{pid}/cgroup", encoding="ascii") as file:
        (path,) = [line.strip()[3:] for line in file if line.startswith("0::")]
    return mount + path


def sleepers(folder):
    """The processes in that cgroup that hide: without our environment, in a session of their own."""
    found = []
    with open(f"{folder}/cgroup.procs", encoding="ascii") as file:
        for pid in map(int, file.read().split()):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                with open(f"/proc/{pid}/cmdline", "rb") as command:
                    if command.read().startswith(b"sleep\0"):
                        found.append(pid)
    return found


def wait_group(cluster, job):
    """The spare node, the cgroup there, and the hidden processes in it."""
    spare = spare_of(wait_status(cluster, job, lambda status: status["state"] == "running" and status["spares_warm"] == 1, "a warm spare"))

    def waiting():
        """The workers that took over have that environment, too, and so has the process that hides until it starts its program."""
        return [pid for pid, node in warm_processes(cluster).items() if node == spare]

    (warm,) = wait_until(lambda: len(found := waiting()) == 1 and found, "one process that waits")
    folder = group_of(warm)
    wait_until(lambda: len(sleepers(folder)) == 1, "a process that hides")
    return spare, folder, sleepers(folder)


def wait_removed(cluster, folder, hidden):
    wait_gone(cluster, hidden)
    wait_until(lambda: not os.path.exists(folder), f"the end of {folder}")


def group(cluster):
    with open(f"{cluster.folder}/node0.log", encoding="utf-8") as log:
        if "no cgroups (" in log.read():
            print("this machine has no cgroup v2 that groups can be made in: skipped")
            return SKIPPED
    job = submit(cluster, nproc=1, program=make_wrapper(cluster, "env -i setsid sleep 1000 &"))
    spare, folder, hidden = wait_group(cluster, job)
    os.kill(warm_parents(cluster)[0], signal.SIGKILL)
    wait_removed(cluster, folder, hidden)
    node = cluster.nodes[int(spare[4:])]  # processes that ended by themselves are started again only by another launcherd
    node.kill()
    node.start()
    spare, folder, hidden = wait_group(cluster, job)
    kill_stopped(cluster, node, warm_parents(cluster))
    node.start()
    wait_removed(cluster, folder, hidden)

    spare, folder, hidden = wait_group(cluster, job)
    lost = cluster.status(job)["ranks"][0]["node"]
    cluster.kill_node(int(lost[4:]))
    status = wait_status(cluster, job, lambda status: status["generation"] == 2 and status["state"] == "running", "the spare")
    (rank,) = [rank for rank in status["ranks"] if rank["node"] == spare]
    assert group_of(rank["pid"]) == folder and sleepers(folder) == hidden, (group_of(rank["pid"]), folder)
    cluster.nodes[int(lost[4:])].start()
    spare, next_folder, next_hidden = wait_group(cluster, job)
    cluster.ctl("cancel", str(job))
    wait_removed(cluster, folder, hidden)
    wait_removed(cluster, next_folder, next_hidden)
    return 0


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
    shims = lambda: [pid for pid, command in cluster.processes() if command.startswith(mark)]  # noqa: E731
    (shim,) = wait_until(lambda: len(found := shims()) == 1 and found, "its shim")
    os.kill(shim, signal.SIGKILL)
    assert cluster.wait_end(other) != 0
    wait_until(lambda: not shims(), "the end of its shim")
    assert warm_processes(cluster) == found and cluster.status(job)["spares_warm"] == 1
    cluster.ctl("cancel", str(job))


def main():
    cases = {"killed": killed, "stopped": stopped, "worker": worker, "silent": silent, "ended": ended, "parent": parent, "left": left, "launcherd": launcherd, "both": both, "frozen": frozen, "group": group, "cancel": cancel, "order": order, "stuck": stuck, "beside": beside}
    cluster = Cluster(sys.argv[1], nodes=3, slots=2)
    if len(sys.argv) > 3:
        os.environ.update(LD_PRELOAD=os.path.abspath(sys.argv[3]), DDP_STUCK_FILE=f"{cluster.folder}/stuck", ASAN_OPTIONS="verify_asan_link_order=0")
    with cluster:
        code = cases[sys.argv[2]](cluster) or 0
        wait_until(lambda: not warm_processes(cluster) and not warm_parents(cluster), "the end of what waits")
        wait_until(lambda: not glob.glob(f"{cluster.folder}/node*/warm/*"), "the end of what it wrote about itself")
    return code


if __name__ == "__main__":
    sys.exit(main())
