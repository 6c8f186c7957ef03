#!/usr/bin/env python3
"""The table and the plot of docs/results/2026-11-22-cifar10.md: a training by ddp-worker beside PyTorch's.

usage: cifar_plot.py OURS.jsonl OURS-LOSSES TORCH.jsonl OUT.svg
OURS.jsonl is of ddp-worker --metrics, OURS-LOSSES of --loss-log, TORCH.jsonl of cifar_torch.py. Prints the table."""
import json
import sys

WINDOW = 23  # steps of one point: 17 of them are an epoch
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, GAP = 760, 330, 48, 16, 40, 34, 56
STYLE = ("text{font:13px sans-serif;fill:#222}.grid{stroke:#ccc}.ours{stroke:#2e8b57;fill:none}.torch{stroke:#c0562b;fill:none}"
         ".dot.ours{fill:#2e8b57}.dot.torch{fill:#c0562b}"
         "@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#555}.ours{stroke:#5fbf8a}.torch{stroke:#e8915f}"
         ".dot.ours{fill:#5fbf8a}.dot.torch{fill:#e8915f}}")


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def of_kind(lines, kind):
    return [line for line in lines if line["kind"] == kind]


def losses_of(path):
    with open(path, encoding="ascii") as file:
        return [float(line.split()[2]) for line in file]


def smooth(losses):
    return [(i + WINDOW, sum(losses[i:i + WINDOW]) / WINDOW) for i in range(0, len(losses) - WINDOW + 1, WINDOW)]


def table(runs):
    print("| epoch | run | train loss | train Acc@1 | val loss | val Acc@1 | val Acc@5 |\n|---:|---|---:|---:|---:|---:|---:|")
    sides = [(name, of_kind(lines, "epoch"), of_kind(lines, "validation")) for name, lines in runs]
    for i in range(len(sides[0][1])):
        for name, epochs, validations in sides:
            train, val = epochs[i], validations[i]
            print(f"| {train['epoch']} | {name} | {train['loss']:.4f} | {train['acc1']:.2f} | {val['loss']:.4f} | {val['acc1']:.2f} | {val['acc5']:.2f} |")


class Panel:
    """Axes from 0 to x_max and from low to high."""

    def __init__(self, left, width, x_max, low, high):
        self.left, self.width, self.x_max, self.low, self.high = left, width, x_max, low, high

    def at(self, x, y):
        down = (self.high - y) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)
        return f"{self.left + x / self.x_max * self.width:.1f},{TOP + down:.1f}"

    def frame(self, title, ticks):
        yield f'<text x="{self.left}" y="22">{title}</text>'
        for tick in ticks:
            y = float(self.at(0, tick).split(",")[1])
            yield f'<path class="grid" d="M{self.left} {y}h{self.width}"/><text x="{self.left - 6}" y="{y + 4}" text-anchor="end">{tick:g}</text>'
        yield f'<text x="{self.left + self.width}" y="{HEIGHT - 10}" text-anchor="end">step {self.x_max}</text>'

    def line(self, name, points, dots=False):
        yield f'<polyline class="{name}" stroke-width="2" points="{" ".join(self.at(*point) for point in points)}"/>'
        for x, y in (point.split(",") for point in (self.at(*point) for point in points if dots)):
            yield f'<circle class="dot {name}" cx="{x}" cy="{y}" r="4"/>'


def plot(losses, validations):
    """losses, validations: of "ours" and "torch", points (step, value)."""
    last = max(points[-1][0] for points in validations.values())
    width = (WIDTH - LEFT - RIGHT - GAP) / 2
    highest = max(y for points in losses.values() for _, y in points)
    left = Panel(LEFT, width, last, 0.5, highest)
    right = Panel(LEFT + width + GAP, width, last, 30, 70)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="losses and accuracies of both">',
             f"<style>{STYLE}</style>", *left.frame(f"training loss, means of {WINDOW} steps", (1.0, 1.5, 2.0)),
             *right.frame("Val Acc@1, %", (30, 40, 50, 60, 70))]
    for name, label, y in (("ours", "ddp-worker", HEIGHT - 80), ("torch", "PyTorch", HEIGHT - 60)):
        parts += [*left.line(name, losses[name]), *right.line(name, validations[name], dots=True),
                  f'<path class="{name}" stroke-width="2" d="M{LEFT + 16} {y - 4}h24"/><text x="{LEFT + 48}" y="{y}">{label}</text>']
    return "\n".join([*parts, "</svg>", ""])


def main():
    ours, logged, torch, out = sys.argv[1:]
    runs = {"ours": lines_of(ours), "torch": lines_of(torch)}
    table([("ddp-worker", runs["ours"]), ("PyTorch", runs["torch"])])
    losses = {"ours": smooth(losses_of(logged)), "torch": smooth([line["loss"] for line in of_kind(runs["torch"], "step")])}
    validations = {name: [(line["step"], line["acc1"]) for line in of_kind(lines, "validation")] for name, lines in runs.items()}
    with open(out, "w", encoding="utf-8") as file:
        file.write(plot(losses, validations))


if __name__ == "__main__":
    main()
