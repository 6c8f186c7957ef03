"""The programs of the release before this version, built from its commit.

docs/releases.md lists the releases. They are built once for a build folder, and kept in BUILD/tests/integration/versions."""

import fcntl
import os
import re
import shutil
import subprocess
import sys

from processes.waiting import Stopwatch

SKIPPED = 77
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
TARGETS = ["rendezvous/rendezvous", "launcherd/launcherd", "ddpctl/ddpctl", "worker/ddp-worker"]
# Quick to compile, and it runs as fast as it needs to. Without debug information a compiler cache finds every object again.
OPTIONS = ["-Dtests=false", "-Dcuda=disabled", "-Doptimization=1", "-Ddebug=false", "-Dwerror=false"]


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def newest():
    """Version and commit of the newest release of another version than this one."""
    this = re.search(r"^  version: '([^']+)'", read("meson.build"), re.MULTILINE).group(1)
    rows = re.findall(r"^\| ([0-9.]+) \| \d+ \| ([0-9a-f]{40}) \|$", read("docs/releases.md"), re.MULTILINE)
    return [row for row in rows if row[0] != this][-1]


def git(*args):
    return ["git", "-c", "safe.directory=*", "-C", ROOT, *args]


def is_known(commit):
    try:
        return subprocess.run(git("cat-file", "-e", commit + "^{commit}"), capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def run(log, *command, **more):
    if subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False, **more).returncode != 0:
        raise AssertionError(f"{' '.join(command)} failed: see {log.name}")


def make(folder, commit):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder + "/source")
    with open(folder + "/build.log", "wb") as log:
        with subprocess.Popen(git("archive", commit), stdout=subprocess.PIPE) as archive:
            run(log, "tar", "-x", "-C", folder + "/source", stdin=archive.stdout)
        assert archive.returncode == 0, f"git archive {commit}: {archive.returncode}"
        run(log, "meson", "setup", folder + "/build", folder + "/source", *OPTIONS)
        run(log, "ninja", "-C", folder + "/build", *TARGETS)
    with open(folder + "/done", "w", encoding="utf-8"):
        pass


def programs(build):
    """The release's build folder. Ends the test as skipped where git does not have its commit, as in a source archive."""
    version, commit = newest()
    folder = f"{os.path.abspath(build)}/tests/integration/versions/release-{version}-{commit[:12]}"
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(folder + ".lock", "wb") as lock:  # two tests may want it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(folder + "/done"):
            if not is_known(commit) or shutil.which("meson") is None or shutil.which("ninja") is None:
                print(f"skipped: release {version} cannot be built: meson, ninja and git with commit {commit} are needed")
                sys.exit(SKIPPED)
            watch = Stopwatch()
            make(folder, commit)
            print(f"release {version} was built in {watch.passed_s:.0f} s", flush=True)
    return folder + "/build"
