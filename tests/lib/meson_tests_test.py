#!/usr/bin/env python3
"""Tests which failures are run again and how the last line counts them, with logs in the form that `meson test` writes."""
import json
import os
import subprocess
import sys
import tempfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "meson_tests.py")


def write(build, log, results):
    os.makedirs(f"{build}/meson-logs", exist_ok=True)
    with open(f"{build}/meson-logs/{log}.json", "w", encoding="utf-8") as file:
        for name, result in results.items():
            said = "not ok early: why\n" + "".join(f"line {i}\n" for i in range(20))
            file.write(json.dumps({"name": name, "result": result, "stdout": said, "stderr": "the error\n"}) + "\n")


def ask(verb, build):
    done = subprocess.run([sys.executable, SCRIPT, verb, build], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def check(first, names, second, code, count, named=()):
    with tempfile.TemporaryDirectory(prefix="ddp-counts-") as build:
        write(build, "testlog", first)
        assert ask("again", build)[1].split() == names, (first, ask("again", build))
        if second is not None:
            write(build, "again", second)
        got, said = ask("summary", build)
        assert (got, said.splitlines()[-1]) == (code, count), (first, second, got, said)
        for line in named:
            assert line in said, (line, said)


def main():
    fine = {"ddp:unit+quick / core": "OK", "ddp:gpu / gpu": "SKIP", "ddp:unit / known": "EXPECTEDFAIL"}
    node, wait = "ddp:integration / node", "ddp:integration+quick / ctl-wait"
    check(fine, [], None, 0, "2 passed, 0 failed, 1 skipped")
    check({**fine, node: "FAIL"}, ["node"], None, 1, "2 passed, 1 failed, 1 skipped", ["Failed:", f"{node}: FAIL", "    not ok early: why\n    line 8\n", "    line 19\n    the error\n"])
    check({**fine, node: "TIMEOUT", wait: "FAIL"}, ["node", "ctl-wait"], {node: "OK", wait: "FAIL"}, 1,
          "3 passed, 1 failed, 1 skipped", ["Failed, then passed alone:", f"{node}: TIMEOUT at first", f"{wait}: FAIL, log"])
    check({**fine, node: "ERROR"}, ["node"], {node: "OK"}, 0, "3 passed, 0 failed, 1 skipped",
          ["Failed, then passed alone:", f"{node}: ERROR at first"])
    # A test that was skipped or did not end in its second run has not passed.
    check({**fine, node: "FAIL"}, ["node"], {node: "SKIP"}, 1, "2 passed, 1 failed, 1 skipped")
    # Unit tests, simulations and lints give the same result each time, so they do not run again. Nor do many failures at once: they have one cause.
    check({**fine, node: "FAIL", "ddp:unit+quick / queue": "FAIL"}, [], None, 1, "2 passed, 2 failed, 1 skipped")
    check({**fine, "ddp:sim / sim": "FAIL"}, [], None, 1, "2 passed, 1 failed, 1 skipped")
    check({**fine, **{f"ddp:integration / n{i}": "FAIL" for i in range(4)}}, [], None, 1, "2 passed, 4 failed, 1 skipped")
    print("ok")


if __name__ == "__main__":
    main()
