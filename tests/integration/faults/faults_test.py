"""Kills workers while a job trains. usage: faults_test.py BUILD [SEED]

10 jobs, each with one worker killed by SIGKILL at a random step: one restart, and the last checkpoint equals that of an undisturbed
run bit for bit. After it nothing is left: processes, sockets, run directories, temporary files."""

import contextlib
import glob
import hashlib
import os
import random
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from faults_lib import Cluster, is_alive, wait_until  # noqa: E402

LONG = 120  # half a second; kills come in the first half, while much is left
def train(cluster, name, steps=LONG, options=()):
    folder = f"{cluster.folder}/train-{name}"
    job = cluster.submit("--name", name, "--nodes", "2", "--nproc-per-node", "2", "--max-restarts", "3",
                         *options, "--", f"{cluster.build}/worker/ddp-worker", "-a", "convnet", "--dummy",
                         "-b", "20", "--lr", "0.01", "--momentum", "0.9", "--epochs", "1",
                         "--max-steps", str(steps), "--checkpoint-every", "10",
                         "--checkpoint-dir", folder, "--loss-log", f"{folder}.loss.%r")
    return job, folder


def wait_trained(cluster, job, folder, step, generation=1):
    """Waits until rank 0 has done that step. Its log shows each step at once; the job's progress is up to a second old."""
    def reached():
        try:
            with open(f"{folder}.loss.0", encoding="ascii") as file:
                lines = file.read().splitlines(keepends=True)
        except FileNotFoundError:
            return False
        return lines and lines[-1].endswith("\n") and int(lines[-1].split()[1]) >= step

    def running():
        status = cluster.status(job)
        done = status["state"] in ("succeeded", "failed", "cancelled")
        started = status["generation"] >= generation and all(rank["state"] == "running" for rank in status["ranks"])
        return status if done or started else None

    status = wait_until(running, f"generation {generation} of job {job}")
    wait_until(reached, f"step {step} of job {job}")
    return status


def last_parameters(folder):
    """Name and hash of the newest checkpoint's tensors; no temporary file is left.

    A rank that is killed while the ranks find out who shares the folder leaves its empty token (".node-").
    A start removes it once it is an hour old. That no token is left without a kill: unshared_test.py.
    """
    files = sorted(glob.glob(f"{folder}/step-*.safetensors"))
    assert files, f"no checkpoint in {folder}"
    strange = [name for name in os.listdir(folder)
               if not name.endswith((".safetensors", ".json")) and not name.startswith((".lock", "lock", ".node-"))]
    assert not strange, f"left in {folder}: {strange}"
    with open(files[-1], "rb") as file:
        head = int.from_bytes(file.read(8), "little")
        file.seek(8 + head)
        return os.path.basename(files[-1]), hashlib.sha256(file.read()).hexdigest()


def expect(cluster, job, restarts, state="succeeded"):
    code = cluster.wait_end(job)
    status = cluster.status(job)
    assert status["state"] == state and code == 0, \
        f"job {job} {status['state']}, exit {code}: {status['reason']}"
    assert status["restarts"] == restarts, f"job {job}: {status['restarts']} restarts, not {restarts}"
    return status


def kill_workers(build, seed, jobs=10):
    chance = random.Random(seed)
    with Cluster(build) as cluster:
        job, folder = train(cluster, "calm")
        expect(cluster, job, 0)
        calm = last_parameters(folder)
        killed = 0
        for i in range(3 * jobs):
            job, folder = train(cluster, f"kill{i}")
            step = chance.randint(1, LONG // 2)
            victim = chance.choice(wait_trained(cluster, job, folder, step)["ranks"])
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim["pid"], signal.SIGKILL)
            cluster.wait_end(job)
            if cluster.status(job)["restarts"] == 0:
                print(f"job {job}: its workers had ended before the kill; once more", flush=True)
                continue
            expect(cluster, job, 1)
            assert last_parameters(folder) == calm, f"job {job}: other parameters than undisturbed"
            print(f"job {job}: rank {victim['rank']} killed after step {step}, one restart, same parameters", flush=True)
            killed += 1
            if killed == jobs:
                return
        raise AssertionError(f"only {killed} of {3 * jobs} jobs still trained when a worker was to be killed")


def shim_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[1])


def main():
    build = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    print(f"seed {seed}")
    kill_workers(build, seed)
    print("ok")


if __name__ == "__main__":
    main()
