#!/usr/bin/env python3
"""Smoke test of tests/gpu/run on small phases of its own. usage: suite_test.py BUILD

The real phases run on the stand-in GPU in standin_test.py."""
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PASS = ["sh", "-c", "echo figure: 42 images; echo 'fact: device: a test'"]
FAIL = ["sh", "-c", "echo 'what went wrong | here'; exit 3"]
SKIP = ["sh", "-c", "echo skip: no such tool; exit 77"]


def start(folder, phases, *args):
    path = os.path.join(folder, "phases.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump([{"words": f"about {phase['name']}", "limit_s": 60, **phase} for phase in phases], file)
    temp = os.path.join(folder, "temp")
    os.makedirs(temp, exist_ok=True)
    return subprocess.Popen([os.path.join(HERE, "run"), folder, "--out", folder, "--phases", path, *args], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "TMPDIR": temp})


def results(folder):
    with open(glob.glob(os.path.join(folder, "*-gpu.md"))[0], encoding="utf-8") as file:
        return file.read()


def row(text, name):
    """The cells of a phase in the table of results."""
    lines = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    assert len(lines) == 1, text
    return [cell.strip() for cell in lines[0].strip("|").split("|")]


def wait_for(what, condition, limit_s=60):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {limit_s} s"
        time.sleep(0.02)


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def pid_in(path):
    with open(path, encoding="ascii") as file:
        return int(file.read())


def a_hung_phase_is_ended_and_results_are_written(folder):
    child = os.path.join(folder, "child")
    suite = start(folder, [
        {"name": "device", "argv": PASS}, {"name": "bad", "argv": FAIL}, {"name": "skips", "argv": SKIP},
        {"name": "hangs", "argv": ["sh", "-c", f"sleep 300 & echo $! > {child}; wait"], "limit_s": 1},
        {"name": "gone", "argv": ["/nonexistent/program"]}, {"name": "good", "argv": PASS, "alone": True},
        {"name": "late", "argv": PASS, "alone": True, "least_s": 400, "limit_s": 400},
        {"name": "left-out", "argv": FAIL}], "--skip", "left-out", "--budget", "300")
    said = suite.communicate(timeout=120)[0]
    assert suite.returncode == 1, said
    text = results(folder)
    outcome = {name: row(text, name)[2] for name in ("device", "bad", "skips", "hangs", "gone", "good", "late")}
    assert outcome == {"device": "passed", "bad": "failed", "skips": "not run: cannot here", "hangs": "failed", "gone": "failed",
                       "good": "passed", "late": "not run: no time left"}, text
    assert row(text, "good")[4] == "42 images" and row(text, "bad")[4] == "exit code 3", text
    assert row(text, "hangs")[4] == "over its limit of 1 s" and row(text, "skips")[4] == "no such tool", text
    assert "left-out" not in text and "- commit: " in text and "- device: a test" in text, text
    assert "## bad: failed" in text and "    what went wrong | here" in text, text
    with open(glob.glob(os.path.join(folder, "*-gpu-logs.txt"))[0], encoding="utf-8") as logs:
        assert "==== bad\nwhat went wrong | here" in logs.read()
    wait_for("the end of the hung phase's child", lambda: is_gone(pid_in(child)))


def sigterm_ends_the_phase_and_keeps_the_results(folder):
    """As when the time on a lent machine is over."""
    begun = os.path.join(folder, "begun")
    wait = ["sh", "-c", f"echo $$ > {begun}.new; mv {begun}.new {begun}; sleep 60"]
    suite = start(folder, [{"name": "one", "argv": PASS}, {"name": "two", "argv": wait, "alone": True}])
    wait_for("the second phase", lambda: os.path.exists(begun))
    suite.terminate()
    suite.communicate(timeout=60)
    assert suite.returncode == 143, suite.returncode
    assert not os.listdir(os.path.join(folder, "temp")), "temporary files are left"
    assert is_gone(pid_in(begun)), "the phase still runs"
    text = results(folder)
    assert row(text, "one")[2] == "passed" and row(text, "two")[2] == "not run: no time left", text


def without_a_gpu_nothing_is_tried(folder):
    mark = os.path.join(folder, "tried")
    suite = start(folder, [{"name": "device", "argv": SKIP}, {"name": "other", "argv": ["touch", mark]}])
    said = suite.communicate(timeout=60)[0]
    assert suite.returncode == 77 and not os.path.exists(mark), said


def main():
    for test in (a_hung_phase_is_ended_and_results_are_written, sigterm_ends_the_phase_and_keeps_the_results,
                 without_a_gpu_nothing_is_tried):
        with tempfile.TemporaryDirectory(prefix="ddp-suite-") as folder:
            test(folder)
            print(f"ok {test.__name__}", flush=True)


if __name__ == "__main__":
    main()
