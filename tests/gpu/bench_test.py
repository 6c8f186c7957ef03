#!/usr/bin/env python3
"""Test of bench.py's rows, without a GPU and without PyTorch. usage: bench_test.py BUILD

The whole of it runs on the stand-in GPU in calls_test.py. Here: what a row does to the others, and the command lines."""
import argparse
import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "standin"))
import bench  # noqa: E402
import bench_rows  # noqa: E402
import bench_run  # noqa: E402
import report  # noqa: E402
import standin  # noqa: E402

PYTHON = os.path.join(HERE, "standin", "python-with-torch")
ROUND = "import sys\nfor line in sys.stdin:\n    print('round 40.0', flush=True)\nprint('bytes 1048576', flush=True)"
HANG = "import time\nprint('ready', flush=True)\ntime.sleep(100)"
DIE = "print('ready', flush=True)\ninput()\nraise SystemExit(9)"


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def measured(folder, build, rows):
    """(exit code, report, entries of the JSON)"""
    args = argparse.Namespace(build=build, python=PYTHON, quick=False, net=("convnet", "2"), out=f"{folder}/o.md")
    facts = {"date": report.today(), "commit": "c", "gpus": ["one"], "torch": "t", "cpus": 1, "quick": False}
    code = bench.measure(args, facts, rows, time.monotonic() + 100)
    with open(args.out, encoding="utf-8") as file:
        text = file.read()
    with open(f"{folder}/o.json", encoding="utf-8") as file:
        return code, text, json.load(file)["rows"]


def line_of(text, name):
    line, = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return line


def a_peer_that_compiles_too_long_costs_its_own_row_only(folder, build):
    """As max-autotune on 2026-11-26, when the report blamed ours for it. Its compilers end with it."""
    note = f"{folder}/compilers"
    known = {row.name: row for row in bench.ROWS}
    slow = dataclasses.replace(known["pytorch compiled"], limit_s=2, estimate_s=1)
    seen = []

    def look(_bench):
        with open(f"{folder}/o.md", encoding="utf-8") as file:
            seen.append(file.read())
        return ["looked"], {}, "looked"

    with in_environ(standin.environ(build, folder, OMP_NUM_THREADS="1", STANDIN_BUILD_MS="0", STANDIN_COMPILERS=note)):
        code, text, entries = measured(folder, build, [known["pytorch fp16"], slow, bench.Row("look", "the report", look, 1, 60)])
    assert code == 0 and entries["pytorch fp16"]["figures"]["ours_images_per_s"] > 0, text
    assert "not measured: its start (imports, compilation, warming up) took more than" in line_of(text, "pytorch compiled"), text
    assert "ddp-worker" not in line_of(text, "pytorch compiled") and entries["look"]["result"] == "measured", text
    assert "not measured" in line_of(seen[0], "pytorch compiled") and "not reached" in line_of(seen[0], "look"), seen
    with open(note, encoding="ascii") as file:
        assert all(is_gone(int(pid)) for pid in file.read().split()), "a compiler still runs"


def a_row_that_fails_costs_itself_only(folder, build):
    def fails(_bench):
        raise bench_run.Failed("it broke")

    def is_wrong(_bench):
        return {}["nothing"]

    def works(_bench):
        return ["fine"], {"value": 1}, "fine"

    code, text, entries = measured(folder, build, [
        bench.Row("one", "first", fails, 1, 9), bench.Row("two", "second", is_wrong, 1, 9), bench.Row("big", "too long", works, 200, 300),
        bench.Row("three", "third", works, 1, 9)])
    assert code == 1 and "failed: it broke" in line_of(text, "one") and "failed: KeyError" in line_of(text, "two"), text
    assert "cut: takes about 200 s" in line_of(text, "big") and "Cut, since they did not fit into the time: big." in text, text
    assert entries["three"] == {"result": "measured", "words": "fine", "seconds": 0.0, "figures": {"value": 1}}, entries


def without_time_everything_is_cut(folder, build):
    done = subprocess.run([sys.executable, os.path.join(HERE, "bench.py"), build, "--budget", "2"], stdout=subprocess.PIPE, text=True,
                          timeout=60, check=False, env=standin.environ(build, folder))
    assert done.returncode == 77 and done.stdout.count("| cut: takes about") == len(bench.ROWS) - len(bench_rows.NCCL_WAYS), done.stdout


@contextlib.contextmanager
def in_environ(environ):
    before = dict(os.environ)
    os.environ.update(environ)
    bench_rows.IS_STANDIN = environ.get("DDP_GPU_STANDIN") == "1"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        bench_rows.IS_STANDIN = False


class Recorder(bench_rows.Bench):
    """Keeps the command lines of our programs instead of running them."""

    def __init__(self, build, folder):
        super().__init__(build, "/nonexistent/python", False, 2, folder, ("resnet50", "256"))
        self.commands, self.deadline = [], time.monotonic() + 100

    def run(self, argv, env=None):
        self.commands.append(argv)
        raise bench_run.Failed("only recorded")


def our_programs_know_every_option(folder, build):
    recorder = Recorder(build, folder)
    for row in bench.ROWS:
        try:
            row.run(recorder)
        except (bench_run.Failed, bench_run.NotMeasured):
            pass
    workers = [argv[argv.index(f"{build}/worker/ddp-worker"):] for argv in recorder.commands if f"{build}/worker/ddp-worker" in argv]
    assert len(workers) == 15 + len(bench_rows.NCCL_WAYS), workers
    ways = [next((word for word in argv if word.startswith("--tune")), None) for argv in workers]
    # two starts as they are, a step by timed engines, a start with them; then nothing is measured by untimed ones, except the deterministic
    assert ways[:4] == [None, None, "--tune-seconds", None] and ways[4:].count(None) == 1 and ways.count("--tune") == 1, ways
    assert "--deterministic" in workers[4 + ways[4:].index(None)], workers
    for argv in workers:
        done = subprocess.run([*argv, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == 0, (argv, done.stdout)
    environ = standin.environ(build, folder, OMP_NUM_THREADS="1", STANDIN_BUILD_MS="0", XDG_CACHE_HOME=folder)
    small = ["--arch", "resnet18", "--size", "32", "--batch", "1"]
    ours = bench_run.Turns("ours", [f"{build}/tests/bench/bench_resnet", *small, "--steps", "1", "--rounds", "100000", "--lockstep", "--opt-level",
                                    "O2", "--low-type", "bf16", "--device", "cuda"], environ)
    for _ in range(2):
        ours.round(time.monotonic() + 60)
    ours.close(time.monotonic() + 60)
    assert ours.error is None and len(ours.times) == 2 and ours.peak_mb is not None, (ours.error, ours.times)
    table = bench_run.run([f"{build}/tests/bench/bench_norms", *small], 60, environ)
    assert table.count("\n| ") == 12 + 1 and re.search(r"figure: \d+ of 20 norms by plans; plans ", table) and " nan" not in table, table


def plans_without_a_time_are_counted(_folder, _build):
    """By the worker's own words, so that no figure passes for one of timed engines."""
    with open(os.path.join(HERE, "..", "..", "worker", "backend", "cuda", "exec", "sets.c"), encoding="utf-8") as file:
        said, = [line.split('"')[1] for line in file if "no time yet" in line]
    text = f"batch 256: 111 plans, 0 from the cache, 111 built in 2.0 s, 71 timed in 20.1 s{said.replace('%u', '40')}\n"
    text += text.replace("batch 256", "batch 247").replace("40 have", "79 have")
    assert bench_rows.untimed_plans(text, 256) == 40 and bench_rows.untimed_plans(text, 128) == 0 and bench_rows.untimed_words({"untimed": 40}) == ", 40 plans not timed", text
    assert bench_rows.untimed_plans("2 of 2 batch norms by plans", 256) == 0 and bench_rows.untimed_words({"untimed": 0}) == ""


def turns(code, program=sys.executable):
    return bench_run.Turns("one", [program, "-c", code])


def a_peer_that_hangs_or_dies_has_a_reason(_folder, _build):
    soon = time.monotonic() + 20
    good, slow, dead, missing = turns(ROUND), turns(HANG), turns(DIE), turns(ROUND, "/nonexistent/program")
    for one in (slow, dead, missing):
        one.wait_ready(soon)
    good.round(soon, counts=False)
    slow.round(time.monotonic() + 0.2)
    for one in (good, dead, missing):
        one.round(soon)
        one.close(soon)
    slow.close(soon)
    assert good.times == [40.0] and good.peak_mb == 1 and good.error is None, (good.error, good.times)
    assert slow.ms() is None and slow.error.startswith("a round took more than"), slow.error
    assert dead.ms() is None and "exit code 9" in dead.error, dead.error
    assert missing.ms() is None and "No such file" in missing.error, missing.error


def main():
    build = os.path.abspath(sys.argv[1])
    for test in (a_peer_that_compiles_too_long_costs_its_own_row_only, a_row_that_fails_costs_itself_only, without_time_everything_is_cut,
                 our_programs_know_every_option, plans_without_a_time_are_counted, a_peer_that_hangs_or_dies_has_a_reason):
        with tempfile.TemporaryDirectory(prefix="ddp-bench-test-") as folder:
            test(folder, build)
            print(f"ok {test.__name__}", flush=True)


if __name__ == "__main__":
    main()
