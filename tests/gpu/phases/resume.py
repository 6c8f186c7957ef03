"""Resume on the GPU, bit-exact with --deterministic: steps at once and in two parts give the same checkpoint and the same losses.
usage: resume.py BUILD"""
import concurrent.futures
import filecmp
import os

import common

SMALL = (("convnet", ["-a", "convnet", "-b", "8"]),)
WHOLE = (("convnet", ["-a", "convnet", "-b", "100"]), ("resnet18", ["-a", "resnet18", "-b", "32"]))


def check(checks, data, where, name, args):
    def part(folder, steps):
        log = os.path.join(where, f"{folder}.log")
        common.train("cuda", [*args, "--deterministic", "--max-steps", str(steps), "--checkpoint-every", "2", "--checkpoint-dir",
                              os.path.join(where, folder), "--resume", "auto", "--loss-log", log, data])
        return log
    os.makedirs(where)
    logs = [part("whole", 6), part("parts", 2), part("parts", 6)]
    files = [os.path.join(where, folder, "step-00000006.safetensors") for folder in ("whole", "parts")]
    checks.that(filecmp.cmp(*files, shallow=False), f"{name}: the checkpoint after step 6 is the same to the bit")
    losses = [common.read_losses(log) for log in logs[1:]]
    whole = common.read_losses(logs[0])
    checks.that(whole == losses[1] and len(whole) == 6, f"{name}: all six losses are the same")
    with open(files[0], "rb") as after, open(os.path.join(where, "whole", "step-00000004.safetensors"), "rb") as before:
        checks.that(after.read() != before.read(), f"{name}: two more steps change something")


def main():
    checks = common.Checks()
    with common.folder() as where, concurrent.futures.ThreadPoolExecutor(2 if common.IS_STANDIN else 6) as pool:
        data = common.write_data(os.path.join(where, "data"), 64 if common.IS_STANDIN else 4000)
        jobs = []
        for level, options in common.LEVELS:
            for model, args in SMALL if common.IS_STANDIN else WHOLE:
                name = f"{model} {level}"
                jobs.append(pool.submit(checks.attempt, name, check, checks, data, os.path.join(where, name.replace(" ", "-")),
                                        name, [*args, *common.SGD, *options]))
        for job in jobs:
            job.result()
    common.figure(f"{len(jobs)} models and levels")
    checks.end()


if __name__ == "__main__":
    main()
