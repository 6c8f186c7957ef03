#!/usr/bin/env python3
"""Event files as TensorBoard reads them: tensorboard_live.py DDP_WORKER.

A training writes scalars, histograms and images; it is killed and resumed from an earlier checkpoint. TensorBoard's
EventAccumulator sees the values of metrics.jsonl, each step once, and the weights and images that are really there.
"""
import io
import json
import os
import signal
import subprocess
import sys
import tempfile

import pytorch

pytorch.rerun_or_skip()

import numpy  # noqa: E402
import safetensors.torch  # noqa: E402
from PIL import Image  # noqa: E402

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402
except ImportError:
    print("skip: no tensorboard in PyTorch's environment (tests/pytorch/setup adds it)")
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import small_data  # noqa: E402

TAGS = {"Loss/train": "loss", "Top1/train": "acc1", "Top5/train": "acc5", "Lr": "lr", "Throughput/train": "images_per_s",
        "Time/step": "step_ms", "Time/data": "data_ms", "Time/comm": "comm_ms", "Time/exposed": "exposed_ms", "LossScale": "loss_scale"}
VALIDATION = {"Loss/val": "loss", "Top1/val": "acc1", "Top5/val": "acc5"}
STEPS = 16  # an epoch: 128 images, 8 a step


def start(folder, *args):
    command = [sys.argv[1], "--device", "cpu", "-b", "8", "-p", "1", "--lr", "0.05", "--tensorboard", f"{folder}/run", "--metrics",
               f"{folder}/m.jsonl", "--checkpoint-dir", f"{folder}/ckpt", "--resume", "auto", *args, f"{folder}/data"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def lines_that_count(path):
    """As docs/training.md says: a resume drops the lines of later steps; the last line may be torn."""
    lines = []
    with open(path, encoding="utf-8") as file:
        for text in file:
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            if line["kind"] == "resume":
                lines = [old for old in lines if old["step"] <= line["step"]]
            lines.append(line)
    return lines


def load(folder):
    events = EventAccumulator(folder, size_guidance={"scalars": 0, "histograms": 0, "images": 0})
    events.Reload()
    return events


def check_scalars(events, lines, tags, kind, repeated=0):
    lines = [line for line in lines if line["kind"] == kind]
    for tag, field in tags.items():
        points = {point.step: point.value for point in events.Scalars(tag)}
        steps = [point.step for point in events.Scalars(tag)]
        assert steps == sorted(steps) and len(points) + repeated == len(steps), f"{tag}: a step twice: {steps}"
        wanted = {line["step"]: line[field] for line in lines}
        assert points.keys() == wanted.keys(), (tag, sorted(points.keys() ^ wanted.keys()))
        for step, value in wanted.items():
            assert abs(points[step] - value) <= 1e-6 * max(1e-3, abs(value)), (tag, step, points[step], value)


def check_histograms(events, folder):
    weights = safetensors.torch.load_file(f"{folder}/ckpt/step-{3 * STEPS:08d}.safetensors")
    names = [tag.split("/", 1)[1] for tag in events.Tags()["histograms"] if tag.startswith("Parameters/")]
    assert {"fc.weight", "layer1.0.weight", "layer1.1.running_mean"} <= set(names), names
    for name in names:
        point = events.Histograms(f"Parameters/{name}")[-1]
        histogram, values = point.histogram_value, weights[name].double().numpy().ravel()
        assert point.step == 3 * STEPS and histogram.num == values.size, (name, point.step)
        assert histogram.min == values.min() and histogram.max == values.max(), name
        assert abs(histogram.sum - values.sum()) <= 1e-9 * values.size and abs(histogram.sum_squares - (values**2).sum()) < 1e-6, name
        limits = numpy.array(histogram.bucket_limit)
        counted = numpy.bincount(numpy.searchsorted(limits, values, side="right"), minlength=limits.size)
        assert (counted == numpy.array(histogram.bucket)).all(), name
    gradients = [point.histogram_value for point in events.Histograms("Gradients/fc.weight")]
    assert all(0 < one.sum_squares < 100 and one.num == weights["fc.weight"].numel() for one in gradients), \
        [(one.num, one.sum_squares) for one in gradients]


def check_images(events, folder):
    with open(f"{folder}/data/train-images-idx3-ubyte", "rb") as file:
        pictures = {file.read(28 * 28) for _ in (file.read(16), *range(128))}
    tags = events.Tags()["images"]
    assert sorted(tags) == ["Images/train/0", "Images/train/1", "Images/train/2"], tags
    for tag in tags:
        shown = events.Images(tag)
        assert [point.step for point in shown][-2:] == [STEPS + 1, 2 * STEPS + 1], [point.step for point in shown]
        for point in shown:
            picture = Image.open(io.BytesIO(point.encoded_image_string))
            assert picture.size == (28, 28) == (point.width, point.height) and picture.tobytes() in pictures, tag


def main():
    with tempfile.TemporaryDirectory(prefix="ddp-tensorboard-") as folder:
        small_data.write_data(f"{folder}/data", 128)
        with start(folder, "--epochs", "1000000", "--tb-images", "3") as first:
            line = first.stdout.readline()
            while line and not line.startswith("Epoch [3/"):
                line = first.stdout.readline()
            assert line, "it has ended by itself"
            first.send_signal(signal.SIGKILL)
        killed = load(f"{folder}/run")
        before = [point.step for point in killed.Scalars("Loss/train")]
        assert before[-1] > 2 * STEPS, "all that was printed is in the file of a killed process"
        for name in os.listdir(f"{folder}/ckpt"):  # back to the end of the first epoch
            if name.startswith("step-") and not name.startswith(f"step-{STEPS:08d}"):
                os.unlink(f"{folder}/ckpt/{name}")
        with start(folder, "--epochs", "3", "--tb-histograms", "--tb-images", "3") as second:
            second.communicate()
        assert second.returncode == 0, second.returncode
        events, lines = load(f"{folder}/run"), lines_that_count(f"{folder}/m.jsonl")
        check_scalars(events, lines, TAGS, "step")
        assert [point.step for point in events.Scalars("Loss/train")] == list(range(1, 3 * STEPS + 1))
        check_scalars(events, lines, VALIDATION, "validation", repeated=1)  # the checkpoint was made before its epoch's validation
        check_histograms(events, folder)
        check_images(events, folder)
        again = [step for step in before if step > STEPS]
        print(f"ok {len(events.Scalars('Loss/train'))} steps, {len(again)} of them written twice and shown once")
        with start(folder, "--epochs", "1", "--resume", "none", "--checkpoint-dir", f"{folder}/other") as third:
            third.communicate()
        steps = [point.step for point in load(f"{folder}/run").Scalars("Loss/train")]
        assert third.returncode == 0 and steps == list(range(1, STEPS + 1)), steps
        print("ok a new training hides the old one")


if __name__ == "__main__":
    main()
