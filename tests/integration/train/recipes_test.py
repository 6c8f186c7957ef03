"""Runs every command line of docs/recipes.md as it is written there. usage: recipes_test.py BUILD

The page itself has the table of words that are replaced so that a line takes only seconds. The commands of a section must print the
output that the section shows, except for numbers."""
import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *3 * [".."]))
sys.path.insert(0, os.path.join(ROOT, "tests", "lib"))
import small_data  # noqa: E402
import small_pictures  # noqa: E402
from processes.waiting import Stopwatch  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
PROGRAMS = ("ddpctl", "ddp-worker", "docs/examples/compare-parallel.py")
SETS = {"~/mnist": lambda folder: small_data.write_data(folder, 512), "~/imagenet": small_pictures.write_folder}
LEAVES = {"ResNet-50 on a folder of pictures": ("ckpt/r50/best.safetensors", "runs/r50/events.out.*"),
          "ResNet with OneCycle on two nodes": ("ckpt/onecycle/best.json", "runs/onecycle/events.out.*"),
          "DataParallel against DDP": ("parallel.md", "parallel.svg")}
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": os.pathsep.join(
    [*(os.path.join(BUILD, name) for name in ("ddpctl", "launcherd", "rendezvous", "worker")), os.environ["PATH"]])}


def sections():
    """(title, lines to run, lines that are printed), and the table."""
    with open(os.path.join(ROOT, "docs", "recipes.md"), encoding="utf-8") as file:
        parts = re.split(r"^## (.*)\n", file.read(), flags=re.M)[1:]
    found, table = [], None
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        if title == "Short forms":
            table = re.findall(r"^\| `(.*?)` \| (.*?) \|$", text, re.M)
            continue
        shown = re.findall(r"^    (\S.*)$", text, re.M)
        lines = [line for line in shown if line.split()[0] in PROGRAMS]
        assert lines, f"no line to run under: {title}"
        found.append((title, lines, [line for line in shown if line not in lines and line != "..."]))
    assert found and table, "docs/recipes.md has no sections or no table of short forms"
    return found, table



class Table:
    """If several rows match at a position, the longest one is used; replaced text is not replaced again."""

    def __init__(self, rows, folder):
        self.rows = sorted(((shlex.split(left), left, self.value(left, right, folder)) for left, right in rows), key=lambda row: -len(row[0]))
        self.unused = {left for _, left, _ in self.rows}

    @staticmethod
    def value(left, right, folder):
        if left in SETS:
            return [SETS[left](os.path.join(folder, left[2:]))]
        assert right[0] == right[-1] == "`", right
        return [BUILD if word == "BUILD" else word for word in shlex.split(right[1:-1])]

    def short(self, line):
        words, done = shlex.split(line), []
        while words:
            part, left, value = next((row for row in self.rows if words[:len(row[0])] == row[0]), (words[:1], None, words[:1]))
            self.unused.discard(left)
            done += value
            words = words[len(part):]
        assert not any(word.startswith("~") for word in done), f"the table has no data for: {line}"
        return [os.path.join(ROOT, word) if word.startswith("docs/") else word for word in done]


def run(words, folder):
    watch = Stopwatch()
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False, env=ENV, cwd=folder)
    assert done.returncode == 0, f"{shlex.join(words)}\nexit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    print(f"ok {watch.passed_s:.1f} s: {shlex.join(words)}", flush=True)
    return done.stdout.splitlines()


def shape(line):
    return re.sub(r"-?\b\d[\d.:e+-]*", "#", re.sub(r"^ *\d+ \S+ \| ", "", line))


def main():
    found, rows = sections()
    assert set(LEAVES) <= {title for title, _, _ in found}, "a section has another title"
    with tempfile.TemporaryDirectory(prefix="ddp-recipes-") as folder:
        table = Table(rows, folder)
        for title, lines, printed in found:
            got = [shape(line) for words in map(table.short, lines) for line in run(words, folder)]
            for line in printed:
                assert shape(line) in got, f"{title}: not printed: {line}\n" + "\n".join(got)
            for name in LEAVES.get(title, ()):
                assert glob.glob(os.path.join(folder, name)), f"{title}: no file {name}"
        assert not table.unused, f"short forms that no line has: {table.unused}"


main()
