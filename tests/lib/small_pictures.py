"""Small pictures as PNG files, written without an imaging library."""
import os
import random
import struct
import zlib


def png(width, height, pixels):
    """pixels: height * width * 3 bytes."""
    rows = b"".join(b"\0" + bytes(pixels[y * width * 3 : (y + 1) * width * 3]) for y in range(height))
    parts = ((b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
                                           for kind, data in parts)


def write_png(path, width, height, draw):
    colour = [draw.randrange(256) for _ in range(3)]
    pixels = [(value + draw.randrange(64)) & 255 for _ in range(width * height) for value in colour]
    with open(path, "wb") as file:
        file.write(png(width, height, pixels))


def write_folder(where, classes=3, train=8, val=4, side=24):
    """An ImageFolder: train/ and val/, each with a given number of pictures per class; each picture differs in size from the one before."""
    draw = random.Random(3)
    for part, count in (("train", train), ("val", val)):
        for kind in range(classes):
            folder = f"{where}/{part}/class{kind}"
            os.makedirs(folder)
            for i in range(count):
                write_png(f"{folder}/{i:03d}.png", side + i % 3, side + i % 5, draw)
    return where
