#!/usr/bin/env python3
"""What a new user meets in the first hour: default addresses, GPUs of one machine, programs by name, mistakes in commands."""
import glob
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import BUILD, Case, clean_environ, Cluster, DDPCTL
from processes.runner import equal, run_and_exit
from processes.waiting import Gate, read_line, wait_for

RUN = ("run", "--standalone", "--max-restarts", "0")
STAND_IN = os.environ.get("STAND_IN_DIR", os.path.join(BUILD, "tests", "standin", "nvml"))
WORKER = os.path.join(BUILD, "worker", "ddp-worker")
NOBODY = 65534
SHOW = 'echo "$RANK:$CUDA_VISIBLE_DEVICES"'


# --- GPUs ----------------------------------------------------------------------------------------

def with_gpus(case, count, *args, **more):
    """ddpctl on a machine with `count` GPUs, by the stand-in for NVML."""
    path = f"{case.dir}/nvml"
    with open(path, "w", encoding="ascii") as file:
        file.write(f"gpus {count}\n" + "".join(f"memory {i} 500\n" for i in range(count)))
    return case.ctl(*args[:1], "--prefix", "always", *args[1:], LD_LIBRARY_PATH=STAND_IN, STAND_IN_NVML=path, **more)


def without_waiting(text):
    """What was said, except that the job waits for its nodes: that is said only where they need more than a second to start."""
    return "".join(line for line in text.splitlines(keepends=True) if " waits: " not in line)


def devices_of_ranks(done):
    equal(done.returncode, 0, done.stderr)
    return [line.split("| ")[1] for line in sorted(done.stdout.splitlines())]


def standalone_nodes_divide_the_gpus():
    with Case() as case:
        for gpus, nodes, nproc, expected in ((2, 2, "1", ["0:0", "1:1"]), (4, 2, "2", ["0:0,1", "1:0,1", "2:2,3", "3:2,3"]),
                                             (4, 2, "gpu", ["0:0,1", "1:0,1", "2:2,3", "3:2,3"]),
                                             (4, 2, "1", ["0:0", "1:1"]), (2, 1, "gpu", ["0:0,1", "1:0,1"])):
            done = with_gpus(case, gpus, *RUN, "--nodes", str(nodes), "-n", nproc, "--", "sh", "-c", SHOW)
            equal(devices_of_ranks(done), expected, f"{gpus} GPUs, {nodes} x {nproc}")
            equal(without_waiting(done.stderr), "", "every worker has a GPU")


def the_user_s_visible_gpus_are_divided():
    with Case() as case:
        run = (*RUN, "--nodes", "2", "--", "sh", "-c", SHOW)
        equal(devices_of_ranks(with_gpus(case, 4, *run, CUDA_VISIBLE_DEVICES="3,1")), ["0:3", "1:1"])
        equal(devices_of_ranks(with_gpus(case, 4, *run, CUDA_VISIBLE_DEVICES="")), ["0:", "1:"])
        done = with_gpus(case, 4, *run, CUDA_VISIBLE_DEVICES="GPU-8932f937")
        equal(done.returncode, 125)
        assert "CUDA_VISIBLE_DEVICES=GPU-8932f937" in done.stderr and "numbers" in done.stderr, done.stderr


def fewer_gpus_than_workers_are_told():
    with Case() as case:
        done = with_gpus(case, 1, *RUN, "--nodes", "2", "--", "sh", "-c", SHOW)
        equal(devices_of_ranks(done), ["0:", "1:"])
        assert "-- 1 GPU here and 2 workers on 2 nodes: they run without a GPU" in done.stderr, done.stderr
        done = with_gpus(case, 1, *RUN, "-n", "2", "--", "sh", "-c", SHOW)
        equal(devices_of_ranks(done), ["0:0", "1:0"])
        assert "-- 2 workers share 1 GPU;" in done.stderr, done.stderr
        done = with_gpus(case, 1, *RUN, "--nodes", "2", "-n", "gpu", "--", "true")
        equal(done.returncode, 125)
        assert "2 nodes cannot have a GPU each, there are 1 here" in done.stderr, done.stderr
        done = with_gpus(case, 2, *RUN, "-n", "cpu", "--", "sh", "-c", 'test -z "$CUDA_VISIBLE_DEVICES"')
        equal((done.returncode, without_waiting(done.stderr)), (0, ""))


def launcherd_refuses_gpus_that_are_not_there():
    with Case() as case:
        with open(f"{case.dir}/nvml", "w", encoding="ascii") as file:
            file.write("gpus 2\n")
        for text, code, error in (("2", 1, "this machine has 2, numbered from 0"), ("0,0", 2, "each once"), ("x", 2, "like 0,2-3"),
                                  ("3-1", 2, "like 0,2-3"), ("64", 2, "from 0 to 63")):
            done = subprocess.run([os.path.join(BUILD, "launcherd", "launcherd"), "--gpus", text, "--state-dir",
                                   f"{case.dir}/state", "--server", f"unix:{case.dir}/none"], capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, timeout=60,
                                  env=clean_environ(LD_LIBRARY_PATH=STAND_IN, STAND_IN_NVML=f"{case.dir}/nvml"))
            equal(done.returncode, code, done.stderr)
            assert error in done.stderr, done.stderr


# --- where the server is -------------------------------------------------------------------------

class Daemon:
    """A daemon with no option except --exit-with-parent; it is ready once constructed."""

    def __init__(self, case, program, environ, user=None, *args):
        more = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        self.log = f"{case.dir}/{program}-{user}.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([os.path.join(BUILD, program, program), "--exit-with-parent", *args], env=environ,
                                            stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, **more)
        self.ready = self.process.stdout.readline().decode()
        with open(self.log, encoding="utf-8") as log:
            assert self.ready, f"{program} did not get ready: {log.read()}"

    def end(self):
        self.process.terminate()
        self.process.wait(60)
        self.process.stdout.close()


def run_as(user, environ, *args):
    more = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    return subprocess.run([DDPCTL, *args], env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60,
                          cwd="/", **more)


def check_submit(user, environ):
    done = run_as(user, environ, "submit", "--wait", "--", "true")
    equal(done.returncode, 0, done.stderr)


def user_of_test():
    """None: the test runs as an ordinary user. A number: it runs as root, and this user can run the built programs."""
    if os.geteuid() != 0:
        return None
    done = subprocess.run([DDPCTL, "version"], capture_output=True, user=NOBODY, group=NOBODY, extra_groups=[], check=False) \
        if os.access(DDPCTL, os.X_OK) else None
    return NOBODY if done and done.returncode == 0 else -1


def user_folders(case, user):
    environ = clean_environ(HOME=f"{case.dir}/home", XDG_RUNTIME_DIR=f"{case.dir}/run", TMPDIR=case.temp)
    environ.pop("XDG_STATE_HOME", None)
    os.chmod(case.dir, 0o755)
    for name in ("home", "run"):
        os.mkdir(f"{case.dir}/{name}", 0o700)
        if user is not None:
            os.chown(f"{case.dir}/{name}", user, user)
    return environ


def check_removed_socket(case, user, environ, server):
    """A client without the variable, as in a job of cron, finds the server; and after a logout has removed the runtime folder everybody
    does, wherever the server is then: also a node and a client that were there before, and a server that is started anew. Returns it."""
    without = {name: value for name, value in environ.items() if name != "XDG_RUNTIME_DIR"}
    link = f"{case.dir}/home/.local/state/ddp/rendezvous.sock"
    check_submit(user, without)
    gate = Gate(f"{case.dir}/go")
    job = run_as(user, environ, "submit", "--", "sh", "-c", f"echo begins; {gate.wait}; echo ends").stdout.strip()
    more = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    reader = subprocess.Popen([DDPCTL, "logs", "-f", job], env=environ, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd="/", **more)
    assert "begins" in read_line(reader, "the first line")
    shutil.rmtree(f"{case.dir}/run")
    wait_for("the socket in the state directory", lambda: os.path.exists(link) and not os.path.islink(link))
    for other in (without, environ):
        check_submit(user, other)
    server.end()
    server = Daemon(case, "rendezvous", environ, user)
    equal(server.ready, f"rendezvous: ready unix:{link}\n")
    os.mkdir(f"{case.dir}/run", 0o700)  # the next login
    if user is not None:
        os.chown(f"{case.dir}/run", user, user)
    check_submit(user, environ)
    gate.open()
    with reader:
        assert "ends" in read_line(reader, "the line after the server's end")
        equal(reader.wait(60), 0)
    return server


def a_user_s_programs_find_one_another():
    user = user_of_test()
    if user == -1:
        print("skip: user nobody cannot run what was built here")
        return
    for variable, place in (("", "home/.local/state/ddp"), ("XDG_RUNTIME_DIR", "run/ddp")):
        with Case() as case:
            environ = user_folders(case, user)
            if not variable:
                del environ["XDG_RUNTIME_DIR"]
            server = Daemon(case, "rendezvous", environ, user)
            equal(server.ready, f"rendezvous: ready unix:{case.dir}/{place}/rendezvous.sock\n")
            equal(os.stat(f"{case.dir}/{place}/rendezvous.sock").st_mode & 0o777, 0o600)
            node = Daemon(case, "launcherd", environ, user, "--name", "n", "--slots", "2", "--allow-root")
            check_submit(user, environ)
            if variable:
                server = check_removed_socket(case, user, environ, server)
            node.end()
            server.end()
            done = run_as(user, environ, "ps")
            equal(done.returncode, 5, done.stdout)
            assert f"{case.dir}/{place}/rendezvous.sock" in done.stderr and "rendezvous & launcherd &" in done.stderr, done.stderr
            runs_here_without_a_server(user, environ, f"{case.dir}/{place}/rendezvous.sock")


def runs_here_without_a_server(user, environ, socket):
    environ = {**environ, "TMPDIR": environ["HOME"]}
    here = f"-- no server is here ({socket}): the job runs on this machine, as with --standalone --"
    for nodes in ((), ("--nnodes", "1:4"), ("--nnodes=1", "--rdzv-endpoint=h:29400", "--rdzv-id=7")):
        done = run_as(user, environ, "run", "-n", "2", *nodes, "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")
        equal((done.returncode, sorted(done.stdout.splitlines())), (0, ["rank 0 of 2", "rank 1 of 2"]), done.stderr)
        equal([line for line in done.stderr.splitlines() if line.startswith("-- no server")], [here])
    done = run_as(user, environ, "run", "--nnodes", "2", "-n", "4", "--rdzv-endpoint", "h:29400", "train.py", "--lr", "1")
    equal((done.returncode, done.stdout), (125, ""), done.stderr)  # as on each of two nodes: what to type once
    assert "--nodes 2 needs a server" in done.stderr and "then once, on any machine: ddpctl run --nodes 2 --nproc-per-node 4 train.py --lr 1;" in done.stderr, done.stderr


def root_s_programs_find_one_another():
    """Runs in a mount namespace in which /run and /var/lib are empty."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        print("skip: needs root and mount namespaces")
        return
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", sys.executable, os.path.abspath(__file__), BUILD,
                           "--in-namespace"], capture_output=True, text=True, timeout=200, check=False)
    print(done.stdout, end="")
    equal(done.returncode, 0, done.stdout + done.stderr)


def in_namespace():
    for folder in ("/run", "/var/lib"):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    with Case() as case:
        server = Daemon(case, "rendezvous", case.environ())
        equal(server.ready, "rendezvous: ready unix:/run/ddp/rendezvous.sock\n")
        node = Daemon(case, "launcherd", case.environ(), None, "--slots", "1", "--allow-root")
        check_submit(None, case.environ())
        user = user_of_test()
        if user != -1:  # without a server of one's own: the machine's
            environ = user_folders(case, user)
            check_submit(user, environ)
            own = Daemon(case, "rendezvous", environ, user)
            own_node = Daemon(case, "launcherd", environ, user, "--name", "own", "--slots", "1", "--allow-root")
            done = run_as(user, environ, "nodes", "-q")
            equal(done.stdout, "own\n", "one's own server comes first")
            check_submit(user, environ)
            own_node.end()
            own.process.kill()  # its socket file stays, and nobody listens on it
            own.process.wait(60)
            own.process.stdout.close()
            check_submit(user, environ)
        node.end()
        server.end()


# --- commands ------------------------------------------------------------------------------------

def our_own_programs_are_found_by_their_name():
    with Case() as case:
        done = case.ctl(*RUN, "--", "ddp-worker", "--version")
        equal((done.returncode, done.stdout[:11]), (0, "ddp-worker "), done.stderr)
        os.mkdir(f"{case.dir}/bin")
        with open(f"{case.dir}/bin/ddp-worker", "w", encoding="ascii") as file:
            file.write("#!/bin/sh\necho mine\n")
        os.chmod(f"{case.dir}/bin/ddp-worker", 0o755)
        done = case.ctl(*RUN, "--", "ddp-worker", PATH=f"{case.dir}/bin:/usr/bin:/bin")
        equal(done.stdout, "mine\n", "the user's PATH goes first")


def logs_of_a_queued_job_say_why_it_waits():
    with Case() as case, Cluster(case, nodes=1, slots=1) as cluster:
        go = Gate(f"{case.dir}/go")
        cluster.submit("--", "sh", "-c", f"{go.wait}")
        job = cluster.submit("--name", "second", "--", "echo", "hello")
        reason = cluster.status(job)["reason"]
        assert reason, "it waits for no reason"
        done = cluster.ctl("logs", job)
        equal((done.returncode, done.stdout, done.stderr), (0, "", f"-- second (2) waits: {reason} --\n"))
        follow = case.start("--server", cluster.address, "logs", "-f", job)
        equal(follow.stderr.readline(), f"-- second (2) waits: {reason} --\n")
        run = case.start("--server", cluster.address, "run", "--name", "third", "--", "true")
        while "-- third (3) waits: " not in (line := run.stderr.readline()):
            assert line, "run did not say why it waits"
        go.open()
        output, errors = follow.communicate(timeout=60)
        equal((follow.returncode, output), (0, "hello\n"), errors)
        run.communicate(timeout=60)
        equal(run.returncode, 0)


def nothing_wrong_is_queued():
    with Case() as case, Cluster(case, nodes=0) as cluster:
        for words, code, error in (
                (("run", "--rank", "3", "--", "true"), 125, "--rank 3: there is no such rank, the job has ranks 0 to 0"),
                (("run", "-r", "4", "--", "true"), 125, "--redirects 4: 0, 1 (stdout)"),
                (("run", "--local-ranks-filter", "1", "--", "true"), 125, "local ranks go from 0 to 0"),
                (("run", "--node-rank", "1", "--", "true"), 125, "run it once, without --node-rank"),
                (("submit", "--env-style", "pbs", "--", "true"), 2, "--env-style pbs: torch, slurm, horovod or mpi"),
                (("submit", "--role", "a\nb", "--", "true"), 2, "no control characters"),
                (("submit", "--local-rank-arg", "a b", "--", "true"), 2, "of letters, digits, - and _"),
                (("submit", "--nproc-per-node", "gpu", "--", "true"), 2, "the server has no node with a GPU"),
                (("submit", "--rank", "2", "-n", "2", "--", "true"), 2, "the job has ranks 0 to 1"),
                (("submit", "--rank", "0-x", "--", "true"), 2, "is not a whole number"),
                (("submit", "--rank", "0,", "--", "true"), 2, "should be like 0,4-7"),
                (("submit", "--rank", "1-0", "-n", "2", "--", "true"), 2, "--rank"),
                (("run", "--", ""), 125, "the command is an empty word"),
                (("submit",), 2, "there is no command"), (("submit", "-m"), 2, "there is no command"),
                (("submit", "-N", "0", "--", "true"), 2, "--nodes: 0 is not in"),
                (("submit", "-n", "0", "--", "true"), 2, "--nproc-per-node: 0 is not in"),
                (("submit", "-N", "2:1", "--", "true"), 2, "--nodes"),
                (("submit", "-e", "DDP_A=3", "--", "true"), 2, "DDP_A is the platform's own"),
                (("submit", "-e", "=3", "--", "true"), 2, "is no name of a variable"),
                (("submit", "-e", "DDP_X=3", "--", "true"), 2, "begin with DDP_"),
                (("submit", "-e", "NOT_THERE", "--", "true"), 2, "there is no such variable here"),
                (("submit", "--name", "a b", "--", "true"), 2, "'a b' is no name of a job"),
                (("submit", "--cwd", "", "--", "true"), 2, "--cwd: the value is empty"),
                (("submit", "--max-restarts", "-1", "--", "true"), 2, "--max-restarts"),
                (("submit", "--time", "soon", "--", "true"), 2, "is not a duration"),
                (("submit", "none.json"), 2, "none.json: No such file"),
                (("run", "--standalone", "--cwd", "/not/there", "--", "true"), 125, "there is no folder /not/there"),
                (("run", "--standalone", "--cwd", "/dev/null", "--", "true"), 125, "there is no folder /dev/null")):
            done = cluster.ctl(*words)
            equal(done.returncode, code, f"{words}: {done.stderr}")
            assert error in done.stderr, f"{words}: {done.stderr}"
        equal(cluster.ctl("ps", "-a", "-q").stdout, "", "a job was queued all the same")


def verbs_of_other_programs_are_understood():
    with Case() as case, Cluster(case) as cluster:
        for verb in ("kill", "stop", "cancel"):
            job = cluster.submit("--", "sleep", "600")
            equal(cluster.ctl("list", "-q").stdout, job + "\n")
            done = cluster.ctl(verb, job)
            equal(done.returncode, 0, done.stderr)
            wait_for("the end of the job", lambda j=job: cluster.status(j)["state"] == "cancelled")
        equal(cluster.ctl("ls", "-q").stdout, "")
        for verb, answer in (("rm", "ddpctl cancel JOB"), ("delete", "ddpctl cancel JOB"), ("queue", "ddpctl ps"),
                             ("info", "ddpctl status JOB"), ("attach", "ddpctl logs -f JOB")):
            done = cluster.ctl(verb, "1")
            equal(done.returncode, 2, done.stderr)
            assert answer in done.stderr, done.stderr
        for typed, meant in (("tpo", "top"), ("topp", "top"), ("doctr", "doctor"), ("wy", "why")):
            done = cluster.ctl(typed)
            equal(done.returncode, 2, done.stderr)
            assert f"did you mean {meant}?" in done.stderr, done.stderr
        assert "usage: ddpctl cancel" in cluster.ctl("help", "kill").stdout


def log_dir_of_a_private_run_keeps_the_logs():
    with Case() as case:
        where = f"{case.dir}/kept/logs"
        done = case.ctl(*RUN, "--nodes", "2", "--log-dir", where, "--", "sh", "-c", 'echo "rank $RANK"')
        equal(done.returncode, 0, done.stderr)
        assert f"-- the logs of the ranks are in {where}/1 --" in done.stderr, done.stderr
        equal(len(os.listdir(where)), 3, "a folder for the job on each node, and one for the run")
        done = case.ctl(*RUN, "--nodes", "2", "--log-dir", where, "--", "sh", "-c", 'echo "rank $RANK again"')
        assert f"-- the logs of the ranks are in {where}/2 --" in done.stderr, done.stderr
        for run, text in ((1, "rank {}\n"), (2, "rank {} again\n")):
            equal(sorted(os.listdir(f"{where}/{run}")), ["g1-rank0.log", "g1-rank1.log"])
            for rank in range(2):
                with open(f"{where}/{run}/g1-rank{rank}.log", encoding="ascii") as file:
                    equal(file.read(), text.format(rank))


# --- ddp-worker ----------------------------------------------------------------------------------

def worker(*args):
    return subprocess.run([WORKER, "-a", "convnet", "--device", "cpu", *args], capture_output=True, text=True, timeout=200,
                          stdin=subprocess.DEVNULL, env=clean_environ(OMP_NUM_THREADS="1"), check=False)


def what_is_missing_is_called_missing():
    for args, error in ((("/not/there",), "there is no folder /not/there"), (("/dev/null",), "/dev/null is not a folder"),
                        (("--dummy", "--resume", "/no/step-00000001.safetensors"), "--resume: there is no /no/step-00000001"),
                        (("--dummy", "--resume", "/no/folder"), "--resume: there is no /no/folder"),
                        (("--dummy", "-e", "--resume", "/no/folder"), "--resume: there is no /no/folder"),
                        (("--dummy", "--pretrained", "/no/w.safetensors"), "--pretrained: there is no file /no/w.safetensors")):
        done = worker("--max-steps", "1", *args)
        assert done.returncode != 0 and error in done.stderr, f"{args}: {done.stderr}"


def a_few_dummy_steps_end_without_a_validation():
    done = worker("--dummy", "--max-steps", "2", "-b", "8", "-p", "1")
    equal(done.returncode, 0, done.stderr)
    assert "Step [2/" in done.stdout and "No validation: " in done.stdout and "Val:" not in done.stdout, done.stdout


if __name__ == "__main__":
    if "--in-namespace" in sys.argv:
        run_and_exit([in_namespace])
    run_and_exit([standalone_nodes_divide_the_gpus, the_user_s_visible_gpus_are_divided, fewer_gpus_than_workers_are_told,
               launcherd_refuses_gpus_that_are_not_there, a_user_s_programs_find_one_another,
               root_s_programs_find_one_another, our_own_programs_are_found_by_their_name,
               logs_of_a_queued_job_say_why_it_waits, nothing_wrong_is_queued, verbs_of_other_programs_are_understood,
               log_dir_of_a_private_run_keeps_the_logs, what_is_missing_is_called_missing,
               a_few_dummy_steps_end_without_a_validation], side_by_side=2)
