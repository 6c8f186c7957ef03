"""A job that begins from a checkpoint of another run and crashes before its first own one. usage: from_file_test.py BUILD

file: --resume FILE, with a new folder. best: --resume best, where the folder has the checkpoints of an earlier job. In both cases the
server hears of no checkpoint that the job has not made, each restart begins from the same checkpoint again, and the first own one is
what a later restart resumes from."""

import glob
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import small_data  # noqa: E402
from faults_lib import Cluster, digits_env, wait_until  # noqa: E402

IMAGES, BATCH = 60000, 4  # 15000 steps an epoch: many seconds


def worker(cluster, folder, *args):
    return [f"{cluster.build}/worker/ddp-worker", "--device", "cpu", "-a", "convnet", "-b", str(BATCH), "--momentum", "0.9", "-p", "1",
            "--checkpoint-dir", folder, *args, f"{cluster.folder}/data"]


def steps_in(folder):
    return sorted(int(os.path.basename(name)[5:13]) for name in glob.glob(f"{folder}/step-*.json"))


def log(cluster, job, generation):
    return cluster.ctl("logs", str(job), "-g", str(generation), check=False).stdout


def crash(cluster, job, generation):
    """Kills the worker soon after step 22. Returns what the server knows of checkpoints then."""
    def is_training():
        status = cluster.status(job)
        assert status["state"] not in ("failed", "succeeded", "cancelled"), \
            f"{status['state']}: {status['reason']}\n{log(cluster, job, status['generation'])[-2000:]}"
        return "Step [22/" in log(cluster, job, generation)
    wait_until(is_training, f"step 22 of generation {generation}")
    status = cluster.wait_step(job, 22, generation)
    os.kill(status["ranks"][0]["pid"], signal.SIGKILL)
    return status["progress"]["checkpoint_step"]


def check(cluster, name, folder, resume):
    """Two generations are killed before the job's first checkpoint. The third one trains to its end."""
    train = " ".join(worker(cluster, folder, "--resume", resume, "--max-steps", '"$steps"'))
    job = cluster.submit("--name", name, "--max-restarts", "3", "--", "sh", "-c",
                         f'steps=1000000; [ "$DDP_GENERATION" -lt 3 ] || steps=50; exec {train}')
    for generation in (1, 2):
        known = crash(cluster, job, generation)
        assert not known, f"{name}: the server takes step {known} of --resume for a checkpoint of this job"
        assert "resumed at step 20 " in log(cluster, job, generation), log(cluster, job, generation)
    code = cluster.wait_end(job)
    status = cluster.status(job)
    said = log(cluster, job, status["generation"])
    assert code == 0 and status["restarts"] == 2, f"{status['state']}: {status['reason']}\n{said[-2000:]}"
    assert "resumed at step 20 " in said and "PROGRESS LOST" not in said, said
    assert status["progress"]["checkpoint_step"] == 50 == steps_in(folder)[-1], (status["progress"], steps_in(folder))


def main():
    with Cluster(sys.argv[1], nodes=1, slots=1) as cluster:
        small_data.write_patterns(f"{cluster.folder}/data", IMAGES)
        earlier = f"{cluster.folder}/earlier"
        done = subprocess.run(worker(cluster, earlier, "--max-steps", "20"), capture_output=True, text=True, check=False, env=digits_env())
        assert done.returncode == 0 and steps_in(earlier) == [20], done.stderr
        check(cluster, "file", f"{cluster.folder}/new", f"{earlier}/step-00000020.safetensors")
        check(cluster, "best", earlier, "best")
    print("ok")


if __name__ == "__main__":
    main()
