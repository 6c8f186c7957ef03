"""Pictures of worker/data/picture against Pillow and torchvision, pixel by pixel.
usage: pictures_test.py PICTURES [SHARED]
PICTURES is the program made from pictures.c. Files: pictures of every kind that Pillow writes and some that it only reads,
damaged ones, and, where the folder of shared data is, 200 photographs and the first 1,000 pictures of CIFAR-10. The random
crops are torchvision's own get_params, given our draws. Prints the mean and the worst difference of each comparison."""
import io
import os
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "pytorch"))
import pytorch  # noqa: E402

pytorch.rerun_or_skip()
import numpy as np  # noqa: E402
import torch  # noqa: E402
from PIL import Image  # noqa: E402
from torchvision import transforms  # noqa: E402

SIZE, SEED, EPOCH, MASK = 224, 7, 1, (1 << 64) - 1
failed = []
# Which axis goes first is the rule of Pillow 13; an older one may differ by 1.
RESAMPLED_WORST = 0 if Image.__version__.startswith("13.") else 1


class Draw:
    """common/draw.h, as it is documented."""
    def __init__(self, seed, index):
        self.state = seed
        self.state = self.u64() ^ index * 0xd1342543de82ef95 & MASK
        self.u64()
        self.state = self.u64()

    def u64(self):
        self.state = z = self.state + 0x9e3779b97f4a7c15 & MASK
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & MASK
        z = (z ^ z >> 27) * 0x94d049bb133111eb & MASK
        return z ^ z >> 31

    def unit(self):
        return (self.u64() >> 11) * 2.0 ** -53

    def below(self, n):
        return (self.u64() >> 32) * n >> 32


class Injected:
    """In the place of torch for torchvision's transforms: random numbers are those of `draw`."""
    def __init__(self, draw):
        self.draw = draw

    def __getattr__(self, name):
        return getattr(torch, name)

    def empty(self, _):
        return self

    def uniform_(self, low, high):
        return torch.tensor([float(low) + (float(high) - float(low)) * self.draw.unit()], dtype=torch.float64)

    def randint(self, low, high, size):
        assert low == 0 and size == (1,)
        return torch.tensor([self.draw.below(high)])

    def rand(self, _):
        return torch.tensor([self.draw.unit()], dtype=torch.float64)


def train(picture, index):
    of_epoch = Draw(SEED, EPOCH)
    module = transforms.transforms
    module.torch = Injected(Draw(of_epoch.u64(), index))
    try:
        return transforms.Compose([transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip()])(picture)
    finally:
        module.torch = torch


def evaluate(picture, _):
    return transforms.Compose([transforms.Resize(SIZE * 256 // 224), transforms.CenterCrop(SIZE)])(picture)


def whole(picture, _):
    return picture


THEIRS = {"decode": whole, "train": train, "cropped": train, "eval": evaluate, "reduced": train}


def ours(program, mode, names):
    """One array, or the line of an error, for each name."""
    done = subprocess.run([program, mode], input="".join(name + "\n" for name in names).encode(), stdout=subprocess.PIPE, check=True)
    at, found = 0, []
    for _ in names:
        width, height = struct.unpack_from("<II", done.stdout, at)
        at += 8
        if width == 0:
            end = done.stdout.index(b"\n", at)
            found.append(done.stdout[at:end].decode())
            at = end + 1
        else:
            found.append(np.frombuffer(done.stdout, np.uint8, width * height * 3, at).reshape(height, width, 3))
            at += width * height * 3
    assert at == len(done.stdout)
    return found


def check(is_true, text):
    if not is_true:
        failed.append(text)
        print("not ok:", text)


def compare(program, what, mode, names, worst_allowed=None):
    """Differences from Pillow and torchvision over `names`."""
    worst_allowed = (0 if mode == "decode" else RESAMPLED_WORST) if worst_allowed is None else worst_allowed
    total, count, worst, differing = 0, 0, 0, 0
    for index, (name, mine) in enumerate(zip(names, ours(program, mode, names))):
        theirs = np.asarray(THEIRS[mode](Image.open(name).convert("RGB"), index))
        if isinstance(mine, str) or mine.shape != theirs.shape:
            check(False, f"{what}, {mode}: {name}: {mine if isinstance(mine, str) else mine.shape} {theirs.shape}")
            continue
        difference = np.abs(mine.astype(int) - theirs)
        total, count, worst = total + difference.sum(), count + difference.size, max(worst, difference.max())
        differing += difference.max() > 0
        check(difference.max() <= worst_allowed, f"{what}, {mode}: {name} differs by {difference.max()}")
    print(f"{what}, {mode}: {len(names)} pictures, mean difference {total / max(count, 1):.4f}, worst {worst}, {differing} differ")


def noise(width, height, seed=1):
    """Something like a photograph: smooth, with edges and some noise."""
    draws = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [np.sin(x / (7 + c) + seed) * 60 + np.cos(y / (5 + 2 * c)) * 60 + (x // 9 + y // 13) % 2 * 40 for c in range(3)]
    pixels = np.stack(planes, axis=2) + 110 + draws.normal(0, 12, (height, width, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def raw_png(width, height, depth, kind, rows):
    """A PNG that Pillow cannot write: any depth and colour type, rows as bytes."""
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows)))
            + chunk(b"IEND", b""))


def write_jpegs(add):
    sizes = [(1, 1), (2, 3), (7, 9), (8, 8), (15, 17), (16, 16), (33, 31), (100, 75), (231, 300), (640, 97), (97, 640)]
    for seed, (width, height) in enumerate(sizes):
        picture = noise(width, height, seed)
        for name, options in {"444": {"subsampling": 0}, "422": {"subsampling": 1}, "420": {"subsampling": 2},
                              "progressive": {"progressive": True}, "optimised": {"optimize": True, "quality": 97},
                              "coarse": {"quality": 8}, "restarts": {"restart_marker_blocks": 3}, "rgb": {"keep_rgb": True}}.items():
            add(f"{name}-{width}x{height}.jpg", picture, "JPEG", **options)
        add(f"grey-{width}x{height}.jpg", picture.convert("L"), "JPEG")
        add(f"grey-progressive-{width}x{height}.jpg", picture.convert("L"), "JPEG", progressive=True)
        add(f"cmyk-{width}x{height}.jpg", picture.convert("CMYK"), "JPEG")


def write_others(folder, add):
    picture = noise(83, 61)
    alpha = noise(83, 61, 2).convert("L")
    for mode in ("1", "L", "P", "RGB"):
        add(f"{mode}.png", picture.convert(mode), "PNG")
    add("P4.png", picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=13), "PNG", bits=4)
    add("P-transparent.png", picture.convert("P"), "PNG", transparency=3)
    add("RGB-transparent.png", picture, "PNG", transparency=tuple(picture.getpixel((3, 4))))
    for mode in ("L", "RGB"):
        with_alpha = picture.convert(mode)
        with_alpha.putalpha(alpha)
        add(f"{mode}A.png", with_alpha, "PNG")
    add("animated.png", picture, "PNG", save_all=True, append_images=[noise(83, 61, 5)])
    add("deep-grey.png", Image.fromarray((np.arange(61 * 83, dtype=np.uint16) * 13 % 700).reshape(61, 83)), "PNG")
    draws = random.Random(3)
    for depth, kind, bits in ((2, 0, 2), (4, 0, 4), (16, 2, 48), (16, 4, 32), (16, 6, 64), (16, 0, 16)):
        rows = [draws.randbytes((83 * bits + 7) // 8) for _ in range(61)]
        with open(os.path.join(folder, f"depth-{depth}-{kind}.png"), "wb") as file:
            file.write(raw_png(83, 61, depth, kind, rows))
    for mode in ("L", "P", "RGB", "RGBA"):
        add(f"{mode}.bmp", picture.convert(mode), "BMP")
    for mode in ("1", "L", "P", "RGB", "RGBA", "LA", "CMYK"):
        add(f"{mode}.tif", picture.convert(mode), "TIFF")
    for compression in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"):
        add(f"{compression}.tiff", picture, "TIFF", compression=compression)
    add("deep-grey.tif", Image.fromarray((np.arange(61 * 83, dtype=np.uint16) * 13 % 700).reshape(61, 83)), "TIFF")
    for orientation in range(1, 9):
        add(f"turned-{orientation}.tif", picture, "TIFF", tiffinfo={274: orientation})
    add("pages.tif", picture, "TIFF", save_all=True, append_images=[noise(83, 61, 5)])
    add("lossy.webp", picture, "WEBP", quality=80)
    add("lossless.webp", picture, "WEBP", lossless=True)
    for quality in (60, 100):
        with_alpha = picture.copy()
        with_alpha.putalpha(alpha)
        add(f"alpha-{quality}.webp", with_alpha, "WEBP", quality=quality, lossless=quality == 100)
    add("animated.webp", picture, "WEBP", save_all=True, append_images=[noise(83, 61, 5)])
    add("colour.ppm", picture, "PPM")
    add("grey.pgm", picture.convert("L"), "PPM")
    with open(os.path.join(folder, "few.pgm"), "wb") as file:
        file.write(b"P5 # a comment\n40 30\n100\n" + bytes(i % 101 for i in range(1200)))
    add("mislabelled.png", picture, "JPEG")
    add("mislabelled.JPEG", picture, "PNG")


def check_kinds(program, folder):
    names = []

    def add(name, picture, kind, **options):
        picture.save(os.path.join(folder, name), kind, **options)

    write_jpegs(add)
    write_others(folder, add)
    names = sorted(os.path.join(folder, name) for name in os.listdir(folder))
    for mode in ("decode", "train", "cropped", "eval"):
        compare(program, "kinds", mode, names)
    return names


def check_damaged(program, folder, names):
    """What Pillow refuses is refused, and what it reads is read, whatever part of it a crop needs."""
    draws, damaged, refused = random.Random(5), [], 0
    for number, name in enumerate(sorted(names)):
        with open(name, "rb") as file:
            content = file.read()
        for cut in (draws.randrange(len(content)), len(content) - 1):
            damaged.append(os.path.join(folder, f"cut-{number}-{cut}"))
            with open(damaged[-1], "wb") as file:
                file.write(content[:cut])
    found = {mode: ours(program, mode, damaged) for mode in ("decode", "train")}
    for name, decoded, trained in zip(damaged, found["decode"], found["train"]):
        try:
            Image.open(name).convert("RGB")
            is_read = True
        except Exception:  # Pillow raises many kinds
            is_read = False
        refused += not is_read
        with open(name, "rb") as file:
            content = file.read()
        if is_read and content[:2] == b"\xff\xd8" and not content.endswith(b"\xff\xd9"):
            is_read = False  # Pillow reads a JPEG without its last byte if libjpeg happens to need no more: we never do
        check(isinstance(decoded, str) != is_read and isinstance(trained, str) != is_read,
              f"{name}: Pillow {'reads' if is_read else 'refuses'} it, we say {decoded if isinstance(decoded, str) else 'fine'}, "
              f"{trained if isinstance(trained, str) else 'fine'}")
        check(not isinstance(decoded, str) or os.path.basename(name) in decoded, f"{decoded}: the file is not named")
    print(f"damaged: {len(damaged)} files, {refused} refused by Pillow and by us")


def check_shared(program, shared, folder):
    photographs = sorted(os.path.join(at, name) for at, _, names in os.walk(os.path.join(shared, "imagenet-sample")) for name in names)
    for mode in ("decode", "train", "eval"):
        compare(program, "photographs", mode, photographs)
    compare(program, "photographs", "reduced", photographs, worst_allowed=40)
    with tarfile.open(os.path.join(shared, "cifar10-images", "cifar10-imagefolder.tar.gz")) as tar:
        names = []
        for member in tar:
            if member.isfile() and len(names) < 1000:
                names.append(os.path.join(folder, f"cifar-{len(names)}"))
                with open(names[-1], "wb") as file:
                    file.write(tar.extractfile(member).read())
            elif len(names) >= 1000:
                break
    for mode in ("decode", "train", "eval"):
        compare(program, "CIFAR-10", mode, names)


def main():
    program = sys.argv[1]
    shared = os.path.join(os.environ.get("DDP_SHARED", sys.argv[2]), "data")
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "kinds"))
        names = check_kinds(program, os.path.join(folder, "kinds"))
        check_damaged(program, folder, names)
        if os.path.isdir(shared):
            check_shared(program, shared, folder)
        else:
            print(f"skip: no photographs: there is no {shared}")
    print(f"{len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
