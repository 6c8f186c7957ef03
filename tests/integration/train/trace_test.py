"""--trace: checks the trace file for Perfetto. usage: trace_test.py BUILD"""

import json
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import small_data  # noqa: E402
from full_disk import FullDisk, run_tests  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
WORKER = [os.path.join(BUILD, "worker", "ddp-worker"), "--device", "cpu", "-b", "8"]
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}
TRAINING, REDUCTION, CHECKPOINT = 0, 1, 2  # tracks


def run(command, expected=0):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=ENV)
    assert done.returncode == expected, f"exit {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
    return done


def train(folder, *args, ranks=1, expected=0, size=28):
    data = small_data.write_data(f"{folder}/data", 128, size=size)
    launcher = [f"{BUILD}/ddpctl/ddpctl", "run", "--standalone", "--nproc-per-node", str(ranks), "--state-dir", f"{folder}/state", "--"]
    return run([*(launcher if ranks > 1 else []), *WORKER, *args, data], expected)


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def spans(events, rank, track=None, name=None):
    """(begin, end, name) of a rank, in order."""
    return sorted((event["ts"], event["ts"] + event["dur"], event["name"]) for event in events
                  if event["ph"] == "X" and event["pid"] == rank and track in (None, event["tid"]) and name in (None, event["name"]))


def check_nesting(found):
    """On one track, spans either follow one another or are nested."""
    for i, (begin, end, name) in enumerate(found):
        for other, other_end, other_name in found[i + 1:]:
            assert other >= end or other_end <= end or other == begin, f"{name} [{begin}, {end}] and {other_name} [{other}, {other_end}]"


def names(events, rank, track=None):
    return {name for _, _, name in spans(events, rank, track)}


def test_one_rank(folder):
    path = f"{folder}/trace.json"
    train(folder, "--epochs", "3", "--trace", path, "--trace-steps", "10:20", "--checkpoint-dir", f"{folder}/ckpt", "--checkpoint-every",
          "4")
    events = read(path)
    assert names(events, 0, TRAINING) == {"step", "data", "forward", "backward", "optimizer", "validation", "checkpoint: copy"}
    assert names(events, 0, CHECKPOINT) == {"checkpoint: write"}, names(events, 0, CHECKPOINT)
    steps = spans(events, 0, TRAINING, "step")
    assert [event["args"]["step"] for event in events if event["name"] == "step"] == list(range(10, 21))
    check_nesting(spans(events, 0, TRAINING))
    for begin, end, _ in steps:
        inside = [name for a, b, name in spans(events, 0, TRAINING) if begin <= a and b <= end and name != "step"]
        assert inside == ["data", "forward", "backward", "optimizer"], inside
    shares = sorted(sum(b - a for a, b, name in spans(events, 0, TRAINING) if name != "step" and begin <= a and b <= end) / (end - begin)
                    for begin, end, _ in steps)
    assert shares[len(shares) // 2] >= 0.5, shares  # in the median step: others may take the processor between two parts
    (begin, end, _), = spans(events, 0, TRAINING, "validation")
    assert len([1 for a, b, _ in spans(events, 0, TRAINING, "forward") if begin <= a and b <= end]) == 2, "its batches"


def test_a_checkpoint_of_the_end_of_an_epoch(folder):
    """It is written while the validation goes on."""
    path = f"{folder}/trace.json"
    data = small_data.write_data(f"{folder}/data", 64, validation_count=1000)
    run([*WORKER, "--epochs", "3", "--trace", path, "--trace-steps", "1:1000", "--checkpoint-dir", f"{folder}/ckpt", data])
    events = read(path)
    copies, writes = (len(list(spans(events, 0, track, name))) for track, name in ((TRAINING, "checkpoint: copy"), (CHECKPOINT, "checkpoint: write")))
    assert copies >= 2 and writes >= 2, (copies, writes)


def check_ranks(events, ranks, buckets):
    for rank in range(ranks):
        check_nesting(spans(events, rank, TRAINING))
        assert names(events, rank, REDUCTION) == {f"bucket {i + 1}" for i in range(buckets)}, names(events, rank, REDUCTION)
        backwards = spans(events, rank, TRAINING, "backward")
        reductions = spans(events, rank, REDUCTION)
        waits = spans(events, rank, TRAINING, "wait for reduction")
        assert len(reductions) == buckets * len(backwards) and len(waits) == len(backwards)
        overlaps = 0
        for (begin, end, _), (waited, wait_end, _) in zip(backwards, waits):
            assert begin <= waited and wait_end <= end, "the wait is the end of backward"
            inside = [(a, b) for a, b, _ in reductions if begin <= a and b <= end]
            assert len(inside) == buckets, "each bucket is reduced within backward"
            overlaps += inside[0][0] < waited  # the first bucket begins before backward's layers are done
        assert overlaps > 0, "on a busy machine its thread may come late in some steps, but not in all"


def test_two_ranks_in_one_file(folder):
    path = f"{folder}/trace.json"
    train(folder, "-a", "resnet18", "-b", "2", "--max-steps", "8", "--trace", path, "--trace-steps", "2:6", ranks=2, size=16)
    events = read(path)
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {"rank 0 on node0", "rank 1 on node0"}
    check_ranks(events, 2, 3)
    for first, second in zip(*(spans(events, rank, TRAINING, "step") for rank in (0, 1))):
        # All ranks use one clock: no rank ends a step, which needs gradients from both, before the other has begun it.
        assert first[0] <= second[1] and second[0] <= first[1], (first, second)
    assert len(spans(events, 1, TRAINING, "step")) == 5


def test_a_file_for_each_rank(folder):
    train(folder, "--max-steps", "4", "--trace", f"{folder}/trace-%r.json", "--trace-steps", "1:100", "--delay-allreduce", ranks=2)
    for rank in (0, 1):
        events = read(f"{folder}/trace-{rank}.json")
        assert {event["pid"] for event in events} == {rank}
        assert len(spans(events, rank, TRAINING, "step")) == 4 and names(events, rank, REDUCTION) == {"bucket 1"}


def test_killed(folder):
    path = f"{folder}/trace.json"
    data = small_data.write_data(f"{folder}/data", 128)
    with subprocess.Popen([*WORKER, "-p", "1", "--epochs", "100000", "--trace", path, "--trace-steps", "1:1000000", data],
                          stdout=subprocess.PIPE, text=True, env=ENV) as first:
        line = first.stdout.readline()
        while line and "Step [9/16]" not in line:
            line = first.stdout.readline()
        first.send_signal(signal.SIGKILL)
    text = open(path, encoding="utf-8").read()
    assert len(spans(json.loads(text[:text.rindex("}") + 1] + "]"), 0, TRAINING, "step")) >= 8, "but for the bracket it is whole"


def test_stopped(folder):
    """Ended by SIGTERM, as at a time limit: the JSON array is closed."""
    path = f"{folder}/trace.json"
    data = small_data.write_data(f"{folder}/data", 128)
    with subprocess.Popen([*WORKER, "-p", "1", "--epochs", "100000", "--trace", path, "--trace-steps", "1:1000000", data],
                          stdout=subprocess.PIPE, text=True, env=ENV) as first:
        assert "Step [1/16]" in first.stdout.readline()
        first.send_signal(signal.SIGTERM)
        first.communicate()
    assert first.returncode == 143 and len(spans(read(path), 0, TRAINING, "step")) >= 1


def test_an_evaluation(folder):
    path = f"{folder}/trace.json"
    train(folder, "--evaluate", "--trace", path)
    assert names(read(path), 0) == {"validation", "forward"}


def test_a_full_disk(folder):
    with FullDisk(folder, 16) as disk:
        if disk is None:
            return "skip"
        done = train(folder, "--epochs", "10", "--trace", f"{disk}/trace.json", "--trace-steps", "1:1000")
        assert len(re.findall(r"--trace \S+: cannot write: No space left on device; training goes on", done.stderr)) == 1, done.stderr
        text = open(f"{disk}/trace.json", encoding="utf-8").read()
        assert json.loads(text if text.endswith("]\n") else text + "]"), "whole spans"
    return "ok"


def test_words_for_bad_options(folder):
    for args, words in ((["--trace-steps", "1:2"], "--trace-steps needs --trace FILE"),
                        (["--trace", "t", "--trace-steps", "9:3"], "--trace-steps 9:3: expected A:B"),
                        (["--trace", "t", "--trace-steps", "0:3"], "--trace-steps 0:3: expected A:B"),
                        (["--trace", "t", "--trace-steps", "5"], "--trace-steps 5: expected A:B"),
                        (["--trace", "t", "--trace-steps", "5:"], "--trace-steps 5:: expected A:B"),
                        (["--trace", "t", "--trace-steps", "1:4294967296"], "--trace-steps 1:4294967296: expected A:B"),
                        (["--trace", "t", "--trace-steps", "1:3x"], "--trace-steps 1:3x: expected A:B"),
                        (["--trace", "t", "--profile", "3"], "leave --trace out")):
        done = run([*WORKER, *args], expected=2)
        assert words in done.stderr, done.stderr
    done = train(folder, "--max-steps", "1", "--trace", f"{folder}/none/t.json", expected=1)
    assert re.search(r"--trace .*/none/t.json: cannot open: No such file or directory", done.stderr), done.stderr


if __name__ == "__main__":
    run_tests(globals(), "ddp-trace-")
