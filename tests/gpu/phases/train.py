"""Training by ddp-worker at every opt level on the GPU: each step's loss is the CPU's. usage: train.py BUILD

How far it may be off: FACTOR times as far as PyTorch's losses on this GPU are off its own on the CPU (torch_losses.py), for the same kind
of net, at the same level, in the same call; but no less than common.TOLERANCES. On the stand-in GPU, and where there is no PyTorch,
those alone."""
import concurrent.futures
import json
import os
import subprocess
import sys

import common

MODEL_FILE = os.path.join(common.ROOT, "docs", "examples", "small-resnet.json")
SMALL = (("convnet", ["-a", "convnet", "-b", "8", "--max-steps", "5"]),
         ("model file", ["-a", MODEL_FILE, "-b", "4", "--max-steps", "2"]),
         ("resnet18", ["-a", "resnet18", "-b", "8", "--max-steps", "2", "--lr", "0.0002"]))
WHOLE = (("convnet", ["-a", "convnet", "-b", "100", "--max-steps", "40"]),
         ("toynet", ["-a", "toynet", "-b", "32", "--max-steps", "10"]),
         ("model file", ["-a", MODEL_FILE, "-b", "32", "--max-steps", "10"]),
         # its last batch norms see one pixel an image: at a higher rate bf16 differs from itself by 18 % after five steps
         ("resnet18", ["-a", "resnet18", "-b", "32", "--max-steps", "5", "--lr", "0.0002"]))
OPTIMIZERS = (("adamw", ["--optimizer", "adamw", "--lr", "0.001", "--wd", "0.01"]),
              ("lars", ["--optimizer", "lars", "--lr", "1", "--momentum", "0.9"]),
              ("lookahead", [*common.SGD, "--lookahead", "3", "--accumulation-steps", "2", "--clip-grad-norm", "1"]))


FACTOR = 4.0  # a maximum over some steps of few runs: that much is luck
TORCH_LIMIT_S = 100


def torch_distances(data):
    """{(model, level): distance}, and why there are not all of them. What is there when the time is over counts."""
    if common.IS_STANDIN:
        return {}, "the stand-in's tolerances"
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_losses.py")
    try:
        done = subprocess.run([sys.executable, script, common.BUILD, data], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True, errors="replace", timeout=TORCH_LIMIT_S, check=False)
        text, why = done.stdout, "" if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr.strip()[-200:]}"
    except subprocess.TimeoutExpired as late:
        text, why = (late.stdout or b"").decode(errors="replace"), f"took more than {TORCH_LIMIT_S} s"
    return distances_in(text, why)


def distances_in(text, why=""):
    found = {}
    for line in filter(lambda line: line.startswith("{") and line.endswith("}"), text.splitlines()):
        entry = json.loads(line)
        if "off" in entry:
            found[entry["model"], entry["level"]] = entry["off"]
        else:
            why = why or f"{entry['model']} {entry['level']}: {entry['why']}"
    return found, why


def allowed(distances, model, level):
    """(tolerance, PyTorch's distance in words)"""
    theirs = distances.get((model, level))
    if theirs is None or not theirs < 1:  # a NaN or nonsense allows nothing
        return common.TOLERANCES[level], ""
    return max(common.TOLERANCES[level], FACTOR * theirs), f", PyTorch's {theirs:.2g}"


def train_both(checks, data, where, name, args):
    """{device: (losses, what was said)}; None where one failed, which is counted."""
    runs = {}
    for device in ("cpu", "cuda"):
        log = os.path.join(where, f"{name}-{device}".replace(" ", "-"))
        said = checks.attempt(f"{name} on {device}", lambda: common.train(device, [*args, "--loss-log", log, data]))
        if said is None:
            return None
        runs[device] = (common.read_losses(log), said)
    return runs


def judge(checks, name, runs, tolerance, theirs):
    (losses, said), (expected, said_on_cpu) = runs["cuda"], runs["cpu"]
    off = common.worst_difference(losses, expected)
    checks.that(off <= tolerance, f"{name}: {len(losses)} losses are at most {off:.2g} off the CPU's (allowed {tolerance:.2g}{theirs}), "
                                  f"from {losses[0][2]:.4f} to {losses[-1][2]:.4f}")
    checks.that("training on" in said, f"{name}: it was on the GPU")
    ours, other = (common.validation_of(text)[1] for text in (said, said_on_cpu))
    checks.that(abs(ours - other) <= 4 * tolerance * abs(other), f"{name}: validation loss {ours}, the CPU's {other}")
    return off


def cases():
    """(name, model, level, arguments)"""
    for level, options in common.LEVELS:
        for model, args in SMALL if common.IS_STANDIN else WHOLE:
            if common.IS_STANDIN and model == "resnet18" and level != "O2":
                continue  # it takes long there, and the model file has residuals at every level
            yield f"{model} {level}", model, level, [*common.SGD, *args, *options]
    for name, options in OPTIMIZERS:
        yield f"convnet O2 {name}", "convnet", "O2", [*SMALL[0][1], *common.LEVELS[2][1], *options]


def main():
    checks = common.Checks()
    worst = {}
    with common.folder() as where, concurrent.futures.ThreadPoolExecutor(2 if common.IS_STANDIN else 6) as pool:
        data = common.write_data(os.path.join(where, "data"), 64 if common.IS_STANDIN else 4000)
        torch = pool.submit(torch_distances, data)
        jobs = [(case, pool.submit(train_both, checks, data, where, case[0], case[3])) for case in cases()]
        distances, why = torch.result()
        for (name, model, level, _), job in jobs:
            if job.result() is not None:
                off = judge(checks, name, job.result(), *allowed(distances, model, level))
                worst[level] = max(worst.get(level, 0.0), off)
    common.figure("losses off the CPU's by at most " + ", ".join(f"{level} {off:.1g}" for level, off in worst.items()))
    if distances:
        of_torch = {level: max(off for (_, of), off in distances.items() if of == level) for level in worst if any(
            of == level for _, of in distances)}
        common.figure("PyTorch's by at most " + ", ".join(f"{level} {off:.1g}" for level, off in of_torch.items()))
    if why:
        print(f"PyTorch's distances: {len(distances)}; {why}")
    checks.end()


if __name__ == "__main__":
    main()
