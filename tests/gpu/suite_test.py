#!/usr/bin/env python3
"""Smoke test of tests/gpu/run on small phases of its own. usage: suite_test.py BUILD

The real phases run on the stand-in GPU in standin_test.py."""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import first_hour  # noqa: E402
import suite  # noqa: E402
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


FAKE_RUN = '''#!/bin/sh
echo "$@" >>"$FAKE_LOG"
case $* in *bench*) [ -e "$FAKE_LOG.cut" ] && { rm "$FAKE_LOG.cut"; kill -9 $$; } ;; esac
case $* in *resume*) exit 1 ;; esac
'''


def the_first_hour_goes_on_where_it_was_cut(folder):
    """Call 2 is killed in the middle, as when a lent machine is taken back."""
    fake, log = os.path.join(folder, "run"), os.path.join(folder, "log")
    with open(fake, "w", encoding="utf-8") as file:
        file.write(FAKE_RUN)
    os.chmod(fake, 0o755)
    with open(log + ".cut", "w", encoding="ascii"):
        pass
    first_hour.RUN = fake
    os.environ["FAKE_LOG"] = log
    options = argparse.Namespace(build="/b", out=os.path.join(folder, "out"), next=False, call=None)
    codes = [first_hour.run_all(options), first_hour.run_all(options), first_hour.run_all(options)]
    options.call = 1
    codes.append(first_hour.run_all(options))
    assert codes == [128 + 9, 1, 0, 0], codes
    with open(log, encoding="utf-8") as file:
        only = [line.split(" --only ")[1].strip() for line in file]
    calls = [",".join(call.phases) for call in first_hour.CALLS]
    assert only == [calls[0], calls[1], calls[1], calls[2], calls[3], calls[0]], only


def the_first_hour_fits(_folder):
    """Its phases are there, and all of it takes half an hour of calls of ten minutes at most."""
    known = {phase.name: phase for phase in suite.phases_of("", "", "", 0)}
    assert sum(call.minutes for call in first_hour.CALLS) <= 30 and max(call.minutes for call in first_hour.CALLS) <= 10
    for call in first_hour.CALLS:
        alone = sum(known[name].limit_s for name in call.phases if known[name].alone and name != "bench")
        assert call.phases[0] == "device" and alone <= 60 * call.minutes + 60, call
    assert known["launcher"].limit_s == 90 and "every-plan" not in known and suite.SIDE_BY_SIDE <= 2
    for name in ("net", "torch", "train", "resume", "ranks", "kill", "launcher"):
        assert known[name].env["DDP_CUDA_CANDIDATES"] == "1", name
    assert "DDP_CUDA_CANDIDATES" not in known["bench"].env


# As ncu --csv prints it (Nsight Compute's manual, "Command Line Options", --csv), with the lines of the program before it.
NCU = '''==PROF== Connected to process 7
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","7","ddp-worker","h","bn_bw_1(int)","1","13","(1,1,1)","(1,1,1)","0","9.0","Command line profiler metrics","dram__bytes.sum","Gbyte","1.25"
"0","7","ddp-worker","h","bn_bw_1(int)","1","13","(1,1,1)","(1,1,1)","0","9.0","Command line profiler metrics","gpu__time_duration.sum","us","312.50"
"1","7","ddp-worker","h","wgrad_x","1","13","(1,1,1)","(1,1,1)","0","9.0","Command line profiler metrics","gpu__time_duration.sum","nsecond","1,500"
"1","7","ddp-worker","h","wgrad_x","1","13","(1,1,1)","(1,1,1)","0","9.0","Command line profiler metrics","sm__throughput.avg.pct_of_peak_sustained_elapsed","%","61.00"
'''


def counters_are_read(_folder):
    sys.path.insert(0, os.path.join(HERE, "phases"))
    import ncu
    norm, wgrad = ncu.kernels_in(NCU)
    assert ncu.words_of(*norm) == "bn_bw_1: 312.5 us, 1.250 GB, ", ncu.words_of(*norm)
    assert "1.5 us" in ncu.words_of(*wgrad) and "61 % of arithmetic" in ncu.words_of(*wgrad), ncu.words_of(*wgrad)
    assert not ncu.kernels_in("no kernels")


def the_byte_budget_is_the_page_s(_folder):
    assert subprocess.run([sys.executable, os.path.join(HERE, "budget.py"), "check"], check=False).returncode == 0


def main():
    for test in (a_hung_phase_is_ended_and_results_are_written, sigterm_ends_the_phase_and_keeps_the_results,
                 without_a_gpu_nothing_is_tried,
                 the_first_hour_goes_on_where_it_was_cut, the_first_hour_fits, counters_are_read, the_byte_budget_is_the_page_s):
        with tempfile.TemporaryDirectory(prefix="ddp-suite-") as folder:
            test(folder)
            print(f"ok {test.__name__}", flush=True)


if __name__ == "__main__":
    main()
