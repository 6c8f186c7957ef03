#!/usr/bin/env python3
"""Pictures a second, one thread: JPEG files in memory to 224 x 224 random crops, and to whole pictures; ours, torchvision's and
Pillow's.

usage: pictures.py PICTURES FOLDER [--rounds R]
PICTURES is build/tests/numerics/pictures/pictures, FOLDER has JPEG files, at any depth. Run it with a Python that has torchvision
and Pillow; exits with 77 where they are missing. All take turns, round by round, and of each file the best time counts, so
that other load on the machine meets all alike. Crops are of the same kind, drawn by each for itself; Pillow's and torchvision's
transforms are of their versions 1 and 2. Prints a table."""
import argparse
import io
import os
import subprocess
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
try:
    import torch
    import torchvision
    from PIL import Image
    from torchvision import transforms
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms import v2
except ImportError:
    print("skip: this Python has no torchvision or no Pillow")
    sys.exit(77)

SIZE = 224


def ours(program, mode, names):
    done = subprocess.run([program, mode, "2"], input="\n".join(names).encode(), stdout=subprocess.PIPE, check=True)
    return [float(word) for word in done.stdout.split()]


def timed(read, inputs):
    times = []
    for one in inputs:
        begin = time.perf_counter()
        read(one)
        times.append(time.perf_counter() - begin)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pictures")
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = sorted(os.path.join(at, name) for at, _, found in os.walk(options.folder) for name in found)
    files = []
    for name in names:
        with open(name, "rb") as file:
            files.append(file.read())
    tensors = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in files]
    crop = transforms.Compose([transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip()])
    crop2 = v2.Compose([v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()])
    readers = {
        ("ours", "crop"): lambda: ours(options.pictures, "train", names),
        ("ours, DCT scaling", "crop"): lambda: ours(options.pictures, "reduced", names),
        ("torchvision.io, v2", "crop"): lambda: timed(lambda x: crop2(decode_jpeg(x, mode=ImageReadMode.RGB)), tensors),
        ("Pillow, torchvision", "crop"): lambda: timed(lambda x: crop(Image.open(io.BytesIO(x)).convert("RGB")), files),
        ("ours", "whole"): lambda: ours(options.pictures, "decode", names),
        ("torchvision.io, v2", "whole"): lambda: timed(lambda x: decode_jpeg(x, mode=ImageReadMode.RGB), tensors),
        ("Pillow, torchvision", "whole"): lambda: timed(lambda x: Image.open(io.BytesIO(x)).convert("RGB"), files),
    }
    best = {}
    for _ in range(options.rounds):
        for key, read in readers.items():
            best[key] = [min(pair) for pair in zip(best.get(key, [1e9] * len(names)), read())]
    print(f"torchvision {torchvision.__version__}, Pillow {Image.__version__}; {len(names)} files, {options.rounds} rounds, one thread")
    for (who, what), times in best.items():
        print(f"{what:6} {who:20} {len(names) / sum(times):7.0f} images/s")
    for what in ("crop", "whole"):
        others = min(sum(times) for (who, of), times in best.items() if of == what and not who.startswith("ours"))
        print(f"{what}: {others / sum(best['ours', what]):.2f} times the faster of the others")


if __name__ == "__main__":
    main()
