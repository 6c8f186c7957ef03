#!/usr/bin/env python3
"""An ordinary PyTorch script with torchrun's option --nnodes 1:2: it loses a node, and continues on the other one. elastic_test.py BUILD; skips (77)
without PyTorch.

The script is the one of pytorch_test.py; it has no code for the launcher. It resumes from its own checkpoint, with the environment that
torchrun gives to the ranks of a smaller world."""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "lib"), os.path.join(HERE, "..", "..", "pytorch")]
import pytorch  # noqa: E402
from processes.own import OwnCluster
from processes.waiting import wait_for

SHOWN = ["RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT",
         "TORCHELASTIC_MAX_RESTARTS"]


def environment(log):
    return [dict(re.findall(r"^(\w+)=(.*)$", log, re.MULTILINE)).get(name) for name in SHOWN]


def main():
    python = pytorch.python_or_skip()
    with OwnCluster(nodes=2, slots=1, server_options=["--no-fence"]) as cluster:
        folder = f"{cluster.folder}/train"
        os.mkdir(folder)
        command = f"env | grep -E '^({'|'.join(SHOWN)})='; exec {python} {HERE}/train_ddp.py {folder} --hold 1"
        job = cluster.submit("--nnodes", "1:2", "--max-restarts", "1", "--grace", "5s", "--", "sh", "-c", command)
        wait_for("the second epoch", lambda: "holding" in cluster.ctl("logs", str(job), "--rank", "1", check=False).stdout, 300)
        status = cluster.status(job)
        victim = int(next(rank["node"] for rank in status["ranks"] if rank["rank"] == 1)[4:])
        cluster.kill_node(victim)
        assert cluster.wait_end(job) == 0, cluster.status(job)["reason"]
        status = cluster.status(job)
        assert (status["generation"], status["nodes"], status["restarts_used"]) == (2, 1, 0), status
        first, second = (cluster.ctl("logs", str(job), "--raw", "--rank", "0", "-g", str(generation)).stdout for generation in (1, 2))
        assert environment(first) == ["0", "2", "1", "0", "2", "2", "0", "1"], environment(first)
        assert environment(second) == ["0", "1", "1", "0", "1", "1", "1", "1"], environment(second)
        assert "rank 0 of 2 starts at epoch 0" in first and "rank 0 of 1 starts at epoch 1" in second, first + second
        assert "epoch 4 loss" in second, second
        cluster.nodes[victim].start()
    return 0


if __name__ == "__main__":
    sys.exit(main())
