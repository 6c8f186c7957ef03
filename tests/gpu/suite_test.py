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

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import bench  # noqa: E402
import calls  # noqa: E402
import marking  # noqa: E402
import suite  # noqa: E402
from processes.waiting import wait_for  # noqa: E402
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
        {"name": "hangs", "argv": ["sh", "-c", f"setsid sh -c 'echo $$ > {child}; exec sleep 300' & wait"], "limit_s": 1},
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
    assert is_gone(pid_in(child)), "what the hung phase started in a session of its own still runs"


# A daemon: another session, another parent, and the environment of its own.
DAEMON = """import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1], "w") as file:
            file.write(str(os.getpid()))
        os.execvp("sleep", ["sleep", "300"])
    os._exit(0)
os.wait()
print("left", flush=True)
os.execvpe("sh", ["sh", "-c", "env -i sleep 300 & echo $!; wait"], os.environ)
"""


def all_that_a_program_started_is_ended(folder):
    note = os.path.join(folder, "daemon")
    environ, mark = marking.marked(os.environ)
    other, _ = marking.marked(os.environ)
    bystander = subprocess.Popen(["sleep", "300"], env=other)
    program = subprocess.Popen([sys.executable, "-c", DAEMON, note], env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout.readline() == "left\n"
        bare = int(program.stdout.readline())
        wait_for("the daemon", lambda: os.path.exists(note) and open(note, encoding="ascii").read())
        wait_for("all four", lambda: {program.pid, bare, pid_in(note)} <= set(marking.alive(mark)))
        assert not marking.end(mark)
        program.wait()
        assert is_gone(bare) and is_gone(pid_in(note)) and bystander.poll() is None
    finally:
        marking.end(mark)
        program.stdout.close()
        bystander.kill()
        bystander.wait()


def the_budget_cuts_the_least_valuable(folder):
    """Before anything runs, and the results name them."""
    phases = [{"name": "device", "argv": PASS, "estimate_s": 5}, {"name": "first", "argv": PASS, "estimate_s": 50, "alone": True},
              {"name": "second", "argv": PASS, "estimate_s": 60, "alone": True}, {"name": "third", "argv": PASS, "estimate_s": 10, "alone": True}]
    suite = start(folder, phases, "--budget", "100")
    said = suite.communicate(timeout=60)[0]
    assert suite.returncode == 1 and said.index("second: cut") < said.index("-- device: about"), said
    text = results(folder)
    outcome = {name: row(text, name)[2] for name in ("first", "second", "third")}
    assert outcome == {"first": "passed", "second": "not run: no time left", "third": "passed"}, text
    assert row(text, "second")[4] == "cut: takes about 60 s", text


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
case $* in *kill*) exit 1 ;; esac
'''


def calls_go_on_where_they_were_cut(folder):
    """Call 1 is killed in the middle, as when a rented machine is taken back."""
    fake, log = os.path.join(folder, "run"), os.path.join(folder, "log")
    with open(fake, "w", encoding="utf-8") as file:
        file.write(FAKE_RUN)
    os.chmod(fake, 0o755)
    with open(log + ".cut", "w", encoding="ascii"):
        pass
    calls.RUN = fake
    os.environ["FAKE_LOG"] = log
    options = argparse.Namespace(build="/b", out=os.path.join(folder, "out"), next=False, call=None, budget=200.0, nccl=None)
    codes = [calls.run_all(options), calls.run_all(options), calls.run_all(options)]
    options.call, options.nccl = 1, "/lib/libnccl.so.2"
    codes.append(calls.run_all(options))
    assert codes == [128 + 9, 1, 0, 0], codes
    with open(log, encoding="utf-8") as file:
        ran = [line.split() for line in file]
    assert [words[-1] for words in ran] == [",".join(calls.CALLS[at].phases) for at in (0, 0, 1, 2, 0)], ran
    assert ["--nccl" in words for words in ran] == [False] * 4 + [True] and "/lib/libnccl.so.2" in ran[-1], ran
    assert all(words[words.index("--budget") + 1] == "170" for words in ran), ran


def the_calls_fit(_folder):
    """All, and two starts of a machine, into fifteen minutes; nothing of them is cut as long as the estimates hold."""
    known = {phase.name: phase for phase in suite.phases_of("", "", "", 0)}
    assert calls.BUDGET_S <= 360 and sum(call.budget_s for call in calls.CALLS) <= 15 * 60 - 60
    assert [call.phases[1:] for call in calls.CALLS][2] == ("nccl-pair",)
    for call in calls.CALLS:
        phases = [known[name] for name in call.phases]
        assert call.phases[0] == "device" and not suite.cut(phases, call.budget_s - calls.SPARE_S)[1], call
        assert list(call.phases) == [name for name in known if name in call.phases], "not in the order of their value"
    assert "every-plan" not in known and suite.SIDE_BY_SIDE <= 2
    assert [name for name in known if suite.takes_the_rest(known[name])] == ["bench"]
    assert [name for name in known if known[name].asked] == ["nccl-pair"]
    assert not suite.cut([phase for phase in known.values() if not phase.asked], 540)[1], "tests/gpu/run does not fit into its own time"
    for phase in known.values():
        assert 0 < phase.estimate_s <= phase.limit_s, phase
    given = {phase.name: phase.env.get("DDP_NCCL") for phase in suite.phases_of("", "", "", 0, "/lib/libnccl.so.2")}
    assert {name for name, file in given.items() if file} == {"device", "nccl-pair"} and given["nccl-pair"] == "/lib/libnccl.so.2", given
    for name in ("net", "torch", "train", "resume", "ranks", "kill", "term", "launcher", "nccl-pair"):
        assert known[name].env["DDP_CUDA_CANDIDATES"] == "1", name
    assert "DDP_CUDA_CANDIDATES" not in known["bench"].env
    rows = [row.name for row in bench.ROWS]
    assert rows[:7] == ["cold", "cached", "as it is", "tuned", "pytorch fp16", "bf16", "pytorch bf16"], rows
    first = bench.ROWS[:rows.index("convnet captured") + 1]
    assert sum(row.estimate_s for row in first) <= calls.BUDGET_S - calls.SPARE_S - known["device"].estimate_s - bench.SPARE_S
    assert all(row.estimate_s <= row.limit_s for row in bench.ROWS)


def tolerances_follow_pytorch(_folder):
    """Where its distances are known, and never below what both CPUs need."""
    sys.path.insert(0, os.path.join(HERE, "phases"))
    import common
    import train
    lines = '''{"model": "resnet18", "level": "O0", "off": 0.0003}
{"model": "convnet", "level": "O0", "off": 1e-07}
{"model": "convnet", "level": "O3", "why": "not for Half"}
{"model": "toynet", "lev'''  # killed while it wrote
    found, why = train.distances_in(lines)
    assert len(found) == 2 and why == "convnet O3: not for Half", (found, why)
    assert train.allowed(found, "resnet18", "O0")[0] == 4 * 0.0003 > common.TOLERANCES["O0"]
    for model, level in (("convnet", "O0"), ("toynet", "O2"), ("convnet", "O3")):
        assert train.allowed(found, model, level)[0] == common.TOLERANCES[level], (model, level)
    assert train.allowed({("convnet", "O0"): float("nan")}, "convnet", "O0")[0] == common.TOLERANCES["O0"]


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
                 all_that_a_program_started_is_ended, the_budget_cuts_the_least_valuable, calls_go_on_where_they_were_cut, the_calls_fit,
                 tolerances_follow_pytorch, counters_are_read, the_byte_budget_is_the_page_s):
        with tempfile.TemporaryDirectory(prefix="ddp-suite-") as folder:
            test(folder)
            print(f"ok {test.__name__}", flush=True)


if __name__ == "__main__":
    main()
