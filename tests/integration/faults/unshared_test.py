"""Checkpoints on nodes that share no disk. usage: unshared_test.py BUILD TEST

Each node's workers change to a folder of their own, so that --checkpoint-dir is a different folder on each node. The server, three
nodes, training and the SIGKILLs are real. After each test every checkpoint on every node is complete.

moved: everything on rank 0's node is killed, and its ranks move to a node without a checkpoint. Training resumes from the copy and
ends bit for bit like an undisturbed run. off: the same without copies fails and gives the reason. newest: if the folders differ, the
newest complete checkpoint wins. killed: ranks are killed at random while every step is copied. shared:
nodes that share the folder copy nothing. stopped: a job is stopped before its first checkpoint, and rank 0's node is replaced. The
checkpoint of the end was copied."""

import glob
import hashlib
import json
import os
import random
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import small_data  # noqa: E402
from faults_lib import Cluster, is_alive, wait_until  # noqa: E402
from faults_test import last_parameters, shim_of  # noqa: E402

CALM = {}


def submit(cluster, name, *worker_args, steps=60, every=10, restarts=3, shared=False, endless=0, nodes="2", data="data"):
    """The first `endless` generations never end by themselves; the next ones train to the step that let_end() names."""
    where = f"{cluster.folder}/{name}"
    own = where if shared else f"{where}/$DDP_NODE_NAME"
    command = " ".join([f"{cluster.build}/worker/ddp-worker", "-b", "4", "--lr", "0.01", "--momentum", "0.9", "--epochs",
                        "100000", "--max-steps", '"$steps"', "--checkpoint-every", str(every), "--checkpoint-dir", "ckpt",
                        *worker_args, f"{cluster.folder}/{data}"])
    script = f'''mkdir -p "{own}" && cd "{own}" || exit 1
        steps={steps}
        if [ "$DDP_GENERATION" -le {endless} ]; then
            steps=1000000
        elif [ {endless} -gt 0 ]; then
            until [ -e "{where}/steps" ]; do sleep 0.1; done
            steps=$(cat "{where}/steps")
        fi
        exec {command}'''
    job = cluster.submit("--name", name, "--nodes", nodes, "--nproc-per-node", "2", "--max-restarts", str(restarts), "--",
                         "sh", "-c", script)
    return job, where


def let_end(where):
    """20 steps after the newest checkpoint. Nothing trains meanwhile: a rank is dead."""
    names = [os.path.basename(path) for path in glob.glob(f"{where}/**/step-*.json", recursive=True)]
    steps = max(int(name[5:13]) for name in names) + 20
    with open(f"{where}/steps.new", "w", encoding="ascii") as file:
        file.write(str(steps))
    os.rename(f"{where}/steps.new", f"{where}/steps")
    return steps


def folder_of(where, node):
    return f"{where}/{node}/ckpt"


def best_of(where, node):
    with open(f"{folder_of(where, node)}/best.json", encoding="utf-8") as file:
        best = json.load(file)
    assert os.path.exists(f"{folder_of(where, node)}/step-{best['step']:08d}.json"), best
    return best


def check_whole(where):
    """Checks that every committed checkpoint below `where` has the size and checksum that its state file gives."""
    found = 0
    for path in glob.glob(f"{where}/**/step-*.json", recursive=True):
        with open(path, encoding="utf-8") as file:
            state = json.load(file)
        with open(path.replace(".json", ".safetensors"), "rb") as file:
            content = file.read()
        assert len(content) == state["safetensors_bytes"], path
        assert hashlib.sha256(content).hexdigest() == state["safetensors_sha256"], path
        found += 1
    assert found, f"no checkpoint in {where}"


def logs(cluster, job):
    generations = range(1, cluster.status(job)["generation"] + 1)
    return "".join(cluster.ctl("logs", str(job), "-g", str(generation)).stdout for generation in generations)


def expect(cluster, job, state="succeeded", restarts=None):
    cluster.wait_end(job)
    status = cluster.status(job)
    assert status["state"] == state, f"job {job} {status['state']}: {status['reason']}\n{logs(cluster, job)[-3000:]}"
    assert restarts is None or status["restarts"] == restarts, status
    return status


def nodes_of(status):
    """Node names by rank."""
    return [rank["node"] for rank in sorted(status["ranks"], key=lambda rank: rank["rank"])]


def calm(cluster, steps=60):
    if steps not in CALM:
        job, where = submit(cluster, f"calm{steps}", steps=steps)
        nodes = nodes_of(expect(cluster, job, restarts=0))
        both = [last_parameters(folder_of(where, node)) for node in (nodes[0], nodes[-1])]
        assert both[0] == both[1], f"the copy differs: {both}"
        check_whole(where)
        CALM[steps] = both[0]
    return CALM[steps]


def wait_checkpoint(cluster, job):
    def committed():
        status = cluster.status(job)
        assert status["state"] not in ("succeeded", "failed", "cancelled"), f"over before it was disturbed: {status}"
        return status if (status.get("progress") or {}).get("checkpoint_step") else None
    return wait_until(committed, f"a checkpoint of job {job}")


def kill_node(cluster, status, name):
    """Kills launcherd, shim and workers, like a power failure of the machine."""
    pids = [rank["pid"] for rank in status["ranks"] if rank["node"] == name]
    node = cluster.nodes[int(name.removeprefix("node"))]
    node.process.kill()
    os.kill(shim_of(pids[0]), signal.SIGKILL)
    wait_until(lambda: not any(is_alive(pid) for pid in pids), "workers to go with their shim")
    return node


def drop_unfinished(where, node):
    """Temporary files that a SIGKILL during a write leaves; the next job in that folder would remove them."""
    for path in glob.glob(f"{folder_of(where, node)}/*.tmp"):
        os.remove(path)


def moved(cluster):
    job, where = submit(cluster, "moved", endless=1)
    status = wait_checkpoint(cluster, job)
    before = nodes_of(status)
    node = kill_node(cluster, status, before[0])
    steps = let_end(where)
    try:
        status = expect(cluster, job)
    finally:
        node.kill()
        node.start()
    after = nodes_of(status)
    said = logs(cluster, job)
    assert after[0] not in before and after[2] == before[2], f"rank 0 did not move to the spare: {before}, {after}"
    assert f"sent from rank 2 (node {before[2]}) to node {after[0]}" in said, said
    assert "resumed at step" in said and "from the start" not in said, said
    wanted = calm(cluster, steps)
    assert last_parameters(folder_of(where, after[0])) == wanted, "not as undisturbed"
    assert last_parameters(folder_of(where, after[2])) == wanted, "the copy is not as undisturbed"
    assert best_of(where, after[0]) == best_of(where, after[2]), "the nodes name different checkpoints as the best"
    check_whole(where)
    drop_unfinished(where, before[0])


def off(cluster):
    job, where = submit(cluster, "off", "--checkpoint-copies", "0", restarts=1, endless=1000)
    status = wait_checkpoint(cluster, job)
    nodes = nodes_of(status)
    cluster.ctl("node", "drain", nodes[0])
    os.kill(status["ranks"][0]["pid"], signal.SIGKILL)
    status = expect(cluster, job, state="failed")
    said = logs(cluster, job)
    assert "this job has committed step" in said and "but no rank finds a checkpoint in ckpt" in said, said
    assert "if rank 0 moves to another node, the job cannot resume" in said, said
    assert nodes_of(status)[0] != nodes[0], status
    drop_unfinished(where, nodes[0])
    assert not glob.glob(f"{folder_of(where, nodes[2])}/step-*"), "there is a copy"
    assert "this job has committed step" in json.dumps(status), status
    check_whole(where)
    cluster.ctl("node", "resume", nodes[0])


def newest(cluster):
    """Runs on two nodes; in each run rank 0 may be on either of them."""
    wanted = calm(cluster, 60)
    for name, disturb in (("missing", os.remove), ("damaged", lambda path: os.truncate(path, 1000))):
        job, where = submit(cluster, name, steps=40)
        bad, _, good, _ = nodes_of(expect(cluster, job, restarts=0))
        disturb(f"{folder_of(where, bad)}/step-00000040.safetensors")
        job, where = submit(cluster, name, "--resume", "auto")
        source = nodes_of(expect(cluster, job, restarts=0)).index(good)
        said = logs(cluster, job)
        assert f"checkpoint step 40 sent from rank {source} (node {good}) to node {bad}" in said, said
        assert "checkpoint passed over" in said and "resumed at step 40" in said, said
        assert last_parameters(folder_of(where, bad)) == wanted, name
        assert last_parameters(folder_of(where, good)) == wanted, name
        check_whole(where)
    os.remove(f"{folder_of(where, bad)}/step-00000060.safetensors")
    job, where = submit(cluster, "damaged", "--resume", "auto", "--checkpoint-copies", "0", steps=80, restarts=0)
    cluster.wait_end(job)
    status, said = cluster.status(job), logs(cluster, job)
    if nodes_of(status)[0] == good:
        assert status["state"] == "succeeded" and "resumed at step 60" in said, said
    else:
        assert status["state"] == "failed", status
        assert f"checkpoint step 60 is on node {good} (rank 2), rank 0 is now on node {bad}" in said, said


def killed(cluster):
    chance = random.Random(1)
    job, where = submit(cluster, "killed", every=1, restarts=20, endless=3)
    wait_checkpoint(cluster, job)
    for generation in range(1, 4):
        # The job's progress is that of the generation before until this one has made a step.
        wait_until(lambda: generation == 1 or "resumed at step" in cluster.ctl("logs", str(job), "-g", str(generation), check=False).stdout,
                   f"generation {generation} to resume")
        step = (cluster.status(job).get("progress") or {}).get("step") or 0
        status = cluster.wait_step(job, step + chance.randint(2, 9), generation)
        wait_until(lambda: all(rank["pid"] for rank in cluster.status(job)["ranks"]), "all ranks to run")
        victim = chance.choice(cluster.status(job)["ranks"])
        print(f"generation {status['generation']}: kills rank {victim['rank']} after step {status['progress']['step']}",
              flush=True)
        os.kill(victim["pid"], signal.SIGKILL)
    wait_until(lambda: not is_alive(victim["pid"]), "the last victim to die")
    steps = let_end(where)
    nodes = nodes_of(expect(cluster, job))
    said = logs(cluster, job)
    assert said.count("resumed at step") >= 3 and "from the start" not in said, said
    wanted = calm(cluster, steps)
    for node in (nodes[0], nodes[2]):
        assert last_parameters(folder_of(where, node)) == wanted, f"not as undisturbed: {node}"
    check_whole(where)


def shared(cluster):
    job, where = submit(cluster, "shared", steps=20, shared=True)
    expect(cluster, job, restarts=0)
    said = logs(cluster, job)
    assert "not shared" not in said and "cop" not in said, said
    files = os.listdir(f"{where}/ckpt")
    whole = [f"step-{step:08}.{ending}" for step in (10, 20) for ending in ("json", "safetensors")]
    assert sorted(name for name in files if name.startswith("step-")) == whole, files
    assert not any(name.startswith(".node-") for name in files), files


def stopped(cluster):
    small_data.write_patterns(f"{cluster.folder}/many", 60000)  # 15000 steps an epoch
    job, where = submit(cluster, "stopped", "-b", "1", every=1000000, endless=1, nodes="1:2", data="many")
    cluster.wait_step(job, 3)
    before = nodes_of(cluster.status(job))
    assert len(set(before)) == 2 and not glob.glob(f"{where}/*/ckpt/step-*"), before
    cluster.ctl("node", "drain", before[0])
    wait_until(lambda: cluster.status(job)["generation"] > 1, "the job to leave the node")
    steps = let_end(where)
    status = expect(cluster, job)
    after, said = nodes_of(status), logs(cluster, job)
    assert before[0] not in after and len(set(after)) == 2, (before, after)
    assert f"resumed at step {steps - 20} " in said and "PROGRESS LOST" not in said and "from the start" not in said, said
    assert status["progress"]["checkpoint_step"] == steps, status
    check_whole(where)
    cluster.ctl("node", "resume", before[0])


def main():
    build, name = sys.argv[1], sys.argv[2]
    with Cluster(build, nodes=2 if name == "newest" else 3, server_options=["--lost", "8s", "--lease", "16s"]) as cluster:
        small_data.write_data(f"{cluster.folder}/data", 640)
        {"moved": moved, "off": off, "newest": newest, "killed": killed, "shared": shared,
         "stopped": stopped}[name](cluster)
        wait_until(lambda: not glob.glob(f"{cluster.folder}/node*/run/*"), "the run directories to be removed")
    print("ok")


if __name__ == "__main__":
    main()
