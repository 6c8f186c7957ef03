"""The results file of tests/gpu/run: one table, then the end of each failed phase's output."""
import dataclasses
import datetime
import os
import subprocess

PASSED, FAILED, CANNOT, NO_TIME = "passed", "failed", "not run: cannot here", "not run: no time left"


@dataclasses.dataclass
class Row:
    name: str
    words: str
    result: str
    seconds: float
    figure: str
    tail: str


def commit_of(build):
    """The commit that was built, where tests/gpu/pack wrote it down; else that of the tree."""
    try:
        with open(os.path.join(build, "commit"), encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        pass
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    try:
        done = subprocess.run(["git", "-C", root, "describe", "--always", "--dirty", "--abbrev=10", "--exclude", "*"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def today():
    return datetime.date.today().isoformat()


def new_stem(folder):
    """DATE-gpu, or with a number after it where that file exists."""
    stem, number = f"{today()}-gpu", 1
    while os.path.exists(os.path.join(folder, f"{stem}.md")):
        number += 1
        stem = f"{today()}-gpu-{number}"
    return stem


def cell(text):
    return " ".join(text.replace("|", "/").split())


def count(rows, result):
    return sum(row.result == result for row in rows)


def text_of(rows, facts, budget_s):
    lines = [f"# GPU suite, {today()}", "", *[f"- {cell(name)}: {cell(value)}" for name, value in facts], "",
             f"`tests/gpu/run`, budget {budget_s:.0f} s: {count(rows, PASSED)} passed, {count(rows, FAILED)} failed, "
             f"{count(rows, CANNOT) + count(rows, NO_TIME)} not run.", "",
             "| phase | what | result | s | figure |", "|---|---|---|---|---|"]
    lines += [f"| {row.name} | {cell(row.words)} | {row.result} | {row.seconds:.1f} | {cell(row.figure)} |" for row in rows]
    for row in rows:
        if row.result == FAILED or (row.result == NO_TIME and row.tail):
            tail = "".join(c if c.isprintable() or c == "\n" else "?" for c in row.tail).strip()
            lines += ["", f"## {row.name}: {row.result}", "", *["    " + line for line in tail.splitlines()[-60:]]]
    return "\n".join(lines) + "\n"


def exit_code(rows):
    if count(rows, FAILED) + count(rows, NO_TIME) > 0:
        return 1
    return 0 if count(rows, PASSED) > 0 else 77
