"""A checkpoint on nodes that share no disk. usage: unshared_test.py BUILD

Each node's workers change to a folder of their own, so that --checkpoint-dir is a different folder on each node. The server, three
nodes, training and the SIGKILLs are real. Everything on rank 0's node is killed, and its ranks move to a node without a checkpoint.
Training resumes from the copy and ends bit for bit like an undisturbed run; every checkpoint on every node is complete, and no token
is left by which ranks find out who shares a folder. What else ranks agree on: tests/unit/worker/train/agree_test.c."""

import glob
import hashlib
import json
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import small_data  # noqa: E402
from faults_lib import Cluster, is_alive, wait_until  # noqa: E402
from faults_test import last_parameters, shim_of  # noqa: E402
from processes.waiting import Gate  # noqa: E402

CALM = {}


def submit(cluster, name, *worker_args, steps=60, every=10, restarts=3, shared=False, endless=0, nodes="2", data="data"):
    """The first `endless` generations never end by themselves; the next ones wait for let_end(), and train to the step that it names.
    Returns the job, its folder and the gate."""
    where = f"{cluster.folder}/{name}"
    gate = Gate(f"{where}.gate")
    own = where if shared else f"{where}/$DDP_NODE_NAME"
    command = " ".join([f"{cluster.build}/worker/ddp-worker", "-b", "4", "--lr", "0.01", "--momentum", "0.9", "--epochs",
                        "100000", "--max-steps", '"$steps"', "--checkpoint-every", str(every), "--checkpoint-dir", "ckpt",
                        *worker_args, f"{cluster.folder}/{data}"])
    script = f'''mkdir -p "{own}" && cd "{own}" || exit 1
        steps={steps}
        if [ "$DDP_GENERATION" -le {endless} ]; then
            steps=1000000
        elif [ {endless} -gt 0 ]; then
            {gate.wait}
            steps=$(cat "{where}/steps")
        fi
        exec {command}'''
    job = cluster.submit("--name", name, "--nodes", nodes, "--nproc-per-node", "2", "--max-restarts", str(restarts), "--",
                         "sh", "-c", script)
    return job, where, gate


def let_end(where, gate):
    """20 steps after the newest checkpoint. Nothing trains meanwhile: a rank is dead."""
    names = [os.path.basename(path) for path in glob.glob(f"{where}/**/step-*.json", recursive=True)]
    steps = max(int(name[5:13]) for name in names) + 20
    with open(f"{where}/steps", "w", encoding="ascii") as file:
        file.write(str(steps))
    gate.open()
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
        job, where, _ = submit(cluster, f"calm{steps}", steps=steps)
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
    job, where, gate = submit(cluster, "moved", endless=1)
    status = wait_checkpoint(cluster, job)
    before = nodes_of(status)
    node = kill_node(cluster, status, before[0])
    steps = let_end(where, gate)
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
    tokens = glob.glob(f"{folder_of(where, after[0])}/.node-*") + glob.glob(f"{folder_of(where, after[2])}/.node-*")
    assert not tokens, tokens
    drop_unfinished(where, before[0])


def main():
    with Cluster(sys.argv[1], nodes=3, server_options=["--lost", "8s", "--lease", "16s"]) as cluster:
        small_data.write_data(f"{cluster.folder}/data", 640)
        moved(cluster)
        wait_until(lambda: not glob.glob(f"{cluster.folder}/node*/run/*"), "the run directories to be removed")
    print("ok")


if __name__ == "__main__":
    main()
