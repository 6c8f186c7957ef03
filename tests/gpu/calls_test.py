#!/usr/bin/env python3
"""A whole call of tests/gpu/calls on the stand-in GPU: where there is a real one, only the GPU and PyTorch are new.
usage: calls_test.py BUILD CALL"""
import glob
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "standin"))
import bench  # noqa: E402
import calls  # noqa: E402
import standin  # noqa: E402

NCCL = "tests/standin/nccl/nccl-{}.so"  # of the stand-in GPU
PASSED, CANNOT = "passed", "not run: cannot here"
ROWS = [row.name for row in bench.ROWS]
ROWS = ROWS[:ROWS.index("convnet captured") + 1]  # what call 1 is there for


def the_rows_of_speed_are_there(out):
    """Each of them with its figures, PyTorch's beside ours."""
    with open(glob.glob(f"{out}/*-gpu-bench.json")[0], encoding="utf-8") as file:
        facts = json.load(file)
    rows = facts["rows"]
    assert list(rows)[:len(ROWS)] == ROWS and all(rows[name]["result"] == "measured" for name in ROWS), rows
    assert facts["gpus"] == ["stand-in GPU, 580.00"] and facts["torch"] == "2.0.stand-in", facts
    assert rows["cached"]["figures"]["first step"] > 0 and all(rows[name]["figures"]["all"] > 0 for name in ("cold", "tune", "tuned"))
    groups = rows["as it is"]["figures"]["groups_ms"]
    assert all(groups[name] > 0 for name in ("convolution", "batch norm", "optimizer", "images")), groups
    for name in ("pytorch fp16", "pytorch bf16", "pytorch compiled"):
        assert rows[name]["figures"]["ours_images_per_s"] > 0 and rows[name]["figures"]["images_per_s"] == 50.0, rows[name]
    norms = rows["norms"]["figures"]
    assert [float(row["plans us"]) <= float(row["own us"]) for row in norms] == [row["choice"] == "plans" for row in norms], norms
    assert rows["convnet"]["figures"]["epoch_s"] > 0 and rows["convnet loop"]["figures"]["ratio"] > 0
    assert {row["result"] for row in rows.values()} <= {"measured", "cut"}, rows


def run(build, number, folder, *more):
    """(exit code, {phase: result}, {phase: figure})"""
    out = os.path.join(folder, "out")
    done = subprocess.run([os.path.join(HERE, "calls"), build, "--out", out, "--call", str(number), *more],
                          env=standin.environ(build, folder), timeout=500, check=False)
    rows = []
    for path in sorted(glob.glob(f"{out}/*-gpu*.md"), key=os.path.getmtime)[-1:]:
        with open(path, encoding="utf-8") as file:
            rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in file if line.startswith("| ")][1:]
    return done.returncode, {cells[0]: cells[2] for cells in rows}, {cells[0]: cells[4] for cells in rows}


def an_older_nccl_is_told(build, folder):
    """And is no failure; a file that is none is."""
    older = os.path.join(folder, "older")
    os.makedirs(older)
    code, table, figures = run(build, 3, older, "--nccl", os.path.join(build, NCCL.format("2.28.9")))
    assert (code, table) == (0, {"device": PASSED, "nccl-pair": CANNOT}), (code, table)
    assert figures["nccl-pair"] == "NCCL 2.28.9 takes one rank a GPU, 2.30 or newer is needed: --nccl FILE", figures
    code, table, _ = run(build, 3, older, "--nccl", os.path.join(build, "build.ninja"))
    assert (code, table) == (1, {"device": PASSED, "nccl-pair": "failed"}), (code, table)
    code, _, _ = run(build, 3, older, "--nccl", os.path.join(build, "nowhere.so"))
    assert code == 2, code


def main():
    build, number = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="ddp-standin-") as folder, standin.Nvml(folder):
        out = os.path.join(folder, "out")
        # 120 s less than a rented card has: the last rows are cut, which is tested too
        more = {1: ("--budget", "240"), 2: (), 3: ("--nccl", os.path.join(build, NCCL.format("2.30.7")))}[number]
        code, table, _ = run(build, number, folder, *more)
        wanted = {name: PASSED for name in calls.CALLS[number - 1].phases}
        if table.get("torch") == CANNOT:  # standin_test.py has it
            wanted["torch"] = CANNOT
        if code != 0 or table != wanted:
            print(f"exit code {code}: {table}")
            for path in glob.glob(f"{out}/*-logs.txt"):
                with open(path, encoding="utf-8", errors="replace") as log:
                    print(log.read())
            return 1
        if number == 1:
            the_rows_of_speed_are_there(out)
        if number == 3:
            an_older_nccl_is_told(build, folder)
        with open(f"{out}/calls.json", encoding="utf-8") as file:
            assert list(json.load(file)["calls"]) == [str(number)]
        assert len(os.listdir(out)) <= 5, os.listdir(out)  # a rented machine may give few files back
    return 0


if __name__ == "__main__":
    sys.exit(main())
