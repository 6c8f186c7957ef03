#!/usr/bin/env python3
"""ddpctl run --slurm on a real slurmctld and three slurmd of this machine: size of the job, exit codes, keys, Slurm's signals,
and that nothing is left behind. Skipped where Slurm is not installed. With the argument `limit`: what happens before and at the time limit;
the shortest limit is a minute, so that test mostly waits."""
import contextlib
import glob
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import BUILD, Case, clean_environ, DDPCTL
from processes.proc import command_of
from processes.runner import equal, run_and_exit
from processes.waiting import lasting, let_pass
from slurm_cluster import SlurmCluster, missing, programs_path

STAND_IN = os.environ.get("STAND_IN_DIR", os.path.join(BUILD, "tests", "standin", "nvml"))
RUN = (DDPCTL, "run", "--slurm", "--max-restarts", "0")
CLUSTER = None
# A rank that prints the signal it got and exits with 0, like one that saves a checkpoint.
TRAINS = """
import os, signal, sys
def on_end(number, frame):
    os.write(1, b"rank %s keeps a checkpoint\\n" % os.environb[b"RANK"])
    sys.exit(0)
signal.signal(signal.SIGTERM, on_end)
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"rank %s got SIGUSR1\\n" % os.environb[b"RANK"]))
os.write(1, b"rank %s trains, restart %s\\n" % (os.environb[b"RANK"], os.environb.get(b"SLURM_RESTART_COUNT", b"0")))
while True:
    signal.pause()
"""

# A rank that trains until it is told to save a checkpoint; the next run resumes from it and succeeds.
RESUMES = """
import os, signal, sys
path = "checkpoints/rank%s" % os.environ["RANK"]
def on_end(number, frame):
    open(path, "w").close()
    os.write(1, b"rank %s keeps a checkpoint\\n" % os.environb[b"RANK"])
    sys.exit(0)
signal.signal(signal.SIGTERM, on_end)
if os.path.exists(path):
    os.write(1, b"rank %s goes on from its checkpoint, restart %s\\n" % (os.environb[b"RANK"], os.environb[b"SLURM_RESTART_COUNT"]))
    sys.exit(0)
while True:
    signal.pause()
"""
REQUEUE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "packaging", "slurm", "requeue.sbatch")
RUNS_AT_ONCE = 40
LIMIT_S = 300  # Slurm looks at limits every half minute


def salloc(case, options, *command, **more):
    """Runs a command in an allocation; returns the command's exit code."""
    done = CLUSTER.run("salloc", "--quiet", *options, *command, env=CLUSTER.environ(**case.environ(**more)), cwd=case.dir)
    return done


class Batch:
    """A batch job that runs TRAINS."""

    def __init__(self, case, *options, exec_word="exec ", sbatch=("-N2",)):
        self.case = case
        self.output = f"{case.dir}/output"
        with open(f"{case.dir}/trains.py", "w", encoding="utf-8") as file:
            file.write(TRAINS)
        with open(f"{case.dir}/job.sh", "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{exec_word}{' '.join(RUN)} {' '.join(options)} -- python3 {case.dir}/trains.py\n")
        done = CLUSTER.run("sbatch", "--parsable", f"--output={self.output}", "--open-mode=append", *sbatch, f"{case.dir}/job.sh",
                           env=CLUSTER.environ(**case.environ()), cwd=case.dir)
        self.job = done.stdout.strip()
        assert self.job.isdigit(), done.stderr
        self.wait(2, " trains, restart 0\n")

    def text(self):
        if not os.path.exists(self.output):
            return ""
        with open(self.output, encoding="utf-8") as file:
            return file.read()

    def wait(self, count, words, seconds=180):
        CLUSTER.wait(f"{count} times {words!r} in {self.output}", lambda: self.text().count(words) >= count, seconds)

    def wait_gone(self):
        """Waits until every process and the job itself are gone."""
        CLUSTER.wait("the job's processes have ended", lambda: not self.case.processes())
        CLUSTER.wait("the job has ended", lambda: not CLUSTER.run("squeue", "-h", "-t", "R,CG", "-j", self.job).stdout)

    def sweep(self):
        """Slurm may have killed the tasks on the nodes before they removed their folders; then the next run removes those."""
        done = salloc(self.case, ["-N1"], *RUN, "--", "true")
        equal(done.returncode, 0, done.stderr)

    def cancel(self):
        CLUSTER.run("scancel", self.job)
        self.wait_gone()
        self.sweep()

    def state(self):
        return re.search(r"JobState=(\w+).*ExitCode=(\d+:\d+)", CLUSTER.run("scontrol", "show", "job", self.job).stdout,
                         re.DOTALL).groups()


def where_it_cannot_run_it_says_why():
    with Case() as case:
        for variables, words in (
                ({}, "SLURM_JOB_ID is not set: put the command into a script for sbatch"),
                ({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "two"}, "SLURM_JOB_NUM_NODES=two is not of the form"),
                ({"SLURM_JOB_ID": "7"}, "Slurm does not say how many nodes job 7 has"),
                ({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "PATH": case.dir}, "srun is not on PATH")):
            done = subprocess.run([*RUN, "--", "/bin/true"], env=CLUSTER.environ(**case.environ(**variables)), check=False,
                                  capture_output=True, text=True, timeout=60)
            equal(done.returncode, 125, done.stderr)
            assert words in done.stderr, (words, done.stderr)


def the_allocation_gives_the_size():
    with Case() as case:
        done = salloc(case, ["-N2", "--ntasks-per-node=2"], *RUN, "--", "sh", "-c",
                      'echo "$RANK $WORLD_SIZE $LOCAL_RANK ${SLURM_PROCID-none} $SLURM_JOB_NUM_NODES"')
        equal(done.returncode, 0, done.stderr)
        equal(sorted(done.stdout.splitlines()), ["0 4 0 none 2", "1 4 1 none 2", "2 4 0 none 2", "3 4 1 none 2"])
        done = salloc(case, ["-N2", "--ntasks-per-node=2"], *RUN, "--nodes", "1", "-n", "3", "--env-style", "slurm", "--", "sh",
                      "-c", 'echo "$SLURM_PROCID $SLURM_NTASKS $SLURM_JOB_NAME"')
        equal(done.returncode, 0, done.stderr)
        equal(sorted(done.stdout.splitlines()), ["0 3 interactive", "1 3 interactive", "2 3 interactive"])
        done = salloc(case, ["-N2"], *RUN, "--nodes", "3", "--", "true")
        equal(done.returncode, 125)
        assert "--nodes 3: the allocation of Slurm's job " in done.stderr, done.stderr
        done = salloc(case, ["-N1"], *RUN, "--nproc-per-node", "gpu", "--", "true")
        equal(done.returncode, 125)
        assert "Slurm says of no GPU in job " in done.stderr, done.stderr


def gpus_of_the_allocation_are_given_out():
    with Case() as case:
        with open(f"{case.dir}/nvml", "w", encoding="ascii") as file:
            file.write("gpus 2\nmemory 0 500\nmemory 1 500\n")
        done = salloc(case, ["-N2", "--gpus-per-node=2"], *RUN, "--", "sh", "-c", 'echo "$RANK $CUDA_VISIBLE_DEVICES"',
                      LD_LIBRARY_PATH=STAND_IN, STAND_IN_NVML=f"{case.dir}/nvml")
        equal(done.returncode, 0, done.stderr)
        equal(sorted(done.stdout.splitlines()), ["0 0,1", "1 0,1", "2 0,1", "3 0,1"])


def the_exit_code_is_the_job_s():
    with Case() as case:
        done = salloc(case, ["-N3"], *RUN, "--", "sh", "-c", 'test "$RANK" = 2 && exit 7; exec sleep 600')
        equal(done.returncode, 7, done.stderr)
        assert "rank 2 exited with code 7" in done.stderr, done.stderr


def keys_are_in_no_command_line_and_no_environment():
    with Case() as case:
        batch = Batch(case)
        names = []
        for pid in case.processes():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # one that has ended meanwhile
                with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                    names.append(file.read().strip())
                for what in ("cmdline", "environ"):
                    with open(f"/proc/{pid}/{what}", "rb") as file:
                        assert b"ddp://" not in file.read(), f"{what} of {names[-1]}"
        assert {"rendezvous", "launcherd", "ddpctl", "srun"} <= set(names), names
        keys = [path for path in glob.glob(f"{case.temp}/**", recursive=True) if path.endswith("key")]
        assert len(keys) >= 2, keys
        for path in keys:
            equal(stat.S_IMODE(os.stat(path).st_mode), 0o600, path)
        batch.cancel()


def scancel_gives_the_ranks_their_grace():
    for exec_word in ("exec ", ""):
        with Case() as case:
            batch = Batch(case, exec_word=exec_word)
            batch.cancel()
            for rank in (0, 1):
                assert f"rank {rank} keeps a checkpoint\n" in batch.text(), batch.text()
            equal(batch.state()[0], "CANCELLED")


def a_signal_goes_to_the_ranks_and_the_job_goes_on():
    with Case() as case:
        batch = Batch(case)
        CLUSTER.run("scancel", "--signal=USR1", batch.job)  # to the steps, as sbatch --signal=USR1@60
        batch.wait(2, " got SIGUSR1\n")
        before = daemons(case, "rendezvous") + daemons(case, "launcherd")
        CLUSTER.run("scancel", "--signal=USR1", "--batch", batch.job)  # to us, as --signal=B:USR1@60
        batch.wait(4, " got SIGUSR1\n")
        equal(daemons(case, "rendezvous") + daemons(case, "launcherd"), before)
        equal(len(before), 3)
        assert "unexpectedly" not in batch.text(), batch.text()
        batch.cancel()


def a_requeued_job_runs_again():
    with Case() as case:
        batch = Batch(case)
        CLUSTER.run("scontrol", "requeue", batch.job)
        batch.wait(2, " keeps a checkpoint\n")
        batch.wait_gone()

        def is_taken():  # Slurm would wait two minutes; and within the same second it would refuse the credential of the first start
            return CLUSTER.run("scontrol", "update", f"JobId={batch.job}", "StartTime=now+3").returncode == 0

        CLUSTER.wait("the job has a time to start", is_taken)
        batch.wait(2, " trains, restart 1\n")
        batch.cancel()


def the_time_limit_is_warned_of_and_ends_the_job():
    with Case() as case:
        batch = Batch(case, sbatch=("-N2", "--time=1", "--signal=USR1@30"))
        batch.wait(2, " got SIGUSR1\n", LIMIT_S)
        equal(batch.text().count(" keeps a checkpoint\n"), 0)
        batch.wait(2, " keeps a checkpoint\n", LIMIT_S)
        batch.wait_gone()
        batch.sweep()
        for rank in (0, 1):
            assert f"rank {rank} got SIGUSR1\n" in batch.text() and f"rank {rank} keeps a checkpoint\n" in batch.text(), batch.text()
        equal(batch.state()[0], "TIMEOUT")


def the_script_that_requeues_goes_on_from_the_checkpoint():
    """packaging/slurm/requeue.sbatch as it is, with other sizes and times."""
    with Case() as case:
        with open(f"{case.dir}/train.py", "w", encoding="utf-8") as file:
            file.write(RESUMES)
        os.mkdir(f"{case.dir}/checkpoints")
        output = f"{case.dir}/output"
        done = CLUSTER.run("sbatch", "--parsable", "-N2", "--gpus-per-node=1", "--time=2", f"--output={output}", REQUEUE,
                           env=CLUSTER.environ(**case.environ(PATH=f"{os.path.dirname(DDPCTL)}:{os.environ['PATH']}")), cwd=case.dir)
        job = done.stdout.strip()
        assert job.isdigit(), done.stderr

        def text():
            with contextlib.suppress(FileNotFoundError), open(output, encoding="utf-8") as file:
                return file.read()
            return ""

        CLUSTER.wait("both ranks keep a checkpoint", lambda: text().count(" keeps a checkpoint\n") == 2, LIMIT_S)
        CLUSTER.wait("the job has a time to start", lambda: CLUSTER.run("scontrol", "update", f"JobId={job}", "StartTime=now+3").returncode == 0)
        CLUSTER.wait("the second start", lambda: text().count(" goes on from its checkpoint, restart 1\n") == 2, LIMIT_S)
        CLUSTER.wait("the job has ended", lambda: "JobState=COMPLETED" in CLUSTER.run("scontrol", "show", "job", job).stdout, LIMIT_S)
        CLUSTER.wait("the job's processes have ended", lambda: not case.processes())


def with_srun(case, script):
    """The PATH on which srun is this script; it may call {srun}."""
    os.makedirs(f"{case.dir}/bin", exist_ok=True)
    with open(f"{case.dir}/bin/srun", "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n" + script.format(srun=shutil.which("srun", path=programs_path())))
    os.chmod(f"{case.dir}/bin/srun", 0o755)
    return f"{case.dir}/bin:{programs_path()}"


def what_a_wrapper_of_srun_prints_does_no_harm():
    with Case() as case:
        path = with_srun(case, "printf 'Loading modules... '\nexec {srun} \"$@\"\n")
        done = salloc(case, ["-N2"], *RUN, "--", "sh", "-c", 'echo "rank $RANK"', PATH=path)
        equal(done.returncode, 0, done.stderr)
        equal(sorted(done.stdout.splitlines()), ["rank 0", "rank 1"])
        assert "Loading modules..." in done.stderr and "ddp-slurm:" not in done.stderr, done.stderr


def begin(case, path):
    """A run on one node with this PATH; its output goes to a file."""
    with open(f"{case.dir}/said", "wb") as said:
        return subprocess.Popen(["salloc", "--quiet", "-N1", *RUN, "--", "true"], env=CLUSTER.environ(**case.environ(PATH=path)),
                                cwd=case.dir, stdin=subprocess.DEVNULL, stdout=said, stderr=said)


def said_by(case):
    with open(f"{case.dir}/said", encoding="utf-8") as said:
        return said.read()


def a_key_in_a_damaged_line_is_not_shown():
    with Case() as case:
        process = begin(case, with_srun(case, "{srun} \"$@\" | sed -u 's/ddp-slurm: key /ddp-slurm: kex /'\n"))
        CLUSTER.wait("the damaged line", lambda: "a line from the nodes is damaged" in said_by(case))
        for pid in named(case, "ddpctl"):
            os.kill(pid, signal.SIGINT)
        equal(process.wait(180), 130, said_by(case))
        assert "ddp://" not in said_by(case), said_by(case)


def tasks_that_share_a_node_are_told_of():
    with Case() as case:
        hosts = f"{case.dir}/hosts"
        with open(hosts, "w", encoding="utf-8") as file:
            file.write(f"{CLUSTER.nodes[1]}\n{CLUSTER.nodes[1]}\n")
        options = ["-N2", "-w", ",".join(CLUSTER.nodes[:2])]
        done = salloc(case, options, *RUN, "--", "true", SLURM_HOSTFILE=hosts)  # srun does not get it
        equal(done.returncode, 0, done.stderr)
        path = with_srun(case, f"export SLURM_HOSTFILE={hosts} SLURM_DISTRIBUTION=arbitrary\nexec {{srun}} \"$@\"\n")
        done = salloc(case, options, *RUN, "--", "true", PATH=path)
        equal(done.returncode, 125, done.stderr)
        assert f"srun has started two tasks as number 0, on {CLUSTER.nodes[1]}" in done.stderr, done.stderr


def an_srun_that_hangs_is_ended_soon():
    for signals in (1, 2):  # a second Ctrl-C must not leave srun behind
        with Case() as case:
            process = begin(case, with_srun(case, "exec sleep 600\n"))
            CLUSTER.wait("srun runs", lambda c=case: named(c, "sleep"))
            (pid,) = named(case, "ddpctl")
            with lasting("an end that does not wait for srun", at_most=30):
                for _ in range(signals):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGINT)
                    let_pass(0.5)  # two of them at once would be one
                equal(process.wait(180), 130, said_by(case))
            assert "it is killed" not in said_by(case), said_by(case)


def several_runs_by_srun_and_heterogeneous_jobs_are_refused():
    with Case() as case:
        for options, command, words in ((["-N2"], ["srun", *RUN], "srun has started ddpctl run --slurm 2 times"),
                                        (["-N1", ":", "-N1"], RUN, "is heterogeneous")):
            done = salloc(case, options, *command, "--", "true")
            equal(done.returncode, 125, done.stderr)
            assert words in done.stderr, done.stderr


def a_bad_disk_of_a_node_is_named():
    with Case() as case:
        done = salloc(case, ["-N1"], *RUN, "--", "true", TMPDIR="/proc")
        equal(done.returncode, 125, done.stderr)
        assert re.search(r"node n\d: make a directory under /proc: .*; TMPDIR names another place", done.stderr), done.stderr
        done = salloc(case, ["-N1"], "sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *RUN, "--", "true")  # srun gives it on
        equal(done.returncode, 125, done.stderr)
        assert re.search(r"node n\d: rendezvous could not be kept running: .*/state\.db\.new: disk I/O error", done.stderr), done.stderr


def runs_at_once_have_folders_of_their_own():
    with Case() as case:
        environ = CLUSTER.environ(**case.environ(SLURM_JOB_ID="7", SLURM_JOB_NUM_NODES="1", PATH=with_srun(case, "exit 1\n")))
        runs = [subprocess.Popen([*RUN, "--state-dir", f"{case.dir}/state", "--", "true"], env=environ, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True) for _ in range(RUNS_AT_ONCE)]
        folders = {re.search(r"state and logs are in (\S+)", run.communicate(timeout=180)[1]).group(1) for run in runs}
        equal(len(folders), RUNS_AT_ONCE)


def named(case, name):
    """Our processes of this name, except the tasks on the nodes."""
    found = []
    for pid in case.processes():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read().split(b"\0")
        except OSError:
            continue
        if os.path.basename(command[0]).decode() == name and (name == "srun" or b"--slurm-node" not in command):
            found.append(pid)
    return found


def daemons(case, name):
    """Our processes of this name, except shims."""
    return [pid for pid in sorted(named(case, name)) if "--exit-with-parent" in command_of(pid)]


def nothing_is_left_when_ddpctl_or_srun_is_killed():
    for name in ("ddpctl", "srun"):
        with Case() as case:
            batch = Batch(case, "--log-dir", f"{case.dir}/logs")
            for pid in named(case, name):
                os.kill(pid, signal.SIGKILL)
            batch.wait_gone()
            batch.sweep()
            for rank in (0, 1) if name == "ddpctl" else ():  # without srun Slurm itself kills the step
                with open(glob.glob(f"{case.dir}/logs/**/g1-rank{rank}.log", recursive=True)[0], encoding="utf-8") as file:
                    assert "keeps a checkpoint" in file.read(), f"rank {rank} after {name}"


def a_daemon_that_dies_is_started_again():
    with Case() as case:
        batch = Batch(case, "--state-dir", f"{case.dir}/state")
        for name, count in (("rendezvous", 1), ("launcherd", 2)):
            for pid in daemons(case, name)[:count]:
                os.kill(pid, signal.SIGKILL)
            batch.wait(count, f"{name} ended unexpectedly (killed by SIGKILL); it is started again")
            batch.wait(count, f"{name} runs again")
        batch.cancel()
        equal(batch.text().count(" trains, "), 2)
        equal(batch.text().count(" keeps a checkpoint\n") >= 2, True, batch.text())
        equal(len(os.listdir(f"{case.dir}/state/{batch.job}.0")), 2)


def main():
    global CLUSTER  # pylint: disable=global-statement
    why = missing()
    if why:
        print(f"skipped: {why}")
        sys.exit(77)
    for name in set(os.environ) - set(clean_environ()):
        del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, SlurmCluster(folder, nodes=3, gpus=2) as CLUSTER:
        os.chmod(folder, 0o711)  # munged requires that its socket be reachable
        if sys.argv[1:] == ["limit"]:
            run_and_exit([the_time_limit_is_warned_of_and_ends_the_job, the_script_that_requeues_goes_on_from_the_checkpoint], side_by_side=2)
        run_and_exit([
            where_it_cannot_run_it_says_why, the_allocation_gives_the_size, gpus_of_the_allocation_are_given_out,
            the_exit_code_is_the_job_s, keys_are_in_no_command_line_and_no_environment, scancel_gives_the_ranks_their_grace,
            a_signal_goes_to_the_ranks_and_the_job_goes_on, a_requeued_job_runs_again,
            nothing_is_left_when_ddpctl_or_srun_is_killed, a_daemon_that_dies_is_started_again, what_a_wrapper_of_srun_prints_does_no_harm,
            a_key_in_a_damaged_line_is_not_shown, tasks_that_share_a_node_are_told_of, an_srun_that_hangs_is_ended_soon,
            several_runs_by_srun_and_heterogeneous_jobs_are_refused, a_bad_disk_of_a_node_is_named,
            runs_at_once_have_folders_of_their_own], side_by_side=3)


if __name__ == "__main__":
    main()
