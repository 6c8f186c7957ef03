"""Training by ddp-worker at every opt level on the GPU: each step's loss is the CPU's. usage: train.py BUILD"""
import concurrent.futures
import os

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


def compare(checks, data, where, name, args, tolerance):
    losses = {}
    said = {}
    for device in ("cpu", "cuda"):
        log = os.path.join(where, f"{name}-{device}".replace(" ", "-"))
        said[device] = checks.attempt(f"{name} on {device}", lambda: common.train(device, [*args, "--loss-log", log, data]))
        if said[device] is None:
            return 0.0
        losses[device] = common.read_losses(log)
    off = common.worst_difference(losses["cuda"], losses["cpu"])
    checks.that(off <= tolerance, f"{name}: {len(losses['cuda'])} losses are at most {off:.2g} off the CPU's "
                                  f"(allowed {tolerance:g}), from {losses['cuda'][0][2]:.4f} to {losses['cuda'][-1][2]:.4f}")
    checks.that("training on" in said["cuda"], f"{name}: it was on the GPU")
    ours, other = (common.validation_of(said[device])[1] for device in ("cuda", "cpu"))
    checks.that(abs(ours - other) <= 4 * tolerance * abs(other), f"{name}: validation loss {ours}, the CPU's {other}")
    return off


def main():
    checks = common.Checks()
    worst = {}
    with common.folder() as where, concurrent.futures.ThreadPoolExecutor(2 if common.IS_STANDIN else 6) as pool:
        data = common.write_data(os.path.join(where, "data"), 64 if common.IS_STANDIN else 4000)
        jobs = {}
        for level, options in common.LEVELS:
            for model, args in SMALL if common.IS_STANDIN else WHOLE:
                if common.IS_STANDIN and model == "resnet18" and level != "O2":
                    continue  # it takes long there, and the model file has residuals at every level
                name = f"{model} {level}"
                jobs[pool.submit(compare, checks, data, where, name, [*common.SGD, *args, *options], common.TOLERANCES[level])] = level
        for name, options in OPTIMIZERS:
            args = [*SMALL[0][1], *common.LEVELS[2][1], *options]
            jobs[pool.submit(compare, checks, data, where, f"convnet O2 {name}", args, common.TOLERANCES["O2"])] = "O2"
        for job, level in jobs.items():
            worst[level] = max(worst.get(level, 0.0), job.result())
    common.figure("losses off the CPU's by at most " + ", ".join(f"{level} {off:.1g}" for level, off in worst.items()))
    checks.end()


if __name__ == "__main__":
    main()
