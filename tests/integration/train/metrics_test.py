"""What a training prints and writes for people and programs: progress lines, --metrics, DDP_METRICS, --tensorboard.
usage: metrics_test.py BUILD

In tests/pytorch/tensorboard_live.py TensorBoard itself reads the event files. Tests with a full disk mount a tmpfs; if that is not
allowed they skip and say so."""

import glob
import json
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import small_data  # noqa: E402
from processes.waiting import Stopwatch  # noqa: E402
from full_disk import FullDisk, run_tests  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
WORKER = os.path.join(BUILD, "worker", "ddp-worker")
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}
STEP = {"kind", "time", "epoch", "step", "loss", "acc1", "acc5", "lr", "images_per_s", "step_ms", "data_ms", "comm_ms", "exposed_ms",
        "loss_scale", "skipped"}
NUMBER = r"([0-9.e+-]+)"
PRINTED = re.compile(rf"^Epoch \[(\d+)/\d+\], Step \[(\d+)/16\], Loss: {NUMBER}, (\d+) images/s, lr {NUMBER}, Acc@1 {NUMBER} "
                     rf"Acc@5 {NUMBER}, time {NUMBER} ms/step, data {NUMBER} ms/step$", re.M)


def train(folder, *args, env=None, expected=0):
    data = f"{folder}/data"
    if not os.path.isdir(data):
        small_data.write_data(data, 128)
    done = subprocess.run([WORKER, "--device", "cpu", "-b", "8", *args, data], capture_output=True, text=True, timeout=300, check=False,
                          env={**ENV, **(env or {})})
    assert done.returncode == expected, f"exit {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
    return done


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def places(lines):
    return [(line["kind"], line["epoch"], line["step"]) for line in lines]


def test_lines_say_what_is_printed(folder):
    path = f"{folder}/m.jsonl"
    done = train(folder, "--epochs", "2", "-p", "8", "--metrics", path, "--loss-log", f"{folder}/loss", "--lr", "0.5")
    lines = read(path)
    assert places(lines) == [("step", 1, 1), ("step", 1, 8), ("step", 1, 16), ("epoch", 1, 16), ("validation", 1, 16),
                             ("step", 2, 24), ("step", 2, 32), ("epoch", 2, 32), ("validation", 2, 32)], places(lines)
    losses = [float(line.split()[2]) for line in open(f"{folder}/loss", encoding="ascii")]
    steps = [line for line in lines if line["kind"] == "step"][1:]
    printed = PRINTED.findall(done.stdout)
    assert len(printed) == 4, done.stdout
    for line, words in zip(steps, printed):
        assert set(line) == STEP, line
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]), line
        assert line["loss"] == losses[line["step"] - 1], line
        assert abs(line["loss"] - float(words[2])) <= 6e-5 and abs(line["images_per_s"] - float(words[3])) <= 1, (line, words)
        assert line["lr"] == 0.5 == float(words[4]) and abs(line["acc1"] - float(words[5])) <= 0.006, (line, words)
        assert abs(line["acc5"] - float(words[6])) <= 0.006 and 0 <= line["data_ms"] < line["step_ms"], (line, words)
        assert line["loss_scale"] == 1 and line["skipped"] == 0 and line["comm_ms"] == 0, line
    for line, mean in zip((line for line in lines if line["kind"] == "epoch"), (losses[:16], losses[16:])):
        assert abs(line["loss"] - sum(mean) / 16) < 1e-9 and line["seconds"] > 0 and line["images_per_s"] > 0 and line["unreadable"] == 0, line
    values = re.findall(rf"^Train: Acc@1 {NUMBER} Acc@5 {NUMBER} Loss {NUMBER}$", done.stdout, re.M)
    for line, words in zip((line for line in lines if line["kind"] == "epoch"), values, strict=True):
        got = (line["acc1"], line["acc5"], line["loss"])
        assert all(abs(a - float(b)) <= 0.006 for a, b in zip(got, words)), (line, words)
    values = re.findall(rf"^Val: Acc@1 {NUMBER} Acc@5 {NUMBER} Loss {NUMBER}$", done.stdout, re.M)
    for line, words in zip((line for line in lines if line["kind"] == "validation"), values):
        got = (line["acc1"], line["acc5"], line["loss"])
        assert all(abs(a - float(b)) <= 0.006 for a, b in zip(got, words)) and line["images"] == 16, (line, words)
    assert steps[0]["acc1"] != steps[1]["acc1"] and lines[3]["acc1"] == steps[1]["acc1"], "means over the epoch"


def test_an_epoch_of_few_steps_has_a_line(folder):
    path = f"{folder}/m.jsonl"
    done = train(folder, "--epochs", "3", "--max-steps", "40", "--metrics", path)
    assert re.findall(r"Step \[(\d+)/16\]", done.stdout) == ["16", "16", "8"], done.stdout
    assert [line["step"] for line in read(path) if line["kind"] == "step"] == [1, 16, 32, 40], read(path)


def test_the_end_says_how_long_it_took(folder):
    watch = Stopwatch()
    said = train(folder, "--max-steps", "3").stdout
    took = re.fullmatch(r"Training complete in: (\d):(\d\d):(\d\d\.\d{6})", said.splitlines()[-1])
    assert took and 0 < 3600 * int(took[1]) + 60 * int(took[2]) + float(took[3]) < watch.passed_s, said
    assert "Training complete" not in train(folder, "--evaluate").stdout


def test_a_validation_shows_how_far_it_is(folder):
    said = train(folder, "--epochs", "1", "-p", "1").stdout
    assert re.search(rf"^Validating \[8/16\], Acc@1 {NUMBER} Acc@5 {NUMBER} Loss {NUMBER}$", said, re.M), said[-800:]


def test_accuracies_are_of_all_steps_of_the_epoch(folder):
    path = f"{folder}/m.jsonl"
    train(folder, "--epochs", "1", "-p", "1", "--metrics", path, "--accumulation-steps", "2", "--lr", "0.5")
    steps = [line for line in read(path) if line["kind"] == "step"]
    for field in ("acc1", "acc5"):
        right = [line[field] / 100 * 16 * (i + 1) for i, line in enumerate(steps)]
        assert len(right) == 8 and all(abs(count - round(count)) < 1e-6 for count in right), right
        more = [b - a for a, b in zip([0, *right], right)]
        assert all(-1e-6 < count < 16 + 1e-6 for count in more) and right[-1] > 16, right


def test_skipped_steps(folder):
    path = f"{folder}/m.jsonl"
    done = train(folder, "--epochs", "1", "-p", "1", "--opt-level", "O2", "--init-loss-scale", "1e9", "--max-loss-scale", "1e9",
                 "--metrics", path)
    skips = done.stdout.count("Gradient overflow")
    last = [line for line in read(path) if line["kind"] == "step"][-1]
    assert skips > 0 and last["skipped"] == skips and abs(last["loss_scale"] * 2**skips / 1e9 - 1) < 1e-8, (skips, last)


def test_a_resume(folder):
    path = f"{folder}/m.jsonl"
    more = ["-p", "8", "--metrics", path, "--checkpoint-dir", f"{folder}/ckpt", "--resume", "auto"]
    train(folder, "--epochs", "1", *more)
    train(folder, "--epochs", "2", *more)
    lines = [place for place in places(read(path)) if place[0] in ("resume", "checkpoint", "validation")]
    assert [place for place in lines if place[0] == "checkpoint"] == [("checkpoint", 1, 16), ("checkpoint", 2, 32)], lines
    assert [place for place in lines if place[0] == "resume"] == [("resume", 1, 16)], lines
    train(folder, "--epochs", "1", "-p", "8", "--metrics", path)
    lines = read(path)
    assert places(lines)[-6:-3] == [("resume", 1, 0), ("step", 1, 1), ("step", 1, 8)], places(lines)
    assert {"generation", "world"} <= set([line for line in lines if line["kind"] == "resume"][0])
    count = len(lines)
    train(folder, "--evaluate", "--resume", f"{folder}/ckpt", "--metrics", path)
    assert [line["kind"] for line in read(path)[count:]] == ["validation"], "an evaluation tells nobody to drop lines"


def test_a_restarted_job(folder):
    """The first generation ends after six steps; the second resumes. Only rank 0 writes, and it knows how long each rank spends in reductions."""
    data, path = small_data.write_data(f"{folder}/data", 128), f"{folder}/m.jsonl"
    os.mkfifo(f"{folder}/saved")
    script = f'if [ "$DDP_GENERATION" = 1 ]; then {WORKER} "$@" --max-steps 6 && echo > {folder}/saved && exec sleep 600; fi; exec {WORKER} "$@"'
    stop = f'if [ "$DDP_GENERATION" = 1 ] && [ "$RANK" = 1 ]; then {WORKER} "$@" --max-steps 6; read _ < {folder}/saved; exit 1; fi; '
    done = subprocess.run([f"{BUILD}/ddpctl/ddpctl", "run", "--standalone", "--nproc-per-node", "2", "--state-dir", f"{folder}/state",
                           "--max-restarts", "1", "--", "sh", "-c", stop + script, "sh", "--device", "cpu", "-b", "8", "-p", "1",
                           "--epochs", "1", "--checkpoint-dir", f"{folder}/ckpt", "--checkpoint-every", "3", "--metrics", path, data],
                          capture_output=True, text=True, timeout=300, check=False, env=ENV)
    assert done.returncode == 0, done.stdout[-2000:]
    lines = read(path)
    restart = [place[0] for place in places(lines)].index("restart")
    assert [line["step"] for line in lines[:restart] if line["kind"] == "step"] == [1, 2, 3, 4, 5, 6], places(lines)
    assert [line["step"] for line in lines[restart:] if line["kind"] == "step"] == [7, 8], places(lines)
    assert places(lines)[restart:restart + 2] == [("restart", 1, 6), ("resume", 1, 6)], places(lines)
    assert [lines[restart + 1][name] for name in ("generation", "world")] == [2, 2]
    steps = [line for line in lines if line["kind"] == "step"]
    assert all(0 < line["comm_ms"] < 1e4 and 0 <= line["exposed_ms"] < 1e4 for line in steps), steps


def test_the_file_of_the_environment(folder):
    here, there = f"{folder}/m.jsonl", f"{folder}/n.jsonl"
    train(folder, "--max-steps", "2", "-p", "1", "--metrics", here, env={"DDP_METRICS": there})
    assert open(here, encoding="utf-8").read() == open(there, encoding="utf-8").read() != ""
    done = train(folder, "--max-steps", "2", env={"DDP_METRICS": f"{folder}/none/m.jsonl"})
    assert re.search(r"DDP_METRICS .*/none/m.jsonl: cannot open: No such file or directory; training goes on without it", done.stderr), done.stderr
    done = train(folder, "--max-steps", "2", "--metrics", f"{folder}/none/m.jsonl", expected=1)
    assert re.search(r"--metrics .*/none/m.jsonl: cannot open: No such file or directory", done.stderr), done.stderr


def test_a_full_disk(folder):
    with FullDisk(folder, 16) as disk:
        if disk is None:
            return "skip"
        done = train(folder, "--epochs", "20", "-p", "1", "--metrics", f"{disk}/m.jsonl", "--tensorboard", f"{disk}/run")
        for option in ("--metrics", "--tensorboard"):
            assert len(re.findall(rf"{option} \S+: cannot write: No space left on device; training goes on without it", done.stderr)) == 1, \
                done.stderr
        assert all(line["kind"] for line in read(f"{disk}/m.jsonl")), "whole lines"


def test_pipes(folder):
    """A FIFO without a reader is refused. A FIFO that loses its reader loses lines, but the training goes on."""
    pipe = f"{folder}/pipe"
    os.mkfifo(pipe)
    for option in ("--metrics", "--trace", "--loss-log"):
        done = train(folder, "--max-steps", "2", option, pipe, expected=1)
        assert f"{option} {pipe}: cannot open: it is a pipe that nobody reads" in done.stderr, done.stderr
    for option in ("--metrics", "--loss-log"):
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        with subprocess.Popen([WORKER, "--device", "cpu", "-b", "8", "--max-steps", "200", "-p", "1", option, pipe, f"{folder}/data"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV, pipesize=4096) as worker:
            assert worker.stdout.readline()  # the pipe holds few of its 200 lines, so it waits for us
            os.close(reader)
            _, said = worker.communicate(timeout=300)
        assert worker.returncode == 0, (worker.returncode, said)
        assert re.search(rf"{option} {pipe}: cannot write: Broken pipe", said), said


def test_who_closes_the_output_ends_the_training(folder):
    small_data.write_data(f"{folder}/data", 128)
    with subprocess.Popen([WORKER, "--device", "cpu", "-b", "8", "--epochs", "100000", "-p", "1", f"{folder}/data"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV) as worker:
        assert worker.stdout.readline()
        worker.stdout.close()
        assert worker.wait(300) == 141


def test_a_folder_for_one(folder):
    data = small_data.write_data(f"{folder}/data", 128)
    with subprocess.Popen([WORKER, "--device", "cpu", "-b", "8", "-p", "1", "--epochs", "100000", "--tensorboard", f"{folder}/run",
                           "--metrics", f"{folder}/m.jsonl", data], stdout=subprocess.PIPE, text=True, env=ENV) as first:
        try:
            assert "Step [1/16]" in first.stdout.readline()
            done = train(folder, "--max-steps", "1", "--tensorboard", f"{folder}/run", expected=1)
            assert "another process writes there" in done.stderr, done.stderr
        finally:
            first.send_signal(signal.SIGKILL)
    text = open(f"{folder}/m.jsonl", encoding="utf-8").read()
    assert [json.loads(line) for line in text.splitlines()[:-1]], "killed: all lines but the last are whole"
    train(folder, "--max-steps", "1", "-p", "1", "--tensorboard", f"{folder}/run", "--metrics", f"{folder}/m.jsonl")
    assert len(glob.glob(f"{folder}/run/events.out.tfevents.*")) == 2
    assert places([json.loads(line) for line in open(f"{folder}/m.jsonl", encoding="utf-8").read().splitlines()[-4:]])[:2] == \
        [("resume", 1, 0), ("step", 1, 1)]


def test_options_that_need_others(folder):
    done = train(folder, "--tb-histograms", expected=2)
    assert "--tb-histograms needs --tensorboard DIR" in done.stderr, done.stderr
    done = train(folder, "--tb-images", "1", expected=2)
    assert "--tb-images needs --tensorboard DIR" in done.stderr, done.stderr


if __name__ == "__main__":
    run_tests(globals(), "ddp-metrics-")
