#!/usr/bin/env python3
"""ddpctl against a private cluster: verbs, JSON, exit codes, logs to the last byte, a server that ends and comes back."""
import json
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster, DDPCTL
from processes.relay import UnixRelay
from processes.runner import equal, run_and_exit
from processes.waiting import Gate, PATIENCE_S, wait_for


def every_verb_speaks_json():
    with Case() as case, Cluster(case) as cluster:
        job = cluster.submit("--name", "quick", "-n", "2", "--", "sh", "-c", "echo $RANK")
        equal(cluster.ctl("wait", job).returncode, 0)
        for verb in (("ps", "-a"), ("status", "quick"), ("nodes",), ("events",), ("version",), ("logs", job),
                     ("wait", job), ("cancel", job), ("submit", "--", "/bin/true"),
                     ("submit", "--dry-run", "--", "/bin/true")):
            done = cluster.ctl(verb[0], "--json", *verb[1:])
            equal((done.returncode, done.stderr), (0, ""), verb)
            for line in done.stdout.splitlines():
                equal(json.loads(line)["schema"], "ddp.v1", verb)
        done = cluster.ctl("status", "no-such", "--json")
        equal((done.returncode, json.loads(done.stderr)["error"]["code"]), (3, "not_found"))
        status = cluster.status("@last")
        equal(status["id"], int(job) + 1)
        status = cluster.status(job)
        equal((status["name"], status["state"], status["exit"]["code"], status["exit"]["source"]),
              ("quick", "succeeded", 0, "job"))
        equal([(r["rank"], r["local_rank"], r["node"], r["state"], r["exit_code"]) for r in status["ranks"]],
              [(0, 0, "node0", "exited", 0), (1, 1, "node0", "exited", 0)])
        equal(set(status["progress"]) >= {"epoch", "step", "steps", "loss", "samples_per_s"}, True)


def submit_prints_the_number_and_the_next_commands():
    with Case() as case, Cluster(case) as cluster:
        done = cluster.ctl("submit", "-n", "2", "--name", "r50", "--", "sleep", "600")
        equal(done.stdout, "1\n")
        assert done.stderr.startswith("queued r50: 2 ranks on 1 node, up to 3 restarts\n  logs  "), done.stderr
        equal(cluster.ctl("ps", "-q").stdout, "1\n")
        equal(cluster.ctl("submit", "-q", "-n", "4", "--", "true").stderr, "")
        line = cluster.ctl("ps").stdout.splitlines()[2].split(None, 9)
        equal(line[:4], ["2", "true", "queued", "0/4"])
        assert "slot" in line[9], line
        equal(cluster.ctl("cancel", "--now", "--wait", "1", "2").returncode, 0)
        equal([cluster.status(j)["state"] for j in ("1", "2")], ["cancelled", "cancelled"])
        equal(cluster.ctl("wait", "1").returncode, 125)


def a_failed_run_names_why():
    with Case() as case, Cluster(case) as cluster:
        failed = cluster.ctl("run", "--max-restarts", "0", "--", "sh", "-c", "exit 3")
        more = f"-- more: ddpctl --server {cluster.address} why 1 --"
        equal((failed.returncode, failed.stderr.splitlines()[-1]), (3, more))
        told = cluster.ctl("why", "1").stdout
        assert told.startswith("sh (1) failed: rank 0 on node0 exited with code 3\n"), told
        well = cluster.ctl("run", "--", "true")
        assert well.returncode == 0 and "why" not in well.stderr, well.stderr
        alone = case.ctl("run", "--standalone", "--max-restarts", "0", "--", "sh", "-c", "exit 3")
        assert alone.returncode == 3 and "why" not in alone.stderr, alone.stderr
        equal(cluster.ctl("why", "99").returncode, 3)
        equal(cluster.ctl("why").returncode, 2)


def logs_follow_to_the_last_byte():
    with Case() as case, Cluster(case) as cluster:
        program = ("import os,sys\nfor i in range(50000): sys.stdout.write('%d %d %s\\n' % (int(os.environ['RANK']), i, "
                   "'x' * 90))")
        job = cluster.submit("-n", "2", "--max-restarts", "0", "--", "python3", "-c", program)
        for rank in ("1", "0"):
            done = cluster.ctl("logs", "-f", job, "--rank", rank, "--raw", raw=True, timeout=4 * PATIENCE_S)
            equal(done.returncode, 0, done.stderr)
            expected = b"".join(b"%s %d %s\n" % (rank.encode(), i, b"x" * 90) for i in range(50000))
            assert done.stdout == expected, f"{len(done.stdout)} bytes, not {len(expected)}"
        lines = cluster.ctl("logs", job, timeout=4 * PATIENCE_S).stdout.splitlines()
        equal(len(lines), 100000)
        equal([line for line in lines if line.startswith(" 1 ")],
              [f" 1 node0 | 1 {i} {'x' * 90}" for i in range(50000)])
        equal(cluster.ctl("logs", job, "--rank", "0", "--tail", "2", "--raw").stdout,
              "".join(f"0 {i} {'x' * 90}\n" for i in (49998, 49999)))
        done = cluster.ctl("logs", job, "--rank", "5")
        equal(done.returncode, 3)
        assert "there is no rank 5" in done.stderr, done.stderr


def logs_go_through_restarts():
    with Case() as case, Cluster(case) as cluster:
        go = Gate(f"{case.dir}/go")
        script = 'echo "g$TORCHELASTIC_RESTART_COUNT r$RANK"; flock -s $GO true; test "$TORCHELASTIC_RESTART_COUNT$RANK" != 01 || exit 4; ' \
                 'test "$TORCHELASTIC_RESTART_COUNT" = 1 || exec sleep 600'
        job = cluster.submit("-n", "2", "-e", f"GO={go.path}", "--", "sh", "-c", script)
        follow = case.start("--server", cluster.address, "logs", "-f", job)
        equal(sorted(follow.stdout.readline() for _ in range(2)), [" 0 node0 | g0 r0\n", " 1 node0 | g0 r1\n"])
        go.open()
        output, errors = follow.communicate(timeout=60)
        equal(sorted(output.splitlines()), [" 0 node0 | g1 r0", " 1 node0 | g1 r1"])
        told = [line for line in errors.splitlines() if " waits to start again: " not in line]  # said only if the restart takes long enough
        equal(told, ["-- rank 1 exited with code 4; generation 2: 2 ranks start again --"])
        equal(sorted(cluster.ctl("logs", job).stdout.splitlines()), [" 0 node0 | g1 r0", " 1 node0 | g1 r1"])
        equal(cluster.ctl("logs", job, "--previous", "--rank", "1").stdout, " 1 | g0 r1\n")
        equal(cluster.ctl("logs", job, "--generation", "1", "--rank", "1").stdout, " 1 | g0 r1\n")
        equal(cluster.ctl("logs", job, "--generation", "7").returncode, 3)
        equal(cluster.status(job)["restarts"], 1)


def logs_name_the_node_of_their_generation():
    with Case() as case, Cluster(case, nodes=2, slots=1) as cluster:
        go = Gate(f"{case.dir}/go")
        script = 'echo "on $DDP_NODE_NAME"; test $DDP_GENERATION = 2 && exit; flock -s $GO true; exit 4'
        equal(cluster.ctl("node", "drain", "node1").returncode, 0)
        job = cluster.submit("-e", f"GO={go.path}", "--", "sh", "-c", script)
        follow = case.start("--server", cluster.address, "logs", "-f", "--prefix", "always", job)
        equal(follow.stdout.readline(), " 0 node0 | on node0\n")
        equal((cluster.ctl("node", "resume", "node1").returncode, cluster.ctl("node", "drain", "node0").returncode), (0, 0))
        go.open()
        equal(follow.communicate(timeout=PATIENCE_S)[0], " 0 node1 | on node1\n")
        equal(cluster.ctl("logs", "--prefix", "always", job).stdout, " 0 node1 | on node1\n")
        for older in (("-g", "1"), ("-p",)):  # the server tells the nodes of the newest generation alone
            equal(cluster.ctl("logs", *older, "--prefix", "always", job).stdout, " 0 | on node0\n")
            said = json.loads(cluster.ctl("logs", *older, "--json", job).stdout)
            equal((said["generation"], said["node"], said["text"]), (1, None, "on node0"))


def the_log_of_a_failed_rank_has_its_error():
    with Case() as case, Cluster(case) as cluster:
        script = 'test $DDP_GENERATION$RANK = 11 && echo THE ERROR && exit 7; test $DDP_GENERATION = 2 || exec sleep 600; echo rank $RANK is well'
        job = cluster.submit("-n", "2", "--", "sh", "-c", script)
        equal(cluster.ctl("wait", job).returncode, 0)
        equal(cluster.ctl("logs", "--rank", "failed", "--prefix", "never", job).stdout, "THE ERROR\n")
        equal(cluster.ctl("logs", "--rank", "failed", "--prefix", "never", "-f", job).stdout, "THE ERROR\nrank 1 is well\n")
        equal(cluster.ctl("logs", "--rank", "failed", "--prefix", "never", "-g", "2", job).stdout, "rank 1 is well\n")
        well = cluster.submit("--", "true")
        equal(cluster.ctl("wait", well).returncode, 0)
        done = cluster.ctl("logs", "--rank", "failed", well)
        assert done.returncode == 3 and "no rank of this job has failed" in done.stderr, done.stderr


def a_rank_asks_about_other_jobs():
    """What launcherd sets in a rank is no option of a ddpctl that runs there."""
    with Case() as case, Cluster(case) as cluster:
        other = cluster.submit("--", "echo", "said")
        equal(cluster.ctl("wait", other).returncode, 0)
        script = 'env | grep ^DDP_; test $DDP_GENERATION = 2 || exit 1; shift; "$0" --server $S logs $1 && "$0" --server $S metrics $1 && ' \
                 '"$0" --server $S logs -p $DDP_JOB_ID > /dev/null'
        done = cluster.ctl("run", "-q", "-e", f"S={cluster.address}", "--", "sh", "-c", script, DDPCTL, "ddpctl", other)
        equal(done.returncode, 0, done.stdout + done.stderr)
        assert "\nsaid\n" in done.stdout, done.stdout
        names = set(re.findall(r"^(DDP_\w+)=", done.stdout, re.M))
        assert names >= {"DDP_JOB_ID", "DDP_GENERATION", "DDP_METRICS"}, names
        options = set(re.findall(r"--[a-z-]+", case.ctl("completion", "bash").stdout))
        assert options >= {"--generation", "--rank", "--tail"}, options
        equal({name for name in names if "--" + name[4:].lower().replace("_", "-") in options}, {"DDP_GENERATION"})
        assert "DDP_GENERATION" in case.ctl("help", "environment").stdout


def wait_knows_its_conditions():
    with Case() as case, Cluster(case) as cluster:
        job = cluster.submit("--", "sleep", "600")
        equal(cluster.ctl("wait", job, "--for", "running").returncode, 0)
        equal(cluster.ctl("wait", job, "--timeout", "100ms").returncode, 124)
        equal(cluster.ctl("wait", job, "--for", "sometime").returncode, 125)
        equal(cluster.ctl("wait", "999").returncode, 125)
        seven = cluster.submit("--max-restarts", "0", "--", "sh", "-c", "exit 7")
        equal(cluster.ctl("wait", seven).returncode, 7)
        equal(cluster.ctl("wait", seven, "--for", "step=5").returncode, 7)
        equal(cluster.ctl("submit", "--wait", "--max-restarts", "0", "--", "sh", "-c", "exit 9").returncode, 9)
        equal(cluster.ctl("cancel", job, "--signal", "USR1").returncode, 0)
        equal(cluster.ctl("wait", job).returncode, 125)


def wait_asks_once_when_its_time_is_over():
    with Case() as case, Cluster(case) as cluster, UnixRelay(f"{case.dir}/relay.sock", cluster.address[5:]) as relay:
        runs = cluster.submit("--", "sleep", "600")
        well = cluster.submit("--", "true")
        seven = cluster.submit("--max-restarts", "0", "--", "sh", "-c", "exit 7")
        equal([cluster.ctl("wait", well).returncode, cluster.ctl("wait", seven).returncode], [0, 7])
        equal(cluster.ctl("wait", runs, "--for", "running").returncode, 0)
        for words, code in (((seven,), 7), ((well,), 0), ((well, seven), 7), ((runs,), 124), ((seven, runs), 124), ((runs, "--for", "running"), 0)):
            equal(cluster.ctl("wait", "--timeout", "0", *words).returncode, code, words)
        done = cluster.ctl("wait", "--timeout", "0", "999")
        equal(done.returncode, 125, done.stderr)
        assert "there is no job 999" in done.stderr, done.stderr
        equal(case.ctl("--server", f"unix:{case.dir}/none.sock", "wait", "--timeout", "0", "1").returncode, 125)
        waiter = case.start("--server", relay.address, "wait", "--timeout", "1s", runs)
        assert relay.answered.wait(PATIENCE_S), "the server did not answer `wait`"
        cluster.kill_server()
        said = waiter.communicate(timeout=PATIENCE_S)[1]
        equal(waiter.returncode, 124, said)
        cluster.start_server()
        equal(cluster.ctl("cancel", "--now", "--wait", runs).returncode, 0)


class BetweenRequests(UnixRelay):
    """Calls `action` before request `number` of a ddpctl reaches the server; each request is a connection."""

    def __init__(self, path, target, number, action):
        self.number = number
        self.action = action
        super().__init__(path, target)

    def connect(self):
        self.number -= 1
        if self.number == 0:
            self.action()
        return super().connect()


def with_newer(case, cluster, number, newer, *args):
    """Runs ddpctl; before its request `number`, newer() makes another job that its word would mean."""
    path = f"{case.dir}/between.sock"
    with BetweenRequests(path, cluster.address[5:], number, newer) as relay:
        done = case.ctl("--server", relay.address, *args)
    os.unlink(path)
    return done


def a_word_names_the_same_job_to_the_end():
    with Case() as case, Cluster(case) as cluster:
        gate = Gate(f"{case.dir}/gate")
        held = ("sh", "-c", f"{gate.wait}; exit 4")

        def newer():
            cluster.submit("--name", "nm", "--", "true")
            gate.open()

        for verb in (("wait", "nm"), ("wait", "@last"), ("status", "-w", "--json", "nm"), ("status", "-w", "--json", "@last")):
            first = cluster.submit("--name", "nm", "--max-restarts", "0", "--", *held)
            done = with_newer(case, cluster, 2, newer, *verb)
            if verb[0] == "wait":
                equal(done.returncode, 4, (verb, done.stderr))
            else:
                jobs = [json.loads(line)["job"] for line in done.stdout.splitlines()]
                equal({job["id"] for job in jobs}, {int(first)}, verb)
                equal((done.returncode, jobs[-1]["state"]), (0, "failed"), verb)
            equal(cluster.ctl("wait", first, "@last").returncode, 4)
            gate.close()


def cancel_waits_for_what_it_has_cancelled():
    with Case() as case, Cluster(case, slots=8) as cluster:
        def newer():
            cluster.submit("--name", "nm", "--", "sleep", "600")

        for word in ("nm", "@last"):
            first = cluster.submit("--name", "nm", "--", "sleep", "600")
            done = with_newer(case, cluster, 3, newer, "cancel", "--now", "--wait", word)
            equal((done.returncode, cluster.status(first)["state"]), (0, "cancelled"), (word, done.stderr))
            equal(cluster.ctl("cancel", "--now", "--wait", "@last").returncode, 0)
        array = cluster.submit("--name", "nm", "--array", "0-2", "--", "sleep", "600")
        equal(cluster.ctl("wait", "--for", "running", array).returncode, 0)
        equal(cluster.ctl("cancel", "--now", "--wait", f"{array}_0").returncode, 0)  # its number is that of the array, too
        equal([cluster.status(f"{array}_{i}")["state"] for i in range(3)], ["cancelled", "running", "running"])
        done = with_newer(case, cluster, 5, newer, "cancel", "--now", "--wait", "nm")
        equal(done.returncode, 0, done.stderr)
        equal([cluster.status(f"{array}_{i}")["state"] for i in range(3)], ["cancelled"] * 3)
        equal(cluster.ctl("cancel", "--now", "--wait", "@last").returncode, 0)


def cancel_says_how_to_watch_the_job_end():
    with Case() as case, Cluster(case) as cluster:
        job = cluster.submit("--name", "deaf", "--grace", "600s", "--", "sh", "-c", "trap '' TERM; echo up; exec sleep 600")
        wait_for("its trap", lambda: cluster.ctl("logs", job, "--raw").stdout == "up\n")
        equal(cluster.ctl("cancel", job).stderr, f"cancelling deaf ({job})\n  watch  ddpctl --server {cluster.address} status -w {job}\n")
        equal(cluster.ctl("cancel", job, DDP_SERVER=cluster.address).stderr, f"cancelling deaf ({job})\n  watch  ddpctl status -w {job}\n")
        equal(cluster.ctl("cancel", "--now", "--wait", job).returncode, 0)


def a_time_limit_exits_124():
    with Case() as case, Cluster(case) as cluster:
        done = cluster.ctl("run", "--time", "300ms", "--grace", "0", "--max-restarts", "0", "--", "sleep", "600")
        equal(done.returncode, 124, done.stderr)


def a_server_killed_under_run_is_survived():
    with Case() as case, Cluster(case) as cluster, UnixRelay(f"{case.dir}/relay.sock", cluster.address[5:]) as relay:
        go = Gate(f"{case.dir}/go")
        process = case.start("--server", cluster.address, "run", "-n", "2", "--", "sh", "-c",
                             f'echo up; {go.wait}; echo end')
        equal([process.stdout.readline() for _ in range(2)], ["up\n", "up\n"])
        follow = case.start("--server", cluster.address, "logs", "-f", "@last", "--rank", "0")
        equal(follow.stdout.readline(), " 0 node0 | up\n")
        waiter = case.start("--server", relay.address, "wait", "@last")
        assert relay.answered.wait(60), "the server did not answer `wait`"  # before that it is not patient
        for _ in range(2):
            cluster.kill_server()
            cluster.start_server()
        wait_for("the node", lambda: '"up"' in cluster.ctl("nodes", "--json").stdout)
        go.open()
        output, errors = process.communicate(timeout=60)
        equal(process.returncode, 0, errors)
        equal(output, "end\nend\n")
        equal(follow.communicate(timeout=60)[0], " 0 node0 | end\n")
        equal(follow.returncode, 0)
        said = waiter.communicate(timeout=60)[1]
        equal(waiter.returncode, 0, said)
        equal(cluster.status("@last")["generation"], 1)


def signalled_run(case, cluster, number):
    """A run of a job without end that got signal `number` and has ended."""
    process = case.start("--server", cluster.address, "run", "--", "sh", "-c", "echo up; exec sleep 600")
    process.stdout.readline()
    wait_for("the job", lambda: cluster.status("@last")["state"] == "running")
    process.send_signal(number)
    process.communicate(timeout=60)
    return process


def a_signalled_run_cancels_its_job():
    with Case() as case, Cluster(case) as cluster:
        equal(signalled_run(case, cluster, signal.SIGTERM).returncode, 143)
        equal(cluster.status("@last")["state"], "cancelled")


def a_closed_laptop_does_not_kill_the_job():
    with Case() as case, Cluster(case) as cluster:
        signalled_run(case, cluster, signal.SIGHUP)
        equal(cluster.status("@last")["state"], "running")
        equal(cluster.ctl("cancel", "@last", "--now", "--wait").returncode, 0)


def a_job_file_is_taken_as_it_is():
    with Case() as case, Cluster(case) as cluster:
        path = os.path.join(case.dir, "job.json")
        done = cluster.ctl("run", "--dry-run", "--env-clear", "--", "true")
        equal(set(json.loads(done.stdout)) >= {"argv", "name", "nodes"}, True)
        # Nodes of --standalone are still starting when the job is submitted, so it must not be refused for want of them.
        for more, waits, priority in ((), False, 0), (("--priority", "-7"), False, -7), (("--standalone",), True, 0):
            done = cluster.ctl("run", "--dry-run", "--nodes", "2", *more, "--", "true")
            said = json.loads(done.stdout)
            equal((said["wait_for_nodes"], said["priority"]), (waits, priority), more)
            with open(path, "w", encoding="ascii") as f:
                f.write(done.stdout)
            equal(json.loads(cluster.ctl("submit", "--dry-run", "--json", path).stdout), said)
        for more in (("--warn", "20d:USR1"), ("--warn", "1234567s:INT"), ("--warn", "1500001us:USR1"), ("--hang-timeout", "5m"),
                     ("--hang-timeout", "1234567s"), ("--hang-timeout", "1us"), ("--hang-timeout", "off"), ("--grace", "1us")):
            done = cluster.ctl("submit", "--dry-run", "--env-clear", "--time", "30d", *more, "--", "true")
            with open(path, "w", encoding="ascii") as f:
                f.write(done.stdout)
            again = cluster.ctl("submit", "--dry-run", "--env-clear", path)
            equal((again.returncode, again.stdout), (0, done.stdout), (more, again.stderr))
        with open(path, "w", encoding="ascii") as f:
            json.dump({"name": "filed", "argv": ["sh", "-c", "echo $X in $PWD"], "env": {"X": "1"}, "cwd": case.temp}, f)
        job = cluster.submit(path)
        equal(cluster.ctl("wait", job).returncode, 0)
        equal(cluster.ctl("logs", "filed").stdout, f"1 in {case.temp}\n")
        with open(path, "w", encoding="ascii") as f:
            f.write('{\n"argv": ["x"],\n"max_restart": 1}')
        done = cluster.ctl("submit", path)
        equal(done.returncode, 2)
        assert "line 3: there is no key 'max_restart'; did you mean 'max_restarts'?" in done.stderr, done.stderr


AS_TYPED = 'greet() {\n echo "hello $1"\n}\nexport -f greet; umask 027; ulimit -S -n 300; cd "$1/link" || exit; shift; exec "$@"'


def submit_with(cluster, environ, words, *shell):
    return subprocess.run([*shell, DDPCTL, "--server", cluster.address, "submit", "--wait", "--", *words], env=environ, capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, timeout=60, check=False)


def a_job_has_what_its_submitter_had():
    """Functions of the shell, the directory as typed, umask and limits; an environment as large as Linux takes it."""
    with Case() as case, Cluster(case) as cluster:
        os.mkdir(f"{case.dir}/real")
        os.symlink("real", f"{case.dir}/link")
        words = ("bash", "-c", "greet world; umask; ulimit -Sn; echo $PWD; echo \"$LINES_OF\"")
        done = submit_with(cluster, case.environ(LINES_OF="a\nb"), words, "bash", "-c", AS_TYPED, "bash", case.dir)
        equal(done.returncode, 0, done.stderr)
        equal(cluster.ctl("logs", "@last").stdout, f"hello world\n0027\n300\n{case.dir}/link\na\nb\n")
        many = {f"MANY_{i}": "x" for i in range(20000)} | {f"BIG_{i}": "y" * 100000 for i in range(9)}
        words = (sys.executable, "-c", "import os; print(sum(n[:5] == 'MANY_' for n in os.environ), os.environ['BIG_8'][99999:])")
        done = submit_with(cluster, case.environ(**many), words)
        equal(done.returncode, 0, done.stderr)
        equal(cluster.ctl("logs", "@last").stdout, "20000 y\n")
        done = submit_with(cluster, case.environ() | {"LATIN": b"\xe9"}, ("true",))
        assert "not sent to the job: LATIN: text that is not UTF-8; set it in a script" in done.stderr, done.stderr


def a_watched_list_survives_the_server():
    with Case() as case, Cluster(case) as cluster:
        watch = case.start("--server", cluster.address, "ps", "-a", "-w")
        cluster.submit("--name", "first", "--", "true")
        while "first" not in watch.stdout.readline():
            assert watch.poll() is None, watch.stderr.read()
        cluster.kill_server()
        assert "cannot be reached" in cluster.ctl("ps").stderr  # one that has not seen the server says so at once
        while "still trying" not in (line := watch.stderr.readline()):
            assert line, "its end"
        cluster.start_server()
        cluster.submit("--name", "second", "--", "true")
        while "second" not in watch.stdout.readline():
            assert watch.poll() is None, watch.stderr.read()
        watch.kill()
        watch.communicate()


def errors_are_json_whatever_was_typed():
    with Case() as case:
        for words in (("x" * 59 + "\u00e9" * 20,), ("submit", "--name", b"\xff\xfe", "--", "true"), ("wait", "1", "--for", b"\xc3(\xff"),
                      ("ps", b"--\xff" * 30)):
            done = case.ctl("--json", *words, raw=True)
            error = json.loads(done.stderr.decode())["error"]
            assert done.returncode in (2, 125) and error["message"], (words, done)


def no_server_is_said_at_once():
    with Case() as case:
        done = case.ctl("--server", f"unix:{case.dir}/none.sock", "ps")
        equal(done.returncode, 5)
        assert "cannot be reached" in done.stderr, done.stderr
        equal(case.ctl("wait", "1", DDP_SERVER=f"unix:{case.dir}/none.sock").returncode, 125)


if __name__ == "__main__":
    run_and_exit([every_verb_speaks_json, submit_prints_the_number_and_the_next_commands, a_failed_run_names_why, logs_follow_to_the_last_byte,
               logs_go_through_restarts, wait_knows_its_conditions, wait_asks_once_when_its_time_is_over,
               a_word_names_the_same_job_to_the_end, cancel_waits_for_what_it_has_cancelled,
               cancel_says_how_to_watch_the_job_end, a_time_limit_exits_124,
               a_rank_asks_about_other_jobs, the_log_of_a_failed_rank_has_its_error, logs_name_the_node_of_their_generation,
               a_server_killed_under_run_is_survived, a_signalled_run_cancels_its_job,
               a_closed_laptop_does_not_kill_the_job, a_job_file_is_taken_as_it_is, a_job_has_what_its_submitter_had,
               a_watched_list_survives_the_server, errors_are_json_whatever_was_typed, no_server_is_said_at_once])
