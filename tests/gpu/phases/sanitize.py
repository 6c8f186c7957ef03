"""compute-sanitizer over the kernels' tests. usage: sanitize.py BUILD memcheck|racecheck"""
import os
import shutil
import subprocess
import sys

import common

SHARED_MEMORY = ["loss", "columns", "norm_chain", "clip_every_way", "adam", "lars"]  # what racecheck is about
LINES = 400


def main():
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        print("skip: no compute-sanitizer in PATH")
        return 77
    program = os.path.join(common.BUILD, "tests", "gpu", "test-gpu-kernels")
    names = SHARED_MEMORY if sys.argv[2] == "racecheck" else []
    done = subprocess.run([tool, "--tool", sys.argv[2], "--error-exitcode", "9", program, *names], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, errors="replace", check=False)
    lines = done.stdout.splitlines()
    print("\n".join(lines[-LINES:]))
    if "Device not supported" in done.stdout:
        print("skip: compute-sanitizer does not support this machine")
        return 77
    if done.returncode != 0:
        print(f"compute-sanitizer --tool {sys.argv[2]}: exit code {done.returncode}")
        return 1
    summaries = [line.lstrip("= ") for line in lines if "SUMMARY" in line]
    if not summaries or not any(line.startswith("ok ") for line in lines):
        print("no summary, or no test ran")
        return 1
    common.figure(summaries[-1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
