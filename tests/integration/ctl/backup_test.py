#!/usr/bin/env python3
"""ddpctl backup and restore, with a job that runs. When the state moves to another server, running jobs are not disturbed. After a restore
of an older copy, jobs start again, and new numbers are ones that were never used before. A folder that was put back by hand, without
`restore`, is found out by the nodes."""
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import BUILD, Case, clean_environ, Cluster
from processes.runner import equal, run_and_exit
from processes.waiting import Gate, wait_for
from processes.wire import new_boot

# Prints its process and job, and runs until it is told to end.
SCRIPT = ("import fcntl, os\n"
          "print(os.getpid(), os.environ['DDP_GENERATION'], flush=True)\n"
          "fcntl.flock(open({!r}), fcntl.LOCK_SH)\n")


class Moving(Cluster):
    """The server's state is in the folder `state`, which the test changes."""

    state = "first"

    def start_server(self):
        self.launch("rendezvous", "rendezvous", "--socket", f"{self.case.dir}/rendezvous.sock", *self.server_options, state=self.folder())

    def folder(self):
        return f"{self.case.dir}/{self.state}"

    def stop_server(self):
        self.daemons["rendezvous"].end()

    def running(self, job):
        wait_for("the job runs", lambda: self.status(job)["state"] == "running")
        wait_for("who it is", lambda: self.ctl("logs", "--raw", job).stdout.endswith("\n"))
        return self.ctl("logs", "--raw", job).stdout


def start_job(case, cluster):
    cluster.gate = Gate(f"{case.dir}/go")
    return cluster.submit("--name", "stays", "--max-restarts", "3", "--", "python3", "-c", SCRIPT.format(cluster.gate.path))


def end_job(cluster, job):
    cluster.gate.open()
    equal(cluster.ctl("wait", job).returncode, 0)


def a_moved_state_takes_its_jobs_along():
    with Case() as case, Moving(case) as cluster:
        job, file = start_job(case, cluster), f"{case.dir}/state.ddp"
        before = cluster.running(job)
        busy = case.ctl("backup", "--move", "--state-dir", cluster.folder(), file)
        assert busy.returncode == 1 and "in use by another rendezvous" in busy.stderr, busy.stderr
        assert not os.path.exists(file)
        cluster.stop_server()
        done = case.ctl("backup", "--move", "--state-dir", cluster.folder(), file)
        equal((done.returncode, done.stderr), (0, ""))
        assert "1 jobs" in done.stdout and "no server uses it any more" in done.stdout, done.stdout
        equal(os.stat(file).st_mode & 0o777, 0o600)
        old = subprocess.run([os.path.join(BUILD, "rendezvous", "rendezvous"), "--state-dir", cluster.folder()],
                             env=clean_environ(), capture_output=True, text=True, timeout=60)
        assert old.returncode == 1 and "was moved away" in old.stderr, old.stderr
        cluster.state = "second"
        done = case.ctl("restore", "--state-dir", cluster.folder(), file)
        equal((done.returncode, done.stderr), (0, ""))
        again = case.ctl("restore", "--state-dir", cluster.folder(), file)
        assert again.returncode == 1 and "nothing of it is overwritten" in again.stderr, again.stderr
        cluster.start_server()
        equal(cluster.running(job), before, "the same process of the same generation")
        equal(int(cluster.submit("--", "true")), int(job) + 1)
        end_job(cluster, job)
        equal(cluster.status(job)["restarts"], 0)


def a_copy_gives_no_number_twice():
    """Restored jobs wait for the leases of earlier processes to end, for up to 60 s, so the job is cancelled here."""
    with Case() as case, Moving(case) as cluster:
        job, file = start_job(case, cluster), f"{case.dir}/state.ddp"
        cluster.running(job)
        done = case.ctl("backup", "--state-dir", cluster.folder(), file)
        equal((done.returncode, done.stderr), (0, ""), "of a running server")
        later = int(cluster.submit("--", "true"))
        cluster.kill_server()
        cluster.state = "second"
        equal(case.ctl("restore", "--state-dir", cluster.folder(), file).returncode, 0)
        cluster.start_server()
        equal(cluster.status(job)["state"], "restarting")
        assert "restored from a backup" in cluster.ctl("status", job).stdout
        assert int(cluster.submit("--", "true")) > later + 9000, "numbers that were given after the backup are left out"
        equal(cluster.ctl("status", str(later)).returncode, 3)
        events = cluster.ctl("events").stdout
        assert "restored from a backup of 20" in events, events
        equal(cluster.ctl("cancel", job).returncode, 0)
        wait_for("the end of the job", lambda: cluster.status(job)["state"] == "cancelled")
        cluster.gate.open()
        wait_for("the end of what ran before", lambda: not any(b"import fcntl, os" in command for command in commands(case)))


def a_server_does_not_name_a_state():
    """The address of another cluster would back up the state of this one without a word."""
    with Case() as case, Moving(case) as cluster:
        folder, file = cluster.folder(), f"{case.dir}/state.ddp"
        for verb, does in (("backup", "reads"), ("restore", "writes")):
            for args in (("--server", cluster.address, verb, file), (verb, "--state-dir", folder, "--server", cluster.address, file)):
                done = case.ctl(*args)
                equal((done.returncode, done.stdout), (2, ""))
                equal(done.stderr, f"ddpctl: {verb} {does} a state directory or etcd, not a server\n  give --state-dir DIR or --store URL\n")
            assert "No server is asked: --server is refused" in case.ctl("help", verb).stdout
        assert not os.path.exists(file)
        done = case.ctl("backup", "--state-dir", folder, file, DDP_SERVER=cluster.address)
        equal((done.returncode, done.stderr), (0, "-- DDP_SERVER is not used: backup asks no server --\n"))
        assert re.fullmatch(f"{file}: cluster [0-9a-f]{{32}} of {folder}: 0 jobs, [0-9]+ rows\n", done.stdout), done.stdout
        done = case.ctl("restore", "--state-dir", f"{case.dir}/second", file)
        equal((done.returncode, done.stderr), (0, ""))
        assert re.match(f"restored: cluster [0-9a-f]{{32}} in {case.dir}/second: 0 jobs, ", done.stdout), done.stdout


def a_folder_that_was_put_back_is_found_out():
    """In another boot the server gives a number again before any node calls; then it goes on above, and the logs of the two jobs are apart."""
    with Case(gated=True) as case, Moving(case, server_options=("--lease", "2s")) as cluster:
        equal(cluster.ctl("wait", cluster.submit("--", "true")).returncode, 0)
        cluster.stop_server()
        shutil.copytree(cluster.folder(), f"{case.dir}/kept", symlinks=True)
        cluster.start_server()
        lost = cluster.submit("--", "echo", "secret")
        equal((cluster.ctl("wait", lost).returncode, cluster.ctl("logs", "--raw", lost).stdout), (0, "secret\n"))
        cluster.stop_server()
        cluster.daemons.pop("node0").end()
        shutil.rmtree(cluster.folder())
        os.rename(f"{case.dir}/kept", cluster.folder())
        with new_boot():
            cluster.start_server()
            again = cluster.submit("--wait-for-nodes", "--", "echo", "mine")
            equal(again, lost, "no node has called, so nobody knows of it")
            cluster.start_node("node0")
            equal(cluster.ctl("wait", again, timeout=180).returncode, 0)  # after a lease: 60 s, since a longer one may have been given
            equal(cluster.ctl("logs", "--raw", again).stdout, "mine\n")
            equal(cluster.status(again)["generation"], 2, "its first one is the other job's")
            assert int(cluster.submit("--", "true")) > int(lost) + 9000, "numbers that were given since the copy are left out"
            events = cluster.ctl("events").stdout
            assert "this server's state is of the past: node node0 has seen" in events, events
            assert "its state is of the past" in cluster.ctl("server").stdout
            assert "its state is of the past" in cluster.ctl("doctor").stdout
            with open(f"{case.dir}/rendezvous.log", encoding="utf-8") as log:
                assert "is older than what nodes have seen" in log.read()


def a_file_that_was_put_back_is_not_laid_to_the_nodes():
    """No node is there: the directory itself has seen more."""
    with Case() as case, Moving(case, nodes=0) as cluster:
        cluster.submit("--wait-for-nodes", "--", "true")
        cluster.stop_server()
        shutil.copy(f"{cluster.folder()}/state.db", f"{case.dir}/kept")
        cluster.start_server()
        cluster.submit("--wait-for-nodes", "--", "true")
        cluster.stop_server()
        shutil.copy(f"{case.dir}/kept", f"{cluster.folder()}/state.db")
        cluster.start_server()
        said = cluster.ctl("server").stdout
        assert re.search(r"its state is of the past: state-seen has job 2 and event \d+, and state\.db job 1 and event \d+\. What", said), said
        assert "state-seen has job 2" in cluster.ctl("doctor").stdout
        assert "state-seen has job 2" in json.loads(cluster.ctl("server", "--json").stdout)["server"]["past_why"]


def one_reason_is_said_of_a_folder_that_is_refused():
    with Case() as case:
        folder = f"{case.dir}/state"
        os.mkdir(folder)
        tries = [(-1, 0o777, "others may write in it (mode 0777): chmod go-w it, or give another --state-dir")]
        if os.geteuid() == 0:
            tries.append((65534, 0o700, "it belongs to another user (uid 65534; we are 0): give another --state-dir, or chown it"))
        for owner, mode, words in tries:
            os.chmod(folder, mode)
            os.chown(folder, owner, -1)
            done = subprocess.run([os.path.join(BUILD, "rendezvous", "rendezvous"), "--state-dir", folder], env=clean_environ(),
                                  capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode != 0 and f"state directory {folder}: {words}\n" in done.stderr, done.stderr


def commands(case):
    for pid in case.processes():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                yield f.read()
        except OSError:
            continue


def what_is_in_the_way_is_named():
    """A restore into the folder of a node that runs; a second --new-cluster; a state.db that is none."""
    with Case() as case, Cluster(case) as cluster:
        file = f"{case.dir}/state.ddp"
        equal(case.ctl("backup", "--state-dir", f"{case.dir}/rendezvous", file).returncode, 0)
        done = case.ctl("restore", "--state-dir", f"{case.dir}/node0", file)
        assert done.returncode == 1 and f"is in use by launcherd, pid {cluster.daemons['node0'].pid}: stop it" in done.stderr, done.stderr
        words = [os.path.join(BUILD, "rendezvous", "rendezvous"), "--state-dir", f"{case.dir}/new"]
        first, second = (subprocess.run([*words, "--new-cluster"], env=clean_environ(), capture_output=True, text=True, timeout=60, check=True).stdout
                         for _ in range(2))
        name = re.match("made: the new cluster ([0-9a-f]{32}), ", first)[1]
        equal(second, f"nothing to do: {case.dir}/new has the new cluster {name} already, without jobs and keys\n")
        with open(f"{case.dir}/new/state.db", "wb") as state:
            state.write(b"no database " * 1000)
        done = subprocess.run(words, env=clean_environ(), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1 and f"{case.dir}/new/state.db: file is not a database; move it away and restore a backup" in done.stderr, done.stderr


def what_a_killed_restore_leaves_is_refused():
    """It was killed before its state.db was there. To restore again is enough."""
    with Case() as case, Moving(case, nodes=0) as cluster:
        folder, file = f"{case.dir}/killed", f"{case.dir}/state.ddp"
        equal(case.ctl("backup", "--state-dir", cluster.folder(), file).returncode, 0)
        os.mkdir(folder, 0o700)
        open(f"{folder}/state.db.restoring", "w").close()
        open(f"{folder}/state.db.new", "w").close()
        server = subprocess.run([os.path.join(BUILD, "rendezvous", "rendezvous"), "--state-dir", folder], env=clean_environ(),
                                capture_output=True, text=True, timeout=60, check=False)
        assert server.returncode != 0 and "a restore of a backup was interrupted here" in server.stderr, server.stderr
        assert not os.path.exists(f"{folder}/state.db")
        equal(case.ctl("restore", "--state-dir", folder, file).returncode, 0)
        equal([name for name in os.listdir(folder) if name in ("state.db.restoring", "state.db.new")], [])


if __name__ == "__main__":
    run_and_exit([what_a_killed_restore_leaves_is_refused, a_moved_state_takes_its_jobs_along, a_copy_gives_no_number_twice, a_server_does_not_name_a_state,
               a_file_that_was_put_back_is_not_laid_to_the_nodes, one_reason_is_said_of_a_folder_that_is_refused,
               what_is_in_the_way_is_named, a_folder_that_was_put_back_is_found_out])
