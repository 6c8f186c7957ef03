#!/usr/bin/env python3
"""What others have put in the way of ddpctl and of `rendezvous --backup` stays as it is, and is named.

It runs in a namespace of its own (tests/lib/own_namespace.py). Without root it is skipped."""
import os
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import own_namespace  # noqa: E402  pylint: disable=wrong-import-position

own_namespace.enter()

from processes.case import BUILD, Case, Cluster
from processes.runner import equal, run_and_exit
from processes.waiting import wait_for
from keys_test import Server  # pylint: disable=wrong-import-position

NOBODY = 65534
STANDALONE = ("run", "--standalone", "--", "true")


def killed_run(case, name, machine=None):
    """A folder as a killed `run --standalone` leaves it; its path."""
    path = f"{case.temp}/{name}"
    os.makedirs(f"{path}/node0/logs")
    os.chmod(path, 0o700)
    write_lock(path, machine)
    return path


def write_lock(path, machine=None):
    folder = os.stat(path)
    with open(f"{path}/standalone.lock", "w", encoding="ascii") as lock:
        lock.write(socket.gethostname() if machine is None else machine)
        lock.write(f"\nfolder {os.path.basename(path)} {folder.st_ino} {folder.st_dev}\n")


def what_others_have_put_into_a_killed_runs_folder_stays():
    with Case() as case:
        outside = f"{case.dir}/outside"
        os.mkdir(outside)
        with open(f"{outside}/file", "w", encoding="ascii") as file:
            file.write("ours, and elsewhere")
        path = killed_run(case, "ddp-abcdef")
        theirs = f"{path}/node0/theirs"
        with open(theirs, "w", encoding="ascii") as file:
            file.write("theirs")
        os.chown(theirs, NOBODY, NOBODY)
        os.symlink(outside, f"{path}/node0/link")
        os.link(f"{outside}/file", f"{path}/node0/second-name")
        for _ in range(2):  # the next run finds it again
            done = case.ctl(*STANDALONE)
            equal(done.returncode, 0, done.stderr)
            assert f"{path}, of an earlier run that was killed, cannot be removed as a whole: \"theirs\" in it stays" in done.stderr, done.stderr
            assert "removed 1" not in done.stderr, done.stderr
            equal(sorted(os.listdir(path)), ["node0", "standalone.lock"])
            equal(os.listdir(f"{path}/node0"), ["theirs"])
        equal(os.listdir(outside), ["file"])
        os.unlink(theirs)
        done = case.ctl(*STANDALONE)
        assert "removed 1 temporary folder of earlier runs" in done.stderr, done.stderr
        equal(os.listdir(case.temp), [])


def a_lock_that_names_no_machine_is_not_ours():
    with Case() as case:
        path = killed_run(case, "ddp-abcdef", machine="")
        done = case.ctl(*STANDALONE)
        equal(done.returncode, 0, done.stderr)
        assert f"{path} stays: its standalone.lock names no machine" in done.stderr, done.stderr
        equal(sorted(os.listdir(path)), ["node0", "standalone.lock"])
        write_lock(path)
        done = case.ctl(*STANDALONE)
        assert "removed 1 temporary folder of earlier runs" in done.stderr, done.stderr
        equal(os.listdir(case.temp), [])


def a_copy_of_a_killed_runs_folder_stays():
    with Case() as case:
        process = case.start("run", "--standalone", "--", "sh", "-c", "echo up; sleep 600")
        equal(process.stdout.readline(), "up\n")
        process.kill()
        process.communicate(timeout=60)
        wait_for("the daemons' end", lambda: not case.processes())
        (name,) = os.listdir(case.temp)
        path = f"{case.temp}/{name}"
        subprocess.run(["cp", "-a", path, f"{case.temp}/ddp-saved1"], check=True)
        with open(f"{path}/notes", "w", encoding="ascii") as notes:
            notes.write("ours, and of value")
        os.rename(path, f"{case.temp}/kept")
        subprocess.run(["cp", "-a", f"{case.temp}/kept", path], check=True)  # the same name, but another folder
        done = case.ctl(*STANDALONE)
        equal((done.returncode, sorted(os.listdir(case.temp))), (0, sorted(["ddp-saved1", "kept", name])), done.stderr)
        assert f"{path} stays: its standalone.lock was not made there" in done.stderr, done.stderr
        equal(sorted(os.listdir(path)), sorted(os.listdir(f"{case.temp}/kept")))
        subprocess.run(["rm", "-r", path, f"{case.temp}/ddp-saved1"], check=True)
        os.rename(f"{case.temp}/kept", path)
        done = case.ctl(*STANDALONE)
        equal((done.returncode, sorted(os.listdir(path))), (0, ["notes", "standalone.lock"]), done.stderr)
        assert f"{path}, of an earlier run that was killed, cannot be removed as a whole: \"notes\" in it stays" in done.stderr, done.stderr
        os.unlink(f"{path}/notes")
        done = case.ctl(*STANDALONE)
        assert "removed 1 temporary folder of earlier runs" in done.stderr, done.stderr
        equal(os.listdir(case.temp), [])


def a_lock_of_another_machine_of_our_name_is_not_ours():
    with Case() as case:
        path = killed_run(case, "ddp-abcdef", machine=f"{socket.gethostname()}\n{32 * '0'}")
        equal(case.ctl(*STANDALONE).returncode, 0)
        equal(os.listdir(case.temp), ["ddp-abcdef"])
        own = subprocess.run(["cat", "/etc/machine-id"], capture_output=True, text=True, check=False).stdout.strip()  # some have none
        write_lock(path, machine=f"{socket.gethostname()}\n{own}")
        equal(case.ctl(*STANDALONE).returncode, 0)
        equal(os.listdir(case.temp), [])


def a_machine_without_dev_null_or_proc_is_told():
    """As in a folder that somebody has entered with chroot."""
    with Case() as case:
        def without(folder, program, *args):
            words = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {folder}; exec "$@" <&-', "sh", os.path.join(BUILD, program, program), *args]
            return subprocess.run(words, env=case.environ(), capture_output=True, text=True, timeout=60, check=False)

        for folder, said in ("/dev", "/dev/null is missing: mknod -m 666 /dev/null c 1 3"), ("/proc", "/proc is not mounted: mount -t proc proc /proc"):
            for program in ("rendezvous", "launcherd"):
                done = without(folder, program, "--state-dir", f"{case.dir}/{program}")
                assert done.returncode == 1 and f"{program}: {said}\n" in done.stderr, done
            done = without(folder, "ddpctl", *STANDALONE)
            assert done.returncode == 125 and f"ddpctl: {said}\n" in done.stderr, done
            equal(without(folder, "ddpctl", "--server", f"unix:{case.dir}/none", "ps").returncode, 5)


def login_makes_no_folder_through_a_link_of_others():
    with Case() as case, Server(case) as server:
        outside, config = f"{case.dir}/outside", f"{case.dir}/config"
        os.mkdir(outside)
        os.symlink(outside, config)
        os.lchown(config, NOBODY, NOBODY)
        done = case.ctl("login", server.key("user", "ann"))
        equal(done.returncode, 1, done.stderr)
        assert "is a symbolic link of user 65534: it is not followed" in done.stderr, done.stderr
        equal(os.listdir(outside), [])


def a_backup_is_not_written_through_a_link_of_others():
    with Case() as case, Cluster(case, nodes=0):
        outside = f"{case.dir}/outside"
        os.mkdir(outside)
        os.symlink(outside, f"{case.dir}/backups")

        def backup(path):
            return subprocess.run([os.path.join(BUILD, "rendezvous", "rendezvous"), "--state-dir", f"{case.dir}/rendezvous", "--backup", path],
                                  env=case.environ(), capture_output=True, text=True, timeout=60, check=False)

        os.lchown(f"{case.dir}/backups", NOBODY, NOBODY)
        done = backup(f"{case.dir}/backups/state.ddp")
        assert done.returncode == 2 and "is a symbolic link of user 65534: it is not followed" in done.stderr, done
        equal(os.listdir(outside), [])
        os.lchown(f"{case.dir}/backups", 0, 0)
        done = backup(f"{case.dir}/backups/state.ddp")
        equal((done.returncode, os.listdir(outside)), (0, ["state.ddp"]), done.stderr)
        done = backup(f"{case.dir}/backups/state.ddp")
        assert done.returncode == 1 and "is there already and is not overwritten" in done.stderr, done


if __name__ == "__main__":
    run_and_exit([what_others_have_put_into_a_killed_runs_folder_stays, a_lock_that_names_no_machine_is_not_ours, a_copy_of_a_killed_runs_folder_stays,
               a_lock_of_another_machine_of_our_name_is_not_ours, a_machine_without_dev_null_or_proc_is_told,
               login_makes_no_folder_through_a_link_of_others, a_backup_is_not_written_through_a_link_of_others])
