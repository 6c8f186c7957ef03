"""Classes, labels and the order of pictures in a folder, as torchvision's ImageFolder has them. usage: folder_test.py FOLDER
FOLDER is the program made from folder.c. Compared are folders with drawn names and depths."""
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "pytorch"))
import pytorch  # noqa: E402

pytorch.rerun_or_skip()
from torchvision.datasets import ImageFolder  # noqa: E402

LETTERS = ["a", "B", "Z", "-", "_", ".", " ", "0", "9", "é", "日", "🙂", "~", "{", "ab", "a-"]
ENDINGS = [".jpg", ".JPEG", ".png", ".PnG", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif", ".txt", "", ".jpg.txt", ".jp"]


def name(draw):
    return "".join(draw.choice(LETTERS) for _ in range(draw.randint(1, 4))).strip(".") or "x"


def fill(folder, draw, depth, others):
    os.makedirs(folder, exist_ok=True)
    for _ in range(draw.randint(0, 6)):
        with open(os.path.join(folder, name(draw) + "f" + draw.choice(ENDINGS)), "wb"):
            pass
    for _ in range(draw.randint(0, 3) if depth > 0 else 0):
        fill(os.path.join(folder, name(draw)), draw, depth - 1, others)
    if others and draw.random() < 0.3:
        os.symlink(draw.choice(others), os.path.join(folder, name(draw) + "link"))


def make(where, draw):
    """Links lead to folders outside, which have none."""
    for i in range(2):
        fill(f"{where}/other{i}", draw, 1, [])
    for _ in range(draw.randint(1, 8)):
        fill(os.path.join(where, "set", name(draw)), draw, 2, [f"{where}/other0", f"{where}/other1"])
    if draw.random() < 0.5:
        os.symlink(f"{where}/other0", os.path.join(where, "set", "class link"))
    with open(f"{where}/set/top.jpg", "wb"):
        pass


def ours(program, folder, *args):
    done = subprocess.run([program, folder, *args], capture_output=True, check=False, timeout=60)
    lines = os.fsdecode(done.stdout).splitlines()
    return (done.returncode == 0, [line[6:] for line in lines if line.startswith("class ")],
            [line for line in lines if not line.startswith("class ")])


def theirs(folder, allow_empty):
    try:
        found = ImageFolder(folder, allow_empty=allow_empty)
    except FileNotFoundError:
        return False, [], []
    return True, found.classes, [f"{label} {path}" for path, label in found.samples]


def main():
    program, refused, pictures = sys.argv[1], 0, 0
    for seed in range(60):
        with tempfile.TemporaryDirectory(prefix="ddp-folder-") as where:
            make(where, random.Random(seed))
            for args in ((), ("allow-empty",)):
                mine, other = ours(program, f"{where}/set", *args), theirs(f"{where}/set", bool(args))
                if not other[2]:
                    assert not mine[0], f"seed {seed}: a set without pictures was taken"
                    refused += 1
                    continue
                assert mine == other, f"seed {seed} {args}: {mine}\ninstead of {other}"
                pictures += len(mine[2])
    assert refused > 5 and pictures > 500, (refused, pictures)
    print(f"{pictures} pictures in equal order, {refused} folders refused by both")


if __name__ == "__main__":
    main()
