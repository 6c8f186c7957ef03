#!/usr/bin/env python3
"""tests/gpu/run on phases of the test's own: one fails, one hangs, one skips, one has no time left. usage: suite_test.py BUILD"""
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PASS = ["sh", "-c", "echo figure: 42 images; echo 'fact: device: a test'; exit 0"]
FAIL = ["sh", "-c", "echo 'what went wrong | here'; exit 3"]
SKIP = ["sh", "-c", "echo skip: no such tool; exit 77"]


def run(folder, phases, *args):
    """(exit code, the results file, what was printed)."""
    path = os.path.join(folder, "phases.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump([{"words": f"about {phase['name']}", "limit_s": 60, **phase} for phase in phases], file)
    done = subprocess.run([os.path.join(HERE, "run"), folder, "--out", folder, "--phases", path, *args], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200, check=False)
    files = sorted(glob.glob(os.path.join(folder, "*-gpu.md")))
    text = ""
    for file in files:
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
        os.remove(file)
    return done.returncode, text, done.stdout


def row(text, name):
    """The cells of a phase."""
    lines = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    assert len(lines) == 1, text
    return [cell.strip() for cell in lines[0].strip("|").split("|")]


def all_passed(folder):
    counts = ["sh", "-c", "echo ok one; echo '1 passed, 0 failed, 2 skipped'"]
    code, text, said = run(folder, [{"name": "device", "argv": PASS}, {"name": "two", "argv": PASS, "alone": True},
                                    {"name": "three", "argv": counts}])
    assert code == 0, said
    assert row(text, "three")[4] == "1 passed, 0 failed, 2 skipped", text
    assert row(text, "two")[2] == "passed" and row(text, "two")[4] == "42 images", text
    assert "3 passed, 0 failed, 0 not run" in text and "- commit: " in text and "- device: a test" in text, text
    assert "- seed of random inputs: " in text, text


def a_failure_stops_nothing(folder):
    code, text, said = run(folder, [{"name": "bad", "argv": FAIL}, {"name": "gone", "argv": ["/nonexistent/program"]},
                                    {"name": "skips", "argv": SKIP}, {"name": "good", "argv": PASS, "alone": True}])
    assert code == 1, said
    assert [row(text, name)[2] for name in ("bad", "gone", "skips", "good")] == ["failed", "failed", "not run: cannot here",
                                                                               "passed"], text
    assert row(text, "bad")[4] == "exit code 3" and row(text, "skips")[4] == "no such tool", text
    assert "## bad: failed" in text and "    what went wrong | here" in text and "## good" not in text, text
    assert "/nonexistent/program" in row(text, "gone")[4], text
    with open(glob.glob(os.path.join(folder, "*-gpu-logs.txt"))[0], encoding="utf-8") as logs:
        assert "==== bad\nwhat went wrong | here" in logs.read()


def a_hang_is_killed_with_its_children(folder):
    mark = os.path.join(folder, "child")
    hang = ["sh", "-c", f"sleep 300 & echo $! > {mark}; wait"]
    begin = time.monotonic()
    code, text, said = run(folder, [{"name": "hangs", "argv": hang, "limit_s": 2}, {"name": "good", "argv": PASS, "alone": True}])
    assert code == 1 and time.monotonic() - begin < 60, said
    assert row(text, "hangs")[2] == "failed" and row(text, "hangs")[4] == "over its limit of 2 s", text
    assert row(text, "good")[2] == "passed", text
    with open(mark, encoding="ascii") as file:
        pid = int(file.read())
    end = time.monotonic() + 20
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:  # its reaper is somebody else
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] == "Z":
                    break
        except OSError:
            break
        time.sleep(0.02)
    else:
        assert not os.path.exists(f"/proc/{pid}"), "its child is left"


def no_time_left_is_no_pass(folder):
    slow = ["sh", "-c", "sleep 300"]
    code, text, said = run(folder, [{"name": "slow", "argv": slow, "alone": True}, {"name": "late", "argv": PASS, "alone": True}],
                           "--budget", "6")
    assert code == 1, said
    assert row(text, "slow")[2] == "not run: no time left" and "ended after" in row(text, "slow")[4], text
    assert row(text, "late")[2] == "not run: no time left" and row(text, "late")[3] == "0.0", text
    assert "0 passed, 0 failed, 2 not run" in text, text


def nothing_could_run(folder):
    code, text, said = run(folder, [{"name": "skips", "argv": SKIP}])
    assert code == 77, said
    assert row(text, "skips")[2] == "not run: cannot here", text


def what_is_done_is_kept(folder):
    """Somebody ends the suite itself, as a lent machine's limit does."""
    path, mark = os.path.join(folder, "phases.json"), os.path.join(folder, "begun")
    phases = [{"name": "one", "argv": PASS}, {"name": "two", "argv": ["sh", "-c", f"echo $$ > {mark}.new; mv {mark}.new {mark}; sleep 60"], "alone": True}]
    with open(path, "w", encoding="utf-8") as file:
        json.dump([{"words": "", "limit_s": 60, **phase} for phase in phases], file)
    temp = os.path.join(folder, "temp")
    os.mkdir(temp)
    suite = subprocess.Popen([os.path.join(HERE, "run"), folder, "--out", folder, "--phases", path], stdout=subprocess.DEVNULL,
                             env={**os.environ, "TMPDIR": temp})
    end = time.monotonic() + 60
    while not os.path.exists(mark) and time.monotonic() < end:
        time.sleep(0.02)
    suite.terminate()
    assert suite.wait(60) == 143
    assert not os.listdir(temp), os.listdir(temp)
    with open(mark, encoding="ascii") as file:
        assert not os.path.exists(f"/proc/{int(file.read())}"), "the phase is left"
    with open(glob.glob(os.path.join(folder, "*-gpu.md"))[0], encoding="utf-8") as file:
        text = file.read()
    assert row(text, "one")[2] == "passed" and row(text, "two")[2] == "not run: no time left", text


def without_a_card_nothing_is_tried(folder):
    mark = os.path.join(folder, "tried")
    code, text, said = run(folder, [{"name": "device", "argv": SKIP}, {"name": "other", "argv": ["touch", mark]}])
    assert code == 77 and not os.path.exists(mark), said
    assert row(text, "other")[2] == "not run: cannot here" and row(text, "other")[4] == "no such tool", text


def too_little_time_is_not_begun(folder):
    text = run(folder, [{"name": "bench", "argv": PASS, "limit_s": 400, "alone": True, "least_s": 60}], "--budget", "30")[1]
    assert row(text, "bench")[2] == "not run: no time left" and row(text, "bench")[3] == "0.0", text


def some_are_chosen(folder):
    phases = [{"name": name, "argv": PASS} for name in ("a", "b", "c")]
    text = run(folder, phases, "--only", "a,b", "--skip", "b")[1]
    assert row(text, "a") and "| b |" not in text and "| c |" not in text, text
    code, _, said = run(folder, phases, "--only", "d")
    assert code == 2 and "no phase d: there are a, b, c" in said, said
    code, text, said = run(folder, phases, "--list")
    assert code == 0 and not text and [line.split()[0] for line in said.splitlines()] == ["a", "b", "c"], said


def the_time_left_is_passed_on(folder):
    bench = {"name": "bench", "argv": ["sh", "-c", "echo figure: $0 s", "{seconds}"], "limit_s": 400, "alone": True}
    text = run(folder, [bench], "--budget", "50")[1]
    seconds = int(row(text, "bench")[4].split()[0])
    assert 30 <= seconds < 50, text


def main():
    failed = 0
    for test in (all_passed, a_failure_stops_nothing, a_hang_is_killed_with_its_children, no_time_left_is_no_pass,
                 nothing_could_run, what_is_done_is_kept, without_a_card_nothing_is_tried, too_little_time_is_not_begun, some_are_chosen, the_time_left_is_passed_on):
        with tempfile.TemporaryDirectory(prefix="ddp-suite-") as folder:
            try:
                test(folder)
                print(f"ok {test.__name__}", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"not ok {test.__name__}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
