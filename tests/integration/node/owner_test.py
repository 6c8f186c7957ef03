#!/usr/bin/env python3
"""Jobs run as their owner: accounts by name, limits, files, cgroups, the check of every node: owner_test.py BUILD [NAME...]

As root, the test runs jobs of `nobody` and `daemon`, accounts that every system has; as an ordinary user those tests skip and say so."""
import grp
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.proc import is_alive
from processes.runner import run_tests, Skip
from processes.waiting import LONG_S, wait_for, wait_gone
from processes.world import Node, World
from processes.server import CLUSTER, user_name

BUILD = os.path.abspath(sys.argv[1])
LAUNCHERD = f"{BUILD}/launcherd/launcherd"
SHELL = "/bin/sh"
IS_ROOT = os.geteuid() == 0
OWN = user_name()


def need_root():
    if not IS_ROOT:
        raise Skip("only root runs jobs of other users")


def account(name, is_system):
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise Skip(f"this system has no account {name}") from None
    if (found.pw_uid < 1000) != is_system:
        raise Skip(f"{name} has the uid {found.pw_uid}")
    return found


def refusal(world, job, user):
    world.server.start(job, 1, ["true"], user=user)
    report = world.server.wait_phase(job, 1, "ended")
    assert report["failed_errno_exit"] == 126 and report["failed_rank"] == -1, report
    world.server.forget(job, 1)
    wait_for("the run directory to go", lambda: not os.listdir(f"{world.folder}/node0/run"))
    return report["cause"]


def open_folder(world):
    """Lets other users traverse to the node's state directory, as they can through /var/lib."""
    os.chmod(world.folder, 0o711)


def run_lines(world, node, user, script, **more):
    report = world.server.run(1, [SHELL, "-c", script], user=user, **more)
    assert report["cause"] == "", report
    lines = world.server.log_bytes(1, 1, 0).decode().split("\n")
    world.forget(node, 1, 1)
    return lines


def test_jobs_of_others_are_refused():
    with World(LAUNCHERD) as world:
        world.node(extra=[])
        cause = refusal(world, 1, "no-such-account")
        if not IS_ROOT:
            assert cause == (f"launcherd on node0 runs as {OWN} and cannot start jobs of no-such-account: run it as root, or "
                             f"submit as {OWN}"), cause
            assert "cannot start jobs of root" in refusal(world, 2, "root")
            return
        assert cause == ("node node0 has no account no-such-account, which submitted the job: add it there, or submit as a user "
                         "that every node has"), cause
        assert "node0 runs no jobs of root" in refusal(world, 2, OWN)
        assert "--allow-root" in refusal(world, 3, account("daemon", True).pw_name)
        assert "no account 0," in refusal(world, 4, "0"), "a number is no name"


def test_job_runs_as_its_user():
    need_root()
    nobody = account("nobody", False)
    with World(LAUNCHERD) as world:
        node = world.node(extra=[])
        lines = run_lines(world, node, "nobody", "id -u; id -g; id -G; umask; ulimit -n; ulimit -c; echo $USER $LOGNAME $HOME; "
                          "grep -E '^(CapEff|NoNewPrivs|SigBlk|SigIgn):' /proc/self/status")
        groups = sorted({nobody.pw_gid} | {g.gr_gid for g in grp.getgrall() if "nobody" in g.gr_mem})
        assert lines[:2] == [str(nobody.pw_uid), str(nobody.pw_gid)], lines
        assert sorted(map(int, lines[2].split())) == groups, lines
        assert int(lines[3], 8) == 0o022 and int(lines[4]) >= 1024 and lines[5] == "0", lines
        assert lines[6] == f"nobody nobody {nobody.pw_dir}", lines
        found = dict(line.split(":\t") for line in lines[7:11])
        assert found["NoNewPrivs"] == "1" and int(found["CapEff"], 16) == 0 and int(found["SigBlk"], 16) == 0, found


def test_system_account_with_allow_root():
    need_root()
    daemon = account("daemon", True)
    with World(LAUNCHERD) as world:
        node = world.node()
        assert run_lines(world, node, "daemon", "id -u")[0] == str(daemon.pw_uid)


def test_own_job_has_limits_and_no_new_privileges():
    with World(LAUNCHERD) as world:
        node = world.node()
        lines = run_lines(world, node, OWN, "ulimit -c; umask; ulimit -Hc; grep ^NoNewPrivs: /proc/self/status; ls /proc/self/fd")
        assert lines[0] == "0" and int(lines[1], 8) == 0o022 and lines[3] == "NoNewPrivs:\t1", lines
        assert set(lines[4:-1]) == {"0", "1", "2", "3", "4"}, lines  # 3: to the shim, 4: of ls


def may_read(path, user):
    done = subprocess.run(["ls" if os.path.isdir(path) else "cat", path], user=user, group=user, extra_groups=[],
                          capture_output=True, text=True, timeout=60, check=False, cwd="/")
    assert done.returncode == 0 or "Permission denied" in done.stderr, done.stderr
    return done.returncode == 0


def said_to(user, path):
    """What comes on a connection of that user before it is closed."""
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(LONG_S)
        os.seteuid(user)
        try:
            one.connect(path)
        finally:
            os.seteuid(0)
        try:
            return one.recv(1 << 16)
        except ConnectionResetError:
            return b""


def test_files_of_a_job_are_for_nobody_else():
    need_root()
    nobody, other = account("nobody", False), account("daemon", True)
    with World(LAUNCHERD) as world:
        open_folder(world)
        node = world.node(extra=[])
        world.server.start(1, 1, [SHELL, "-c", "echo secret; echo '{}' > $TORCHELASTIC_ERROR_FILE; sleep 1000"], user="nobody")
        world.server.go(1, 1)
        world.server.wait_phase(1, 1, "running")
        logs, run = node.log_dir(1), node.run_dir(1, 1)
        error = f"{logs}/g1-errors/rank0.json"
        wait_for("its output", lambda: os.path.exists(error) and os.path.getsize(f"{logs}/g1-rank0.log") > 0)
        private = [f"{logs}/g1-rank0.log", f"{logs}/shim-g1.log", f"{run}/start.msg", f"{run}/shim.json"]
        for path in private:
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600, path
            assert not may_read(path, nobody.pw_uid) and not may_read(path, other.pw_uid), path
        for path, mode in ((run, 0o700), (logs, 0o711), (f"{logs}/g1-errors", 0o700)):
            assert stat.S_IMODE(os.stat(path).st_mode) == mode, (path, oct(os.stat(path).st_mode))
            assert not may_read(path, other.pw_uid), path
        assert may_read(error, nobody.pw_uid) and not may_read(error, other.pw_uid)
        assert stat.S_ISSOCK(os.stat(f"{run}/shim.sock").st_mode) and stat.S_IMODE(os.stat(f"{run}/shim.sock").st_mode) == 0o600
        for path, mode in ((os.path.dirname(run), 0o711), (run, 0o711), (f"{run}/shim.sock", 0o666)):
            os.chmod(path, mode)  # what the modes keep away, the shim refuses, too
        for user in (nobody, other):
            assert said_to(user.pw_uid, f"{run}/shim.sock") == b"", user.pw_name
        world.server.stop(1, 1)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def test_files_of_an_ordinary_node():
    if IS_ROOT:
        raise Skip("root's files have their own test")
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.run(1, ["true"])
        for path in (f"{world.folder}/node0/run", f"{world.folder}/node0/logs", node.log_dir(1), node.run_dir(1, 1)):
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o700, path
        assert stat.S_IMODE(os.stat(f"{node.log_dir(1)}/g1-rank0.log").st_mode) == 0o600
        world.forget(node, 1, 1)


def test_folder_that_only_another_user_may_enter():
    need_root()
    account("nobody", False)
    with World(LAUNCHERD) as world:
        open_folder(world)
        os.mkdir(f"{world.folder}/mine", 0o700)
        node = world.node(extra=[])
        world.server.start(1, 1, ["true"], user="nobody", cwd=f"{world.folder}/mine")
        cause = world.server.wait_phase(1, 1, "ended")["cause"]
        assert cause == (f"node node0: working directory {world.folder}/mine cannot be entered by nobody: Permission "
                         "denied"), cause
        world.forget(node, 1, 1)


def groups_of(pid):
    with open(f"/proc/{pid}/cgroup") as file:
        return [line[3:].rstrip("\n") for line in file if line.startswith("0::")]


def cgroup_of(node, job, generation):
    """The folder of the job's cgroup; skips where launcherd found none."""
    found = node.shim(job, generation)["cgroup"]
    if found == "":
        assert "no cgroups (" in node.log(), node.log()
        raise Skip(node.log().split("no cgroups ", 1)[1].split("\n")[0])
    return found


def end_job(world, node):
    world.server.stop(1, 1)
    world.server.wait_phase(1, 1, "ended")
    world.forget(node, 1, 1)


# Escapes from everything but its cgroup: another session and parent, an empty environment.
ESCAPE = "import os, sys, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n" \
         "  os.execve('/bin/sh', ['sh', '-c', 'echo $$ > \"$0.new\" && mv \"$0.new\" \"$0\" && exec sleep 1000', sys.argv[1]], {})\n" \
         " os._exit(0)\nos.wait()\ntime.sleep(1000)\n"


def start_escaping(world):
    world.server.start(1, 1, [sys.executable, "-c", ESCAPE, f"{world.folder}/pid"])
    world.server.go(1, 1)
    world.server.wait_phase(1, 1, "running")
    wait_for("the pid of what escapes", lambda: os.path.exists(f"{world.folder}/pid"))
    with open(f"{world.folder}/pid") as file:
        return int(file.read())


def test_cgroup_holds_what_escapes():
    with World(LAUNCHERD) as world:
        node = world.node()
        pid = start_escaping(world)
        try:
            group = cgroup_of(node, 1, 1)
            assert os.path.basename(group).startswith(f"{CLUSTER}-1-g1-"), group
            assert group.endswith(groups_of(pid)[0]), (group, groups_of(pid))
            assert groups_of(node.shim(1, 1)["pid"]) == groups_of(node.process.pid), "the shim is not in the job's group"
        finally:
            end_job(world, node)
        wait_gone("what escaped to end", pid)
        wait_for("its cgroup to go", lambda: not os.path.exists(group))


def test_cgroup_outlives_shim_and_launcherd():
    """Both are killed; the process that has neither our token nor our parent process is found by its cgroup."""
    with World(LAUNCHERD) as world:
        node = world.node()
        pid = start_escaping(world)
        shim = world.note_token(node, 1, 1)
        try:
            group = cgroup_of(node, 1, 1)
        except Skip:
            end_job(world, node)
            raise
        node.kill()
        os.kill(shim["pid"], signal.SIGKILL)
        wait_gone("the shim to end", shim["pid"])
        assert is_alive(pid)
        node.begin().ready()
        world.server.wait_phase(1, 1, "ended")
        assert not is_alive(pid), "a process of the job was left"
        world.server.forget(1, 1)
        wait_for("its cgroup to go", lambda: not os.path.exists(group))
        wait_for("the run directory to go", lambda: not os.path.exists(node.run_dir(1, 1)))


def test_memory_limit():
    """If the memory controller is available, the kernel's OOM kill is named. Otherwise the option is refused."""
    with World(LAUNCHERD) as world:
        node = Node(LAUNCHERD, world.folder, extra=["--allow-root", "--job-memory", "96M"]).begin()
        if node.process.stdout.readline() == b"":
            code, text = node.wait(), node.log()
            assert code == 1 and "--job-memory needs cgroup v2: " in text, (code, text)
            shutil.rmtree(f"{world.folder}/node0")
            raise Skip("the option is refused, as it should be: " + text.split("cgroup v2: ")[1].split("\n")[0])
        world.nodes.append(node)
        report = world.server.run(1, [sys.executable, "-c", "data = [b'x' * (1 << 20) for _ in range(1000)]"])
        assert report["cause"] == ("rank 0 was killed by signal 9 (SIGKILL): killed by the kernel: out of memory (limit 96 "
                                   "MiB)"), report
        assert report["failed_oom"] is True, report
        world.forget(node, 1, 1)


def test_bad_memory_limit():
    done = subprocess.run([LAUNCHERD, "--server", "unix:/x", "--job-memory", "lots"], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 2 and "--job-memory 'lots' should be a size, such as 8G or 512M" in done.stderr, done


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[2:]))
