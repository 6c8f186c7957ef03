#!/usr/bin/env python3
"""What others have put into launcherd's directories stays as it is. foreign_test.py LAUNCHERD [NAME...]

It runs in a mount and pid namespace of its own, in which the folders of the system are read-only, since a launcherd with a fault
would empty what the planted links lead to. Without root it is skipped."""
import os
import shutil
import subprocess
import sys

GUARD = """for d in /etc /usr /root /home /var /boot /opt /srv; do [ ! -d $d ] || { mount --bind $d $d && mount -o remount,ro,bind $d; } || exit 77; done
exec "$@" """
if "DDP_FOREIGN_GUARDED" not in os.environ:
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        print("skipped: no root, or no mount namespaces")
        sys.exit(77)
    os.environ["DDP_FOREIGN_GUARDED"] = "1"
    os.execvp("unshare", ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", GUARD, "sh", sys.executable, *sys.argv])

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.case import write_file
from processes.runner import run_tests
from processes.waiting import wait_for
from processes.world import Node, World
from processes.server import CLUSTER

LAUNCHERD = os.path.abspath(sys.argv[1])
HEX = "0123456789abcdef" * 2
NOBODY = 65534


class Victim:
    """A folder of others, in which files have names of ours, too."""

    def __init__(self, world):
        self.path = f"{world.folder}/victim"
        os.makedirs(f"{self.path}/stage")
        self.names = ["passwd", "start.msg", "end.msg", "g1-rank0.log", "lock", "stage/file"]
        for name in self.names:
            write_file(f"{self.path}/{name}", "theirs")
            os.utime(f"{self.path}/{name}", (1, 1))
        os.utime(self.path, (1, 1))

    def check(self, planted=()):
        """`planted`: what is removed then, so that the harness finds no run directories."""
        for path in planted:
            if os.path.islink(path):
                os.unlink(path)
            else:
                shutil.rmtree(path)
        found = sorted(os.path.relpath(os.path.join(folder, name), self.path)
                       for folder, _, names in os.walk(self.path) for name in names)
        assert found == sorted(self.names), f"what is left of the folder of others: {found}"
        for name in self.names:
            with open(f"{self.path}/{name}") as file:
                assert file.read() == "theirs", name


def test_what_others_put_into_the_state_directory_stays():
    with World(LAUNCHERD) as world:
        victim = Victim(world)
        state = f"{world.folder}/node0"
        for path in ("run/home", f"run/{CLUSTER}-3-g1", f"run/{CLUSTER}-4-g1", "warm", f"logs/{HEX}-6", f"logs/{HEX}-7"):
            os.makedirs(f"{state}/{path}", mode=0o700)
        os.symlink(victim.path, f"{state}/run/{CLUSTER}-1-g1")
        os.symlink(victim.path, f"{state}/run/other")
        os.symlink(victim.path, f"{state}/warm/{CLUSTER}-2")
        os.symlink(victim.path, f"{state}/logs/{HEX}-5")
        ours = [f"run/{CLUSTER}-3-g1/start.msg", f"logs/{HEX}-7/g1-rank0.log"]
        theirs = ["run/home/start.msg", f"run/{CLUSTER}-3-g1/notes", f"run/{CLUSTER}-4-g1/start.msg", f"logs/{HEX}-6/notes"]
        for path in ours + theirs:
            write_file(f"{state}/{path}", "theirs")
            os.utime(f"{state}/{path}", (1, 1))
        os.chown(f"{state}/run/{CLUSTER}-4-g1", NOBODY, NOBODY)
        for job in (6, 7):
            os.utime(f"{state}/logs/{HEX}-{job}", (1, 1))
        node = world.node(extra=("--allow-root", "--keep-logs", "1s"))
        victim.check()
        wait_for("the old logs to be removed", lambda: not os.path.exists(f"{state}/logs/{HEX}-7"))
        wait_for("a line about the logs that stay", lambda: "launcherd did not make \"notes\" in it" in node.log())
        for path in theirs:
            assert os.path.exists(f"{state}/{path}"), path
        assert not os.path.exists(f"{state}/{ours[0]}")
        assert world.server.run(9, ["true"])["failed_rank"] == -1
        world.forget(node, 9, 1)
        lines = node.log().splitlines()
        for name in ("home", "other", f"{CLUSTER}-1-g1", f"warm/{CLUSTER}-2", f"{CLUSTER}-4-g1", f"{HEX}-6"):
            count = sum(f"/{name} " in line and ("left alone" in line) for line in lines)
            assert count == 1, f"{count} lines about {name}\n" + "\n".join(lines)
        victim.check([f"{state}/run/{name}" for name in os.listdir(f"{state}/run")])


def refused(world, words, *extra):
    node = Node(LAUNCHERD, world.folder, extra=("--allow-root", *extra)).begin()
    try:
        code = node.process.wait(20)
    finally:
        node.kill()
    text = node.log()
    assert code != 0 and words in text, (code, text)


def test_directories_in_the_place_of_ours_are_refused():
    with World(LAUNCHERD) as world:
        victim = Victim(world)
        state = f"{world.folder}/node0"
        os.mkdir(state, 0o711)
        os.symlink(victim.path, f"{state}/run")
        refused(world, "/run is a symbolic link")
        os.unlink(f"{state}/run")
        os.symlink(f"{victim.path}/passwd", f"{state}/lock")
        refused(world, "/lock is a symbolic link")
        os.unlink(f"{state}/lock")
        os.symlink(victim.path, f"{world.folder}/logs")
        os.lchown(f"{world.folder}/logs", NOBODY, NOBODY)
        refused(world, "\"logs\" is a symbolic link of user 65534", "--log-dir", f"{world.folder}/logs")
        os.chmod(state, 0o777)
        refused(world, "other users may write in the state directory")
        os.chmod(state, 0o770)
        os.chown(state, 0, NOBODY)
        refused(world, "other users may write in the state directory")
        os.chown(state, 0, 0)
        os.chmod(state, 0o711)
        os.chown(state, NOBODY, NOBODY)
        refused(world, "belongs to user 65534")
        victim.check()


def test_a_key_of_others_is_not_used():
    with World(LAUNCHERD) as world:
        state = f"{world.folder}/node0"
        os.mkdir(state, 0o711)
        key = "ddp://127.0.0.1:1/node0#" + "A" * 43
        write_file(f"{world.folder}/theirs", key)
        os.chmod(f"{world.folder}/theirs", 0o600)
        os.symlink(f"{world.folder}/theirs", f"{state}/key")
        refused(world, "/key is a symbolic link: it is not followed")
        os.unlink(f"{state}/key")
        os.rename(f"{world.folder}/theirs", f"{state}/key")
        os.chown(f"{state}/key", NOBODY, NOBODY)
        refused(world, "/key belongs to user 65534 and not to us")


def test_a_job_whose_folders_others_have_taken_fails_here():
    with World(LAUNCHERD) as world:
        victim = Victim(world)
        node = world.node()
        os.symlink(victim.path, node.log_dir(1))
        world.server.start(1, 1, ["true"])
        report = world.server.wait_phase(1, 1, "ended")
        assert "is a symbolic link" in str(report), report
        os.symlink(victim.path, node.run_dir(2, 1))
        world.server.start(2, 1, ["true"])
        report = world.server.wait_phase(2, 1, "ended")
        assert "is a symbolic link" in str(report), report
        victim.check([node.run_dir(2, 1)])


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[2:]))
