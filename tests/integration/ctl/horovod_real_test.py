#!/usr/bin/env python3
"""A program of the real Horovod under ddpctl run --env-style horovod, on two nodes; skips (77) without tests/pytorch/setup-horovod.

Its four ranks train like one process with all their batches; after a rank was killed, the next generation connects again and does the same."""
import ast
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "pytorch"))
import pytorch  # noqa: E402
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case
from processes.runner import equal, run_and_exit

PYTHON = os.path.join(pytorch.cache(), "horovod", "bin", "python")
# The virtual environment is there before Horovod, whose build takes its time or may have failed.
if not os.access(PYTHON, os.X_OK) or subprocess.run([PYTHON, "-c", "import horovod.torch"], capture_output=True, check=False).returncode != 0:
    print(f"skip: no Horovod in {PYTHON} (tests/pytorch/setup-horovod makes it)")
    sys.exit(77)


def train(restarts, crashes):
    with Case() as case:
        done = case.ctl("run", "--standalone", "--max-restarts", str(restarts), "--nnodes", "2", "--nproc-per-node", "2", "--env-style",
                        "horovod", "--env", f"TMPDIR={case.dir}", "--", PYTHON, os.path.join(HERE, "horovod_train.py"), str(crashes),
                        timeout=240)
        equal(done.returncode, 0, done.stdout + done.stderr)
        found = re.findall(r"places (.*) furthest (\S+) run (\d)", done.stdout)
        equal(len(found), 1, done.stdout)
        places, furthest, run = found[0]
        # rank, rank in its node, node; how many of each
        equal(ast.literal_eval(places), [(rank, rank % 2, rank // 2, 4, 2, 2) for rank in range(4)])
        assert float(furthest) < 1e-6, furthest
        return int(run), done.stderr


def four_ranks_train_as_one_process():
    equal(train(0, 0)[0], 0)


def after_a_killed_rank_the_next_generation_trains():
    equal(train(1, 1)[0], 1)


if __name__ == "__main__":
    run_and_exit([four_ranks_train_as_one_process, after_a_killed_rank_the_next_generation_trains])
