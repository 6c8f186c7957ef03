"""What the phases of tests/gpu/run share: programs of the build, small data, losses, checks that go on after a failure.

A phase is a program: `phase.py BUILD`, exit 0 passed, 1 failed, 77 cannot run here; lines "figure: ..." go into the table of
results. DDP_GPU_STANDIN=1 says that the GPU is the stand-in (tests/standin/cuda/module.c): slow, so nets are small there."""
import os
import re
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from small_data import write_data  # noqa: E402,F401

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build")
IS_STANDIN = os.environ.get("DDP_GPU_STANDIN") == "1"
WORKER = os.path.join(BUILD, "worker", "ddp-worker")
DDPCTL = os.path.join(BUILD, "ddpctl", "ddpctl")
RUN_LIMIT_S = 240

# Name, options. Scales are fixed, so that no run skips a step which the other takes.
LEVELS = (("O0", ["--opt-level", "O0"]), ("O1", ["--opt-level", "O1", "--loss-scale", "128"]),
          ("O2", ["--opt-level", "O2", "--loss-scale", "128"]), ("O3", ["--opt-level", "O3"]),
          ("O2 bf16", ["--opt-level", "O2", "--low-type", "bf16"]))

# How far a loss may be from the CPU's, as a part of it, after N steps. Both make the same roundings at the same places, so at
# O0 they differ by the order of fp32 sums (1e-7 each, a few thousand long), else where such a difference turns a rounding to
# 16 bit: fp16 has 2^-11 = 5e-4 an element, bf16 2^-8 = 4e-3, of which a mean over a batch keeps less. Steps feed it back. So far they
# are what the stand-in GPU needs; on a GPU train.py takes PyTorch's own distance between CPU and GPU for its measure.
TOLERANCES = {"O0": 2e-4, "O1": 4e-3, "O2": 4e-3, "O3": 1e-2, "O2 bf16": 3e-2}


class Checks:
    """Failures are printed and counted; the phase goes on."""

    def __init__(self):
        self.failed = self.passed = 0
        self.lock = threading.Lock()

    def that(self, is_so, words):
        with self.lock:
            self.passed += bool(is_so)
            self.failed += not is_so
            print(("ok     " if is_so else "not ok ") + words, flush=True)
        return is_so

    def attempt(self, words, call, *args):
        """What call returns; None where it raised, which is a failure."""
        try:
            return call(*args)
        except (AssertionError, OSError, ValueError, subprocess.SubprocessError) as error:
            self.that(False, f"{words}: {type(error).__name__}: {error}")
            return None

    def end(self):
        print(f"{self.passed} passed, {self.failed} failed")
        if self.failed == 0 and self.passed == 0:
            print("nothing was checked")
        sys.exit(0 if self.failed == 0 and self.passed > 0 else 1)


def figure(text):
    print(f"figure: {text}", flush=True)


def folder():
    return tempfile.TemporaryDirectory(prefix="ddp-gpu-")


def environ(**more):
    """One thread for each rank of the CPU: several run side by side."""
    return {**os.environ, "OMP_NUM_THREADS": "1", **more}


def run(argv, **more):
    """(exit code, stdout and stderr). A hang ends as an exception."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                          errors="replace", timeout=more.pop("limit_s", RUN_LIMIT_S), check=False, env=environ(**more))
    return done.returncode, done.stdout


def must(argv, **more):
    code, said = run(argv, **more)
    assert code == 0, f"{' '.join(argv)}: exit code {code}: {said[-1500:]}"
    return said


def standalone(world, args, *options):
    """A worker under `ddpctl run --standalone`, which keeps DDP_ variables from jobs."""
    kept = [f"{name}={os.environ[name]}" for name in ("DDP_CUDA_MODULE", "DDP_CUDA_CANDIDATES", "DDP_NCCL") if name in os.environ]
    inside = ["env", *kept] if kept else []
    return [DDPCTL, "run", "--standalone", "--nproc-per-node", str(world), "--max-restarts", "0", *options, "--", *inside, WORKER,
            *args]


SGD = ["--lr", "0.002", "--momentum", "0.9"]


def train(device, args, **more):
    return must([WORKER, "--device", device, "--seed", "3", "-p", "1", *args], **more)


def read_losses(path):
    """[[epoch, step, loss]] of --loss-log."""
    with open(path, encoding="ascii") as file:
        return [(int(epoch), int(step), float(loss)) for epoch, step, loss in (line.split() for line in file)]


def worst_difference(losses, expected):
    """The greatest difference, as a part of the loss or, where that is small, of 0.25; infinite where the steps are not the same."""
    if [entry[:2] for entry in losses] != [entry[:2] for entry in expected] or not losses:
        return float("inf")
    worst = 0.0
    for (_, _, ours), (_, _, other) in zip(losses, expected):
        off = abs(ours - other) / max(abs(other), 0.25)
        worst = off if not off <= worst else worst  # a NaN stays
    return worst


def validation_of(said):
    """(Acc@1, loss) of the last validation."""
    found = re.findall(r"Val: Acc@1 ([0-9.]+) Acc@5 [0-9.]+ Loss ([0-9.einfa+-]+)", said)
    assert found, f"no validation: {said[-500:]}"
    return float(found[-1][0]), float(found[-1][1])
