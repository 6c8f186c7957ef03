"""The whole system against PyTorch's results: rendezvous, launcherds, four workers on two nodes, real MNIST.
usage: golden_test.py BUILD RANKS EPOCHS. RANKS: 1 or 4; EPOCHS: at most 3. Skips (77) where ../shared is not there.

Every rank's loss at every step of epoch 1 is within 1e-4 of PyTorch's. After each epoch: top-1 and top-5 accuracy within
0.1 points, the validation loss within 1e-3."""

import json
import math
import os
import re
import subprocess
import sys
import tempfile

TOLERANCE = 1e-4
POINTS = 0.1
VALIDATION_TOLERANCE = 1e-3


def find_shared():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
    return os.environ.get("DDP_SHARED", os.path.join(root, "..", "shared"))


def read_losses(path):
    epochs = {}
    with open(path, encoding="ascii") as file:
        for line in file:
            epoch, _, loss = line.split()
            epochs.setdefault(int(epoch), []).append(float(loss))
    return [epochs[epoch] for epoch in sorted(epochs)]


def main():
    build, ranks, epochs = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    shared = find_shared()
    golden_path = f"{shared}/golden/convnet-mnist-{ranks}rank{'s' if ranks > 1 else ''}.json"
    if not os.path.exists(golden_path):
        print(f"skip: no {os.path.basename(golden_path)} in ../shared (or DDP_SHARED)")
        return 77
    with open(golden_path, encoding="utf-8") as file:
        golden = json.load(file)
    nodes = 2 if ranks > 1 else 1
    with tempfile.TemporaryDirectory(prefix="ddp-golden-") as folder:
        done = subprocess.run(
            [f"{build}/ddpctl/ddpctl", "run", "--standalone", "--nodes", str(nodes),
             "--nproc-per-node", str(ranks // nodes), "--state-dir", f"{folder}/state", "--",
             f"{build}/worker/ddp-worker", "-a", "convnet", "--seed", "0", "-b", "100", "--lr", "1e-4",
             "--epochs", str(epochs), "--loss-log", f"{folder}/loss-%r", f"{shared}/data/mnist"],
            stdout=subprocess.PIPE, text=True, timeout=1500, check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"})  # as for the reference values, and without busy waiting
        if done.returncode != 0:
            raise AssertionError(f"exit {done.returncode}: {done.stdout[-2000:]}")
        losses = [read_losses(f"{folder}/loss-{rank}")[0] for rank in range(ranks)]
    worst = 0.0
    for rank in range(ranks):
        expected = golden["losses"][0][rank]
        assert len(losses[rank]) == len(expected), f"rank {rank}: {len(losses[rank])} steps, not {len(expected)}"
        for step, (ours, theirs) in enumerate(zip(losses[rank], expected)):
            difference = abs(ours - theirs)
            assert difference <= TOLERANCE and not math.isnan(difference), \
                f"rank {rank}, step {step}: loss {ours}, PyTorch {theirs}"
            worst = max(worst, difference)
    found = re.findall(r"Val: Acc@1 ([0-9.]+) Acc@5 ([0-9.]+) Loss ([0-9.]+)", done.stdout)
    accuracies = [float(top1) for top1, _, _ in found]
    golden_epochs = golden["val"][:epochs]
    expected = [val["acc1"] for val in golden_epochs]
    print(f"{ranks} ranks: {len(losses[0])} steps each, largest difference {worst:.2e}; "
          f"accuracy {accuracies}, PyTorch {expected}")
    assert len(accuracies) == len(expected) == epochs and \
        all(abs(a - b) <= POINTS + 1e-9 for a, b in zip(accuracies, expected)), "accuracies differ"
    for (_, top5, loss), val in zip(found, golden_epochs):
        assert abs(float(top5) - val["acc5"]) <= POINTS + 1e-9, f"top-5 accuracy {top5}, PyTorch {val['acc5']}"
        assert abs(float(loss) - val["loss"]) <= VALIDATION_TOLERANCE, f"validation loss {loss}, PyTorch {val['loss']}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
