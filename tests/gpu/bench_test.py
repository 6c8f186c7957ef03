#!/usr/bin/env python3
"""Smoke test of bench.py, without a GPU and without PyTorch. usage: bench_test.py BUILD

The parts that start ddp-worker run the real one on the stand-in GPU; every command line of the other parts is given to the
real programs with --version; a peer that hangs or dies costs its own row only."""
import json
import os
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

ROUND = "import sys\nfor line in sys.stdin:\n    print('round 40.0', flush=True)\nprint('bytes 1048576', flush=True)"
HANG = "import time\nprint('ready', flush=True)\ntime.sleep(100)"
DIE = "print('ready', flush=True)\ninput()\nraise SystemExit(9)"


def on_the_stand_in(folder, build):
    """A report and its figures of the parts that need ddp-worker alone."""
    out = f"{folder}/standin.md"
    done = subprocess.run([sys.executable, os.path.join(HERE, "bench.py"), build, "--net", "convnet", "2", "--quick", "--python",
                           "/nonexistent/python", "--only", "breakdown,start", "--out", out],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280, check=False,
                          env=standin.environ(build, folder, OMP_NUM_THREADS="1", STANDIN_BUILD_MS="0"))
    assert done.returncode == 0, done.stdout[-3000:]
    with open(f"{folder}/standin.json", encoding="utf-8") as file:
        facts = json.load(file)
    figures = {name: part.get("figures") for name, part in facts["parts"].items()}
    assert facts["gpus"] == ["stand-in GPU, 580.00"], facts["gpus"]
    assert all(figures["breakdown"]["groups_ms"][name] > 0 for name in ("convolution", "batch norm", "optimizer", "images")), figures
    assert figures["breakdown"]["roof"] is None and figures["breakdown"]["rest_ms"] > 0, figures["breakdown"]
    assert figures["start"]["plans cached"]["first step"] > 0, figures["start"]
    with open(out, encoding="utf-8") as file:
        text = file.read()
    assert "| pytorch | not measured: " in text and "| slowest | op |" in text, text
    done = subprocess.run([sys.executable, os.path.join(HERE, "bench.py"), build, "--seconds", "2"], stdout=subprocess.PIPE, text=True,
                          timeout=60, check=False, env=standin.environ(build, folder))
    assert done.returncode == 77 and done.stdout.count("Left out") == 7, done.stdout


class Recorder(bench_parts.Bench):
    """Keeps the command lines of ddp-worker instead of running them."""

    def __init__(self, build, folder):
        super().__init__(build, "/nonexistent/python", False, 2, folder, ("resnet50", "256"))
        self.commands, self.deadline = [], time.monotonic() + 100

    def profile(self, words, steps, launcher=(), env=None, tune=()):
        self.commands.append([*words, "--profile", str(steps), "--profile-json", "x"])
        return {"step_ms": 1.0, "groups_ms": {}, "net_bytes": 1, "images_per_s": 1.0, "layers": []}


def the_worker_knows_every_option(folder, build):
    recorder = Recorder(build, folder)
    _, ways, _ = bench_parts.variants(recorder)
    _, sweep, _ = bench_parts.nccl(recorder)
    assert len(recorder.commands) == len(ways) + len(sweep) == 16, recorder.commands
    for command in recorder.commands:
        done = subprocess.run([f"{build}/worker/ddp-worker", *command, "--version"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == 0, (command, done.stdout)
    ours, = bench_run.take_turns(
        lambda: bench_run.Turns("ours", [f"{build}/tests/bench/bench_convnet", "--batch", "4", "--steps", "2", "--rounds", "3",
                                         "--lockstep", "--opt-level", "O2", "--device", "cpu"], {"OMP_NUM_THREADS": "1"}),
        [], 2, time.monotonic() + 60)
    assert ours.error is None and len(ours.times) == 2 and ours.peak_mb is not None, (ours.error, ours.times)


def a_peer_costs_its_own_row_only(_folder, _build):
    ours, slow, dead, missing = bench_run.take_turns(
        lambda: bench_run.Turns("ours", [sys.executable, "-c", ROUND]),
        [lambda: bench_run.Turns("slow", [sys.executable, "-c", HANG]), lambda: bench_run.Turns("dead", [sys.executable, "-c", DIE]),
         lambda: bench_run.Turns("missing", ["/nonexistent/program"])], 3, time.monotonic() + 6)
    assert ours.times == [40.0] * 3 and ours.peak_mb == 1, (ours.error, ours.times)
    assert slow.ms() is None and "in time" in slow.error, slow.error
    assert dead.ms() is None and "exit code 9" in dead.error, dead.error
    assert missing.ms() is None and "No such file" in missing.error, missing.error


def main():
    build = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="ddp-bench-test-") as folder:
        for test in (on_the_stand_in, the_worker_knows_every_option, a_peer_costs_its_own_row_only):
            test(folder, build)
            print(f"ok {test.__name__}", flush=True)


if __name__ == "__main__":
    main()
