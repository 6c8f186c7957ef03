"""Three servers on etcd and two nodes are upgraded to the next version, and back, while a job trains and others are submitted.

usage: standbys_test.py BUILD [UPGRADES]

All programs start as an earlier release with the same protocol. The test carries out the steps of `ddpctl upgrade --plan` one by one: standbys,
the leader, nodes. Then it goes back, in the same order. No training step is repeated or missing; each acknowledged job is stored and run once."""

import json
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ha"))
import printed_steps  # noqa: E402
from ha_lib import Cluster, count_servers, wait_for  # noqa: E402
from ha_test import check_end  # noqa: E402


def program(build, name, is_before):
    return f"{build}/tests/integration/versions/{name}-release" if is_before else f"{build}/{name}/{name}"


def last_step(cluster, job):
    steps = printed_steps.find(cluster.ctl("logs", str(job), "--rank", "0", "--raw", "--tail", "1").stdout)
    return steps[-1] if steps else (0, 0)


def restart_as(cluster, job, daemon, path):
    """Like an upgrade of the package: installs the new file, then restarts. Training and submits go on."""
    seen = wait_for("its log", lambda: (step := last_step(cluster, job)) > (0, 0) and step)
    acked = len(cluster.submitter.acked)
    daemon.end(signal.SIGTERM)
    daemon.argv[0] = path
    daemon.start().ready()
    wait_for("a step after it", lambda: last_step(cluster, job) > seen)
    wait_for("a job after it is answered", lambda: len(cluster.submitter.acked) > acked + 1)
    wait_for("all nodes", lambda: cluster.ctl("nodes").stdout.count(" up ") == len(cluster.nodes))
    wait_for("all servers", lambda: count_servers(cluster) == len(cluster.servers))


def plan(cluster):
    done = cluster.ctl("upgrade", "--plan", "--json")
    upgrade = json.loads(done.stdout)["upgrade"]
    assert (done.returncode, upgrade["safe"], upgrade["problems"]) == (0, True, []), (done, upgrade)
    assert not any(step["stops_jobs"] for step in upgrade["steps"]), upgrade
    return [(step["kind"], step["name"]) for step in upgrade["steps"] if step["kind"] != "clients"]


def named(cluster, kind, name):
    if kind == "node":
        return cluster.nodes[int(name.removeprefix("n"))]
    return next(server for server in cluster.servers if name in (server.address, server.asked))


def go_back(cluster, job):
    """Back to the previous release, which offers no plan: standbys first, the leader last."""
    leader = cluster.leader()
    for server in [one for one in cluster.servers if one is not leader] + [leader]:
        restart_as(cluster, job, server, program(cluster.build, "rendezvous", True))
    for node in cluster.nodes:
        restart_as(cluster, job, node, program(cluster.build, "launcherd", True))


def upgrade_once(cluster, job):
    steps = plan(cluster)
    assert [kind for kind, _ in steps] == ["standby", "standby", "server", "node", "node"], steps
    assert named(cluster, *steps[2]) is cluster.leader(), steps
    for kind, name in steps:
        restart_as(cluster, job, named(cluster, kind, name),
                   program(cluster.build, "launcherd" if kind == "node" else "rendezvous", False))
    assert plan(cluster) == [], "something is left to do"


def train(cluster):
    """A job that would run for days, after its first steps."""
    script = (f"echo begun >> {cluster.folder}/train; exec {cluster.build}/worker/ddp-worker --dummy -a convnet --epochs 100000"
              " --max-steps 90000000 -b 16 -p 1 --device cpu")
    with cluster.client() as client:
        job = client.submit(name="train", argv=["/bin/sh", "-c", script])["job_id"]
    wait_for("the first steps", lambda: last_step(cluster, job) > (1, 5))
    return job


def main():
    build, upgrades = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    cluster = Cluster(build, every_s=0.1)
    try:
        job = train(cluster)
        for i in range(upgrades):
            go_back(cluster, job)
            upgrade_once(cluster, job)
            print(f"upgrade {i + 1}: the job is at step {last_step(cluster, job)}", flush=True)
        count = check_end(cluster, job)
        cluster.ctl("cancel", "--wait", str(job))
        steps = printed_steps.check(printed_steps.find(cluster.ctl("logs", str(job), "--rank", "0", "--raw").stdout))
    except BaseException:
        for daemon in cluster.servers + cluster.nodes:
            with open(daemon.log, encoding="utf-8") as log:
                print(daemon.log, *log.read().splitlines()[-20:], sep="\n  ")
        raise
    finally:
        cluster.close()
    print(f"ok: {upgrades} upgrades and back, {steps} steps, none twice, none missing, generation 1; {count} jobs answered, each run once")


if __name__ == "__main__":
    main()
