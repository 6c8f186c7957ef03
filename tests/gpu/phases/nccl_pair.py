"""DDP of two NCCL ranks on one GPU, which NCCL 2.30 and newer allow (NCCL_MULTI_RANK_GPU_ENABLE): Gloo's losses, buckets in captures and
beside backward; a rank killed by -9 ends the other, which names it; the next generation trains to the end. usage: nccl_pair.py BUILD

DDP_NCCL names the library (tests/gpu/run --nccl FILE); else the installed one counts. An older one: not run."""
import json
import os
import re
import signal
import subprocess
import sys

import common
import device
import gpu
import launcher

NEEDED = (2, 30)
VARIABLE = "NCCL_MULTI_RANK_GPU_ENABLE"
STEPS = "4" if common.IS_STANDIN else "12"
BATCH = "4" if common.IS_STANDIN else "32"
KILLED_STEPS = 40 if common.IS_STANDIN else 300
# Blocks: each rank takes its own, and both have to fit on the GPU (NCCL's user guide, NCCL_MULTI_RANK_GPU_ENABLE).
NCCL = ["--device", "cuda", "--comm", "nccl", "--nccl-max-ctas", "8", "--bucket-cap-mb", "0.05"]


def job(args, *options):
    command = common.standalone(2, ["-a", "convnet", "-b", BATCH, "--seed", "3", *common.SGD, "-p", "1", *args], "-e", f"{VARIABLE}=1",
                                *options)
    if common.IS_STANDIN:  # its device runs by itself, as a GPU does (tests/standin/cuda/nccl.h)
        at = command.index("--") + 1
        command[at:at] = ["env", "DDP_SEED=0"]
    return command


def losses(where, args):
    """Of both ranks, and what was said."""
    os.makedirs(where)
    said = common.must(job(["--max-steps", STEPS, "--loss-log", os.path.join(where, "loss-%r"), *args]))
    return [common.read_losses(os.path.join(where, f"loss-{rank}")) for rank in range(2)], said


def compare(checks, where, data, level, options, words):
    folder = os.path.join(where, level)
    gloo, _ = losses(os.path.join(folder, "gloo"), [*options, "--device", "cuda", "--comm", "gloo", data])
    nccl, said = losses(os.path.join(folder, "nccl"), [*options, *NCCL, data])
    worst = max(common.worst_difference(ours, theirs) for ours, theirs in zip(nccl, gloo))
    checks.that(worst <= common.TOLERANCES[level], f"{level}: losses at most {worst:.2g} off Gloo's ({common.TOLERANCES[level]:g})")
    checks.that(len({tuple(entry[2] for entry in rank) for rank in nccl}) == 2, f"{level}: each rank has its own images")
    checks.that(words in said, f"{level}: the first line says {words}")
    if not checks.that("run eagerly" not in said, f"{level}: steps are captured with their reductions"):
        print(said[-1500:])
    if "cannot be captured without blocking" in said:
        common.figure(f"{level}: captured by a blocking communicator")
    return worst


def beside_backward(checks, where, data):
    path = os.path.join(where, "profile.json")
    common.must(job([*NCCL, *common.LEVELS[2][1], "--profile", "4", "--profile-json", path, data]))
    with open(path, encoding="utf-8") as file:
        parts = {layer["name"]: layer["forward_ms"] for layer in json.load(file)["layers"]}
    took, waited = parts["reduction"], parts["reduction, waited for"]
    checks.that(0 <= waited < took, f"buckets are reduced beside backward: {took:.3f} ms, waited for {waited:.3f} ms")
    common.figure(f"reduction {took:.3f} ms, waited for {waited:.3f}")


def rank_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as environ:
        return int(re.search(rb"(?:^|\0)RANK=(\d+)", environ.read())[1])


def stat(pid):
    """(state, parent)"""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
    except OSError:
        return "X", 0
    return state, int(parent)


def kill_rank_1(token, log):
    """In training. Its shim stands still meanwhile, else it would end rank 0 before that knows of the loss. Seconds until rank 0 has
    ended by itself, and from then until the next generation is there."""
    gpu.wait_for("training", lambda: launcher.steps_in(log) >= 4)
    old = {rank_of(pid): pid for pid in launcher.workers(token)}
    assert sorted(old) == [0, 1], f"workers {old}"
    shim = stat(old[0])[1]
    os.kill(shim, signal.SIGSTOP)
    try:
        os.kill(old[1], signal.SIGKILL)
        watch = gpu.Stopwatch()
        gpu.wait_for("the end of rank 0", lambda: stat(old[0])[0] in "ZX")
        ended_s = watch.passed_s
    finally:
        os.kill(shim, signal.SIGCONT)
    gpu.wait_for("the next generation", lambda: len(set(launcher.workers(token)) - set(old.values())) == 2)
    return ended_s, watch.passed_s - ended_s


def survive_a_kill(checks, where, data):
    token, log, state = f"PHASE_TOKEN={os.getpid()}", os.path.join(where, "killed-%r"), os.path.join(where, "state")
    baseline = gpu.Baseline()
    command = job([*NCCL, "--max-steps", str(KILLED_STEPS), "--checkpoint-dir", os.path.join(where, "ckpt"), "--checkpoint-every", "2",
                   "--resume", "auto", "--loss-log", log, data], "--state-dir", state, "-e", token)
    command[command.index("--max-restarts") + 1] = "1"
    path = os.path.join(where, "said")
    with open(path, "w", encoding="utf-8") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=common.environ())
    took = checks.attempt("kill -9 of rank 1", kill_rank_1, token, log.replace("%r", "0"))
    code = launcher.finish(process, launcher.JOB_LIMIT_S if took is not None else 0)
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    checks.that(code == 0, f"the job ends well in its second generation: exit code {code}")
    checks.that("rank 1 was lost" in text, "rank 0 ends and names rank 1")
    checks.that(baseline.seconds_until_back() is not None, "in the end the GPU is as before")
    if code != 0 or "rank 1 was lost" not in text:
        print(text[-2500:])
    if took is not None:
        common.figure(f"rank 0 ended {took[0]:.2f} s after the kill of rank 1, the next generation was there {took[1]:.2f} s later")


def main():
    asked = os.environ.get("DDP_NCCL")
    version = device.nccl_version(asked)
    if version is None or tuple(version[:2]) < NEEDED:
        found = f"NCCL {'.'.join(map(str, version))} takes one rank a GPU" if version else "no NCCL"
        print(f"{asked or 'libnccl.so.2'}: {found}")
        if asked and version is None:
            return 1  # it was asked for
        print(f"skip: {found}, {NEEDED[0]}.{NEEDED[1]} or newer is needed: --nccl FILE")
        return 77
    checks = common.Checks()
    with common.folder() as where:
        data = common.write_data(os.path.join(where, "data"), 256 if common.IS_STANDIN else 2000)
        words = f"NCCL {'.'.join(map(str, version))} of {(asked or '')[:100]}"
        worst = [checks.attempt(level, compare, checks, where, data, level, options, words) for level, options in common.LEVELS[:3:2]]
        checks.attempt("profile", beside_backward, checks, where, data)
        survive_a_kill(checks, where, data)
    common.figure(f"NCCL {'.'.join(map(str, version))}, losses off Gloo's by at most "
                  f"{max((off for off in worst if off is not None), default=float('nan')):.1g}")
    checks.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
