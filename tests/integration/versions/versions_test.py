"""Programs of this version and of the previous one in one cluster, stopped, killed and exchanged while a job trains.

usage: versions_test.py BUILD [CHANGES [SEED [FOLDER]]]
       versions_test.py BUILD rolling [UPGRADES]

No step of the job is repeated or missing, and it stays in its first generation. After each change the mixed cluster runs a short
job and answers clients of both versions. The programs of the previous version are ours with another version number, or, with FOLDER,
those of an earlier build: FOLDER/rendezvous/rendezvous and so on.

`rolling`: all programs start as the previous version, and the steps of `ddpctl upgrade --plan` are carried out one by one until none is
left; then back again. The same must hold."""

import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "faults"))
import printed_steps  # noqa: E402
from faults_lib import PATIENCE_S, Cluster, digits_env, wait_until  # noqa: E402


class Programs:
    def __init__(self, build, folder):
        self.now = {name: f"{build}/{name}/{name}" for name in ("rendezvous", "launcherd", "ddpctl")}
        self.before = {name: f"{folder}/{name}/{name}" if folder else f"{build}/tests/integration/versions/{name}-before"
                       for name in self.now}

    def exchange(self, daemon):
        """The daemon's next start uses the other version."""
        daemon.is_before = not daemon.is_before
        daemon.argv[0] = (self.before if daemon.is_before else self.now)[daemon.program]


def prepare(cluster, programs):
    """One server and one node of this version, one node of the previous version, and so the job's shims."""
    for daemon, name in [(cluster.server, "rendezvous"), *((node, "launcherd") for node in cluster.nodes)]:
        daemon.program, daemon.is_before = name, False
    programs.exchange(cluster.nodes[1])


def check_protocols(build, programs):
    said = {which: subprocess.run([paths["ddpctl"], "version", "--json"], capture_output=True, text=True, check=True).stdout
            for which, paths in (("now", programs.now), ("before", programs.before))}
    assert said["now"] != said["before"], f"both are of one version: {said}"
    print(said["before"].strip(), "and", said["now"].strip(), "of", build, flush=True)


def ask(cluster, programs, which, *args):
    done = subprocess.run([getattr(programs, which)["ddpctl"], "--server", cluster.address, *args], capture_output=True,
                          text=True, timeout=PATIENCE_S, env=digits_env(), cwd=cluster.folder, check=False)
    assert done.returncode == 0, f"ddpctl ({which}) {args}: {done.returncode}: {done.stderr}"
    return done.stdout


def printed(cluster, job):
    return printed_steps.find(cluster.ctl("logs", str(job), "--rank", "0", "--raw").stdout)


def last_step(cluster, job):
    """The last (epoch, step); (0, 0): none, or the node cannot be asked at present."""
    lines = printed_steps.find(cluster.ctl("logs", str(job), "--rank", "0", "--raw", "--tail", "1", check=False).stdout)
    return lines[-1] if lines else (0, 0)


def change(cluster, programs, chance):
    """Stops or kills one daemon or all of them, and starts them again, mostly as the other version."""
    chosen = chance.choice([[cluster.server], [cluster.nodes[0]], [cluster.nodes[1]], [cluster.server, *cluster.nodes]])
    how = chance.choice(["stop", "kill"])
    for daemon in chosen:
        (daemon.kill if how == "kill" else daemon.stop)()
        if chance.random() < 0.75:
            programs.exchange(daemon)
    for daemon in chosen:
        daemon.start()
    return "%s %s; now %s" % (how, ",".join(d.program for d in chosen),
                              " ".join("%s:%s" % (d.program[:4], "before" if d.is_before else "now")
                                       for d in [cluster.server, *cluster.nodes]))


def check_metrics(cluster, programs, job):
    """Servers and nodes of both versions have metrics."""
    done = subprocess.run([programs.now["ddpctl"], "--server", cluster.address, "metrics", "--json", str(job)], capture_output=True,
                          text=True, timeout=PATIENCE_S, env=digits_env(), cwd=cluster.folder, check=False)
    assert done.returncode == 0 and all('"type":"metrics"' in line for line in done.stdout.splitlines()), done
    assert '"kind":"step"' in done.stdout, done


def check_why(cluster, programs, job):
    told = ask(cluster, programs, "now", "why", "--stacks", str(job))
    assert told.startswith(f"ddp-worker ({job}) running on "), told


def train(cluster, build):
    """A job of two nodes that would run for days, after its first steps."""
    job = cluster.submit("--nodes", "2", "--nproc-per-node", "1", "--", f"{build}/worker/ddp-worker", "--dummy",
                         "-a", "convnet", "--epochs", "100000", "--max-steps", "90000000", "-b", "16", "-p", "1", "--device", "cpu")
    wait_until(lambda: last_step(cluster, job) > (1, 5), "the first steps")
    return job


def run(build, changes, seed, folder):
    chance, programs = random.Random(seed), Programs(build, folder)
    check_protocols(build, programs)
    cluster = Cluster(build)
    prepare(cluster, programs)
    with cluster:
        job = train(cluster, build)
        for i in range(changes):
            text = change(cluster, programs, chance)
            seen = wait_until(lambda: (step := last_step(cluster, job)) > (0, 0) and step, "its log")
            wait_until(lambda before=seen: last_step(cluster, job) > before, "a step after it")
            ask(cluster, programs, ("now", "before")[i % 2], "run", "--nodes", "2", "--nproc-per-node", "1", "--", "true")
            assert ask(cluster, programs, ("now", "before")[i // 2 % 2], "nodes").count(" up ") == 2
            check_metrics(cluster, programs, job)
            check_why(cluster, programs, job)
            status = cluster.status(job)
            assert (status["state"], status["generation"], status["restarts"]) == ("running", 1, 0), status
            print(f"{i + 1}: {text}; step {seen}", flush=True)
        cluster.ctl("cancel", "--wait", str(job), check=False)
        steps = printed_steps.check(printed(cluster, job))
        status = cluster.status(job)
        assert (status["state"], status["generation"], status["restarts"]) == ("cancelled", 1, 0), status
    print(f"ok: {changes} changes, {steps} steps, none twice, none missing, generation 1, no restart")


def plan(cluster, programs):
    done = subprocess.run([programs.now["ddpctl"], "--server", cluster.address, "upgrade", "--plan", "--json"], capture_output=True,
                          text=True, timeout=PATIENCE_S, env=digits_env(), cwd=cluster.folder, check=False)
    upgrade = json.loads(done.stdout)["upgrade"]
    assert (done.returncode, upgrade["safe"], upgrade["problems"]) == (0, True, []), (done, upgrade)
    return [step for step in upgrade["steps"] if step["kind"] != "clients"]


def restart_as_other(cluster, programs, job, daemon):
    """Like an upgrade of the package: installs the new files, then restarts. The job goes on meanwhile."""
    seen = wait_until(lambda: (step := last_step(cluster, job)) > (0, 0) and step, "its log")
    daemon.stop()
    programs.exchange(daemon)
    daemon.start()
    wait_until(lambda: last_step(cluster, job) > seen, "a step after it")
    wait_until(lambda: is_all_up(cluster, programs), "all nodes")


def is_all_up(cluster, programs):
    return ask(cluster, programs, "now", "nodes").count(" up ") == len(cluster.nodes)


def upgrade_once(cluster, programs, job):
    """Carries out the plan, one step at a time. Returns the number of steps."""
    daemons = {"server": {cluster.address: cluster.server}, "node": {f"node{i}": node for i, node in enumerate(cluster.nodes)}}
    done = []
    while steps := plan(cluster, programs):
        step = steps[0]
        assert not step["stops_jobs"] and step["kind"] in daemons, steps
        daemon = daemons[step["kind"]][step["name"]]
        assert daemon.is_before, f"{step} is of this version already"
        restart_as_other(cluster, programs, job, daemon)
        done.append(step["kind"])
    assert done == ["server"] + ["node"] * len(cluster.nodes), done
    return len(done)


def roll(build, upgrades):
    programs = Programs(build, None)
    check_protocols(build, programs)
    cluster = Cluster(build)
    prepare(cluster, programs)
    programs.exchange(cluster.server)
    programs.exchange(cluster.nodes[0])
    with cluster:
        job = train(cluster, build)
        for i in range(upgrades):
            steps = upgrade_once(cluster, programs, job)
            for daemon in [*reversed(cluster.nodes), cluster.server] if i + 1 < upgrades else []:
                restart_as_other(cluster, programs, job, daemon)
            status = cluster.status(job)
            assert (status["state"], status["generation"], status["restarts"]) == ("running", 1, 0), status
            print(f"upgrade {i + 1}: {steps} steps, the job is at step {last_step(cluster, job)}", flush=True)
        cluster.ctl("cancel", "--wait", str(job), check=False)
        steps = printed_steps.check(printed(cluster, job))
    print(f"ok: {upgrades} rolling upgrades, {steps} steps, none twice, none missing, generation 1, no restart")


def main():
    if sys.argv[2:3] == ["rolling"]:
        roll(os.path.abspath(sys.argv[1]), int(sys.argv[3]) if len(sys.argv) > 3 else 2)
        return
    build = os.path.abspath(sys.argv[1])
    changes = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    run(build, changes, seed, sys.argv[4] if len(sys.argv) > 4 else None)


if __name__ == "__main__":
    main()
