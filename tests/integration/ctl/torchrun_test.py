#!/usr/bin/env python3
"""Command lines of torchrun and torch.distributed.launch, used unchanged with ddpctl run: what the ranks see, and what is shown.
Compared with the real torchrun where it is installed. torchrun_test.py [BUILD]"""
import json
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "pytorch"))
import pytorch  # noqa: E402
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, clean_environ, Cluster, DDPCTL
from processes.runner import equal, run_and_exit
from processes.waiting import Gate, wait_for

# What a rank gets: its arguments, and the variables of torchrun's contract.
SHOW = ("import json, os, sys\n"
        "names = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE', 'GROUP_RANK', 'GROUP_WORLD_SIZE', 'ROLE_NAME',\n"
        "         'ROLE_RANK', 'ROLE_WORLD_SIZE', 'TORCHELASTIC_RESTART_COUNT', 'TORCHELASTIC_MAX_RESTARTS', 'TORCHELASTIC_RUN_ID',\n"
        "         'OMP_NUM_THREADS', 'TORCH_NCCL_ASYNC_ERROR_HANDLING')\n"
        "line = json.dumps({'argv': sys.argv[1:], 'name': __name__, **{n: os.environ.get(n) for n in names}})\n"
        "sys.stdout.write(line + '\\n')\nsys.stderr.write('error ' + os.environ['RANK'] + '\\n')\n")


def put(case, text=SHOW, name="show.py", mode=0o644):
    path = f"{case.dir}/{name}"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)
    return path


def run(case, *words, **environ):
    done = subprocess.run([DDPCTL, "run", "--prefix", "never", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          cwd=case.dir, timeout=120, env=clean_environ(TMPDIR=case.temp, HOME=case.dir, **environ))
    equal(done.returncode, 0, done.stderr)
    return done


def shown(text):
    """The output of each rank, by rank."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return {int(line["RANK"]): line for line in lines}


def errors(text):
    return sorted(int(number) for number in re.findall(r"^error (\d+)$", text, re.MULTILINE))


LINE = ("--standalone", "--nnodes=1", "--nproc_per_node=2", "--max-restarts=0", "--role", "trainer", "--rdzv_id=mine")


def ranks_are_told_what_torchrun_tells():
    with Case() as case:
        put(case)
        done = run(case, *LINE, "show.py", "--epochs", "3", "--nnodes", "7")
        ours = shown(done.stdout)
        equal(sorted(ours), [0, 1])
        equal(ours[1]["argv"], ["--epochs", "3", "--nnodes", "7"])
        equal((ours[1]["ROLE_NAME"], ours[1]["TORCHELASTIC_RUN_ID"]), ("trainer", "mine"))
        equal(errors(done.stderr), [0, 1])
        python = os.path.join(pytorch.folder(), "bin", "python")
        if not os.access(python, os.X_OK):
            print("skip: the comparison with torchrun (PyTorch is not installed)")
            return
        beside = subprocess.run([python, "-m", "torch.distributed.run", *LINE, "show.py", "--epochs", "3", "--nnodes", "7"],
                                capture_output=True, text=True, cwd=case.dir, stdin=subprocess.DEVNULL, timeout=240,
                                env=clean_environ(TMPDIR=case.dir, HOME=case.dir))
        equal(beside.returncode, 0, beside.stderr)
        theirs = shown(beside.stdout)
        for rank, facts in theirs.items():  # --standalone of torchrun makes a run id of its own
            facts["TORCHELASTIC_RUN_ID"] = "mine"
            equal(ours[rank], facts, f"rank {rank}")


def streams_are_chosen_as_with_torchrun():
    with Case() as case:
        put(case)
        base = ("--standalone", "--nproc-per-node", "3", "show.py")
        for options, out, err in ((("-r", "3"), [], []), (("-r", "1"), [], [0, 1, 2]), (("--redirects", "0:3,1:2"), [1, 2], [2]),
                                  (("-r", "3", "-t", "1:1"), [1], []), (("-t", "3"), [0, 1, 2], [0, 1, 2]),
                                  (("--local-ranks-filter", "0,2"), [0, 2], [0, 2]), (("--local_ranks_filter=1", "-r", "2"), [1], [])):
            done = run(case, *options, *base)
            equal((sorted(shown(done.stdout)), errors(done.stderr)), (out, err), str(options))
    with Case() as case, Cluster(case) as cluster:  # output that is not shown is still in the logs
        path = put(case)
        equal(cluster.ctl("run", "-r", "3", "-n", "2", path).stdout, "")
        equal(sorted(shown(cluster.ctl("logs", "@last", "--prefix", "never").stdout)), [0, 1])


def lines_have_torchruns_prefix():
    """Streams of --tee have it in a pipe, too; of the others no line has one there."""
    with Case() as case:
        put(case, "import os, sys\nprint('out', flush=True)\nprint('err', file=sys.stderr)\n")
        command = [DDPCTL, "run", "--standalone", "-n", "2", "--role", "r"]
        for options, out, err in ((("-t", "3"), ["[r0]:out", "[r1]:out"], ["[r0]:err", "[r1]:err"]),
                                  (("-t", "1:1"), ["[r1]:out", "out"], ["err", "err"]),
                                  (("-t", "1", "--log-line-prefix-template", "${rank}/$local_rank ${x}: "), ["0/0 ${x}: out", "1/1 ${x}: out"], ["err", "err"]),
                                  (("--log_line_prefix_template=<$rank>",), ["out", "out"], ["err", "err"]),
                                  (("--prefix=always", "--log_line_prefix_template=<$rank>"), ["<0>out", "<1>out"], ["<0>err", "<1>err"]),
                                  (("--prefix=never", "-t", "3"), ["out", "out"], ["err", "err"])):
            done = subprocess.run([*command, *options, "show.py"], capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=case.dir, timeout=60,
                                  env=clean_environ(TMPDIR=case.temp, HOME=case.dir))
            equal((sorted(done.stdout.splitlines()), sorted(line for line in done.stderr.splitlines() if line.endswith("err"))), (out, err), str(options))


def lines_with_words_go_to_a_file_too():
    with Case() as case:
        put(case, "import sys\nprint('an apple')\nprint('a pear')\nprint('a,b', file=sys.stderr)\n")
        words = ("--log-dir", f"{case.dir}/logs", "--duplicate-stdout-filters", "apple,plum", "--duplicate_stderr_filters=a,,b", "-n", "2", "show.py")
        done = run(case, "--standalone", *words)
        equal(sorted(done.stdout.splitlines()), ["a pear", "a pear", "an apple", "an apple"])
        with Cluster(case) as cluster:  # with a server ddpctl writes these files, although the nodes keep the logs
            cluster.do("run", "--cwd", case.dir, *words)
        for number in (1, 2):
            for name, text in (("out", "an apple"), ("err", "a,b")):
                with open(f"{case.dir}/logs/{number}/filtered_std{name}.log", encoding="utf-8") as file:
                    equal(sorted(file.read().splitlines()), [f"[default{rank}]:{text}" for rank in range(2)])
        done = run(case, "--standalone", *words[2:])
        assert "--duplicate-stdout-filters has no effect without --log-dir" in done.stderr, done.stderr


def signals_of_the_list_reach_the_ranks():
    with Case() as case:
        put(case, "import signal, sys\nsignal.signal(signal.SIGUSR1, lambda n, f: print('got', n))\nprint('ready', flush=True)\nsignal.pause()\n")
        process = subprocess.Popen([DDPCTL, "run", "--standalone", "--signals-to-handle", "SIGTERM,SIGUSR1", "show.py"], cwd=case.dir, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environ(TMPDIR=case.temp, HOME=case.dir))
        equal(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGUSR1)
        out, err = process.communicate(timeout=60)
        equal((process.returncode, out), (128 + signal.SIGUSR1, f"got {int(signal.SIGUSR1)}\n"), err)


def a_program_is_started_as_torchrun_does():
    with Case() as case:
        put(case)
        os.mkdir(f"{case.dir}/package")
        put(case, name="package/__main__.py")
        put(case, "#!/bin/sh\necho shell $LOCAL_RANK $1\n", "script.sh", 0o755)
        put(case, '"""Runs `touch boom`."""\n' + SHOW, "docstring.py", 0o755)
        for words in (("show.py", "a"), ("-m", "show", "a"), ("--module", "package", "a"), ("--run-path", f"{case.dir}/show.py", "a"),
                      ("docstring.py", "a")):
            equal(shown(run(case, "--standalone", *words).stdout)[0]["argv"], ["a"], str(words))
        assert not os.path.exists(f"{case.dir}/boom"), "a shell ran the docstring"
        equal(run(case, "--standalone", "--no-python", "./script.sh", "a").stdout, "shell 0 a\n")
        done = run(case, "--standalone", "show.py", PYTHON_EXEC=sys.executable)
        assert f"as: {sys.executable} -u" in done.stderr, done.stderr


def scripts_of_the_old_launcher_get_their_argument():
    with Case() as case:
        put(case)
        for words in (("show.py", "--lr", "1"), ("python3", "show.py", "--lr", "1"), ("-m", "show", "--lr", "1")):
            ours = shown(run(case, "--standalone", "--nproc_per_node=2", "--local-rank-arg", "local_rank", *words).stdout)
            equal([ours[rank]["argv"] for rank in (0, 1)], [[f"--local_rank={rank}", "--lr", "1"] for rank in (0, 1)], str(words))


def variables_stand_for_options():
    with Case() as case:
        put(case)
        pet = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "2", "PET_STANDALONE": "1", "PET_MAX_RESTARTS": "5", "PET_ROLE": "r",
               "PET_NODE_RANK": "0", "PET_RDZV_BACKEND": "c10d", "PET_MASTER_PORT": "1"}
        ours = shown(run(case, "show.py", **pet).stdout)
        equal((len(ours), ours[0]["TORCHELASTIC_MAX_RESTARTS"], ours[0]["ROLE_NAME"]), (2, "5", "r"))
        ours = shown(run(case, "--nproc-per-node", "1", "show.py", DDP_ROLE="ours", **pet).stdout)
        equal((len(ours), ours[0]["ROLE_NAME"]), (1, "ours"))


def what_has_no_effect_is_said():
    with Case() as case:
        done = run(case, "--standalone", "--rdzv-backend=c10d", "--rdzv_endpoint", "h:1", "--rdzv-conf", "timeout=9", "--master-addr",
                   "h", "--master_port=1", "--monitor-interval", "1", "--start-method", "fork", "--local-addr", "h", "--logs-specs",
                   "x", "--event-log-handler", "x", "--numa-binding", "node", "--node-rank", "0", "--use_env", "--", "true")
        said = re.findall(r"^--([a-z-]+) has no effect here: ", done.stderr, re.MULTILINE)
        equal(sorted(said), sorted(["rdzv-backend", "rdzv-endpoint", "rdzv-conf", "master-addr", "master-port", "monitor-interval",
                                    "start-method", "local-addr", "logs-specs", "event-log-handler", "numa-binding"]))


def other_launchers_variables_are_there_on_request():
    with Case() as case:
        text = run(case, "--standalone", "-n", "2", "--env-style", "slurm,horovod,mpi", "--", "sh", "-c",
                   "echo $SLURM_PROCID $SLURM_NTASKS $SLURM_LOCALID $HOROVOD_RANK $OMPI_COMM_WORLD_RANK $PMI_SIZE").stdout
        equal(sorted(text.splitlines()), ["0 2 0 0 0 2", "1 2 1 1 1 2"])
        equal(run(case, "--standalone", "--", "sh", "-c", "echo ${SLURM_PROCID-none}").stdout, "none\n")
        done = run(case, "--standalone", "--nproc-per-node", "2", "--virtual-local-rank", "--", "sh", "-c", "echo $LOCAL_RANK $RANK")
        equal(sorted(done.stdout.splitlines()), ["0 0", "0 1"])


def the_server_says_how_many_ranks_a_node_can_have():
    with Case() as case, Cluster(case, slots=3) as cluster:
        for word in ("cpu", "auto"):
            done = cluster.ctl("run", "--prefix", "never", "--nproc-per-node", word, "--", "sh", "-c", "echo $LOCAL_WORLD_SIZE")
            equal((done.returncode, done.stdout), (0, "3\n3\n3\n"), done.stderr)
        done = cluster.ctl("run", "--nproc-per-node", "gpu", "--", "true")
        equal(done.returncode, 125)
        assert "the server has no node with a GPU" in done.stderr, done.stderr


def one_command_on_two_nodes_is_one_job():
    """As torchrun wants it, at one time or after another, and from any directory. When its job has ended it is a new command."""
    with Case() as case, Cluster(case, nodes=2, slots=1) as cluster:
        go = Gate(f"{case.dir}/go")
        words = [DDPCTL, "--server", cluster.address, "run", "--prefix", "never", "--nnodes=2", "--nproc_per_node=1", "--rdzv_id=7", "--rdzv_backend=c10d",
                 "--rdzv_endpoint=node0:29400", "--max-restarts=0", "--", "sh", "-c", f"echo rank $RANK of $WORLD_SIZE; {go.wait}"]
        processes = [subprocess.Popen(words, cwd=folder, env=case.environ(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                     for folder in (case.dir, "/")]
        wait_for("the job runs", lambda: cluster.ctl("status", "1").stdout.count("running") >= 1)
        processes.append(subprocess.Popen(words, env=case.environ(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        for line in processes[2].stderr:
            if "has made job 1 from another terminal" in line:
                break
        go.open()
        ends = [process.communicate(timeout=60) for process in processes]
        for process, (out, err) in zip(processes, ends):
            equal((process.returncode, sorted(out.splitlines())), (0, ["rank 0 of 2", "rank 1 of 2"]), err)
        equal(sum("has made job 1" in err for _, err in ends[:2]), 1, str(ends))  # one of the first two has made it
        equal([job["id"] for job in json.loads(cluster.do("ps", "-a", "--json"))["jobs"]], [1])
        again = subprocess.run(words, env=case.environ(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        equal((again.returncode, sorted(again.stdout.splitlines())), (0, ["rank 0 of 2", "rank 1 of 2"]), again.stderr)
        assert "logs -f 2 " in again.stderr, again.stderr
        cluster.do("run", "--nnodes=2", "--rdzv_id=8", "--rdzv_endpoint=node0:29400", "--", "true")
        equal([job["id"] for job in sorted(json.loads(cluster.do("ps", "-a", "--json"))["jobs"], key=lambda job: job["id"])], [1, 2, 3])


def page_text(name):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 3, "docs", name), encoding="utf-8") as page:
        return page.read()


def the_pages_name_verbs_and_options_that_exist():
    with Case() as case:
        helps = {}
        for page in ("from-torchrun.md", "from-slurm.md"):
            for verb, rest in re.findall(r"ddpctl ([a-z]+)([^`\n]*)", page_text(page)):
                if verb not in helps:
                    helps[verb] = case.ctl(verb, "--help")
                equal(helps[verb].returncode, 0, f"{page}: ddpctl {verb}")
                for option in re.findall(r"(?<=\s)--[a-z_-]+", re.split(r" -- |\.py", rest)[0].replace("_", "-")):
                    assert re.search(option + r"[ )\n]", helps[verb].stdout), f"{page}: ddpctl {verb} has no {option}"


def every_option_of_torchrun_is_in_the_table():
    """Compares docs/from-torchrun.md with `torchrun --help`: the page names each option, and ddpctl accepts it or refuses it by name."""
    table = "".join(line for line in page_text("from-torchrun.md").splitlines() if line.startswith("|"))
    torchrun = os.path.join(pytorch.folder(), "bin", "torchrun")
    if not os.access(torchrun, os.X_OK):
        print("skip: the options of torchrun (PyTorch is not installed)")
        return
    text = subprocess.run([torchrun, "--help"], capture_output=True, text=True, timeout=120, check=True).stdout
    names = {name.replace("_", "-") for name in re.findall(r"(?<![\w-])--([a-z][a-z_-]+)", text.split("options:")[1])}
    names = {name for name in names if not name.endswith("-") and name != "redirect"}  # undoes argparse's line breaks
    assert len(names) > 25, names
    missing = sorted(name for name in names if f"`--{name}" not in table)
    equal(missing, [], "options that docs/from-torchrun.md does not name")
    with Case() as case:
        for name in sorted(names - {"print-completion", "help"}):
            done = case.ctl("run", "--dry-run", f"--{name}=1", "--", "true")
            assert "unknown option" not in done.stderr, f"--{name}: {done.stderr}"


if __name__ == "__main__":
    run_and_exit([the_pages_name_verbs_and_options_that_exist, every_option_of_torchrun_is_in_the_table, ranks_are_told_what_torchrun_tells, streams_are_chosen_as_with_torchrun, lines_have_torchruns_prefix, lines_with_words_go_to_a_file_too, signals_of_the_list_reach_the_ranks, a_program_is_started_as_torchrun_does,
               scripts_of_the_old_launcher_get_their_argument, variables_stand_for_options, what_has_no_effect_is_said,
               other_launchers_variables_are_there_on_request, one_command_on_two_nodes_is_one_job, the_server_says_how_many_ranks_a_node_can_have])
