"""Training as a user starts it: `ddpctl run --standalone`, four ranks. usage: train_test.py BUILD PART

model-file, resnet18: a run of four steps and two runs of two steps give the same checkpoint bit for bit: the small residual
net of docs/examples at every opt level, ResNet-18 at O0 and O2, since its checkpoints are large and the levels work alike.
mnist: ResNet-18 reaches 95 % on real MNIST after 80 steps; the ConvNet has the losses that a tutorial prints. Skips (77) where ../shared is not there."""

import filecmp
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import small_data  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
LEVELS = (["--opt-level", "O0"], ["--opt-level", "O1", "--init-loss-scale", "256"],
          ["--opt-level", "O2", "--init-loss-scale", "256"], ["--opt-level", "O3"],
          ["--opt-level", "O2", "--low-type", "bf16"])
MODELS = {
    "resnet18": ["-a", "resnet18", "-b", "4"],
    "model-file": ["-a", os.path.join(ROOT, "docs", "examples", "small-resnet.json"), "-b", "8"],
}
TUTORIAL_LOSSES = (2.2473, 2.1133, 2.0436)  # what the tutorial in docs/recipes.md prints on four GPUs
IMAGE_SIZE = {"resnet18": 16, "model-file": 28}


def train(build, folder, args):
    done = subprocess.run(
        [f"{build}/ddpctl/ddpctl", "run", "--standalone", "--nproc-per-node", "4", "--state-dir", f"{folder}/state", "--",
         f"{build}/worker/ddp-worker", "--seed", "3", "--lr", "0.01", "--momentum", "0.9", *args],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1200, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(args)}: exit {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout


def check_level(build, model, level):
    with tempfile.TemporaryDirectory(prefix="ddp-train-") as folder:
        data = small_data.write_data(f"{folder}/data", 128, size=IMAGE_SIZE[model])

        def run(name, steps):
            return train(build, folder, [*MODELS[model], *level, "--max-steps", str(steps), "--checkpoint-every", "2",
                                         "--checkpoint-dir", f"{folder}/{name}", "--resume", "auto", data])
        said = run("whole", 4)
        run("parts", 2)
        resumed = run("parts", 4)
        files = [f"{folder}/{name}/step-00000004.safetensors" for name in ("whole", "parts")]
        assert "Gradient overflow" not in said, f"{level}: steps were skipped, so the test shows less than it should"
        assert re.search(r"[Rr]esum", resumed), f"{level}: no line about a resume: {resumed[-500:]}"
        assert filecmp.cmp(*files, shallow=False), f"{model} {level}: a resume changes the checkpoint"
        with open(f"{folder}/whole/step-00000002.safetensors", "rb") as before, open(files[0], "rb") as after:
            assert before.read() != after.read(), f"{model} {level}: two more steps change nothing"
    print(f"ok {model} {' '.join(level)}: resume equal to the bit")


def check_mnist(build):
    data = os.path.join(os.environ.get("DDP_SHARED", os.path.join(ROOT, "..", "shared")), "data", "mnist")
    if not os.path.isdir(data):
        print("skip: no data/mnist in ../shared (or DDP_SHARED)")
        return 77
    with tempfile.TemporaryDirectory(prefix="ddp-train-") as folder:
        said = train(build, folder, ["-a", "resnet18", "-b", "32", "--lr", "0.02", "--max-steps", "80", data])
    accuracy = float(re.findall(r"Val: Acc@1 ([0-9.]+)", said)[-1])
    print(f"ResNet-18, 80 steps of 4 x 32: {accuracy} %")
    assert accuracy >= 95.0, said[-2000:]
    with tempfile.TemporaryDirectory(prefix="ddp-train-") as folder:
        said = train(build, folder, ["-b", "100", "--seed", "0", "--lr", "1e-4", "--momentum", "0", "--max-steps", "150", "-p", "50", data])
    losses = re.findall(r"Loss: ([0-9.]+)", said)
    print(f"ConvNet, losses at steps 50, 100 and 150: {', '.join(losses)}")
    assert all(abs(float(a) - b) < 1.5e-4 for a, b in zip(losses, TUTORIAL_LOSSES, strict=True)), said[-2000:]
    return 0


def main():
    build, part = os.path.abspath(sys.argv[1]), sys.argv[2]
    if part == "mnist":
        return check_mnist(build)
    for level in LEVELS[:3:2] if part == "resnet18" else LEVELS:
        check_level(build, part, level)
    return 0


if __name__ == "__main__":
    sys.exit(main())
