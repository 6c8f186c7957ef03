#!/usr/bin/env python3
"""ddpctl run --standalone: exit codes, environment, logs, restarts of daemons, and that nothing is left behind."""
import glob
import json
import os
import re
import resource
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import BUILD, Case, clean_environ, DDPCTL
from processes.runner import equal, run_and_exit
from processes.waiting import Gate, wait_for

RUN = ("run", "--standalone", "--max-restarts", "0")


def exit_codes_are_the_job_s():
    with Case() as case:
        for command, code in ((["/bin/true"], 0), (["/bin/false"], 1), (["sh", "-c", "exit 7"], 7),
                              (["sh", "-c", "kill -9 $$"], 137), (["sh", "-c", "kill -15 $$"], 143),
                              (["no-such-program"], 127), (["/etc/ld.so.cache"], 126)):
            done = case.ctl(*RUN, "--", *command)
            equal(done.returncode, code, f"{command} {done.stderr}")
            if code:
                assert "failed: " in done.stderr, done.stderr


def the_first_failing_rank_decides():
    with Case() as case:
        done = case.ctl(*RUN, "-n", "4", "--", "sh", "-c", 'test "$RANK" = 2 && exit 9; exec sleep 600')
        equal(done.returncode, 9, done.stderr)
        assert "rank 2 exited with code 9" in done.stderr, done.stderr


def four_ranks_on_two_nodes_get_torchrun_s_environment():
    with Case() as case:
        code = ("import os,json;print(json.dumps({k:os.environ.get(k) for k in ('RANK','LOCAL_RANK','WORLD_SIZE',"
                "'LOCAL_WORLD_SIZE','GROUP_RANK','GROUP_WORLD_SIZE','MASTER_ADDR','MASTER_PORT','MINE','CLIENT')}))")
        done = case.ctl(*RUN, "--nnodes=2", "--nproc_per_node=2", "--env", "MINE=a b", "--json", "--", "python3", "-c",
                        code, CLIENT="here", DDP_QUIET="1")
        equal(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        end = lines.pop()
        equal(end["exit"], {"code": 0, "source": "job"})
        equal(end["job"]["state"], "succeeded")
        ranks = sorted((json.loads(line["text"]) for line in lines), key=lambda env: int(env["RANK"]))
        equal([(e["RANK"], e["LOCAL_RANK"], e["GROUP_RANK"]) for e in ranks],
              [("0", "0", "0"), ("1", "1", "0"), ("2", "0", "1"), ("3", "1", "1")])
        for env in ranks:
            equal((env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"], env["GROUP_WORLD_SIZE"]), ("4", "2", "2"))
            equal((env["MINE"], env["CLIENT"]), ("a b", "here"))
            equal(env["MASTER_PORT"], ranks[0]["MASTER_PORT"])


def an_elastic_job_gets_all_nodes():
    with Case() as case:
        for _ in range(5):  # a race: the nodes start independently
            done = case.ctl(*RUN, "--nnodes", "1:3", "--", "sh", "-c", "echo $WORLD_SIZE")
            equal((done.returncode, done.stdout), (0, "3\n3\n3\n"), done.stderr)


def a_spare_is_there():
    with Case() as case:
        gate = Gate(f"{case.dir}/gate")
        run = case.start("run", "--standalone", "--state-dir", f"{case.dir}/state", "--spares", "1", "--", "sh", "-c", gate.wait)
        server = f"unix:{case.dir}/state/rendezvous.sock"

        def is_held():
            done = case.ctl("--server", server, "status", "@last", "--json")
            return done.returncode == 0 and json.loads(done.stdout)["job"]["spares_held"] == 1
        wait_for("the spare", is_held)
        gate.open()
        equal((run.communicate(timeout=60)[0], run.returncode), ("", 0))


def arguments_never_see_a_shell():
    with Case() as case:
        words = ["", "a b", "$HOME", "'", '"', "*", ";id", "--json", "\u00e9\n"]
        done = case.ctl(*RUN, "--", "python3", "-c", "import sys,json;print(json.dumps(sys.argv[1:]))", *words)
        equal(json.loads(done.stdout), words)


def one_rank_s_bytes_are_exact():
    with Case() as case:
        program = "import os;b=bytes(range(256))*4096+b'no end of line';i=0\nwhile i<len(b): i+=os.write(1,b[i:])"
        done = case.ctl(*RUN, "--", "python3", "-c", program, raw=True)
        equal(len(done.stdout), 256 * 4096 + 14)
        assert done.stdout == bytes(range(256)) * 4096 + b"no end of line"


def hostile_text_does_nothing_to_a_terminal():
    with Case() as case:
        done = case.ctl(*RUN, "-n", "2", "--rank", "1", "--prefix", "always", "--", "printf", "a\\033[2Jb\\033]0;title\\007c\\033\\007\\n")
        equal(done.stdout, " 1 node0 | abc\\x1b\\x07\n")  # what is no sequence is escaped


def restarts_are_told():
    with Case() as case:
        done = case.ctl("run", "--standalone", "--max-restarts", "1", "--", "sh", "-c",
                        'echo "try $TORCHELASTIC_RESTART_COUNT"; test "$TORCHELASTIC_RESTART_COUNT" = 1 || kill -9 $$')
        equal(done.returncode, 0, done.stderr)
        equal(done.stdout, "try 0\ntry 1\n")
        assert "-- rank 0 was killed by signal 9 (SIGKILL); generation 2: 1 rank starts again --" in done.stderr, \
            done.stderr


def a_signal_cancels_and_cleans_up():
    for number in (signal.SIGINT, signal.SIGTERM):
        with Case() as case:
            process = case.start(*RUN, "-n", "2", "--", "sh", "-c", "echo up; exec sleep 600")
            process.stdout.readline()
            process.stdout.readline()
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
            equal(process.returncode, 128 + number, errors)


def killed_daemons_come_back_and_the_job_goes_on():
    with Case() as case:
        state = os.path.join(case.dir, "state")
        go = Gate(f"{case.dir}/go")
        process = case.start(*RUN, "-n", "2", "--state-dir", state, "--", "sh", "-c",
                             f'echo up; {go.wait}; echo end')
        process.stdout.readline()
        process.stdout.readline()
        server = f"unix:{state}/rendezvous.sock"

        def daemon(name):
            for path in glob.glob("/proc/[0-9]*/cmdline"):
                try:
                    with open(path, "rb") as f:
                        words = f.read().split(b"\0")
                except OSError:
                    continue
                if os.path.basename(words[0]).decode() == name and f"{state}".encode() in b" ".join(words) \
                        and b"--exit-with-parent" in words:
                    return int(path.split("/")[2])
            return None

        for name in ("rendezvous", "launcherd"):
            first = daemon(name)
            assert first, f"{name} is not there"
            os.kill(first, signal.SIGKILL)
            wait_for(f"another {name}", lambda: daemon(name) not in (None, first))
        wait_for("the node", lambda: '"up"' in case.ctl("--server", server, "nodes", "--json").stdout)
        job = json.loads(case.ctl("--server", server, "status", "@last", "--json").stdout)["job"]
        equal((job["generation"], job["state"]), (1, "running"))
        go.open()
        output, errors = process.communicate(timeout=60)
        equal(process.returncode, 0, errors)
        equal(output, "end\nend\n")
        assert "rendezvous ended unexpectedly" in errors and "node0 ended unexpectedly" in errors, errors


def a_killed_ddpctl_takes_its_daemons_along():
    with Case() as case:
        process = case.start(*RUN, "-n", "2", "--state-dir", os.path.join(case.dir, "state"), "--", "sh", "-c",
                             "echo up; exec sleep 600")
        process.stdout.readline()
        process.kill()
        process.communicate()
        wait_for("the end of all", lambda: not case.processes())
        done = case.ctl(*RUN, "--state-dir", os.path.join(case.dir, "state"), "--", "echo", "second")
        equal((done.returncode, done.stdout), (0, "second\n"), done.stderr)
        assert "-- job 1 (sh) is cancelled: an earlier run with this --state-dir was killed and left it --" in done.stderr, done.stderr


def a_daemon_ends_if_ddpctl_has_ended_before_it_began():
    for is_zombie in (False, True):
        for program in ("rendezvous", "launcherd"):
            with Case() as case:
                ended = subprocess.Popen(["true"])
                os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
                if not is_zombie:
                    ended.wait()
                daemon = subprocess.run([os.path.join(BUILD, program, program), "--exit-with-parent", "--state-dir", f"{case.dir}/state",
                                         *(["--allow-root"] if program == "launcherd" else [])], check=False, timeout=60,
                                        env=case.environ(DDP_STARTER_PID=str(ended.pid)), capture_output=True, text=True)
                ended.wait()
                equal(daemon.stdout, "", daemon.stderr)  # the daemon never became ready


def what_is_wrong_is_said_at_once():
    with Case() as case:
        for args, code, text in (((*RUN, "--nnodes", "2:1", "--", "x"), 125, "MIN:MAX"),
                                 ((*RUN,), 125, "there is no command"),
                                 ((*RUN, "--nproc-per-node", "0", "--", "x"), 125, "not in 1..64"),
                                 ((*RUN, "--nodes", "65", "--", "x"), 125, "65 are more than 64"),
                                 ((*RUN, "--bindir", "/nonexistent", "--", "x"), 125, "not to be found"),
                                 (("run", "--server", "unix:/none", "--state-dir", "/x", "--", "x"), 125, "go with --standalone"),
                                 (("rnu",), 2, "did you mean run?"),
                                 (("top",), 2, "top needs a terminal")):
            done = case.ctl(*args)
            equal(done.returncode, code, f"{args} {done.stderr}")
            assert text in done.stderr, f"{args}: {done.stderr}"


def what_is_not_kept_is_not_synced():
    script = 'for f in /proc/[0-9]*/cmdline; do tr "\\0" " " <$f 2>/dev/null; echo; done'
    with Case() as case:
        for options, unsynced in (((), True), (("--state-dir", os.path.join(case.dir, "state")), False)):
            done = case.ctl(*RUN, *options, "--raw", "--", "sh", "-c", script)
            equal(done.returncode, 0, done.stderr)
            servers = [line for line in done.stdout.splitlines() if f"--socket {case.dir}" in line
                       and os.path.basename(line.split()[0]) == "rendezvous"]
            equal([("--no-fsync" in line) for line in servers], [unsynced], done.stdout)


def a_machine_that_cannot_start_it_is_said():
    """The log folder is read-only. There is no other node to wait for: a few tries, then the node's reason, as the last words."""
    with Case() as case:
        logs = os.path.join(case.dir, "logs")
        os.mkdir(logs)
        command = [DDPCTL, "run", "--standalone", "--no-progress", "--nproc-per-node", "2", "--log-dir", logs, "--", "true"]
        script = ('for dir in /etc /usr /root /home /var; do mount --bind $dir $dir && mount -o remount,bind,ro $dir || exit 77; done; '
                  f'mount -t tmpfs none {logs} && mkdir {logs}/kept && mount -o remount,ro {logs} || exit 77; exec "$@"')
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh", *command],
                              env=case.environ(), capture_output=True, text=True, timeout=120, check=False)
        if done.returncode == 77 or done.stderr.startswith("unshare:"):
            print(f"skipped: no mounts here: {done.stderr}")
            return
        equal(done.returncode, 125, done.stderr)
        last = done.stderr.splitlines()[-1]
        assert re.fullmatch(rf"-- true \(1\) failed: node node0: cannot make the folder {logs}/\S+: Read-only file system --", last), done.stderr
        assert "no log of" not in done.stderr, done.stderr
        equal(len(re.findall("-- .*generation \\d+: ", done.stderr)), 5, done.stderr)


def scripts_run_as_with_torchrun():
    with Case() as case:
        path = os.path.join(case.dir, "train.py")
        with open(path, "w", encoding="ascii") as f:
            f.write("import sys; print('trained', sys.argv[1:])\n")
        done = case.ctl(*RUN, path, "--lr", "1")
        equal((done.returncode, done.stdout), (0, "trained ['--lr', '1']\n"), done.stderr)


def an_executable_file_without_an_interpreter_is_no_shell_script():
    """If /bin/sh ran this, it would execute the backticks in a docstring. Python runs it, unless its name says another language."""
    with Case() as case:
        ran, script, plain, shell = (os.path.join(case.dir, name) for name in ("ran", "train.py", "plain", "plain.sh"))
        for path in (script, plain, shell):
            with open(path, "w", encoding="ascii") as f:
                f.write(f'"""`touch {ran}`"""\nprint("trained")\n')
            os.chmod(path, 0o755)
        for path in (script, plain):
            done = case.ctl(*RUN, path)
            equal((done.returncode, done.stdout), (0, "trained\n"), done.stderr)
        done = case.ctl(*RUN, "--max-restarts", "0", "--", shell)
        equal(done.returncode, 126, done.stderr)
        assert "does not begin with #!" in done.stderr and "-- sh FILE" in done.stderr, done.stderr
        assert not os.path.exists(ran), "a docstring was executed"


def what_a_crashed_script_printed_is_in_the_log():
    with Case() as case:
        program = "import os; print('before the crash'); os.kill(os.getpid(), 9)"
        done = case.ctl(*RUN, "--max-restarts", "0", "--", "python3", "-c", program)
        assert "before the crash\n" in done.stdout, (done.stdout, done.stderr)


def a_closed_pipe_ends_the_run():
    with Case() as case:
        process = subprocess.Popen([DDPCTL, *RUN, "--", "sh", "-c", "while :; do echo line; done"],
                                   env=clean_environ(TMPDIR=case.temp), stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) != 0


def too_few_open_files_are_said_at_once():
    """The limit, what is needed, and nothing is left behind. With as many as it asks for, it runs."""
    with Case() as case:
        for nodes in (1, 3):
            needed = 0
            for limit in (8, 20, 0):
                files = limit or needed
                done = subprocess.run([DDPCTL, *RUN, "--nnodes", str(nodes), "--", "true"], env=clean_environ(TMPDIR=case.temp), text=True, timeout=60,
                                      capture_output=True, stdin=subprocess.DEVNULL, check=False,
                                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))
                said = re.search(r"may open (\d+) files here \(ulimit -n\), and --standalone with \d nodes? needs (\d+): raise", done.stderr)
                equal((done.returncode, said is None), (125, False) if limit else (0, True), done.stderr)
                needed = int(said[2]) if said else needed
                assert not said or int(said[1]) == limit, done.stderr
                equal(os.listdir(case.temp), [])


def close_standard():
    for fd in range(3):
        os.close(fd)


def standard_descriptors_may_be_closed():
    """Else our own files and pipes get their numbers, and what is printed is written into them."""
    with Case() as case:
        out = f"{case.dir}/out"
        run = subprocess.Popen([DDPCTL, *RUN, "--", "sh", "-c", f"echo done >{out}"], env=case.environ(), preexec_fn=close_standard)
        equal((run.wait(60), open(out).read()), (0, "done\n"))
    for program, *words in (("rendezvous", "--socket", "s"), ("launcherd", "--server", "unix:none", "--allow-root")):
        with Case() as case:
            path = os.path.abspath(os.path.join(BUILD, program, program))
            daemon = subprocess.Popen([path, *words, "--state-dir", "state"], env=case.environ(), cwd=case.dir, preexec_fn=close_standard)
            try:
                wait_for("its state", lambda: os.path.exists(f"{case.dir}/state/lock"))
                equal([os.readlink(f"/proc/{daemon.pid}/fd/{fd}") for fd in range(3)], ["/dev/null"] * 3)
            finally:
                daemon.terminate()
            assert daemon.wait(60) in (0, -signal.SIGTERM), daemon.returncode  # the second: it has not yet set its handler


def sigchld_may_be_blocked():
    with Case() as case:
        run = subprocess.Popen([DDPCTL, *RUN, "--", "true"], env=case.environ(),
                               preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD]))
        try:
            equal(run.wait(60), 0)
        finally:
            run.kill()


if __name__ == "__main__":
    run_and_exit([exit_codes_are_the_job_s, the_first_failing_rank_decides,
               four_ranks_on_two_nodes_get_torchrun_s_environment, an_elastic_job_gets_all_nodes, a_spare_is_there, arguments_never_see_a_shell,
               one_rank_s_bytes_are_exact, hostile_text_does_nothing_to_a_terminal, restarts_are_told, a_signal_cancels_and_cleans_up,
               killed_daemons_come_back_and_the_job_goes_on, a_killed_ddpctl_takes_its_daemons_along, a_daemon_ends_if_ddpctl_has_ended_before_it_began,
               what_is_wrong_is_said_at_once, what_is_not_kept_is_not_synced, a_machine_that_cannot_start_it_is_said, scripts_run_as_with_torchrun,
               an_executable_file_without_an_interpreter_is_no_shell_script, what_a_crashed_script_printed_is_in_the_log,
               a_closed_pipe_ends_the_run, too_few_open_files_are_said_at_once, standard_descriptors_may_be_closed,
               sigchld_may_be_blocked])
