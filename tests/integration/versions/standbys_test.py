"""Three servers on etcd and two nodes are upgraded from the release before, while a job trains and others are submitted.

usage: standbys_test.py BUILD [UPGRADES]

All programs start as the release before (release_before.py), also the job's. The test carries out the steps of `ddpctl upgrade --plan` one by one:
standbys, the leader, nodes. Then it goes back, in the same order: the nodes, and the servers if the schema of the store has not gone up. No training
step is repeated or missing; each acknowledged job is stored and run once."""

import json
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ha"))
import printed_steps  # noqa: E402
import release_before  # noqa: E402
from processes.etcd import wait_for
from processes.servers import Cluster, count_servers
from ha_test import check_end  # noqa: E402


def last_step(cluster, job):
    steps = printed_steps.find(cluster.ctl("logs", str(job), "--rank", "0", "--raw", "--tail", "1").stdout)
    return steps[-1] if steps else (0, 0)


def restart_as(cluster, job, daemon, path):
    """Like an upgrade of the package: installs the new file, then restarts. Training and submits go on."""
    seen = wait_for("its log", lambda: (step := last_step(cluster, job)) > (0, 0) and step)
    acked = len(cluster.submitter.acked)
    daemon.end_by(signal.SIGTERM)
    daemon.argv[0] = path
    daemon.start()
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


def program(folder, kind):
    return f"{folder}/launcherd/launcherd" if kind == "node" else f"{folder}/rendezvous/rendezvous"


def named(cluster, kind, name):
    if kind == "node":
        return cluster.nodes[int(name.removeprefix("n"))]
    return next(server for server in cluster.servers if name in (server.address, server.asked))


def go_back(cluster, job, folder, has_new_schema):
    """Standbys first, the leader last, then the nodes. An older server does not take a store of a newer schema."""
    leader = cluster.leader()
    for server in [] if has_new_schema else [one for one in cluster.servers if one is not leader] + [leader]:
        restart_as(cluster, job, server, program(folder, "server"))
    for node in cluster.nodes:
        restart_as(cluster, job, node, program(folder, "node"))


def upgrade_once(cluster, job, has_old_servers):
    """Carries out the plan. Whether the schema of the store has gone up."""
    steps = plan(cluster)
    has_new_schema = steps[:1] == [("backup", "store")]
    steps = steps[has_new_schema:]
    servers = ["standby", "standby", "server"] if has_old_servers else []
    assert [kind for kind, _ in steps] == servers + ["node", "node"], steps
    assert not servers or named(cluster, *steps[2]) is cluster.leader(), steps
    for kind, name in steps:
        restart_as(cluster, job, named(cluster, kind, name), program(cluster.build, kind))
    assert plan(cluster) == [], "something is left to do"
    return has_new_schema


def train(cluster, folder):
    """A job that would run for days, after its first steps."""
    script = (f"echo begun >> {cluster.folder}/train; exec {folder}/worker/ddp-worker --dummy -a convnet --epochs 100000"
              " --max-steps 90000000 -b 16 -p 1 --device cpu")
    with cluster.client() as client:
        job = client.submit(name="train", argv=["/bin/sh", "-c", script])["job_id"]
    wait_for("the first steps", lambda: last_step(cluster, job) > (1, 5))
    return job


def main():
    build, upgrades = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    folder, has_new_schema = release_before.programs(build), False
    cluster = Cluster(folder, every_s=0.1)
    cluster.build = build  # its ddpctl
    try:
        job = train(cluster, folder)
        wait_for("all servers", lambda: count_servers(cluster) == len(cluster.servers))
        for i in range(upgrades):
            has_new_schema |= upgrade_once(cluster, job, i == 0 or not has_new_schema)
            go_back(cluster, job, folder, has_new_schema)
            print(f"upgrade {i + 1}: the job is at step {last_step(cluster, job)}", flush=True)
        count = check_end(cluster, job)
        cluster.ctl("cancel", "--wait", str(job))
        steps = printed_steps.check(printed_steps.find(cluster.ctl("logs", str(job), "--rank", "0", "--raw").stdout))
    except BaseException:
        for daemon in cluster.servers + cluster.nodes:
            with open(daemon.log_path, encoding="utf-8") as log:
                print(daemon.log_path, *log.read().splitlines()[-20:], sep="\n  ")
        raise
    finally:
        cluster.close()
    print(f"ok: {upgrades} upgrades and back, {steps} steps, none twice, none missing, generation 1; {count} jobs answered, each run once")


if __name__ == "__main__":
    main()
