#!/usr/bin/env python3
"""Tests what the last lines say, with logs in the form that `meson test` writes; which targets tests need; and seeds that are drawn."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ["BUILD_ROOT"]


def run(*words):
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def write(build, results, log="testlog"):
    os.makedirs(f"{build}/meson-logs", exist_ok=True)
    with open(f"{build}/meson-logs/{log}.json", "w", encoding="utf-8") as file:
        for name, result in results.items():
            said = "drawn: sim --from 7\nnot ok early: why\n" + "".join(f"line {i}\n" for i in range(20))
            file.write(json.dumps({"name": name, "result": result, "stdout": said, "stderr": "the error\n"}) + "\n")


def check(results, code, count, named=()):
    with tempfile.TemporaryDirectory(prefix="ddp-counts-") as build:
        if results is not None:
            write(build, results)
        got, said = run(f"{HERE}/meson_tests.py", "summary", build)
        assert (got, said.splitlines()[-1]) == (code, count), (results, got, said)
        for line in named:
            assert line in said, (line, said)


def check_again():
    """Three failures of suite integration run again, and what passes then counts as passed. A fourth, or one of another suite: none does."""
    wait, node = "ddp:integration / ctl-wait", "ddp:integration+quick / node"
    for more, names in (({}, "ctl-wait\nnode\n"), ({"ddp:unit / core": "FAIL"}, ""), ({f"ddp:integration / {i}": "FAIL" for i in (1, 2)}, "")):
        with tempfile.TemporaryDirectory(prefix="ddp-counts-") as build:
            write(build, {wait: "TIMEOUT", node: "FAIL", "ddp:unit / fine": "OK", **more})
            assert run(f"{HERE}/meson_tests.py", "again", build) == (0, names), more
            os.rename(f"{build}/meson-logs/testlog.json", f"{build}/first")
            write(build, {wait: "OK", node: "FAIL"})
            os.rename(f"{build}/meson-logs/testlog.json", f"{build}/meson-logs/again.json")
            os.rename(f"{build}/first", f"{build}/meson-logs/testlog.json")
            code, said = run(f"{HERE}/meson_tests.py", "summary", build)
            assert code == 1 and said.splitlines()[-1] == f"2 passed, {1 + len(more)} failed, 0 skipped", said
            assert "Failed, then passed alone:\n" in said and f"{wait}: TIMEOUT" in said, said


def check_logs():
    """A folder's tests may have run in two parts. A part without a log has not run."""
    with tempfile.TemporaryDirectory(prefix="ddp-counts-") as build:
        write(build, {"ddp:unit / fine": "OK"})
        code, said = run(f"{HERE}/meson_tests.py", "summary", build, f"{build}:idle")
        assert code == 1 and "no test ran for idle" in said and said.splitlines()[-1] == "1 passed, 1 failed, 0 skipped", said
        write(build, {"ddp:lint / lint": "FAIL"}, "idle")
        code, said = run(f"{HERE}/meson_tests.py", "summary", build, f"{build}:idle")
        assert code == 1 and "log in " + build + "/meson-logs/idle.txt" in said and said.splitlines()[-1] == "1 passed, 1 failed, 0 skipped", said


def check_hurry():
    """A process and the one that it started in a session of its own."""
    script = "exec 3<&0; setsid sh -c 'echo $$; read end <&3' & echo $$; wait"
    with subprocess.Popen(["chrt", "--idle", "0", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
        pids = [int(shell.stdout.readline()) for _ in range(2)]
        assert [os.sched_getscheduler(pid) for pid in pids] == [os.SCHED_IDLE] * 2
        assert run(f"{HERE}/meson_tests.py", "hurry", str(shell.pid)) == (0, "")
        assert [os.sched_getscheduler(pid) for pid in pids] == [os.SCHED_OTHER] * 2
        shell.stdin.close()


def check_targets():
    """The harness's test needs one program. Nobody needs it for the suite `lint`, whose tests need none."""
    harness = "tests/test-harness"
    assert run(f"{HERE}/meson_tests.py", "targets", BUILD, "harness") == (0, f"{harness}\n")
    assert harness in run(f"{HERE}/meson_tests.py", "targets", BUILD, "--suite", "gpu", "--suite", "plain")[1].split()
    for words in (["--suite", "lint"], ["--suite", "harness"], ["plain"], []):
        assert run(f"{HERE}/meson_tests.py", "targets", BUILD, *words) == (0, "\n"), words


def check_draws():
    seeds = set()
    for _ in range(3):
        code, said = run(f"{HERE}/draw_seed.py", "FIRST=SEED", sys.executable, "-c", "import os, sys; print(os.environ['FIRST'], *sys.argv[1:]); sys.exit(3)",
                         "--seed", "SEED", "SEEDS")
        drawn, printed = said.splitlines()
        seed = printed.split()[0]
        assert code == 3 and printed == f"{seed} --seed {seed} SEEDS" and seed.isdigit(), said
        assert drawn.startswith(f"drawn: FIRST={seed} ") and drawn.endswith(f" --seed {seed} SEEDS"), said
        seeds.add(seed)
    assert len(seeds) > 1, seeds


def main():
    fine = {"ddp:unit+quick / core": "OK", "ddp:gpu / gpu": "SKIP", "ddp:unit / known": "EXPECTEDFAIL"}
    node, wait = "ddp:integration / node", "ddp:integration+quick / ctl-wait"
    check(fine, 0, "2 passed, 0 failed, 1 skipped", ["Seeds drawn:", "ddp:unit+quick / core: sim --from 7"])
    check({**fine, node: "FAIL"}, 1, "2 passed, 1 failed, 1 skipped",
          ["Failed:", f"{node}: FAIL", "    not ok early: why\n    line 8\n", "    line 19\n    the error\n"])
    check({**fine, node: "TIMEOUT", wait: "ERROR"}, 1, "2 passed, 2 failed, 1 skipped", [f"{node}: TIMEOUT, log", f"{wait}: ERROR, log"])
    check({**fine, node: "INTERRUPT", wait: "UNEXPECTEDPASS"}, 1, "2 passed, 2 failed, 1 skipped")
    check(None, 1, "0 passed, 1 failed, 0 skipped", ["no test ran"])
    check_again()
    check_logs()
    check_hurry()
    check_targets()
    check_draws()
    print("ok")


if __name__ == "__main__":
    main()
