"""Which folder may include which: the table that lint.py layers checks and docs/includes.py draws.

A source file belongs to the deepest folder of FOLDERS that contains it. It may include headers of its own folder and the
public headers of the folders that the table names: everything else is refused, so a new folder or a new direction starts
with a line here. A program's main.c puts everything together and may include any public header of its own program.
"""
import collections
import os
import re

# includes: folders whose public headers it may include. public: its public headers; None: all but internal.h.
Folder = collections.namedtuple("Folder", "includes public")

WORKER_BASE = ["common", "common/io", "kernels"]
FOLDERS = {
    "common": Folder([], None),
    "common/io": Folder(["common"], None),

    "libddp": Folder(["common", "common/io"], ["ddp.h", "fence.h", "place.h"]),

    "rendezvous/core": Folder(["common"], None),
    "rendezvous/store": Folder(["common", "common/io", "rendezvous/core"], ["backup.h", "etcd_client.h", "etcd_place.h", "etcd_types.h", "seen_keeper.h", "store.h", "store_copy.h"]),
    "rendezvous/server": Folder(["common", "common/io", "rendezvous/core", "rendezvous/store"], ["again.h", "member.h", "server.h", "transfer.h"]),

    "launcherd/core": Folder(["common"], None),
    "launcherd/c10d": Folder(["common", "common/io"], ["c10d.h", "c10d_server.h", "store_main.h"]),
    "launcherd/process": Folder(["common", "common/io"], None),
    "launcherd/gpu": Folder(["common", "common/io", "launcherd/core", "launcherd/process"], None),
    "launcherd/cause": Folder(["common"], ["causes.h", "first.h", "reader.h", "text.h", "words.h"]),
    "launcherd/shim": Folder(["common", "common/io", "launcherd/c10d", "launcherd/cause", "launcherd/core", "launcherd/process"], None),
    "launcherd/doctor": Folder(["common", "common/io", "launcherd/core", "launcherd/gpu", "launcherd/process", "launcherd/shim"],
                               ["doctor.h"]),
    "launcherd/inspect": Folder(["common", "launcherd/process"], ["inspect.h", "summary.h"]),
    "launcherd/node": Folder(["common", "common/io", "launcherd/core", "launcherd/doctor", "launcherd/gpu", "launcherd/inspect", "launcherd/process",
                              "launcherd/shim"],
                             ["node.h", "node_gpus.h"]),

    "ddpctl": Folder(["common", "common/io"], None),

    "kernels": Folder([], ["kernels.h", "types.h", "elements.h", "layers.h", "batch_norm.h", "gradients.h", "optimizer.h",
                           "half.h", "values.h", "table.h"]),

    "worker/graph": Folder(WORKER_BASE, ["graph.h", "amp.h", "pass.h", "hash.h"]),
    "worker/data/picture": Folder(["common"], ["picture.h"]),
    "worker/data": Folder(WORKER_BASE + ["worker/data/picture"], ["cifar.h", "data.h", "dataset.h", "digits.h", "fileio.h", "folder.h", "hash.h", "idx.h", "loader.h", "padded.h", "rng.h",
                                        "sampler.h", "source.h"]),
    "worker/data/shards": Folder(["common", "worker/data", "worker/data/picture"], ["shards.h"]),
    "worker/data/cache": Folder(["common", "worker/data", "worker/data/picture"], ["cache.h"]),
    "worker/data/fetch": Folder(["common", "worker/data"], ["fetch.h"]),
    "worker/net": Folder(WORKER_BASE + ["worker/graph"], None),
    "worker/checkpoint": Folder(WORKER_BASE + ["libddp", "worker/data", "worker/net"], ["checkpoint.h", "copy.h", "safetensors.h", "writer.h"]),
    "worker/pth": Folder(WORKER_BASE + ["worker/data", "worker/checkpoint"], ["pth.h", "types.h", "zip.h", "export.h"]),
    "worker/model": Folder(WORKER_BASE + ["worker/graph", "worker/data", "worker/net", "worker/checkpoint", "worker/pth"],
                           ["model.h", "file.h", "init.h", "pretrained.h"]),
    "worker/profile": Folder(WORKER_BASE + ["worker/graph", "worker/net"], ["profile.h", "print_graph.h"]),
    "worker/metrics": Folder(WORKER_BASE, None),
    "worker/comm": Folder(WORKER_BASE + ["worker/graph", "worker/net"], ["clock.h", "comm.h", "half.h", "ddp.h"]),
    "worker/backend/cpu": Folder(WORKER_BASE + ["worker/graph", "worker/net"], ["cpu.h"]),
    "worker/backend/cuda": Folder(["common"], None),
    "worker/backend/cuda/plans": Folder(WORKER_BASE + ["worker/graph", "worker/backend/cuda"], None),
    "worker/backend/cuda/nccl": Folder(WORKER_BASE + ["worker/graph", "worker/backend/cuda"], None),
    "worker/backend/cuda/module": Folder(WORKER_BASE + ["worker/graph", "worker/backend/cuda", "worker/backend/cuda/plans",
                                                        "worker/backend/cuda/nccl"], None),
    "worker/backend/cuda/exec": Folder(WORKER_BASE + ["worker/graph", "worker/net", "worker/backend/cuda/plans",
                                                      "worker/backend/cuda/module"], None),
    "worker": Folder(WORKER_BASE + ["libddp", "worker/graph", "worker/net", "worker/comm", "worker/backend/cpu",
                                    "worker/backend/cuda/exec", "worker/backend/cuda/nccl", "worker/backend/cuda/module"], None),
    "worker/train": Folder(WORKER_BASE + ["worker", "worker/graph", "worker/data", "worker/data/picture", "worker/data/shards", "worker/data/cache", "worker/net", "worker/checkpoint",
                                          "worker/model", "worker/profile", "worker/metrics", "worker/comm",
                                          "worker/backend/cuda/exec",
                                          "worker/backend/cuda/nccl", "worker/backend/cuda/module"], None),
}

PROGRAMS = ["common", "libddp", "rendezvous", "launcherd", "ddpctl", "kernels", "worker"]
SOURCE = re.compile(r"\.(c|h|cc|cpp|cu|cuh)$")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def is_product(path):
    return path.split("/")[0] in PROGRAMS and SOURCE.search(path) is not None


def folder_of(path):
    """The deepest folder of the table that contains `path`; its own directory where the table has none."""
    folder = os.path.dirname(path)
    while folder and folder not in FOLDERS:
        folder = os.path.dirname(folder)
    return folder or os.path.dirname(path)


def is_main(path):
    return os.path.basename(path) == "main.c"


def is_private(path):
    """Whether `path`, a header, may be included only from its own folder."""
    folder = FOLDERS.get(folder_of(path))
    public = folder.public if folder else None
    name = os.path.basename(path)
    return name == "internal.h" or (public is not None and name not in public)


def includes(read, paths):
    """(file, header) for every include of a product header in `paths`; read(path) returns a file's text."""
    return [(path, header) for path in sorted(paths) if is_product(path)
            for header in INCLUDE.findall(read(path)) if is_product(header)]


def refused(path, header):
    """Why `path` may not include `header`; None where it may."""
    here, there = folder_of(path), folder_of(header)
    if here == there:
        return None
    if is_private(header):
        return f"{header} is private to {there}/"
    if is_main(path):
        return None if there.split("/")[0] in (path.split("/")[0], "common") else f"{there}/ is another program's"
    for folder in (here, there):
        if folder not in FOLDERS:
            return f"{folder}/ is not in the table of tests/lint/layers.py"
    return None if there in FOLDERS[here].includes else f"{here}/ may not include {there}/ (tests/lint/layers.py)"


def folder_edges(found):
    """{folder: the folders that it includes}, without main.c; a folder without includes has an empty set."""
    edges = {}
    for path, header in found:
        here, there = folder_of(path), folder_of(header)
        edges.setdefault(there, set())
        if is_main(path):
            continue
        edges.setdefault(here, set())
        if here != there:
            edges[here].add(there)
    return edges


def cycle(edges):
    """Folders that include one another in a circle, in order; [] where there is none."""
    done, trail = set(), []

    def visit(folder):
        if folder in trail:
            return trail[trail.index(folder):] + [folder]
        if folder in done:
            return []
        trail.append(folder)
        for other in sorted(edges[folder]):
            circle = visit(other)
            if circle:
                return circle
        trail.pop()
        done.add(folder)
        return []

    for folder in sorted(edges):
        circle = visit(folder)
        if circle:
            return circle
    return []
