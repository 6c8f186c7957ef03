"""What bench.py measures, part by part: each gives lines of Markdown, its figures, and raises Failed where ours fails."""
import contextlib
import json
import os
import re
import statistics
import tempfile
import time

from bench_run import Failed, Turns, run, take_turns

HERE = os.path.dirname(os.path.abspath(__file__))
SPEED = os.path.join(HERE, "..", "bench", "speed.py")
TORCH = os.path.join(HERE, "bench_torch.py")
MNIST_IMAGES = 60000

# PyTorch's forms and their --amp, the surest first: a goal that is met only against a slow one is not met. All with
# channels_last, cudnn.benchmark and the fused SGD; fp16 with a GradScaler.
FORMS = {"pytorch channels_last fp16": "fp16", "pytorch channels_last bf16": "bf16",
         "pytorch compile max-autotune channels_last fp16": "fp16", "pytorch compile max-autotune channels_last bf16": "bf16"}


class Bench:
    """What parts are given. `deadline` is of the part under way."""

    def __init__(self, build, python, quick, gpus, folder, net):
        self.build, self.python, self.quick, self.gpus, self.folder = build, python, quick, gpus, folder
        self.net, self.batch = net[0], int(net[1])  # what --profile is given
        self.deadline = 0.0

    @contextlib.contextmanager
    def half_of_time(self):
        """So that one way that hangs leaves time for the others."""
        end, self.deadline = self.deadline, time.monotonic() + self.left() / 2
        try:
            yield
        finally:
            self.deadline = end

    def words(self):
        return ["--device", "cuda", "-a", self.net, "--dummy", "--opt-level", "O2", "-b", str(self.batch)]

    def title(self):
        return f"{self.net} O2, batch {self.batch}"

    def program(self, *path):
        return os.path.join(self.build, *path)

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, argv, env=None):
        return run(argv, self.left(), env)

    def profile(self, words, steps, launcher=(), env=None, tune=("--tune-seconds", "600")):
        """What a step takes by the fastest engines; `tune`: () for a start as it is."""
        path = os.path.join(self.folder, "profile.json")
        if os.path.exists(path):
            os.remove(path)
        begun = time.monotonic()
        self.run([*launcher, self.program("worker", "ddp-worker"), *words, *tune, "--profile", str(steps), "--profile-json", path], env)
        try:
            with open(path, encoding="utf-8") as file:
                return {**json.load(file), "spawned_s": begun, "all_s": time.monotonic() - begun}
        except (OSError, ValueError) as error:
            raise Failed(f"ddp-worker wrote no profile: {error}") from error

    def torch(self, *words):
        """The JSON lines of bench_torch.py, or why there are none: PyTorch is a peer, not what is tested."""
        try:
            text = self.run([self.python, TORCH, *words], {"DDP_SPAWNED": repr(time.monotonic())})
            return [json.loads(line) for line in text.splitlines() if line.startswith("{")], None
        except (Failed, ValueError) as failure:
            return [], str(failure)


def goal(words, value, wanted):
    return f"Goal: {words}: {'met' if value >= wanted else 'not met'} ({value:.4g})."


def resnet(bench, batch):
    """Images/s of a step on images that are there, ours and PyTorch's in turns."""
    rounds, steps = (2, 10) if bench.quick else (5, 20)
    names = list(FORMS)[:1] if bench.quick else list(FORMS)

    def ours():
        return Turns("ddp-worker", [bench.program("tests", "bench", "bench_resnet"), "--batch", str(batch), "--steps", str(steps),
                                    "--rounds", str(rounds + 1), "--opt-level", "O2", "--device", "cuda", "--lockstep"])

    def peer(name):
        return lambda: Turns(name, [bench.python, SPEED, "resnet50", "-", "--serve", name, "--device", "cuda", "--amp", FORMS[name],
                                    "--batch", str(batch), "--steps", str(steps)])

    everybody = take_turns(ours, [peer(name) for name in names], rounds, bench.deadline)
    if everybody[0].ms() is None:
        raise Failed(f"bench_resnet: {everybody[0].error}")
    mine = batch * 1e3 / everybody[0].ms()
    lines = [f"| ResNet-50 O2, batch {batch} | images/s | slowest to fastest round | ours against it | peak MB |", "|---|---|---|---|---|"]
    data, goals = {"ddp-worker": round(mine, 1)}, []
    for one in everybody:
        if one.ms() is None:
            lines.append(f"| {one.name} | not measured: {one.error} | | | |")
            continue
        speed = batch * 1e3 / one.ms()
        data[one.name] = round(speed, 1)
        data[f"{one.name} peak MB"] = one.peak_mb
        lines.append(f"| {one.name} | {speed:.0f} | {batch * 1e3 / max(one.times):.0f} to {batch * 1e3 / min(one.times):.0f} | "
                     f"{'' if one is everybody[0] else f'{mine / speed:.2f} x'} | {one.peak_mb} |")
    theirs = [data[name] for name in names if name in data]
    if theirs:
        missing = f", of {len(theirs)} that were measured" if len(theirs) < len(FORMS) else ""
        goals.append(goal(f"1.5 x the fastest PyTorch form{missing}", mine / max(theirs), 1.5))
    goals.append(goal("8,000 images/s", mine, 8000))
    figure = f"ResNet-50 batch {batch}: {mine:.0f} images/s" + "".join(
        f", {mine / data[name]:.2f} x {name}" for name in names if name in data)
    return [*lines, "", *goals], data, figure


def breakdown(bench):
    """Where a step's time goes, and how near each kind of layer is to the device's roof."""
    profile = bench.profile(bench.words(), 8 if bench.quick else 20)
    step = profile["step_ms"]
    lines = [f"| part of a step, {bench.title()} | ms | % | GFLOP | GB at the least | share of the roof |", "|---|---|---|---|---|---|"]
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
    return lines, profile, f"idle {100 * profile['rest_ms'] / step:.1f} % of a step"


def convnet(bench):
    """An epoch of 60,000 made-up images of MNIST's shape, loader included, validation not."""
    text = bench.run([bench.program("worker", "ddp-worker"), "--device", "cuda", "--dummy", "-b", "100", "--opt-level", "O2",
                      "--tune-seconds", "60", "--epochs", "4", "-p", str(MNIST_IMAGES // 100)])
    speeds = [float(found) for found in re.findall(r"Step \[600/600\].*?, ([0-9.]+) images/s", text)]
    if len(speeds) < 2:
        raise Failed("ddp-worker printed no line at the end of its epochs")
    mine = MNIST_IMAGES / statistics.median(speeds[1:])
    data = {"ddp-worker O2": mine}
    lines = ["| ConvNet, an epoch of 60,000 images, batch 100 | s | ours against it |", "|---|---|---|", f"| ddp-worker O2 | {mine:.3f} | |"]
    modes = ["seed", "captured"] + ([] if bench.quick else ["seed-amp-compile"])
    for mode in modes:
        found, why = bench.torch(mode)
        if not found:
            lines.append(f"| pytorch {mode} | not measured: {why} | |")
            continue
        data[f"pytorch {mode}"] = found[-1]["epoch_s"]
        lines.append(f"| pytorch {mode} ({found[-1]['reader']}) | {found[-1]['epoch_s']:.3f} | {found[-1]['epoch_s'] / mine:.1f} x |")
    goals, figure = [], f"ConvNet epoch {mine:.3f} s"
    for mode, words, wanted in (("seed", "the seed's loop", 20), ("captured", "PyTorch with data on the GPU and a captured step", 1.2)):
        if f"pytorch {mode}" in data:
            ratio = data[f"pytorch {mode}"] / mine
            goals.append(goal(f"{wanted} x {words}", ratio, wanted))
            figure += f", {ratio:.1f} x {words}"
    return [*lines, "", *goals], data, figure


def first_step(bench):
    """From spawn to the end of the first step, with an empty cache of plans and with a full one; PyTorch's."""
    lines = [f"| {bench.title()}, from spawn | part | ms |", "|---|---|---|"]
    data = {}
    with tempfile.TemporaryDirectory(dir=bench.folder) as cache:
        for name in ("no plans cached", "plans cached"):
            profile = bench.profile(bench.words(), 1, env={"XDG_CACHE_HOME": cache}, tune=())
            parts = {"process and libraries": 1e3 * (profile["begun_s"] - profile["spawned_s"]), **profile["start_ms"]}
            data[name] = {**parts, "all": sum(parts.values())}
            lines += [f"| ours, {name} | {part} | {ms:.0f} |" for part, ms in data[name].items()]
    found, why = bench.torch("start")
    if found:
        data["pytorch"] = {**found[-1], "all": sum(found[-1].values())}
        lines += [f"| pytorch AMP eager | {part} | {ms:.0f} |" for part, ms in data["pytorch"].items()]
    else:
        lines.append(f"| pytorch | not measured: {why} | |")
    mine = data["plans cached"]["all"]
    goals = [goal("sooner than PyTorch, with plans cached", data["pytorch"]["all"] / mine, 1)] if found else []
    return [*lines, "", *goals], data, f"spawn to first step {mine / 1e3:.1f} s, without plans {data['no plans cached']['all'] / 1e3:.1f} s"


def variants(bench):
    """The same net in other ways."""
    ways = [("as it is", [], {}), ("DDP_CUDA_GRAPH=0: nothing recorded", [], {"DDP_CUDA_GRAPH": "0"}),
            ("DDP_CUDA_STATS=1: statistics in the convolution", [], {"DDP_CUDA_STATS": "1"}),
            ("DDP_CUDA_STATS=2: ... and norms on the way in", [], {"DDP_CUDA_STATS": "2"}),
            ("DDP_CUDA_STATS=auto", [], {"DDP_CUDA_STATS": "auto"}), ("--deterministic", ["--deterministic"], {}),
            ("bf16", ["--low-type", "bf16"], {}), ("O0 with --tf32", ["--opt-level", "O0", "--tf32"], {})]
    lines, data = [f"| {bench.title()} | step ms | against as it is | net MB |", "|---|---|---|---|"], {}
    for name, words, env in ways:
        try:
            with bench.half_of_time():
                profile = bench.profile([*bench.words(), *words], 10, env=env)
        except Failed as failure:
            if name == "as it is":
                raise
            data[name] = {"failed": str(failure)}
            lines.append(f"| {name} | failed: {failure} | | |")
            continue
        data[name] = {"step_ms": profile["step_ms"], "groups_ms": profile["groups_ms"], "net_bytes": profile["net_bytes"]}
        ratio = data["as it is"]["step_ms"] / profile["step_ms"]
        lines.append(f"| {name} | {profile['step_ms']:.3f} | {ratio:.2f} x as fast | {profile['net_bytes'] / 2**20:.0f} |")
    best = min((name for name in data if "step_ms" in data[name]), key=lambda name: data[name]["step_ms"])
    return lines, data, f"fastest way: {best}"


def nccl(bench):
    """Buckets and NCCL's blocks (maxCTAs), one rank on each GPU."""
    if bench.gpus < 2:
        return [f"Not measured: {bench.gpus} GPU here. A world of one reduces nothing, and NCCL takes one rank a GPU; "
                "the sweep needs a node with two or more."], {"gpus": bench.gpus}, "no sweep: one GPU"
    lines = [f"| {bench.title()} on each of {bench.gpus} GPUs | images/s | step ms | reduction ms | waited for, ms |",
             "|---|---|---|---|---|"]
    data = {}
    for mib, ctas in [(25, 0), (25, 4), (25, 8), (25, 16), (4, 0), (10, 0), (50, 0), (200, 0)]:
        name = f"buckets of {mib} MiB, " + (f"maxCTAs {ctas}" if ctas else "NCCL's own maxCTAs")
        try:
            with bench.half_of_time():
                profile = bench.profile([*bench.words(), "--bucket-cap-mb", str(mib), "--nccl-max-ctas", str(ctas)], 10, launcher=[
                    bench.program("ddpctl", "ddpctl"), "run", "--standalone", "--nproc-per-node", str(bench.gpus), "--state-dir",
                    os.path.join(bench.folder, "state"), "--"])
        except Failed as failure:
            if not data:
                raise
            lines.append(f"| {name} | failed: {failure} | | | |")
            continue
        part = {layer["name"]: layer["forward_ms"] for layer in profile["layers"]}
        data[name] = {"images_per_s": profile["images_per_s"], "step_ms": profile["step_ms"],
                      "reduction_ms": part.get("reduction", 0.0), "waited_ms": part.get("reduction, waited for", 0.0)}
        lines.append(f"| {name} | {profile['images_per_s']:.0f} | {profile['step_ms']:.3f} | {data[name]['reduction_ms']:.3f} | "
                     f"{data[name]['waited_ms']:.3f} |")
    best = max(data, key=lambda name: data[name]["images_per_s"])
    return lines, data, f"{bench.gpus} GPUs: {data[best]['images_per_s']:.0f} images/s, {best}"
