#!/usr/bin/env python3
"""bench.py without a card: over small programs of this test's own that answer as the real ones do, or fail. usage: bench_test.py BUILD

Also: what it tells ddp-worker is understood by the real one, and the real bench_convnet takes turns."""
import json
import os
import stat
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "standin"))
import bench_parts  # noqa: E402
import bench_run  # noqa: E402
import standin  # noqa: E402

LAYER = {"op": "conv2d", "type": "fp16", "beside": False, "forward_ms": 4.0, "backward_ms": 16.0, "gflop": 6000.0, "gbytes": 30.0,
         "gflop_per_s": 3e5, "gb_per_s": 1500.0, "roof_share": 0.5}
PROFILE = {"device": "a card", "world": 1, "steps": 8, "images": 256, "step_ms": 40.0, "profiled_step_ms": 44.0, "images_per_s": 6400.0,
           "sum_ms": 36.0, "rest_ms": 4.0, "net_bytes": 2**30, "peak_rss_bytes": 2**29, "roof": {"name": "H200"},
           "groups_ms": {"convolution": 20.0, "batch norm": 15.0, "optimizer": 1.0}, "start_ms": {"device": 300.0, "first step": 200.0},
           "layers": [{**LAYER, "name": "conv1", "group": "convolution"}, {**LAYER, "name": "bn1", "op": "batch_norm", "group": "batch norm"},
                      {**LAYER, "name": "optimizer", "op": "", "group": "optimizer", "roof_share": None},
                      {**LAYER, "name": "reduction", "op": "", "group": "reduce", "beside": True}]}
FAKE = """#!{python}
import json, os, sys, time
wrong = os.environ.get("FAKE_WRONG", "").split(",")
args = sys.argv[1:]
def turns(ms, ready, name):
    if ready:
        if name + "-missing" in wrong:
            sys.exit(77)
        if name + "-slow" in wrong:
            time.sleep(100)
        print("ready", flush=True)
    for number, _ in enumerate(sys.stdin):
        if name + "-dies" in wrong and number == 1:
            os.kill(os.getpid(), 9)
        print(f"round {{ms}}", flush=True)
    print("loss 1.0"); print("bytes 1073741824", flush=True)
"""
WORKER = """
with open(os.environ["FAKE_LOG"], "a") as log:
    log.write(json.dumps(args) + "\\n")
if "worker-fails" in wrong or ("stats-fails" in wrong and os.environ.get("DDP_CUDA_STATS") == "2"):
    print("ddp-worker: no such card"); sys.exit(1)
if "stats-hangs" in wrong and os.environ.get("DDP_CUDA_STATS") == "2":
    time.sleep(100)
if "--profile" in args:
    profile = json.loads({profile!r})
    profile["begun_s"] = time.clock_gettime(time.CLOCK_MONOTONIC)
    open(args[args.index("--profile-json") + 1], "w").write(json.dumps(profile))
else:
    for epoch in (1, 2, 3, 4):
        print(f"Epoch [{{epoch}}/4], Step [600/600], Loss: 0.1, {{100000 * epoch}} images/s, lr 0.01, data 0.00 ms/step")
"""
PYTHON = """
if args[0] == "-c":
    sys.exit("No module named 'torch'") if "torch-missing" in wrong else print("9.9 13.0 91900")
elif args[0].endswith("speed.py"):
    variant = args[args.index("--serve") + 1]
    turns(64.0 if "compile" in variant else 80.0, True, "compile" if "compile" in variant else "eager")
elif "torch-missing" in wrong:
    sys.exit("No module named 'torch'")
elif args[1] == "start":
    print(json.dumps({{"import torch": 3000.0, "first step": 2000.0}}))
else:
    print(json.dumps({{"epoch_s": 6.0, "reader": "a reader"}}))
"""


def program(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, stat.S_IRWXU)


def make(folder):
    head = FAKE.format(python=sys.executable)
    program(f"{folder}/build/tests/bench/bench_resnet", head + 'turns(40.0, False, "ours")\n')
    program(f"{folder}/build/worker/ddp-worker", head + WORKER.format(profile=json.dumps(PROFILE)))
    program(f"{folder}/build/ddpctl/ddpctl", head + 'rest = args[args.index("--") + 1:]\nos.execv(rest[0], rest)\n')
    program(f"{folder}/bin/python", head + PYTHON.format())
    program(f"{folder}/bin/nvidia-smi", head + 'print("\\n".join(["a card, 580.1"] * int(os.environ.get("FAKE_GPUS", "1"))))\n')


def run(folder, *args, wrong="", gpus=1):
    """(exit code, report, JSON, what was printed)."""
    out = f"{folder}/report.md"
    for path in (out, f"{folder}/report.json"):
        if os.path.exists(path):
            os.remove(path)
    done = subprocess.run([sys.executable, os.path.join(HERE, "bench.py"), f"{folder}/build", "--python", f"{folder}/bin/python",
                           "--out", out, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False,
                          env={**os.environ, "FAKE_WRONG": wrong, "FAKE_GPUS": str(gpus), "FAKE_LOG": f"{folder}/log",
                               "PATH": f"{folder}/bin{os.pathsep}{os.environ['PATH']}"})
    if not os.path.exists(out):
        return done.returncode, "", {}, done.stdout
    with open(out, encoding="utf-8") as text, open(f"{folder}/report.json", encoding="utf-8") as data:
        return done.returncode, text.read(), json.load(data)["parts"], done.stdout


def everything(folder):
    code, text, data, said = run(folder, "--seconds", "1000", gpus=2)
    assert code == 0, said
    assert text.count("a card, 580.1") == 2, text
    assert data["resnet256"]["figures"]["ddp-worker"] == 6400 and data["resnet512"]["figures"]["ddp-worker"] == 12800, data
    assert "| pytorch compile channels_last | 4000 | 4000 to 4000 | 1.60 x | 1024 |" in text, text
    assert "Goal: 1.5 x compiled PyTorch: met (1.6)." in text and "Goal: 6,000 images/s: met (6400)." in text, text
    assert "Goal: 8,000 images/s, the second one: not met (6400)." in text, text
    assert "| convolution | 20.000 | 50.0 | 6000 | 30.00 | 50 % |" in text and "| idle: rest of the step | 4.000 | 10.0 | | | |" in text, text
    assert abs(data["convnet"]["figures"]["ddp-worker O2"] - 60000 / 300000) < 1e-9, data["convnet"]  # the first epoch warms up
    assert "Goal: 20 x the seed's loop: met (30)." in text, text
    start = data["start"]["figures"]
    assert start["plans cached"]["device"] == 300 and start["plans cached"]["process and libraries"] > 0, start
    assert abs(start["plans cached"]["all"] - start["plans cached"]["process and libraries"] - 500) < 1e-6, start
    assert start["pytorch"]["all"] == 5000, start
    assert len(data["variants"]["figures"]) == 8 and len(data["nccl"]["figures"]) == 8, data
    assert data["nccl"]["figures"]["buckets of 4 MiB, NCCL's own maxCTAs"]["reduction_ms"] == 4.0, data["nccl"]
    assert said.count("figure: ") == 7 and "figure: ResNet-50 batch 256: 6400 images/s, 2.00 x pytorch channels_last, 1.60 x" in said, said


def without_pytorch(folder):
    code, text, data, said = run(folder, "--quick", "--only", "resnet256,convnet,start", wrong="torch-missing,eager-missing")
    assert code == 0, said
    assert "PyTorch none in python" in text and "pytorch compile" not in text, text
    assert "| pytorch channels_last | not measured: does not run here: exit code 77 | | | |" in text, text
    assert "| pytorch seed | not measured: python ended with 1: No module named 'torch' | |" in text, text
    assert data["resnet256"]["figures"]["ddp-worker"] == 6400 and data["start"]["figures"]["plans cached"], data


def a_peer_that_dies(folder):
    code, text, data, said = run(folder, "--only", "resnet256", wrong="compile-dies")
    assert code == 0, said
    assert "| pytorch compile channels_last | not measured: ended in the middle: exit code -9 | | | |" in text, text
    assert data["resnet256"]["figures"]["ddp-worker"] == 6400 and data["resnet256"]["figures"]["pytorch channels_last"] == 3200, data


def a_peer_that_takes_too_long(folder):
    begun = time.monotonic()
    both = bench_run.take_turns(
        lambda: bench_run.Turns("ours", [f"{folder}/build/tests/bench/bench_resnet"]),
        [lambda: bench_run.Turns("theirs", [f"{folder}/bin/python", "speed.py", "--serve", "compile"], {"FAKE_WRONG": "compile-slow"})],
        3, time.monotonic() + 8)
    assert both[0].times == [40.0] * 3 and both[1].ms() is None and "in time" in both[1].error, (both[0].error, both[1].error)
    assert time.monotonic() - begun < 30


def ours_fails(folder):
    code, text, data, said = run(folder, "--only", "breakdown,resnet256", wrong="worker-fails")
    assert code == 1, said
    assert "Failed: ddp-worker ended with 1: ddp-worker: no such card." in text and "figures" in data["resnet256"], text
    code, text, data, said = run(folder, "--only", "variants", wrong="stats-fails")
    assert code == 0 and "failed" in data["variants"]["figures"]["DDP_CUDA_STATS=2: ... and norms on the way in"], said
    begun = time.monotonic()
    code, text, data, said = run(folder, "--only", "variants", "--seconds", "24", wrong="stats-hangs")
    assert code == 77 and "left_out" in data["variants"], said  # too little for all of it
    bench = bench_parts.Bench(f"{folder}/build", f"{folder}/bin/python", True, 1, folder, ("resnet50", "256"))
    bench.deadline = time.monotonic() + 12
    os.environ.update(FAKE_WRONG="stats-hangs", FAKE_LOG=f"{folder}/log")
    _, figures, _ = bench_parts.variants(bench)
    del os.environ["FAKE_WRONG"]
    assert "took more than" in figures["DDP_CUDA_STATS=2: ... and norms on the way in"]["failed"], figures
    assert "step_ms" in figures["bf16"] and time.monotonic() - begun < 40, figures
    code, text, data, said = run(folder, "--only", "resnet256", wrong="ours-dies")
    assert code == 1 and "bench_resnet: ended in the middle: exit code -9" in text, said


def what_does_not_fit(folder):
    code, text, data, said = run(folder, "--seconds", "40")
    assert code == 0, said
    assert "left_out" in data["resnet256"] and "figures" in data["breakdown"] and "left_out" in data["variants"], data
    assert "Left out: takes about 110 s, 35 s were left." in text or "Left out: takes about 110 s, 34 s were left." in text, text
    code, text, data, said = run(folder, "--seconds", "2")
    assert code == 77 and text.count("Left out") == 7, said


def one_gpu_and_none(folder):
    code, text, _, said = run(folder, "--only", "nccl")
    assert code == 0 and "Not measured: 1 GPU here." in text, said
    program(f"{folder}/bin/nvidia-smi", "#!/bin/sh\nexit 9\n")
    code, text, _, said = run(folder)
    assert code == 77 and said.strip() == "skip: nvidia-smi finds no GPU", said
    done = subprocess.run([sys.executable, os.path.join(HERE, "bench.py"), folder, "--list"], stdout=subprocess.PIPE, text=True, check=True)
    assert len(done.stdout.splitlines()) == 7 and "resnet256  about  110 s, at most  240 s: " in done.stdout, done.stdout
    code, _, _, said = run(folder, "--only", "resnet50")
    assert code == 1 and "no such part: resnet50" in said, said


def the_real_programs(folder, build):
    """Every command line that was given to a worker so far."""
    with open(f"{folder}/log", encoding="utf-8") as log:
        commands = {line for line in log if line.strip()}
    assert len(commands) > 10, commands
    for command in sorted(commands):
        done = subprocess.run([f"{build}/worker/ddp-worker", *json.loads(command), "--version"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == 0, (command, done.stdout)
    ours, = bench_run.take_turns(
        lambda: bench_run.Turns("ours", [f"{build}/tests/bench/bench_convnet", "--batch", "4", "--steps", "2", "--rounds", "4", "--lockstep",
                                         "--opt-level", "O2", "--device", "cpu"], {"OMP_NUM_THREADS": "1"}), [], 3, time.monotonic() + 60)
    assert ours.error is None and len(ours.times) == 3 and ours.peak_mb is not None and ours.ms() > 0, (ours.error, ours.times)


def on_the_stand_in(folder, build):
    """The real ddp-worker through the whole CUDA backend, on a card over host memory."""
    out = f"{folder}/standin.md"
    done = subprocess.run([sys.executable, os.path.join(HERE, "bench.py"), build, "--net", "convnet", "4", "--quick", "--python",
                           f"{folder}/bin/python", "--only", "breakdown,start,variants", "--out", out], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=280, check=False,
                          env=standin.environ(build, folder, OMP_NUM_THREADS="1", FAKE_WRONG="torch-missing"))
    assert done.returncode == 0, done.stdout[-3000:]
    with open(f"{folder}/standin.json", encoding="utf-8") as file:
        facts = json.load(file)
    figures = {name: part["figures"] for name, part in facts["parts"].items()}
    assert facts["gpus"] == ["stand-in card, 580.00"], facts["gpus"]
    assert all(figures["breakdown"]["groups_ms"][name] > 0 for name in ("convolution", "batch norm", "optimizer", "images")), figures
    assert figures["breakdown"]["roof"] is None and figures["breakdown"]["rest_ms"] > 0, figures["breakdown"]
    assert figures["start"]["plans cached"]["first step"] > 0, figures["start"]
    assert all("step_ms" in way for way in figures["variants"].values()), figures["variants"]
    ours, = bench_run.take_turns(
        lambda: bench_run.Turns("ours", [f"{build}/tests/bench/bench_convnet", "--batch", "4", "--steps", "2", "--rounds", "3", "--lockstep",
                                         "--opt-level", "O2", "--device", "cuda"], standin.environ(build, folder, OMP_NUM_THREADS="1")),
        [], 2, time.monotonic() + 120)
    assert ours.error is None and len(ours.times) == 2, (ours.error, ours.times)


def main():
    build = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="ddp-bench-test-") as folder:
        make(folder)
        for check in (everything, without_pytorch, a_peer_that_dies, a_peer_that_takes_too_long, ours_fails, what_does_not_fit):
            check(folder)
            print(f"ok {check.__name__}", flush=True)
        the_real_programs(folder, build)
        print("ok the_real_programs", flush=True)
        on_the_stand_in(folder, build)
        print("ok on_the_stand_in", flush=True)
        one_gpu_and_none(folder)
        print("ok one_gpu_and_none")


if __name__ == "__main__":
    main()
