#!/usr/bin/env python3
"""Phases of tests/gpu/run on the stand-in GPU: when there is a real one, only the GPU is new.
usage: standin_test.py BUILD PHASE,..."""
import glob
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "standin"))
sys.path.insert(0, os.path.join(HERE, "..", "pytorch"))
import pytorch  # noqa: E402
import standin  # noqa: E402


def main():
    build, names = os.path.abspath(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory(prefix="ddp-standin-") as folder, standin.Nvml(folder):
        environ = standin.environ(build, folder)
        if names == "torch":
            environ["PATH"] = os.path.dirname(pytorch.python_or_skip()) + os.pathsep + environ["PATH"]
        done = subprocess.run([os.path.join(HERE, "run"), build, "--out", folder, "--only", names, "--budget", "500"], env=environ,
                              timeout=550, check=False)
        if done.returncode != 0:
            for path in glob.glob(os.path.join(folder, "*-logs.txt")):
                with open(path, encoding="utf-8", errors="replace") as log:
                    print(log.read())
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
