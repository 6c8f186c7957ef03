#!/usr/bin/env python3
"""A GPU whose teardown hangs: the worker ends all the same, within its deadline and with the exit code of its work.
usage: teardown_test.py BUILD"""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "gpu", "standin"))
sys.path.insert(0, os.path.join(HERE, "..", "..", "lib"))
import standin  # noqa: E402
from processes.waiting import Stopwatch  # noqa: E402

HANG_S = 120
WITHIN_S = 60  # ddp-worker's own deadline is 8


def main():
    build = os.path.abspath(sys.argv[1])
    cases = {
        "a training that is complete": (["--max-steps", "1"], 0),
        "one that fails when its net is made": (["--max-steps", "1", "--resume", "/nonexistent/step-00000001.json"], 1),
    }
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ddp-teardown-") as folder:
        environ = standin.environ(build, folder, STANDIN_RESET_MS=str(HANG_S * 1000), STANDIN_BUILD_MS="0")
        watch = Stopwatch()
        workers = {name: subprocess.Popen([os.path.join(build, "worker", "ddp-worker"), "--device", "cuda", "--dummy", "--image-size", "12",
                                           "-b", "4", *args], env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                   for name, (args, _) in cases.items()}
        for name, worker in workers.items():
            try:
                said, _ = worker.communicate(timeout=WITHIN_S)
            except subprocess.TimeoutExpired:
                worker.kill()
                said, _ = worker.communicate()
            took = watch.passed_s
            good = worker.returncode == cases[name][1]
            failed += not good
            print(f"{'ok' if good else 'not ok'} {name}: exit code {worker.returncode} after {took:.1f} s of a GPU's {HANG_S} s")
            if not good:
                print(said[-1000:])
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
