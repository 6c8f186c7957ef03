"""The bytes that a ResNet-50 step moves on a GPU, by kind of kernel: the tables of docs/performance.md.
usage: budget.py [check|write]   prints them; compares them with the page; writes them into it, where what was measured stays

One image of 224 x 224, values of 16 bits, masks of a bit. A kernel reads each input and writes each output once, but a batch norm
reads its input twice, forward and backward, since its sums must be complete before it can apply them."""
import os
import sys

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "performance.md")
BATCH = 256
# An H100 (SXM, 80 GB), for which there are measured figures.
BANDWIDTH = 0.9 * 3.35e12  # bytes/s: what a copy reaches of the data sheet's
RATE = 0.6 * 989e12        # flop/s in fp16: what large convolutions reach of it
PARAMETERS = 25.557e6


def value(channels, side):
    """MB of a value of one image."""
    return channels * side * side * 2 / 1e6


class Net:
    def __init__(self):
        self.convs = [("stem", 4, 224, 64, 112, 7)]  # name, channels, side, channels, side, kernel
        self.norms = [("stem", 64, 112, False)]      # name, channels, side, adds the shortcut
        self.blocks = []                             # channels, side of the input
        self.outs = []                               # channels, side of the output; whether the shortcut is a convolution
        channels, side = 64, 56
        for stage, (count, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
            for block in range(count):
                out = side // 2 if stage > 0 and block == 0 else side
                self.convs += [("conv1", channels, side, width, side, 1), ("conv2", width, side, width, out, 3),
                               ("conv3", width, out, 4 * width, out, 1)]
                self.norms += [("bn1", width, side, False), ("bn2", width, out, False), ("bn3", 4 * width, out, True)]
                if block == 0:
                    self.convs.append(("shortcut", channels, side, 4 * width, out, 1))
                    self.norms.append(("shortcut", 4 * width, out, False))
                self.blocks.append((channels, side))
                self.outs.append((4 * width, out, block == 0))
                channels, side = 4 * width, out


POOLED = value(64, 56)     # the pool's value
PLACES = value(64, 56) / 2  # of its maxima


def norm_moves(name, channels, side, adds):
    """MB an image, forward and backward. The stem's includes its pool, whose input is never in memory; it keeps
    the norm's input of each maximum, which backward sums."""
    v = value(channels, side)
    if name == "stem":
        return 2 * v + 2 * POOLED + PLACES, 2 * v + 3 * POOLED + 2 * PLACES
    add, mask = (v if adds else 0), (0 if name == "shortcut" else v / 16)
    return 3 * v + add + mask, 5 * v + add + 2 * mask


def conv_work(name, c, h, k, o, r):
    """(MB an image, GFLOP an image), each way."""
    return value(c, h) + value(k, o), 2e-9 * (3 if name == "stem" else c) * k * r * r * o * o


def budget(net):
    """[(kind, its layers' work)]: MB and GFLOP an image, of each layer. What a data gradient adds moves with it."""
    convs = [conv_work(*conv) for conv in net.convs]
    norms = [norm_moves(*norm) for norm in net.norms]
    added = dict(zip((i for i, conv in enumerate(net.convs) if conv[0] == "conv1"), (value(*block) for block in net.blocks)))
    return [
        ("convolution, forward", convs),
        ("convolution, weight gradient", convs),
        ("convolution, data gradient, with the residual gradients that it adds",
         [(moved + added.get(i, 0), flop) for i, (moved, flop) in enumerate(convs) if i > 0]),
        ("batch norm, forward", [(norm[0], 0) for norm in norms]),
        ("batch norm, backward", [(norm[1], 0) for norm in norms]),
        ("images, average pool, loss", [(3 * 224 * 224 / 1e6 + value(4, 224) + 4 * value(2048, 7), 0)]),
        ("weights and optimizer", [((3 * 2 + 20) * PARAMETERS / BATCH / 1e6, 0)]),
    ]


def savings(net):
    """[(what, MB an image, state)]"""
    stem = value(64, 112)
    fused = [value(c, h) for name, c, h, _ in net.norms if name != "stem"]
    inside = [value(c, h) for name, c, h, _ in net.norms if name in ("bn1", "bn2")]
    return [
        ("a residual's gradient added by the data gradient (beta 1), not by a kernel after it",
         2 * sum(value(*block) for block in net.blocks), "in the table above"),
        ("statistics out of the convolution before (DDP_CUDA_STATS=1)", sum(fused), "off; `auto` where faster"),
        ("norms inside a block applied on the way into the next convolution, their sums taken by its data gradient "
         "(DDP_CUDA_STATS=2), besides", sum(3 * v + 3 * v / 16 for v in inside), "off; `auto` where faster"),
        ("the stem's norm and max pool as one, both ways: our own kernels, where they are faster than plan and pool",
         6 * stem + 3 * stem / 16 - 3 * POOLED - PLACES,
         "in the table above"),
        ("a convolution's shortcut: its norm reads gradient and mask of the norm that adds it, nothing is stored; our own kernels",
         sum(value(c, h) for c, h, is_conv in net.outs if is_conv), "with our own kernels"),
        ("any other shortcut: the data gradient before it reads gradient and mask, nothing is stored",
         sum(value(c, h) for c, h, is_conv in net.outs if not is_conv), "off; `DDP_CUDA_SHORTCUTS=auto` after `--tune`, where faster"),
    ]


def ms(megabytes, gigaflop=0.0):
    return BATCH * 1e3 * max(megabytes * 1e6 / BANDWIDTH, gigaflop * 1e9 / RATE)


def bound_by(work):
    slow = sum(ms(0, flop) > ms(moved) for moved, flop in work)
    return "bandwidth" if slow == 0 else f"arithmetic in {slow} of {len(work)} layers"


WAIT_US = 4.0    # of all blocks for the slowest, and until loads are on their way again
SHARED = 30e6    # bytes: 132 multiprocessors with 227 KB each
LEVEL_2 = 25e6   # bytes of it that a second pass finds at the most: half
COPY = 3.0e12    # bytes/s, measured
PIECE = 128      # channels, 256 bytes: narrower pieces of rows are read more slowly


def read_once(net):
    """[(norm, how many, MB each, waits, us saved each)]: backward with a group of channels' x and dy in the shared memory of
    all multiprocessors between the sums and what they are for."""
    shapes = {}
    for _, c, h, _ in net.norms[1:]:
        shapes[c, h] = shapes.get((c, h), 0) + 1
    rows = []
    for (c, h), count in sorted(shapes.items(), key=lambda shape: -shape[0][1]):
        both = 2 * value(c, h) * 1e6 * BATCH
        width = int(SHARED / (both / c)) // 16 * 16
        groups = -(-c // width) if width >= min(c, PIECE) else None
        saved = (both - min(both, LEVEL_2)) / COPY * 1e6 - groups * WAIT_US if groups else 0
        rows.append((f"{c}x{h}x{h}", count, both / 1e6, groups, saved))
    return rows


def read_once_lines(net):
    rows = read_once(net)
    total = sum(count * max(0.0, saved) for _, count, _, _, saved in rows) / 1e3
    lines = ["| backward of a norm with one read, one image | of them | input and gradient, MB | groups of channels | saved, us each | state |",
             "|---|---|---|---|---|---|"]
    for name, count, both, groups, saved in rows:
        fits = f"{groups} | {saved:.0f}" if groups else "too narrow | 0"
        lines.append(f"| {name} | {count} | {both:.0f} | {fits} | not done |")
    return lines + [f"| a step, where it saves | | | | {total:.2f} ms | not done |"]


def tables():
    net = Net()
    rows = [(kind, sum(moved for moved, _ in work), sum(flop for _, flop in work), sum(ms(*one) for one in work), bound_by(work))
            for kind, work in budget(net)]
    total, flops, step = (sum(row[i] for row in rows) for i in (1, 2, 3))
    lines = ["| kind of kernel | MB an image | GFLOP an image | ms at the least | bound by | measured, ms |", "|---|---|---|---|---|---|"]
    lines += [f"| {kind} | {moved:.1f} | {flop:.1f} | {least:.2f} | {bound} | not measured |" for kind, moved, flop, least, bound in rows]
    lines += [f"| step | {total:.1f} | {flops:.1f} | {step:.2f}: {1e3 * BATCH / step:.0f} images/s | | not measured |",
              "", "| fusion | saves, MB an image | ms | state | measured, ms |", "|---|---|---|---|---|"]
    lines += [f"| {what} | {moved:.1f} | {ms(moved):.2f} | {state} | not measured |" for what, moved, state in savings(net)]
    return "\n".join([*lines, "", *read_once_lines(net)]) + "\n"


BEGIN, END = "<!-- tests/gpu/budget.py write -->\n", "<!-- end -->\n"


def without_measured(text):
    """Rows up to their last column, which people fill in after a run."""
    return [line.rsplit("|", 2)[0] for line in text.splitlines() if line]


def with_measured(made, there):
    """The new tables with what the page has in the last column of rows of the same name."""
    measured = {line.split("|")[1]: line.rsplit("|", 2)[1] for line in there.splitlines() if line}
    lines = []
    for line in made.splitlines():
        cells = line.rsplit("|", 2)
        lines.append("|".join([cells[0], measured.get(line.split("|")[1], cells[1]), cells[2]]) if line else line)
    return "\n".join(lines) + "\n"


def main():
    made = tables()
    if len(sys.argv) < 2:
        print(made)
        return 0
    with open(PAGE, encoding="utf-8") as file:
        before, rest = file.read().split(BEGIN)
    there, after = rest.split(END)
    if sys.argv[1] == "check":
        if without_measured(there) != without_measured(made):
            print("docs/performance.md is not what tests/gpu/budget.py computes: run it with write")
            return 1
        return 0
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(before + BEGIN + with_measured(made, there) + END + after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
