"""A short form of the comparison of DataParallel and DDP in docs/recipes.md. usage: compare_test.py BUILD"""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from full_disk import run_tests  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "docs", "examples", "compare-parallel.py")


def run(*words):
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, timeout=600, check=False)


def check(condition, done):
    assert condition, f"exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def test_table_and_plot(folder):
    done = run("--bin", BUILD, "-o", folder, "-n", "2", "-b", "20", "--epochs", "1", "--device", "cpu", "--", "--max-steps", "6", "-p", "2")
    check(done.returncode == 0, done)
    with open(os.path.join(folder, "parallel.md"), encoding="utf-8") as file:
        rows = [[cell.strip() for cell in line.strip(" |\n").split("|")] for line in file if line.startswith("| ")]
    named = [(row[0], row[1], row[2], row[3]) for row in rows[1:]]
    check(named == [("one process", "1", "20", "6"), ("DataParallel, 2 replicas", "1", "20", "6"), ("DataParallel, 2 replicas", "1", "40", "6"),
                    ("DDP, 2 ranks", "2", "40", "6")], done)
    check(rows[1][5] == "1.00" and all(float(row[4]) > 0 and float(row[6]) > 0 and 0 <= float(row[7]) <= 100 for row in rows[1:]), done)
    tree = xml.parse(os.path.join(folder, "parallel.svg"))
    bars = tree.findall("{http://www.w3.org/2000/svg}rect")
    widths = [float(bar.get("width")) for bar in bars]
    rates = [float(row[4]) for row in rows[1:]]
    check(len(bars) == 4 and rates[widths.index(max(widths))] == max(rates), done)  # the rates are rounded, so two may be equal


def test_failures_have_words(folder):
    done = run("--bin", folder)
    check(done.returncode == 1 and f"ddp-worker is not in {folder}" in done.stderr, done)
    done = run("--bin", BUILD, "-o", folder, "--device", "cpu", "--", "--no-such-option")
    check(done.returncode == 1 and "--no-such-option" in done.stderr and "one process failed: exit code 2" in done.stderr, done)


def test_ranks_are_refused(_folder):
    worker, ctl = os.path.join(BUILD, "worker", "ddp-worker"), os.path.join(BUILD, "ddpctl", "ddpctl")
    done = subprocess.run([ctl, "run", "--standalone", "--max-restarts", "0", "--nproc-per-node", "2", "--", worker, "--device", "cpu", "--max-steps",
                           "2", "--data-parallel", "2"], capture_output=True, text=True, timeout=300, check=False)
    check(done.returncode != 0 and re.search("--data-parallel 2 is for one process, and here are 2 ranks", done.stdout + done.stderr), done)


run_tests(dict(globals()), "ddp-compare-")
