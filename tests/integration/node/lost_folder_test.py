#!/usr/bin/env python3
"""What launcherd knows of its parts is removed, or cannot be seen: none of it proves that they have ended. lost_folder_test.py LAUNCHERD [NAME...]"""
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.case import write_file
from processes.proc import is_alive
from processes.runner import run_tests
from processes.waiting import LONG_S, wait_for, wait_gone
from processes.world import Node, token_holders, World
from processes.server import CLUSTER

LAUNCHERD = os.path.abspath(sys.argv[1])
REMOVED = "the shim of job 1 on node0 was ended: its run directory had been removed"


def run_part(world, node, argv=("sleep", "1000")):
    """A running job on the node: the pid of its rank, and what its shim.json says."""
    world.server.start(1, 1, list(argv))
    world.server.go(1, 1)
    pid = world.server.wait_phase(1, 1, "running")["ranks"][0]["pid"]
    return pid, world.note_token(node, 1, 1)


def begin(world, argv=("sleep", "1000")):
    """A node with a running job: the node, the pid of its rank, and what its shim.json says."""
    node = world.node()
    return (node, *run_part(world, node, argv))


def again(world, node):
    """Starts launcherd again: its hello."""
    since = world.server.mark()
    node.begin().ready()
    return world.server.wait_for("node_hello", since=since)


def listed(hello):
    return [(s["job_id"], s["generation"], s.get("unseen", False)) for s in hello["shims"]]


def forget(world, node):
    world.server.forget(1, 1)
    wait_for("the record of the part to go", lambda: os.listdir(f"{node.folder}/{node.name}/parts") == ["id.json"], LONG_S)
    wait_for("the run directory to go", lambda: not os.path.exists(node.run_dir(1, 1)), LONG_S)


def empty(node):
    shutil.rmtree(node.run_dir(1, 1))


def remove_run(node):
    shutil.rmtree(f"{node.folder}/{node.name}/run")


def move_run(node):
    os.rename(f"{node.folder}/{node.name}/run", f"{node.folder}/{node.name}-run-elsewhere")


def rename_part(node):
    os.rename(node.run_dir(1, 1), node.run_dir(1, 1) + ".old")


def restore_name(node):
    path = node.run_dir(1, 1) + ".old"
    if os.path.exists(path):
        shutil.rmtree(path)


def test_a_part_whose_folder_is_gone_is_ended_by_its_launcherd():
    """The server hears of the part as long as something of it lives, and of its end when nothing does."""
    for remove in (empty, remove_run, move_run, rename_part):
        for is_away in (True, False):
            with World(LAUNCHERD) as world:
                node, pid, shim = begin(world)
                if is_away:
                    node.kill()
                    remove(node)
                else:
                    remove(node)
                    node.kill()
                hello = again(world, node)
                assert listed(hello) == [(1, 1, False)], (remove.__name__, hello)
                report = world.server.wait_phase(1, 1, "ended")
                assert not is_alive(pid) and not is_alive(shim["pid"]) and token_holders(shim["token"]) == []
                assert (report["cause"], report["failed_class"]) == (REMOVED, "node"), report
                assert world.server.run(2, ["true"])["failed_rank"] == -1
                world.forget(node, 2, 1)
                forget(world, node)
                restore_name(node)


def put_back(node):
    """What an older copy does not have goes, as with rsync --delete; the files that both have stay as they are."""
    empty(node)
    for name in os.listdir(f"{node.folder}/{node.name}/parts"):
        if "-g" in name:
            os.unlink(f"{node.folder}/{node.name}/parts/{name}")


def test_a_part_that_no_file_names_is_ended_before_the_server_hears_of_it():
    """The state directory was put back from an older copy, which did not know the part. Its id is the same, so the server takes it for the one that
    knows all of its parts. It may have another path now."""
    for is_moved in (False, True):
        with World(LAUNCHERD) as world:
            node, pid, shim = begin(world, ["sh", "-c", "setsid sleep 1000 & exec sleep 1000"])
            wait_for("both processes", lambda: len(token_holders(shim["token"])) == 2, LONG_S)
            before = world.server.find("node_hello")["state_id"]
            node.kill()
            put_back(node)
            if is_moved:
                os.rename(f"{node.folder}/{node.name}", f"{node.folder}/moved")
                node.argv[node.argv.index("--state-dir") + 1] = f"{node.folder}/moved"
            hello = again(world, node)
            assert not is_alive(pid) and not is_alive(shim["pid"]) and token_holders(shim["token"]) == []
            assert hello["state_id"] == before and listed(hello) == [(1, 1, False)], hello
            report = world.server.wait_phase(1, 1, "ended")
            assert (report["cause"], report["failed_class"]) == (REMOVED, "node"), report
            world.server.forget(1, 1)
            world.server.wait_for("beat", lambda m: m["shims"] == [], since=world.server.mark())
            if is_moved:
                assert node.end() == 0
                os.rename(f"{node.folder}/moved", f"{node.folder}/{node.name}")


def test_a_part_of_another_launcherd_is_left_alone():
    with World(LAUNCHERD, gated=True) as world:
        node, pid, _ = begin(world)
        other = Node(LAUNCHERD, world.folder, name="node1", environ=world.environ()).begin()
        world.nodes.append(other)
        other.ready()
        assert other.end() == 0 and is_alive(pid)
        node.kill()
        node.begin().ready()
        world.server.wait_for("beat", lambda m: listed(m) == [(1, 1, False)], since=world.server.mark())
        assert is_alive(pid)
        world.server.stop(1, 1)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def old_shim(run_dir, stdout):
    """A process with the command line of a shim of release 0.1.0, which does not say the state directory's id."""
    return subprocess.Popen(["launcherd", "--shim", run_dir, "/logs"], executable="/bin/echo", stdout=stdout)


def test_a_shim_of_an_earlier_release_is_known_by_its_path():
    with World(LAUNCHERD) as world:
        node = world.node()
        read_fd, write_fd = os.pipe()
        os.set_blocking(write_fd, False)
        try:
            while True:  # so that what is written to it never ends
                os.write(write_fd, bytes(4096))
        except BlockingIOError:
            os.set_blocking(write_fd, True)
        os.makedirs(f"{world.folder}/other/run")
        ours = old_shim(node.run_dir(7, 1), write_fd)
        others = old_shim(f"{world.folder}/other/run/{CLUSTER}-8-g1", write_fd)
        node.kill()
        assert ours.poll() is None and others.poll() is None
        reaper = threading.Thread(target=ours.wait, args=(LONG_S,))
        reaper.start()
        hello = again(world, node)
        reaper.join()
        assert ours.returncode == -signal.SIGKILL and others.poll() is None, (ours.returncode, others.poll())
        assert listed(hello) == [(7, 1, False)], hello
        assert world.server.wait_phase(7, 1, "ended")["failed_class"] == "node"
        world.server.forget(7, 1)
        world.server.wait_for("beat", lambda m: m["shims"] == [], since=world.server.mark())
        others.kill()
        others.wait()
        os.close(read_fd)
        os.close(write_fd)


def test_ranks_without_shim_and_folder_are_found():
    """The shim is killed, too: the record has the token of what it has started."""
    for is_away in (True, False):
        with World(LAUNCHERD) as world:
            node, _, shim = begin(world, ["sh", "-c", "setsid sleep 1000 & exec sleep 1000"])
            wait_for("both processes", lambda: len(token_holders(shim["token"])) == 2, LONG_S)
            left = token_holders(shim["token"])
            if is_away:
                node.kill()
            empty(node)
            os.kill(shim["pid"], signal.SIGKILL)
            if is_away:
                wait_gone("the shim's end", shim["pid"], patience_s=LONG_S)
                assert listed(again(world, node)) == [(1, 1, False)]
            report = world.server.wait_phase(1, 1, "ended")
            assert report["failed_class"] == "node" and not any(is_alive(pid) for pid in left), (report, left)
            forget(world, node)


def test_a_launcherd_without_its_record_says_that_it_is_another():
    with World(LAUNCHERD) as world:
        node, pid, _ = begin(world)
        before = world.server.find("node_hello")["state_id"]
        node.kill()
        shutil.rmtree(f"{node.folder}/{node.name}/parts")
        hello = again(world, node)
        assert hello["state_id"] not in ("", before) and listed(hello) == [(1, 1, False)], hello
        assert "the record of the parts that were started, was removed" in node.log(), node.log()
        assert is_alive(pid)
        node.kill()
        empty(node)  # it is in the record again
        hello = again(world, node)
        assert listed(hello) == [(1, 1, False)], hello
        world.server.wait_phase(1, 1, "ended")
        forget(world, node)


def test_a_removed_id_comes_back_and_the_job_goes_on():
    with World(LAUNCHERD) as world:
        node, pid, _ = begin(world)
        before = world.server.find("node_hello")["state_id"]
        node.kill()
        os.unlink(f"{node.folder}/{node.name}/state-id.json")
        since = world.server.mark()
        hello = again(world, node)
        assert hello["state_id"] == before, hello
        world.server.wait_for("shim_report", lambda m: m["phase"] == "running", since=since)
        assert is_alive(pid)
        world.server.stop(1, 1)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def in_other_namespace(node):
    """launcherd starts in a pid namespace of its own, from which it does not see the shim."""
    node.argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *node.argv]


def can_unshare():
    return subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "true"], check=False,
                          stderr=subprocess.DEVNULL).returncode == 0


def kill_inside(node):
    """Kills unshare, and waits until launcherd, which is its child, and so its namespace are gone. A container's runtime waits for that, too."""
    with open(f"/proc/{node.process.pid}/task/{node.process.pid}/children", encoding="ascii") as file:
        inside = [int(pid) for pid in file.read().split()]
    assert len(inside) == 1, inside
    node.kill()
    wait_gone("the end of the namespace", inside[0], patience_s=LONG_S)


def end_outside(node):
    """Starts launcherd in our namespace again."""
    kill_inside(node)
    node.argv = node.argv[node.argv.index(LAUNCHERD):]
    node.begin().ready()


def test_a_shim_of_another_pid_namespace_goes_on_if_it_answers():
    if not can_unshare():
        print("skipped: no namespaces here")
        return
    with World(LAUNCHERD) as world:
        node, pid, _ = begin(world)
        node.kill()
        in_other_namespace(node)
        since = world.server.mark()
        hello = again(world, node)
        assert listed(hello) == [(1, 1, True)], hello
        world.server.wait_for("shim_report", lambda m: m["phase"] == "running", since=since)
        world.server.wait_for("beat", lambda m: listed(m) == [(1, 1, False)], since=since)
        assert is_alive(pid)
        world.server.stop(1, 1)
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == "" and not is_alive(pid), report
        world.forget(node, 1, 1)
        world.server.wait_for("beat", lambda m: m["shims"] == [], since=world.server.mark())
        end_outside(node)


def test_a_shim_of_another_pid_namespace_that_does_not_answer_is_not_gone():
    if not can_unshare():
        print("skipped: no namespaces here")
        return
    with World(LAUNCHERD) as world:
        node, pid, shim = begin(world)
        node.kill()
        os.rename(node.run_dir(1, 1) + "/shim.sock", f"{world.folder}/away.sock")
        in_other_namespace(node)
        since = world.server.mark()
        hello = again(world, node)
        assert listed(hello) == [(1, 1, True)], hello
        world.server.stop(1, 1)  # launcherd cannot carry it out, and does not say that it has
        world.server.wait_for("beat", lambda m: listed(m) == [(1, 1, True)], since=world.server.mark())
        assert world.server.find("shim_report", since=since) is None and is_alive(pid) and is_alive(shim["pid"])
        os.rename(f"{world.folder}/away.sock", node.run_dir(1, 1) + "/shim.sock")
        world.server.wait_for("shim_report", lambda m: m["phase"] == "running", since=since)
        world.server.stop(1, 1)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)
        end_outside(node)


def test_a_pid_namespace_that_ended_with_its_launcherd_is_proof():
    """launcherd is the first process of a container: its end is that of all its shims and ranks."""
    if not can_unshare():
        print("skipped: no namespaces here")
        return
    with World(LAUNCHERD) as world:
        node = world.node()
        in_other_namespace(node)
        node.kill()
        node.begin().ready()
        world.server.start(1, 1, ["sleep", "1000"])
        world.server.go(1, 1)
        world.server.wait_phase(1, 1, "running")
        token = node.shim(1, 1)["token"]
        wait_for("the rank to run its program", lambda: len(token_holders(token)) == 1, LONG_S)
        kill_inside(node)
        hello = again(world, node)  # in a new namespace
        assert [(s["phase"], s["unseen"]) for s in hello["shims"]] == [("ended", False)], hello
        report = world.server.wait_phase(1, 1, "ended")
        assert token_holders(token) == []
        assert report["cause"] == "the shim of job 1 on node0 ended with the container of the launcherd before", report
        world.server.forget(1, 1)
        wait_for("the run directory to go", lambda: not os.path.exists(node.run_dir(1, 1)), LONG_S)
        end_outside(node)
        assert os.listdir(f"{node.folder}/{node.name}/parts") == ["id.json"]


def of_other_boot(node, **fields):
    """As if the part had been started in another boot: where the files were read, nothing runs of it."""
    shim = dict(node.shim(1, 1), boot_id="another", **fields)
    for path in (node.run_dir(1, 1) + "/shim.json", f"{node.folder}/{node.name}/parts/{CLUSTER}-1-g1.shim"):
        write_file(path, json.dumps(shim))


def end_part(node, pid, shim):
    """Its processes are gone, and nobody has said so."""
    node.kill()
    os.kill(shim["pid"], signal.SIGKILL)
    wait_gone("the shim's end", shim["pid"], patience_s=LONG_S)
    for left in token_holders(shim["token"]):
        os.kill(left, signal.SIGKILL)
    wait_gone("the rank's end", pid, patience_s=LONG_S)


def test_a_boot_of_a_machine_that_may_be_another_is_no_proof():
    """The state directory may lie on a disk that another machine has now."""
    for machine in ("", "0123abcd"):
        with World(LAUNCHERD) as world:
            node, pid, shim = begin(world)
            end_part(node, pid, shim)
            of_other_boot(node, machine_id=machine)
            since = world.server.mark()
            assert listed(again(world, node)) == [(1, 1, True)], world.server.messages[since:]
            world.server.stop(1, 1)  # launcherd cannot carry it out, and does not say that it has
            world.server.wait_for("beat", lambda m: listed(m) == [(1, 1, True)], since=world.server.mark())
            assert world.server.find("shim_report", since=since) is None
            forget(world, node)


CARD = """mount -t tmpfs none /sys/class/net && mkdir -p /sys/class/net/eth9/device && cd /sys/class/net/eth9 &&
echo 0 >addr_assign_type && echo 00:11:22:33:44:55 >address && cd / && exec "$@" """


def test_another_boot_of_a_machine_that_is_known_is_proof():
    """Both launcherds see the same network card, so they are on one machine."""
    if not can_unshare():
        print("skipped: no namespaces here")
        return
    with World(LAUNCHERD) as world:
        node = world.node()
        node.kill()
        node.argv = ["unshare", "--mount", "sh", "-c", CARD, "sh", *node.argv]
        hello = again(world, node)
        assert hello["machine_id"] != "", hello
        pid, shim = run_part(world, node)
        end_part(node, pid, shim)
        of_other_boot(node)
        assert listed(again(world, node)) == [(1, 1, False)]
        report = world.server.wait_phase(1, 1, "ended")
        assert report["cause"] == "the shim of job 1 on node0 ended with a restart of the node", report
        forget(world, node)


OWN_BOOT = "mount --bind $0 /proc/sys/kernel/random/boot_id && "  # as systemd-nspawn and LXC do


def in_container(world, node):
    """From now on its launcherds see a boot's id that is their container's own."""
    own = f"{world.folder}/own-boot"
    write_file(own, "0a1b2c3d-1111-4222-8333-444455556666\n")
    node.argv = ["unshare", "--mount", "sh", "-c", OWN_BOOT + CARD, own, *node.argv]


def test_the_boot_of_a_container_is_no_boot_of_the_machine():
    """It has another id each time, while what another container on the same directory has started runs on."""
    if not can_unshare():
        print("skipped: no namespaces here")
        return
    with World(LAUNCHERD) as world:
        node = world.node()
        node.kill()
        in_container(world, node)
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        hello = again(world, node)
        assert hello["boot_id"] == "unknown" and hello["machine_id"] != "", hello
        assert before < int(hello["up_us"]) / 1e6 < time.clock_gettime(time.CLOCK_BOOTTIME), hello
        pid, shim = run_part(world, node)
        end_part(node, pid, shim)
        of_other_boot(node)
        assert listed(again(world, node)) == [(1, 1, True)]
        forget(world, node)


def test_a_part_of_before_the_boot_was_known_to_be_a_containers_goes_on():
    """A launcherd of before took it for the machine's: after an upgrade its shims are there still."""
    if not can_unshare():
        print("skipped: no namespaces here")
        return
    with World(LAUNCHERD) as world:
        node, pid, shim = begin(world)
        assert json.load(open(node.run_dir(1, 1) + "/shim.json", encoding="utf-8"))["boot_id"] != "unknown"
        node.kill()
        in_container(world, node)
        assert listed(again(world, node)) == [(1, 1, False)]
        assert is_alive(pid) and is_alive(shim["pid"])
        world.server.stop(1, 1)
        world.server.wait_phase(1, 1, "ended")
        forget(world, node)


OVERLAY = "mount -t overlay -o lowerdir=$0,upperdir=$1,workdir=$2 none $0 && shift 2 && exec \"$@\""


def test_a_directory_of_an_image_is_a_copy():
    """launcherd has run once in what a container's image was made of. The kernel renames no folder of a lower layer."""
    if not can_unshare():
        print("skipped: no namespaces here")
        return
    with World(LAUNCHERD) as world:
        node, pid, shim = begin(world)
        before = world.server.find("node_hello")["state_id"]
        end_part(node, pid, shim)
        place, layers = f"{node.folder}/{node.name}", [f"{world.folder}/upper", f"{world.folder}/work"]
        for layer in layers:
            os.mkdir(layer)
        layered = ["unshare", "--mount", "sh", "-c", OVERLAY, place, *layers]
        if subprocess.run([*layered, "true"], stderr=subprocess.PIPE, check=False).returncode != 0:
            print("skipped: no overlayfs here")
            return
        node.argv = [*layered, *node.argv]
        hello = again(world, node)
        assert hello["state_id"] not in ("", before) and listed(hello) == [], hello
        aside = [name for name in os.listdir(layers[0]) if name.startswith("run-of-copy-")]
        assert len(aside) == 1 and os.path.exists(f"{layers[0]}/{aside[0]}/{os.path.basename(node.run_dir(1, 1))}/shim.json"), aside
        assert os.path.exists(node.run_dir(1, 1) + "/shim.json")  # the image's own
        shutil.rmtree(node.run_dir(1, 1))


def move_away(world, node):
    os.rename(f"{node.folder}/{node.name}", f"{world.folder}/moved")


def replace(world, node):
    """Another folder is in its place, as below a mount whose disk is gone."""
    move_away(world, node)
    os.mkdir(f"{node.folder}/{node.name}", 0o700)


def test_no_part_starts_while_the_state_directory_is_elsewhere():
    """Else the next launcherd, with the directory where it is now, would not know the part, and the server would start another one."""
    for remove in (move_away, replace):
        with World(LAUNCHERD) as world:
            node, pid, _ = begin(world)
            place = f"{node.folder}/{node.name}"
            remove(world, node)
            world.server.start(2, 1, ["sleep", "1000"], slot_mask=2)
            report = world.server.wait_phase(2, 1, "ended")
            assert report["failed_class"] == "node" and report["cause"] == (
                f"node node0: the state directory {place} is no longer the one that launcherd opened: put it back, or restart launcherd with its "
                "new path"), report
            if remove is replace:
                assert os.listdir(place) == [], os.listdir(place)
                os.rmdir(place)
            assert not os.path.exists(place) and is_alive(pid)
            world.server.forget(2, 1)
            world.server.wait_for("beat", lambda m: listed(m) == [(1, 1, False)], since=world.server.mark())
            os.rename(f"{world.folder}/moved", place)
            assert world.server.run(3, ["true"], slot_mask=2)["failed_rank"] == -1
            world.forget(node, 3, 1)
            world.server.stop(1, 1)
            world.server.wait_phase(1, 1, "ended")
            world.forget(node, 1, 1)


def test_a_part_of_a_moved_state_directory_is_known_to_the_next_launcherd():
    with World(LAUNCHERD, gated=True) as world:
        node, pid, _ = begin(world)
        before = world.server.find("node_hello")["state_id"]
        place = node.argv.index("--state-dir") + 1
        move_away(world, node)
        node.kill()
        node.argv[place] = f"{world.folder}/moved"
        since = world.server.mark()
        hello = again(world, node)
        assert hello["state_id"] == before and listed(hello) == [(1, 1, False)], hello
        world.server.wait_for("shim_report", lambda m: m["phase"] == "running", since=since)
        assert is_alive(pid)
        assert node.end() == 0
        os.rename(f"{world.folder}/moved", f"{node.folder}/{node.name}")
        node.argv[place] = f"{node.folder}/{node.name}"
        node.begin().ready()
        world.server.stop(1, 1)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


def test_a_second_launcherd_does_not_get_the_folder_of_the_first():
    with World(LAUNCHERD) as world:
        node, pid, _ = begin(world)
        os.unlink(f"{node.folder}/{node.name}/lock")
        second = subprocess.run([*node.argv, "--keep-trying"], stdin=subprocess.DEVNULL, capture_output=True, timeout=LONG_S,
                                check=False)
        assert second.returncode != 0 and b"uses the state directory" in second.stderr, second
        assert is_alive(pid)
        world.server.stop(1, 1)
        world.server.wait_phase(1, 1, "ended")
        world.forget(node, 1, 1)


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[2:]))
