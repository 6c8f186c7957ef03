#!/usr/bin/env python3
"""--data-parallel on GPUs, with the stand-in driver: a net on each device, driven by its own thread, with the same losses as replicas on the CPU.
usage: replicas_test.py BUILD"""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "gpu", "standin"))
import standin  # noqa: E402

REPLICAS, STEPS, TOLERANCE = 3, 4, 2e-4
WORKER = os.path.join(os.path.abspath(sys.argv[1]), "worker", "ddp-worker")
ARGS = ["--dummy", "--image-size", "12", "-b", "10", "--max-steps", str(STEPS), "--lr", "0.05", "--momentum", "0.9",
        "--data-parallel", str(REPLICAS)]


def train(environ, *args, code=0):
    done = subprocess.run([WORKER, *ARGS, *args], env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, f"{args}: exit code {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
    return done.stdout + done.stderr


def losses(path):
    with open(path, encoding="ascii") as file:
        return [float(line.split()[2]) for line in file]


def main():
    with tempfile.TemporaryDirectory(prefix="ddp-replicas-") as folder:
        cpu, gpu, used = (os.path.join(folder, name) for name in ("cpu", "gpu", "used"))
        environ = standin.environ(os.path.abspath(sys.argv[1]), folder, STANDIN_BUILD_MS="0", STANDIN_RESET_MS="0", OMP_NUM_THREADS="1",
                                  STANDIN_DEVICES=str(REPLICAS), STANDIN_USED=used)
        train(environ, "--device", "cpu", "--loss-log", cpu)
        said = train(environ, "--device", "cuda", "--loss-log", gpu)
        assert f"{REPLICAS} replicas in this process, a GPU each" in said, said
        worst = max(abs(a - b) / abs(b) for a, b in zip(losses(gpu), losses(cpu), strict=True))
        assert len(losses(gpu)) == STEPS and worst <= TOLERANCE, f"losses differ by {worst:.1e}"
        print(f"ok {STEPS} losses as on the CPU: worst relative difference {worst:.1e}")
        with open(used, encoding="ascii") as file:
            devices = {int(line) for line in file}
        assert devices == set(range(REPLICAS)), f"devices {sorted(devices)}"
        print(f"ok devices {sorted(devices)} have a net each")
        said = train({**environ, "STANDIN_DEVICES": "2"}, "--device", "cuda", code=1)
        assert f"--data-parallel {REPLICAS}: there are 2 GPUs here" in said, said
        print("ok too few GPUs are named")


main()
