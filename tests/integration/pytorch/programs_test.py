#!/usr/bin/env python3
"""PyTorch programs whose ranks meet in our c10d store: programs_test.py [--all]; skips (77) without PyTorch.

By hand, with --all, every program of programs.py also runs under torchrun, and must print the same. `restart` differs: torchrun
keeps the keys of the failed attempt.
"""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "lib"), os.path.join(HERE, "..", "..", "pytorch")]
import pytorch  # noqa: E402
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, clean_environ
from processes.runner import equal, run_and_exit

PYTHON = pytorch.python_or_skip()
PROGRAMS = os.path.join(HERE, "programs.py")
LIMIT_S = 240
RANKS = range(4)


def said(output):
    return sorted(line for line in output.splitlines() if line.startswith("rank "))


def ours(name, *options):
    with Case() as case:
        done = case.ctl("run", "--standalone", "--raw", *options, "--", PYTHON, PROGRAMS, name, case.dir, timeout=LIMIT_S,
                        TORCHINDUCTOR_CACHE_DIR=os.path.join(case.dir, "inductor"))
        return done.returncode, said(done.stdout), done.stderr


def rank_0_may_leave_while_others_use_the_store():
    code, lines, errors = ours("store_by_hand", "--nodes", "2", "--nproc-per-node", "2", "--max-restarts", "0")
    equal(code, 0, errors)
    equal(lines, ["rank 0: count"] + [f"rank {r}: rank 0 has gone 10 ['0', '1', '2', '3']" for r in RANKS[1:]])


def a_restart_finds_an_empty_store():
    code, lines, errors = ours("restart", "--nproc-per-node", "4", "--max-restarts", "1")
    equal(code, 0, errors)
    equal(lines, [f"rank {r}: restarted, old keys False" for r in RANKS])


def fsdp2_and_a_distributed_checkpoint():
    code, lines, errors = ours("fsdp_and_checkpoint", "--nproc-per-node", "4", "--max-restarts", "0")
    equal((code, len(lines)), (0, 4), errors)
    for line in lines:
        words = line.split()
        equal(words[words.index("weights") + 1], words[words.index("loaded") + 1], line)


def second_stores_are_served():
    code, lines, errors = ours("second_stores", "--nproc-per-node", "2", "--max-restarts", "0")
    equal((code, lines), (0, [f"rank {r}: 1.0 of 2, 1.0 of 2" for r in range(2)]), errors)


def one_rank_that_spawns_others():
    code, lines, errors = ours("spawns", "--max-restarts", "0")
    equal((code, lines), (0, [f"rank {r} of the second kind: 1.0 of 2" for r in range(2)]), errors)


def same_as_torchrun(name):
    torchrun = os.path.join(os.path.dirname(PYTHON), "torchrun")

    def test():
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([torchrun, "--standalone", "--nproc-per-node", "4", PROGRAMS, name, folder], env=clean_environ(),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
        code, lines, errors = ours(name, "--nproc-per-node", "4", "--max-restarts", "0")
        equal((code, lines), (done.returncode, said(done.stdout)), errors + done.stderr)
        print(f"{name}: exit {code}, {len(lines)} lines, as under torchrun")

    test.__name__ = name
    return test


EVERY = ("collectives", "missing_rank", "store_by_hand", "fsdp_and_checkpoint", "rpc", "loader_workers", "second_stores", "fails_with_record")
run_and_exit([same_as_torchrun(name) for name in EVERY] if sys.argv[1:] == ["--all"] else
          [rank_0_may_leave_while_others_use_the_store, a_restart_finds_an_empty_store, second_stores_are_served, one_rank_that_spawns_others, fsdp2_and_a_distributed_checkpoint])
