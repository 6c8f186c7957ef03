#!/usr/bin/env python3
"""PyTorch as a user: an ordinary DDP script under ddpctl run --standalone. pytorch_test.py; skips (77) without PyTorch.

Four ranks on two nodes train. One rank is killed, the job restarts once and ends with the same losses. The environment is the
one that torchrun makes.
"""
import glob
import json
import os
import re
import signal
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "lib"), os.path.join(HERE, "..", "..", "pytorch")]
import pytorch  # noqa: E402
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, clean_environ
from processes.runner import equal, run_and_exit

PYTHON = pytorch.python_or_skip()
TORCHRUN = os.path.join(os.path.dirname(PYTHON), "torchrun")
SCRIPT = os.path.join(HERE, "train_ddp.py")
RUN = ("run", "--standalone", "--nodes", "2", "--nproc-per-node", "2", "--raw")
PAIR = ("run", "--standalone", "--nproc-per-node", "2", "--raw")
LIMIT_S = 240

# Variables that must or may differ: paths, ids and ports, and the store, which rank 0 serves here.
FREE = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_USE_AGENT_STORE"}
# Variables besides DDP_*: the user of the job, and the interface of the node's address; torchrun sets neither.
OURS = re.compile(r"(DDP_[A-Z_]+|USER|LOGNAME|XDG_CONFIG_HOME|(NCCL|GLOO|TP)_SOCKET_IFNAME)$")
# Our launcher sets these if the submitter has none; torchrun does not.
DEFAULTED = {"HOME", "LANG", "PYTHONPATH", "PYTHONUNBUFFERED", "SHELL"}
# The shell's and Python's own, the tests' own, and what torchrun's agent sets for itself and workers merely inherit.
NOISE = {"_", "PWD", "OLDPWD", "SHLVL", "LC_CTYPE", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TORCHELASTIC_SIGNALS_TO_HANDLE"}
WRITE_ENVIRONMENT = ("import json, os, sys; open(os.path.join(sys.argv[1], os.environ['RANK'] + '.json'), 'w')"
                     ".write(json.dumps(dict(os.environ)))")


def losses(text):
    return {int(epoch): float(loss) for epoch, loss in re.findall(r"epoch (\d+) loss ([\d.]+) over 1004", text)}


def weights(text):
    return re.findall(r"weights ([0-9a-f]{64})", text)


def cache(case):
    """PyTorch makes an empty cache folder, which must not be among our temporary files."""
    return {"TORCHINDUCTOR_CACHE_DIR": os.path.join(case.dir, "inductor")}


def undisturbed(case, name):
    folder = os.path.join(case.dir, name)
    os.mkdir(folder)
    done = case.ctl(*RUN, "--max-restarts", "0", "--", PYTHON, SCRIPT, folder, timeout=LIMIT_S, **cache(case))
    equal(done.returncode, 0, done.stderr)
    return done


def check_training(done):
    """The output of a run without faults."""
    equal(sorted(re.findall(r"rank (\d) of 4 starts at epoch 0", done.stdout)), ["0", "1", "2", "3"], done.stdout)
    loss = losses(done.stdout)
    equal(sorted(loss), [0, 1, 2, 3, 4], done.stdout)
    assert loss[4] < 0.5 * loss[0], loss
    equal((len(weights(done.stdout)), len(set(weights(done.stdout)))), (4, 1), done.stdout)
    return loss


def follow(run, pattern):
    """The lines of `run` up to the one that has `pattern`, and its match."""
    lines = []
    for line in run.stdout:
        lines.append(line)
        match = re.search(pattern, line)
        if match:
            return lines, match
    raise AssertionError(f"no {pattern}: {lines} {run.stderr.read()}")


def four_ranks_train_and_a_killed_rank_costs_one_restart():
    with Case() as case:
        expected = check_training(undisturbed(case, "undisturbed"))
        folder = os.path.join(case.dir, "data")
        os.mkdir(folder)
        run = case.start(*RUN, "--", PYTHON, SCRIPT, folder, "--hold", "2", **cache(case))
        lines, match = follow(run, r"holding (\d+)")
        os.kill(int(match[1]), signal.SIGKILL)
        rest, errors = run.communicate(timeout=LIMIT_S)
        text = "".join(lines) + rest
        equal(run.returncode, 0, errors)
        equal(len(re.findall(r"-- .*generation \d+: ", errors)), 1, errors)
        assert "rank 2 was killed by signal 9 (SIGKILL); generation 2: 4 ranks start again" in errors, errors
        equal(len(re.findall(r"of 4 starts at epoch 0", text)), 4, text)
        equal(len(re.findall(r"of 4 starts at epoch 1", text)), 4, text)
        equal((len(weights(text)), len(set(weights(text)))), (4, 1), text)
        found = losses(text)
        equal(sorted(found), [0, 1, 2, 3, 4], text)
        for epoch, loss in expected.items():  # not bit-identical: PyTorch uses other buckets in the first step of a process
            assert abs(found[epoch] - loss) <= 1e-3, (epoch, found[epoch], loss)


def an_exception_is_the_job_s_failure():
    with Case() as case:
        code = ("import os, torch.distributed as dist\ndist.init_process_group('gloo')\n"
                "if dist.get_rank() == 1: raise ValueError('no such batch')\ndist.barrier()")
        done = case.ctl(*PAIR, "--max-restarts", "0", "--", PYTHON, "-c", code, timeout=LIMIT_S, **cache(case))
        equal(done.returncode, 1, done.stderr)
        assert "rank 1 exited with code 1: ValueError: no such batch" in done.stderr, done.stderr
        assert "ValueError: no such batch" in done.stdout + done.stderr, (done.stdout, done.stderr)


def held_port():
    """A socket that keeps a port of the kernel's choice from all who ask for any. torchrun may bind it all the same: both reuse addresses, and this
    one does not listen."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def environments(folder):
    found = {}
    for path in glob.glob(os.path.join(folder, "*.json")):
        with open(path, encoding="utf-8") as file:
            found[int(os.path.basename(path)[:-5])] = json.load(file)
    return found


def torchrun_environments(case, more):
    folder = os.path.join(case.dir, "torchrun")
    os.mkdir(folder)
    with held_port() as held:
        port = str(held.getsockname()[1])
        agents = [subprocess.Popen([TORCHRUN, "--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "2",
                                    "--master-addr", "127.0.0.1", "--master-port", port, "--max-restarts", "3", "--no-python",
                                    PYTHON, "-c", WRITE_ENVIRONMENT, folder],
                                   env=clean_environ(**more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                  for node in range(2)]
        for agent in agents:
            output, _ = agent.communicate(timeout=LIMIT_S)
            equal(agent.returncode, 0, output)
    return environments(folder)


def our_environments(case, more):
    folder = os.path.join(case.dir, "ours")
    os.mkdir(folder)
    done = case.ctl(*RUN, "--max-restarts", "3", "--", PYTHON, "-c", WRITE_ENVIRONMENT, folder, **more)
    equal(done.returncode, 0, done.stderr)
    return environments(folder)


def check_environment(rank, ours, theirs):
    names = {name for name in ours if not OURS.match(name)} - NOISE - (DEFAULTED - theirs.keys())
    equal(names ^ {name for name in theirs if not OURS.match(name)} - NOISE, set(), f"rank {rank}: names on one side only")
    assert re.fullmatch(re.escape(theirs["PATH"]) + r"(:/[^:]*)?", ours["PATH"]), ours["PATH"]  # + ddp-worker's folder
    for name in sorted(names - FREE - {"PATH"}):
        equal(ours[name], theirs[name], f"rank {rank}: {name}")
    assert ours["TORCHELASTIC_USE_AGENT_STORE"] in ("True", "False"), ours["TORCHELASTIC_USE_AGENT_STORE"]
    assert 0 < int(ours["MASTER_PORT"]) < 65536 and ours["MASTER_ADDR"], ours
    assert ours["TORCHELASTIC_RUN_ID"] and os.path.isabs(ours["TORCHELASTIC_ERROR_FILE"]), ours


def the_environment_is_torchrun_s():
    for more in ({}, {"OMP_NUM_THREADS": "2", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}):
        with Case() as case:
            theirs, ours = torchrun_environments(case, more), our_environments(case, more)
            equal((sorted(ours), sorted(theirs)), ([0, 1, 2, 3], [0, 1, 2, 3]))
            for rank, env in ours.items():
                check_environment(rank, env, theirs[rank])
            for shared in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"):
                equal(len({env[shared] for env in ours.values()}), 1, shared)
            equal(len({env["TORCHELASTIC_ERROR_FILE"] for env in ours.values()}), 4)


run_and_exit([four_ranks_train_and_a_killed_rank_costs_one_restart, an_exception_is_the_job_s_failure,
           the_environment_is_torchrun_s])
