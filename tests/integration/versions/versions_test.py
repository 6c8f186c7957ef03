"""Programs of this version and of the release before in one cluster, stopped, killed and exchanged while a job trains.

usage: versions_test.py BUILD [CHANGES [SEED]]
       versions_test.py BUILD upgrade

No step of the job is repeated or missing, and it stays in its first generation. After each change the mixed cluster runs short jobs of both
clients and answers both. The release before is built from its commit (release_before.py).

Without `upgrade`, nodes (and the server, if both have one schema of the store) are stopped or killed, and exchanged at random.

`upgrade`: all programs start as the release before, also the job's. First the steps of `ddpctl upgrade --plan` are carried out one by one until
none is left; then nodes and clients go back, and the server, if the schema of the store has not gone up; else the older server refuses the store,
and nothing is lost. Then a second cluster is upgraded with a node first."""

import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import printed_steps  # noqa: E402
import release_before  # noqa: E402
from processes.case import clean_environ
from processes.own import OwnCluster
from processes.waiting import LONG_S, wait_for


class Programs:
    def __init__(self, build, folder):
        self.now = {name: f"{build}/{name}/{name}" for name in ("rendezvous", "launcherd", "ddpctl")}
        self.before = {name: f"{folder}/{name}/{name}" for name in self.now}

    def exchange(self, daemon):
        """The next start of the daemon is of the other version."""
        daemon.is_before = not daemon.is_before
        daemon.argv[0] = (self.before if daemon.is_before else self.now)[daemon.program]


def prepare(cluster, programs, before):
    """The daemons of `before` are of the release before, and so are the job's shims on such a node."""
    for daemon, name in [(cluster.server, "rendezvous"), *((node, "launcherd") for node in cluster.nodes)]:
        daemon.program, daemon.is_before = name, False
        if daemon in before:
            programs.exchange(daemon)


def check_protocols(build, programs):
    said = {which: subprocess.run([paths["ddpctl"], "version", "--json"], capture_output=True, text=True, check=True).stdout
            for which, paths in (("now", programs.now), ("before", programs.before))}
    assert said["now"] != said["before"], f"both are of one version: {said}"
    print(said["before"].strip(), "and", said["now"].strip(), "of", build, flush=True)


def ask(cluster, programs, which, *args):
    done = subprocess.run([getattr(programs, which)["ddpctl"], "--server", cluster.address, *args], capture_output=True,
                          text=True, timeout=LONG_S, env=clean_environ(OMP_NUM_THREADS="1"), cwd=cluster.folder, check=False)
    assert done.returncode == 0, f"ddpctl ({which}) {args}: {done.returncode}: {done.stderr}"
    return done.stdout


def printed(cluster, job):
    return printed_steps.find(cluster.ctl("logs", str(job), "--rank", "0", "--raw").stdout)


def last_step(cluster, job):
    """The last (epoch, step); (0, 0): none, or the node cannot be asked at present."""
    lines = printed_steps.find(cluster.ctl("logs", str(job), "--rank", "0", "--raw", "--tail", "1", check=False).stdout)
    return lines[-1] if lines else (0, 0)


def change(cluster, programs, chance, server_changes):
    """Stops or kills one daemon or all of them, and starts them again, mostly as the other version."""
    chosen = chance.choice([[cluster.server], [cluster.nodes[0]], [cluster.nodes[1]], [cluster.server, *cluster.nodes]])
    how = chance.choice(["stop", "kill"])
    for daemon in chosen:
        (daemon.kill if how == "kill" else daemon.end)()
        if chance.random() < 0.75 and (server_changes or daemon is not cluster.server):
            programs.exchange(daemon)
    for daemon in chosen:
        daemon.start()
    return "%s %s; now %s" % (how, ",".join(d.program for d in chosen),
                              " ".join("%s:%s" % (d.program[:4], "before" if d.is_before else "now")
                                       for d in [cluster.server, *cluster.nodes]))


def check_metrics(cluster, programs, job):
    """Servers and nodes of both versions have metrics."""
    done = subprocess.run([programs.now["ddpctl"], "--server", cluster.address, "metrics", "--json", str(job)], capture_output=True,
                          text=True, timeout=LONG_S, env=clean_environ(OMP_NUM_THREADS="1"), cwd=cluster.folder, check=False)
    assert done.returncode == 0 and all('"type":"metrics"' in line for line in done.stdout.splitlines()), done
    assert '"kind":"step"' in done.stdout, done


def check_why(cluster, programs, job):
    told = ask(cluster, programs, "now", "why", "--stacks", str(job))
    assert told.startswith(f"ddp-worker ({job}) running on "), told


def check_mixed(cluster, programs, job):
    """Both clients run jobs on both nodes, and what this version tells of the training is as always."""
    for which in ("now", "before"):
        ask(cluster, programs, which, "run", "--nodes", "2", "--nproc-per-node", "1", "--", "true")
        assert ask(cluster, programs, which, "nodes").count(" up ") == len(cluster.nodes)
    check_metrics(cluster, programs, job)
    check_why(cluster, programs, job)
    check_undisturbed(cluster, job)


def check_undisturbed(cluster, job):
    status = cluster.status(job)
    assert (status["state"], status["generation"], status["restarts"]) == ("running", 1, 0), status


def train(cluster, build):
    """A job of two nodes that would run for days, after its first steps."""
    job = cluster.submit("--nodes", "2", "--nproc-per-node", "1", "--", f"{build}/worker/ddp-worker", "--dummy",
                         "-a", "convnet", "--epochs", "100000", "--max-steps", "90000000", "-b", "16", "-p", "1", "--device", "cpu")
    wait_for("the first steps", lambda: last_step(cluster, job) > (1, 5), LONG_S)
    return job


def end(cluster, job):
    """Ends the job. Returns the number of its steps: none is missing, and none came twice."""
    cluster.ctl("cancel", "--wait", str(job), check=False)
    status = cluster.status(job)
    assert (status["state"], status["generation"], status["restarts"]) == ("cancelled", 1, 0), status
    return printed_steps.check(printed(cluster, job))


def run(build, changes, seed):
    chance, folder = random.Random(seed), release_before.programs(build)
    programs, cluster = Programs(build, folder), OwnCluster()
    check_protocols(build, programs)
    prepare(cluster, programs, [cluster.server, cluster.nodes[1]])
    with cluster:
        server_changes = "backup" not in [step["kind"] for step in plan(cluster, programs)]
        job = train(cluster, build)
        if not server_changes:
            restart_as_other(cluster, programs, job, cluster.server)
        for i in range(changes):
            text = change(cluster, programs, chance, server_changes)
            seen = wait_for("its log", lambda: (step := last_step(cluster, job)) > (0, 0) and step, LONG_S)
            wait_for("a step after it", lambda before=seen: last_step(cluster, job) > before, LONG_S)
            check_mixed(cluster, programs, job)
            print(f"{i + 1}: {text}; step {seen}", flush=True)
        steps = end(cluster, job)
    print(f"ok: {changes} changes, {steps} steps, none twice, none missing, generation 1, no restart")


def plan(cluster, programs):
    done = subprocess.run([programs.now["ddpctl"], "--server", cluster.address, "upgrade", "--plan", "--json"], capture_output=True,
                          text=True, timeout=LONG_S, env=clean_environ(OMP_NUM_THREADS="1"), cwd=cluster.folder, check=False)
    upgrade = json.loads(done.stdout)["upgrade"]
    assert (done.returncode, upgrade["safe"], upgrade["problems"]) == (0, True, []), (done, upgrade)
    return [step for step in upgrade["steps"] if step["kind"] != "clients"]


def restart_as_other(cluster, programs, job, daemon):
    """Like an upgrade of the package: installs the new files, then restarts. The job goes on meanwhile."""
    seen = wait_for("its log", lambda: (step := last_step(cluster, job)) > (0, 0) and step, LONG_S)
    daemon.end()
    programs.exchange(daemon)
    daemon.start()
    wait_for("a step after it", lambda: last_step(cluster, job) > seen, LONG_S)
    wait_for("all nodes", lambda: is_all_up(cluster, programs), LONG_S)


def is_all_up(cluster, programs):
    return ask(cluster, programs, "now", "nodes").count(" up ") == len(cluster.nodes)


def carry_out_plan(cluster, programs, job):
    """One step at a time. Returns the kinds of its steps."""
    daemons = {"server": {cluster.address: cluster.server}, "node": {f"node{i}": node for i, node in enumerate(cluster.nodes)}}
    done = []
    while steps := [step for step in plan(cluster, programs) if step["kind"] not in done or step["kind"] != "backup"]:
        step = steps[0]
        if step["kind"] == "backup":
            subprocess.run([programs.before["ddpctl"], "backup", "--state-dir", f"{cluster.folder}/server", f"{cluster.folder}/backup"],
                           env=clean_environ(OMP_NUM_THREADS="1"), check=True, timeout=LONG_S)
        else:
            daemon = daemons[step["kind"]][step["name"]]
            assert not step["stops_jobs"] and daemon.is_before, f"{step} is of this version already"
            restart_as_other(cluster, programs, job, daemon)
            check_mixed(cluster, programs, job)
        done.append(step["kind"])
    return done


def refuses_newer_store(cluster, programs):
    """The older server does not touch a store of a newer schema, and says what to do."""
    cluster.server.end()
    done = subprocess.run([programs.before["rendezvous"], *cluster.server.argv[1:]], capture_output=True, text=True,
                          timeout=LONG_S, env=clean_environ(OMP_NUM_THREADS="1"), check=False)
    assert done.returncode == 1 and "schema" in done.stderr and "newer" in done.stderr, done
    cluster.server.start()


def go_back(cluster, programs, job, has_new_schema):
    for node in reversed(cluster.nodes):
        restart_as_other(cluster, programs, job, node)
        check_mixed(cluster, programs, job)
    if has_new_schema:
        refuses_newer_store(cluster, programs)
        wait_for("all nodes", lambda: is_all_up(cluster, programs), LONG_S)
    else:
        restart_as_other(cluster, programs, job, cluster.server)
    check_mixed(cluster, programs, job)


def upgrade(build, folder, by_plan):
    """Returns what was done, and the steps of the job. The job's program is of the release before, too."""
    programs, cluster = Programs(build, folder), OwnCluster()
    check_protocols(build, programs)
    prepare(cluster, programs, [cluster.server, *cluster.nodes])
    with cluster:
        job = train(cluster, folder)
        if by_plan:
            done = carry_out_plan(cluster, programs, job)
            assert done[-3:] == ["server", "node", "node"] and done[:-3] in ([], ["backup"]), done
            go_back(cluster, programs, job, "backup" in done)
        else:
            for daemon in (cluster.nodes[1], cluster.server, cluster.nodes[0]):
                restart_as_other(cluster, programs, job, daemon)
                check_mixed(cluster, programs, job)
            assert plan(cluster, programs) == [], "something is left to do"
        return end(cluster, job)


def main():
    build = os.path.abspath(sys.argv[1])
    if sys.argv[2:3] == ["upgrade"]:
        folder = release_before.programs(build)
        for by_plan, what in ((True, "by the plan, and back"), (False, "a node first")):
            print(f"ok: {what}: {upgrade(build, folder, by_plan)} steps, none twice, none missing, generation 1", flush=True)
        return
    changes = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    print(f"seed {seed}")
    run(build, changes, seed)


if __name__ == "__main__":
    main()
