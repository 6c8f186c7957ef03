"""DDP over 2 and 4 ranks on one GPU with --comm gloo: every rank's losses are those of the same ranks on the CPU. NCCL over
ranks on one GPU is refused, with the reason. usage: ranks.py BUILD"""
import concurrent.futures
import os

import common

STEPS = "4" if common.IS_STANDIN else "12"
BATCH = "4" if common.IS_STANDIN else "32"


def job(where, world, args):
    os.makedirs(where, exist_ok=True)
    return common.standalone(world, ["-a", "convnet", "-b", BATCH, "--max-steps", STEPS, "--seed", "3", *common.SGD, "-p", "1",
                                     "--loss-log", os.path.join(where, "loss-%r"), *args])


def losses_of(where, world):
    return [common.read_losses(os.path.join(where, f"loss-{rank}")) for rank in range(world)]


def compare(checks, name, where, world, tolerance):
    ours, expected = (losses_of(os.path.join(where, device), world) for device in ("cuda", "cpu"))
    worst = max(common.worst_difference(a, b) for a, b in zip(ours, expected))
    checks.that(worst <= tolerance, f"{name}: the losses of {world} ranks are at most {worst:.2g} off the CPU's ({tolerance:g})")
    checks.that(len({tuple(entry[2] for entry in rank) for rank in ours}) == world, f"{name}: every rank has its own images")
    return worst


def main():
    checks = common.Checks()
    worst = 0.0
    levels = common.LEVELS[:3:2] if common.IS_STANDIN else common.LEVELS
    with common.folder() as where, concurrent.futures.ThreadPoolExecutor(1 if common.IS_STANDIN else 4) as pool:
        data = common.write_data(os.path.join(where, "data"), 96 if common.IS_STANDIN else 2000)
        cases = [(f"{level}, {world} ranks", level, world, [*options, data]) for level, options in levels
                 for world in ((2, 4) if level in ("O0", "O2") else (2,))]
        cases.append(("O2, 2 ranks, --sync-bn", "O2", 2, [*common.LEVELS[2][1], "--sync-bn", data]))
        on_cpu = {}
        for name, _, world, args in cases:
            folder = os.path.join(where, name.replace(" ", "-"), "cpu")
            on_cpu[name] = pool.submit(checks.attempt, f"{name} on the CPU", common.must,
                                       job(folder, world, ["--device", "cpu", *args]))
        for name, level, world, args in cases:  # launcherd wants the GPU without strangers on it: one after the other
            folder = os.path.join(where, name.replace(" ", "-"))
            said = checks.attempt(name, common.must, job(os.path.join(folder, "cuda"), world,
                                                         ["--device", "cuda", "--comm", "gloo", *args]))
            if said is None or on_cpu[name].result() is None:
                continue
            checks.that("training on" in said, f"{name}: it was on the GPU")
            worst = max(worst, compare(checks, name, folder, world, common.TOLERANCES[level]))
        code, said = common.run(job(os.path.join(where, "nccl"), 2, ["--device", "cuda", "--comm", "nccl", data]))
        checks.that(code != 0 and "are on one GPU" in said and "--comm gloo" in said,
                    f"--comm nccl with 2 ranks on one GPU: exit code {code}, and it says why")
        if "are on one GPU" not in said:
            print(said[-1500:])
    common.figure(f"2 and 4 ranks, losses off the CPU's by at most {worst:.1g}")
    checks.end()


if __name__ == "__main__":
    main()
