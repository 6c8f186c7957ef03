"""Programs of this version and of the one before in one cluster, stopped, killed and exchanged while a job trains.

usage: versions_test.py BUILD [CHANGES [SEED [FOLDER]]]

No step of the job is done twice and none is missing; it stays in its first generation. After each change the cluster, as
it is mixed then, runs a short job and answers clients of both versions. The programs of the version before are ours with
another number, or, with FOLDER, those of an earlier build: FOLDER/rendezvous/rendezvous and so on."""

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
        """It is started as the other version next time."""
        daemon.is_before = not daemon.is_before
        daemon.argv[0] = (self.before if daemon.is_before else self.now)[daemon.program]


def prepare(cluster, programs):
    """One server and one node of this version, one node of the version before: so are the shims of the job."""
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
    """(epoch, step); (0, 0): none, or the node cannot be asked now."""
    lines = printed_steps.find(cluster.ctl("logs", str(job), "--rank", "0", "--raw", "--tail", "1", check=False).stdout)
    return lines[-1] if lines else (0, 0)


def change(cluster, programs, chance):
    """Stops or kills one daemon or all, and starts it, mostly as the other version."""
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
    """A server or a node of the version before has none, and that is said; nothing else is shown in their place."""
    node = cluster.nodes[int(cluster.status(job)["ranks"][0]["node"][-1])]
    done = subprocess.run([programs.now["ddpctl"], "--server", cluster.address, "metrics", "--json", str(job)], capture_output=True,
                          text=True, timeout=PATIENCE_S, env=digits_env(), cwd=cluster.folder, check=False)
    if cluster.server.is_before:
        assert (done.returncode, done.stdout) == (1, "") and "the server is of an earlier version" in done.stderr, done
    elif node.is_before:
        assert (done.returncode, done.stdout) == (1, "") and "is of an earlier version, which keeps no metrics" in done.stderr, done
    else:
        assert done.returncode == 0 and all('"type":"metrics"' in line for line in done.stdout.splitlines()), done
        assert '"kind":"step"' in done.stdout, done


def run(build, changes, seed, folder):
    chance, programs = random.Random(seed), Programs(build, folder)
    check_protocols(build, programs)
    cluster = Cluster(build)
    prepare(cluster, programs)
    with cluster:
        job = cluster.submit("--nodes", "2", "--nproc-per-node", "1", "--", f"{build}/worker/ddp-worker", "--dummy",
                             "-a", "convnet", "--epochs", "100000", "--max-steps", "90000000", "-b", "16", "-p", "1", "--device", "cpu")
        wait_until(lambda: last_step(cluster, job) > (1, 5), "the first steps")
        for i in range(changes):
            text = change(cluster, programs, chance)
            seen = wait_until(lambda: (step := last_step(cluster, job)) > (0, 0) and step, "its log")
            wait_until(lambda before=seen: last_step(cluster, job) > before, "a step after it")
            ask(cluster, programs, ("now", "before")[i % 2], "run", "--nodes", "2", "--nproc-per-node", "1", "--", "true")
            assert ask(cluster, programs, ("now", "before")[i // 2 % 2], "nodes").count(" up ") == 2
            check_metrics(cluster, programs, job)
            status = cluster.status(job)
            assert (status["state"], status["generation"], status["restarts"]) == ("running", 1, 0), status
            print(f"{i + 1}: {text}; step {seen}", flush=True)
        cluster.ctl("cancel", "--wait", str(job), check=False)
        steps = printed_steps.check(printed(cluster, job))
        status = cluster.status(job)
        assert (status["state"], status["generation"], status["restarts"]) == ("cancelled", 1, 0), status
    print(f"ok: {changes} changes, {steps} steps, none twice, none missing, generation 1, no restart")


def main():
    build = os.path.abspath(sys.argv[1])
    changes = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    run(build, changes, seed, sys.argv[4] if len(sys.argv) > 4 else None)


if __name__ == "__main__":
    main()
