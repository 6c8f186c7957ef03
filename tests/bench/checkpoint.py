"""What a checkpoint costs the step after it, and how soon it is on the disk. usage: checkpoint.py BUILD FOLDER [--threads N]
[--batch N] [--steps N] [--every N] [--arch NAME] [--json]

Trains ResNet-50 with momentum on random images of 224 x 224 pixels and looks at the times between the progress lines: those
of the steps after a checkpoint beside those of the others. A checkpoint is on the disk when its .json is there. In the same
run, in the same FOLDER: as many bytes, written at once and synced. Exits with 1 where a step after a checkpoint takes more
than 5 % longer (median)."""

import argparse
import glob
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PAUSE_S = 0.002


class Watch(threading.Thread):
    """When each checkpoint was committed."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.seen, self.ended = folder, {}, threading.Event()

    def look(self):
        for path in glob.glob(f"{self.folder}/step-*.json"):
            self.seen.setdefault(int(os.path.basename(path)[5:13]), time.monotonic())

    def run(self):
        while not self.ended.wait(PAUSE_S):
            self.look()
        self.look()


def train(options, folder):
    command = [os.path.join(options.build, "worker", "ddp-worker"), "--device", "cpu", "-a", options.arch, "--dummy", "-b",
               str(options.batch), "--momentum", "0.9", "-p", "1", "--max-steps", str(options.steps), "--checkpoint-dir", folder,
               "--checkpoint-every", str(options.every), "--checkpoint-keep", "1000"]
    env = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    watch, at = Watch(folder), {}
    watch.start()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as worker:
        for line in worker.stdout:
            step = re.search(r"Step \[(\d+)/", line)
            if step:
                at[int(step.group(1))] = time.monotonic()
    watch.ended.set()
    watch.join()
    if worker.returncode != 0 or len(at) != options.steps:
        sys.exit(f"ddp-worker: exit {worker.returncode}, {len(at)} steps")
    return at, watch.seen


def write_time(folder, size):
    """Seconds to write and sync that many bytes, of five times the median."""
    block, path, times = os.urandom(1 << 20), f"{folder}/plain", []
    for _ in range(5):
        begun = time.monotonic()
        with open(path, "wb") as file:
            for at in range(0, size, len(block)):
                file.write(block[:min(len(block), size - at)])
            file.flush()
            os.fsync(file.fileno())
        times.append(time.monotonic() - begun)
        os.remove(path)
    return statistics.median(times)


def measure(options, folder):
    at, committed = train(options, folder)
    saved = [step for step in sorted(at) if step % options.every == 0 and step < options.steps]
    times = {step: at[step] - at[step - 1] for step in at if step > 2}  # the first two warm up
    after = [times[step + 1] for step in saved if step + 1 in times]
    others = [spent for step, spent in times.items() if step - 1 not in saved]
    size = os.path.getsize(f"{folder}/step-{saved[0]:08d}.safetensors")
    plain = write_time(folder, size)
    durable = [committed[step] - at[step] for step in saved]
    return {"arch": options.arch, "batch": options.batch, "threads": options.threads, "bytes": size, "checkpoints": len(saved),
            "step_s": statistics.median(others), "step_after_s": statistics.median(after), "worst_after_s": max(after),
            "slower_percent": 100 * (statistics.median(after) / statistics.median(others) - 1),
            "durable_s": statistics.median(durable), "plain_write_s": plain}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("folder")
    for name, default in (("threads", 1), ("batch", 8), ("steps", 26), ("every", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--arch", default="resnet50")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="ddp-checkpoint-", dir=options.folder)
    try:
        found = measure(options, folder)
    finally:
        shutil.rmtree(folder)
    if options.json:
        print(json.dumps(found))
    else:
        print(f"{found['arch']}, batch {found['batch']}, {found['threads']} threads: a step {found['step_s']:.3f} s, after a checkpoint of "
              f"{found['bytes'] / 1e6:.0f} MB {found['step_after_s']:.3f} s ({found['slower_percent']:+.1f} %; the slowest of "
              f"{found['checkpoints']}: {found['worst_after_s']:.3f} s)\non the disk after {found['durable_s']:.3f} s; the same bytes written "
              f"and synced alone: {found['plain_write_s']:.3f} s")
    sys.exit(0 if found["slower_percent"] <= 5 else 1)


if __name__ == "__main__":
    main()
