"""What nvidia-smi says of the GPU: memory in use, processes; and the wait until it is as it was."""
import ctypes
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.waiting import Stopwatch, let_pass, wait_for  # noqa: E402

FREE_WITHIN_S = 5.0  # what launcherd allows, too
SLACK_MIB = 64


def hold_driver():
    """While nobody has the driver open it may unload, and then takes seconds for each answer."""
    try:
        return ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2()
    except (OSError, AttributeError):
        return None


hold_driver()


def ask(query, kind="gpu"):
    done = subprocess.run(["nvidia-smi", f"--query-{kind}={query}", "--format=csv,noheader,nounits", "-i", "0"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise OSError(f"nvidia-smi: exit code {done.returncode}: {done.stdout.strip()[-300:]}")
    return [[field.strip() for field in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def used_mib():
    return int(float(ask("memory.used")[0][0]))


def processes():
    """[(pid, MiB)] as text: a container may hide the numbers."""
    return [tuple(line) for line in ask("pid,used_memory", "compute-apps") if line[0].isdigit()]


class Baseline:
    """The GPU while nobody of ours is on it."""

    def __init__(self):
        self.settle()
        self.processes = {pid for pid, _ in processes()}

    def settle(self):
        """The smallest of some looks: what came before may just be leaving."""
        watch = Stopwatch()
        self.mib = used_mib()
        still = 0
        while still < 3 and watch.passed_s < FREE_WITHIN_S:
            let_pass(0.2)
            now = used_mib()
            still = still + 1 if now >= self.mib else 0
            self.mib = min(self.mib, now)

    def strangers(self):
        return [entry for entry in processes() if entry[0] not in self.processes]

    def seconds_until_back(self, limit_s=FREE_WITHIN_S):
        """How long until memory and processes are those of the baseline; None: they are not."""
        watch = Stopwatch()
        try:
            wait_for("the GPU as it was", lambda: used_mib() <= self.mib + SLACK_MIB and not self.strangers(), limit_s)
        except AssertionError:
            return None
        return watch.passed_s
