"""What bench.py measures, row by row. Each function gets the Bench and returns (lines of Markdown, figures, one line); it raises
Failed where ours fails and NotMeasured where a peer does. Peers run beside ours, in turns, in rows of their own: what a peer does
not finish costs no other row."""
import json
import os
import re
import statistics
import sys
import tempfile
import time

from bench_run import Failed, NotMeasured, Turns, run

HERE = os.path.dirname(os.path.abspath(__file__))
SPEED = os.path.join(HERE, "..", "bench", "speed.py")
TORCH = os.path.join(HERE, "bench_torch.py")
IS_STANDIN = os.environ.get("DDP_GPU_STANDIN") == "1"
EPOCH_IMAGES, EPOCHS = (200, 2) if IS_STANDIN else (60000, 4)  # MNIST's
ROUNDS_WITHOUT_END = 100000
PEER_END_S = 5.0  # of its row's time, for its figures at the end
TUNE = ("--tune-seconds", "20")  # enough for all convolutions; what a row before has timed is not timed again


class Bench:
    """What rows are given, and what later rows need of earlier ones. `deadline` is of the row under way."""

    def __init__(self, build, python, quick, gpus, folder, net):
        self.build, self.python, self.quick, self.gpus, self.folder = build, python, quick, gpus, folder
        self.arch, self.batch, self.more = net[0], int(net[1]), list(net[2:])  # more: words for bench_resnet
        self.deadline = 0.0
        self.figures = {}  # of rows so far
        self.ours = {}     # our program by 16-bit type: it stays for all peers
        # nothing of an earlier run is warm, nor is anything left behind
        self.environ = {"XDG_CACHE_HOME": os.path.join(folder, "cache"), "CUDA_CACHE_PATH": os.path.join(folder, "cache", "nv"),
                        "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"), "TRITON_CACHE_DIR": os.path.join(folder, "triton")}

    def words(self):
        return ["--device", "cuda", "-a", self.arch, "--dummy", "--opt-level", "O2", "-b", str(self.batch)]

    def title(self):
        return f"{self.arch} O2, batch {self.batch}"

    def program(self, *path):
        return os.path.join(self.build, *path)

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, argv, env=None):
        return run(argv, self.left(), {**self.environ, **(env or {})})

    def profile(self, words, steps, launcher=(), env=None, tune=TUNE):
        """By the fastest engines that `tune` finds; (): a start as it is. "untimed": plans that still have no time."""
        path = os.path.join(self.folder, "profile.json")
        if os.path.exists(path):
            os.remove(path)
        begun = time.monotonic()
        text = self.run([*launcher, self.program("worker", "ddp-worker"), *words, *tune, "--profile", str(steps), "--profile-json", path], env)
        try:
            with open(path, encoding="utf-8") as file:
                return {**json.load(file), "spawned_s": begun, "untimed": untimed_plans(text, self.batch)}
        except (OSError, ValueError) as error:
            raise Failed(f"ddp-worker wrote no profile: {error}") from error

    def torch(self, *words):
        """The JSON lines of bench_torch.py."""
        small = ["cpu", "2" if words[0] == "start" else str(EPOCH_IMAGES)] if IS_STANDIN else []
        try:
            text = self.run([self.python, TORCH, *words, *small], {"DDP_SPAWNED": repr(time.monotonic())})
            lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        except (Failed, ValueError) as failure:
            raise NotMeasured(str(failure)) from failure
        if not lines:
            raise NotMeasured("PyTorch's side printed no figures")
        return lines

    # -- ours beside a peer --

    def our_turns(self, low_type, deadline):
        """Our program on images that are there, settled. One that ended is started again."""
        if low_type not in self.ours or self.ours[low_type].error:
            program, more = ("bench_convnet", []) if self.arch == "convnet" else ("bench_resnet", ["--arch", self.arch, *self.more])
            argv = [self.program("tests", "bench", program), *more, "--batch", str(self.batch), "--steps", str(self.steps()), "--rounds",
                    str(ROUNDS_WITHOUT_END), "--opt-level", "O2", "--low-type", low_type, "--device", "cuda", "--lockstep"]
            self.ours[low_type] = Turns(f"ddp-worker {low_type}", argv, self.environ)
            self.ours[low_type].round(deadline, counts=False)
        return self.ours[low_type]

    def steps(self):
        return 2 if IS_STANDIN else 10 if self.quick else 20

    def rounds(self):
        return 2 if self.quick or IS_STANDIN else 5

    def close_ours(self, low_type=None):
        """Their memory is free for others."""
        for name in [low_type] if low_type else list(self.ours):
            if name in self.ours:
                self.ours.pop(name).close(time.monotonic() + PEER_END_S)


def untimed_plans(text, batch):
    """Of the line of a start that built or timed some; the smaller last batch has a line of its own."""
    found = re.search(rf"batch {batch}: .*; (\d+) have no time yet \(--tune\)", text)
    return int(found[1]) if found else 0


def untimed_words(profile):
    return f", {profile['untimed']} plans not timed" if profile["untimed"] else ""


def goal(words, value, wanted):
    return f"Goal: {words}: {'met' if value >= wanted else 'not met'} ({value:.4g})."


# -- the start --

def start(name, wanted):
    """From spawn to the end of the first step, as a user's start is: with nothing cached, or with what the row before left."""
    def row(bench):
        profile = bench.profile(bench.words(), 1, tune=())
        parts = {"process and libraries": 1e3 * (profile["begun_s"] - profile["spawned_s"]), **profile["start_ms"]}
        parts["all"] = sum(parts.values())
        lines = [f"| {bench.title()}, from spawn, {name} | ms |", "|---|---|", *[f"| {part} | {ms:.0f} |" for part, ms in parts.items()]]
        lines += ["", f"Goal: at most {wanted:.0f} s: {'met' if parts['all'] <= 1e3 * wanted else 'not met'} ({parts['all'] / 1e3:.2f} s)."]
        return lines, parts, f"first step {parts['all'] / 1e3:.2f} s after spawn, {name}{untimed_words(profile)}"
    return row


def tune(bench):
    """All engines, as a user has them timed; with --max-steps 1 there is no smaller last batch to time others for."""
    begun = time.monotonic()
    text = bench.run([bench.program("worker", "ddp-worker"), *bench.words(), "--max-steps", "1", "--tune"],
                     env={"DDP_CUDA_SHORTCUTS": "auto"})
    seconds = time.monotonic() - begun
    if "engines are chosen" not in text:
        raise Failed("ddp-worker --tune did not say that engines are chosen")
    said = [line for line in text.splitlines() if " plans, " in line or "batch norms by plans" in line]
    return [f"    {line}" for line in said], {"all": 1e3 * seconds}, f"all engines timed in {seconds:.1f} s"


def torch_start(bench):
    parts = bench.torch("start")[-1]
    parts["all"] = sum(parts.values())
    lines = ["| PyTorch AMP eager, from spawn | ms |", "|---|---|", *[f"| {part} | {ms:.0f} |" for part, ms in parts.items()]]
    figure = f"PyTorch's first step {parts['all'] / 1e3:.2f} s after spawn"
    cached = bench.figures.get("cached")
    if cached:
        lines += ["", goal("sooner than PyTorch, with plans cached", parts["all"] / cached["all"], 1)]
    return lines, parts, figure


# -- the step --

def breakdown(profile, title):
    """Where a step's time goes, and how near each kind of layer is to the device's roof."""
    step = profile["step_ms"]
    lines = [f"| part of a step, {title} | ms | % | GFLOP | GB at the least | share of the roof |", "|---|---|---|---|---|---|"]
    for group, ms in profile["groups_ms"].items():
        layers = [layer for layer in profile["layers"] if layer["group"] == group and not layer["beside"]]
        known = [layer for layer in layers if layer["roof_share"] is not None]
        floor = sum(layer["roof_share"] * (layer["forward_ms"] + layer["backward_ms"]) for layer in known)
        lines.append(f"| {group} | {ms:.3f} | {100 * ms / step:.1f} | {sum(layer['gflop'] for layer in layers):.0f} | "
                     f"{sum(layer['gbytes'] for layer in layers):.2f} | {f'{100 * floor / ms:.0f} %' if ms > 0 and known else '-'} |")
    lines.append(f"| idle: rest of the step | {profile['rest_ms']:.3f} | {100 * profile['rest_ms'] / step:.1f} | | | |")
    lines += [f"| the step as it always runs | {step:.3f} | 100 | | | |", "",
              f"Timed layer by layer a step takes {profile['profiled_step_ms']:.3f} ms; {profile['images_per_s']:.0f} images/s through "
              f"the loader; the net takes {profile['net_bytes'] / 2**20:.0f} MB on the device, the process "
              f"{profile['peak_rss_bytes'] / 2**20:.0f} MB beside it.",
              "Roof: " + (json.dumps(profile["roof"]) if profile["roof"] else "unknown for this device") + ".", ""]
    slow = sorted(profile["layers"], key=lambda layer: -(layer["forward_ms"] + layer["backward_ms"]))[:12]
    lines += ["| slowest | op | forward ms | backward ms | GB/s | share of the roof |", "|---|---|---|---|---|---|"]
    for layer in slow:
        share = layer["roof_share"]
        lines.append(f"| {layer['name']} | {layer['op']} | {layer['forward_ms']:.3f} | {layer['backward_ms']:.3f} | "
                     f"{layer['gb_per_s']:.0f} | {'-' if share is None else f'{100 * share:.0f} %'} |")
    return lines


def profile_steps(bench):
    return 8 if bench.quick or IS_STANDIN else 20


def as_it_is(bench):
    profile = bench.profile(bench.words(), profile_steps(bench))
    speed = bench.batch * 1e3 / profile["step_ms"]
    lines = [*breakdown(profile, bench.title()), "", goal("8,000 images/s", speed, 8000)]
    return lines, profile, (f"{profile['step_ms']:.2f} ms a step, {speed:.0f} images/s, idle "
                            f"{100 * profile['rest_ms'] / profile['step_ms']:.1f} %{untimed_words(profile)}")


def variant(words, env, engines=TUNE):
    """The same net in another way, beside as it is."""
    def row(bench):
        profile = bench.profile([*bench.words(), *words], profile_steps(bench), env=env, tune=engines)
        step, known = profile["step_ms"], bench.figures.get("as it is")
        data = {"step_ms": step, "groups_ms": profile["groups_ms"], "net_bytes": profile["net_bytes"], "start_ms": profile["start_ms"],
                "untimed": profile["untimed"]}
        beside = f", {known['step_ms'] / step:.3f} x as fast as it is" if known else ""
        figure = f"{step:.2f} ms a step, {bench.batch * 1e3 / step:.0f} images/s{beside}{untimed_words(profile)}"
        groups = "; ".join(f"{group} {ms:.2f}" for group, ms in profile["groups_ms"].items())
        return [f"{figure}; the net takes {profile['net_bytes'] / 2**20:.0f} MB. ms: {groups}."], data, figure
    return row


def half_way(end):
    """So that ours, if it hangs, leaves time to the peer, which would be blamed for it."""
    now = time.monotonic()
    return now + (end - now) / 2


def peer(form, low_type):
    """PyTorch's form and ours in turns, so that both meet the same clocks."""
    def row(bench):
        case = "convnet" if bench.arch == "convnet" else "resnet50"
        theirs = Turns(form, [bench.python, SPEED, case, "-", "--serve", form, "--device", "cpu" if IS_STANDIN else "cuda", "--amp", low_type,
                              "--batch", str(bench.batch), "--steps", str(bench.steps())], bench.environ)
        try:
            end = bench.deadline - min(PEER_END_S, bench.left() / 4)
            theirs.wait_ready(end)
            # both are settled before the first round, one after the other: none is tuned beside another's work
            ours = bench.our_turns(low_type, half_way(end)) if theirs.error is None else None
            beside = []
            for _ in range(bench.rounds()):
                if theirs.error is None:
                    mine = ours.round(half_way(end))
                    if theirs.round(end) is not None and mine is not None:
                        beside.append(mine)
        finally:
            theirs.close(bench.deadline)
        return peer_words(bench, theirs, beside, ours, low_type)
    return row


def peer_words(bench, theirs, beside, ours, low_type):
    if theirs.ms() is None:
        raise NotMeasured(theirs.error)
    speed = bench.batch * 1e3 / theirs.ms()
    mine = bench.batch * 1e3 / statistics.median(beside) if beside else None
    data = {"images_per_s": speed, "ours_images_per_s": mine, "peak_mb": theirs.peak_mb, "settled_s": theirs.settled_s}
    lines = [f"| {bench.title()} {low_type}, images that are there | images/s | slowest to fastest round | peak MB |", "|---|---|---|---|"]
    if mine:
        lines.append(f"| ddp-worker | {mine:.0f} | {bench.batch * 1e3 / max(beside):.0f} to {bench.batch * 1e3 / min(beside):.0f} | |")
    else:
        lines.append(f"| ddp-worker | not measured beside it: {ours.error} | | |")
    times = theirs.times
    lines.append(f"| {theirs.name} | {speed:.0f} | {bench.batch * 1e3 / max(times):.0f} to {bench.batch * 1e3 / min(times):.0f} | "
                 f"{theirs.peak_mb} |")
    lines += ["", f"Ready {theirs.settled_s:.1f} s after spawn." + (f" After {len(times)} rounds: {theirs.error}." if theirs.error else "")]
    if mine:
        lines += ["", goal(f"1.5 x {theirs.name}", mine / speed, 1.5)]
    ratio = f"ours {mine:.0f}: {mine / speed:.2f} x" if mine else "ours not beside it"
    return lines, data, f"{theirs.name} {speed:.0f} images/s, {ratio}"


def norms(bench):
    """Their own program; ours and all peers are off the device."""
    bench.close_ours()
    text = bench.run([bench.program("tests", "bench", "bench_norms"), "--arch", bench.arch, "--batch", str(bench.batch), *bench.more])
    table = [line for line in text.splitlines() if line.startswith("|")]
    figure = next((line.partition(": ")[2] for line in text.splitlines() if line.startswith("figure: ")), None)
    if figure is None:
        raise Failed("bench_norms printed no figure")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return [*table, "", figure[0].upper() + figure[1:] + "."], [dict(zip(rows[0], row)) for row in rows[2:]], figure


# -- the ConvNet --

def convnet(bench):
    """An epoch of images of MNIST's shape, loader included, validation not."""
    bench.close_ours()
    data = ["--dummy"]
    if IS_STANDIN:
        sys.path.insert(0, os.path.join(HERE, "..", "lib"))
        from small_data import write_patterns
        data = [write_patterns(os.path.join(tempfile.mkdtemp(dir=bench.folder), "mnist"), EPOCH_IMAGES)]
    last = EPOCH_IMAGES // 100
    text = bench.run([bench.program("worker", "ddp-worker"), "--device", "cuda", "-b", "100", "--opt-level", "O2", *TUNE,
                      "--epochs", str(EPOCHS), "-p", str(last), *data])
    speeds = [float(found) for found in re.findall(rf"Step \[{last}/{last}\].*?, ([0-9.]+) images/s", text)]
    if len(speeds) < 2:
        raise Failed("ddp-worker printed no line at the end of its epochs")
    mine = EPOCH_IMAGES / statistics.median(speeds[1:])
    figure = f"an epoch of {EPOCH_IMAGES} images takes {mine:.3f} s"
    return [figure[0].upper() + figure[1:] + ", batch 100, O2."], {"epoch_s": mine}, figure


def convnet_peer(mode, words, wanted):
    def row(bench):
        found = bench.torch(mode)[-1]
        theirs, mine = found["epoch_s"], bench.figures.get("convnet")
        figure = f"{words}: an epoch takes {theirs:.3f} s ({found['reader']})"
        if not mine:
            return [figure + "; ours was not measured."], {"epoch_s": theirs}, figure
        ratio = theirs / mine["epoch_s"]
        goals = ["", goal(f"{wanted} x {words}", ratio, wanted)] if wanted else []
        return [f"{figure}; ours is {ratio:.2f} x as fast.", *goals], {"epoch_s": theirs, "ratio": ratio}, f"{figure}, ours {ratio:.1f} x"
    return row


# -- several GPUs --

NCCL_WAYS = [(25, 0), (25, 4), (25, 8), (25, 16), (4, 0), (10, 0), (50, 0), (200, 0)]


def nccl(mib, ctas):
    """Buckets and NCCL's blocks (maxCTAs), one rank on each GPU."""
    def row(bench):
        bench.close_ours()
        if bench.gpus < 2:
            raise NotMeasured(f"{bench.gpus} GPU here: a world of one reduces nothing, and NCCL takes one rank a GPU")
        launcher = [bench.program("ddpctl", "ddpctl"), "run", "--standalone", "--nproc-per-node", str(bench.gpus), "--state-dir",
                    os.path.join(bench.folder, "state"), "--"]
        profile = bench.profile([*bench.words(), "--bucket-cap-mb", str(mib), "--nccl-max-ctas", str(ctas)], 10, launcher=launcher)
        part = {layer["name"]: layer["forward_ms"] for layer in profile["layers"]}
        data = {"images_per_s": profile["images_per_s"], "step_ms": profile["step_ms"], "reduction_ms": part.get("reduction", 0.0),
                "waited_ms": part.get("reduction, waited for", 0.0)}
        figure = (f"{bench.gpus} GPUs: {profile['images_per_s']:.0f} images/s, {profile['step_ms']:.2f} ms a step, reduction "
                  f"{data['reduction_ms']:.2f} ms, waited for {data['waited_ms']:.2f} ms")
        return [figure + "."], data, figure
    return row
