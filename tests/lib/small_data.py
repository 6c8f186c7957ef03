"""Small sets of images as files in MNIST's format (IDX): a run over them takes a fraction of the time that the built-in sets
take, which have 60,000 images to train on and 10,000 to validate with."""
import os
import random
import struct


def write_idx(path, dims, values):
    with open(path, "wb") as file:
        file.write(struct.pack(">HBB", 0, 8, len(dims)) + struct.pack(f">{len(dims)}I", *dims) + bytes(values))


def write_data(where, train_count, validation_count=16, size=28):
    """Images of ten kinds, each a fixed pattern with noise, so that a net can learn to tell them apart."""
    draw = random.Random(5)
    kinds = [[draw.randrange(256) for _ in range(size * size)] for _ in range(10)]
    os.makedirs(where, exist_ok=True)
    for name, count in (("train", train_count), ("t10k", validation_count)):
        labels = [draw.randrange(10) for _ in range(count)]
        pixels = [(3 * value + draw.randrange(256)) // 4 for label in labels for value in kinds[label]]
        write_idx(os.path.join(where, f"{name}-images-idx3-ubyte"), (count, size, size), pixels)
        write_idx(os.path.join(where, f"{name}-labels-idx1-ubyte"), (count,), labels)
    return where


def repeated(values, count):
    return (bytes(values) * (count // len(values) + 1))[:count]


def write_patterns(where, train_count, validation_count=10):
    """Images of pixels that look random: for tests that only compare losses and do not need a net that learns."""
    os.mkdir(where)
    for name, count in (("train", train_count), ("t10k", validation_count)):
        write_idx(os.path.join(where, f"{name}-images-idx3-ubyte"), (count, 28, 28), repeated([i * 7919 % 251 for i in range(251)], count * 784))
        write_idx(os.path.join(where, f"{name}-labels-idx1-ubyte"), (count,), repeated(range(10), count))
    return where
