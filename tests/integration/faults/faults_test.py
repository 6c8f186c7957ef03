"""Kills every kind of process while a job trains. usage: faults_test.py BUILD TEST [SEED]

worker: 10 jobs, each with one worker killed by SIGKILL at a random step: one restart, and the last checkpoint equals that of an
undisturbed run bit for bit. server, launcherd: the job neither stops nor restarts. shim: its workers die with it, the job restarts
once. pause: the server is stopped for a while (SIGSTOP), and no job notices.
node: one node cannot make run directories, and its jobs run on the other. preempt: jobs of a higher priority come, and the
last checkpoint equals that of an undisturbed run bit for bit. After each test nothing is left: processes, sockets, run directories, temporary files."""

import contextlib
import glob
import hashlib
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from faults_lib import Cluster, is_alive, wait_until  # noqa: E402
from pace import paced  # noqa: E402

LONG = 240  # about a second
LONGER = 600  # for tests that restart daemons during the training; an epoch has 750 steps


def train(cluster, name, steps=LONG, options=()):
    folder = f"{cluster.folder}/train-{name}"
    job = cluster.submit("--name", name, "--nodes", "2", "--nproc-per-node", "2", "--max-restarts", "3",
                         *options, "--", f"{cluster.build}/worker/ddp-worker", "-a", "convnet", "--dummy",
                         "-b", "20", "--lr", "0.01", "--momentum", "0.9", "--epochs", "1",
                         "--max-steps", str(steps), "--checkpoint-every", "10",
                         "--checkpoint-dir", folder, "--loss-log", f"{folder}.loss.%r")
    return job, folder


def held_back(folder):
    """A training that takes seconds on any machine: it is still going on when the test looks at it."""
    return paced(f"{folder}.loss.0", folder)


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


def kill_server(build, _seed):
    with Cluster(build) as cluster:
        job, folder = train(cluster, "server", LONGER)
        with held_back(folder):
            status = wait_trained(cluster, job, folder, 1)
            pids = cluster.pids(job)
            assert len(pids) == 4, status
            for _ in range(3):
                cluster.server.kill()
                assert all(is_alive(pid) for pid in pids), "a worker went with the server"
                cluster.server.start()
        status = cluster.status(job)
        assert status["state"] in ("running", "succeeded") and status["generation"] == 1, status
        other = cluster.submit("--nproc-per-node", "1", "--", "/bin/true")
        expect(cluster, job, 0)
        expect(cluster, other, 0)
        assert last_parameters(folder)[0] == f"step-{LONGER:08d}.safetensors"


def kill_launcherd(build, _seed):
    with Cluster(build) as cluster:
        job, folder = train(cluster, "launcherd", LONGER)
        with held_back(folder):
            wait_trained(cluster, job, folder, 1)
            pids = cluster.pids(job)
            assert len(pids) == 4
            for node in cluster.nodes:
                node.kill()
                assert all(is_alive(pid) for pid in pids), "a worker went with launcherd"
                node.start()
        expect(cluster, job, 0)
        assert last_parameters(folder)[0] == f"step-{LONGER:08d}.safetensors"


def shim_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[1])


def kill_shim(build, _seed):
    with Cluster(build) as cluster:
        job, folder = train(cluster, "shim", LONGER)
        with held_back(folder):
            wait_trained(cluster, job, folder, 1)
            ranks = [rank for rank in cluster.status(job)["ranks"] if rank["node"] == "node1"]
            pids = [rank["pid"] for rank in ranks]
            os.kill(shim_of(pids[0]), signal.SIGKILL)
        wait_until(lambda: not any(is_alive(pid) for pid in pids), "workers to go with their shim")
        expect(cluster, job, 1)
        assert last_parameters(folder)[0] == f"step-{LONGER:08d}.safetensors"


def pause_server(build, _seed):
    """The pause is longer than the time after which a node counts as lost. No node may be lost, since only the server was silent."""
    with Cluster(build, nodes=3, server_options=["--suspect", "2s", "--lost", "5s"]) as cluster:
        job = cluster.submit("--nodes", "3", "--nproc-per-node", "1", "--", "sleep", "1000")
        wait_until(lambda: cluster.status(job)["state"] == "running", "the job")
        pids = cluster.pids(job)
        for _ in range(2):
            os.kill(cluster.server.process.pid, signal.SIGSTOP)
            time.sleep(9)
            os.kill(cluster.server.process.pid, signal.SIGCONT)
            expect(cluster, cluster.submit("--nproc-per-node", "1", "--", "true"), 0)
        status = cluster.status(job)
        assert (status["state"], status["generation"], status["restarts"]) == ("running", 1, 0), status
        assert cluster.pids(job) == pids, "its workers were replaced"
        assert "this server did not run for" in cluster.ctl("events").stdout
        cluster.ctl("cancel", "--now", "--wait", str(job))


def broken_node(build, _seed):
    """The job goes to the other node at once. Its only restart remains for a failure of its own program."""
    with Cluster(build, nodes=2, slots=1) as cluster:
        run = f"{cluster.folder}/node0/run"
        mark = f"{cluster.folder}/tried"
        os.rmdir(run)
        with open(run, "w", encoding="ascii"):
            pass
        job = cluster.submit("--max-restarts", "1", "--", "sh", "-c", f"test -e {mark} || {{ touch {mark}; exit 3; }}")
        status = expect(cluster, job, 2)
        assert {rank["node"] for rank in status["ranks"]} == {"node1"}, status
        events = cluster.ctl("events").stdout
        assert "node node0 has failed the job once" in events, events
        assert "node node0 has failed the job again" not in events, events
        os.unlink(run)
        os.mkdir(run, 0o700)
        status = expect(cluster, cluster.submit("--", "true"), 0)
        assert status["ranks"][0]["node"] == "node0", status


def preempt(build, _seed):
    """A job of a higher priority comes twice: the training goes on from the step at which it was stopped."""
    with Cluster(build, server_options=["--preempt", "priority"]) as cluster:
        job, folder = train(cluster, "calm")
        expect(cluster, job, 0)
        calm = last_parameters(folder)
        job, folder = train(cluster, "preempted", options=["--priority", "-1"])
        for generation in (1, 2):
            with held_back(folder):
                wait_trained(cluster, job, folder, 25 * generation, generation)
                expect(cluster, cluster.submit("--nodes", "2", "--nproc-per-node", "2", "--", "true"), 0)
        status = expect(cluster, job, 2)
        assert status["restarts_used"] == 0, status
        assert last_parameters(folder) == calm, "the result is another one"
        events = cluster.ctl("events", str(job)).stdout
        assert events.count("for its priority, 0 against -1") == 2, events


def main():
    build, name = sys.argv[1], sys.argv[2]
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    print(f"seed {seed}")
    {"worker": kill_workers, "server": kill_server, "launcherd": kill_launcherd,
     "shim": kill_shim, "pause": pause_server, "node": broken_node, "preempt": preempt}[name](build, seed)
    print("ok")


if __name__ == "__main__":
    main()
