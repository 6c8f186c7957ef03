#!/usr/bin/env python3
"""Metrics of a rank: launcherd returns what a rank writes to DDP_METRICS like its log: metrics_test.py LAUNCHERD [NAME...]

As root the job of `nobody` tries to have launcherd read a file of root's; as an ordinary user that test skips and says so."""
import os
import pwd
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.runner import run_tests, Skip
from processes.world import World

LAUNCHERD = os.path.abspath(sys.argv[1])
SHELL = "/bin/sh"


def metrics(world, rank=0, **more):
    return world.server.log_read(1, 1, rank, what="metrics", **more)


def test_metrics_are_read_as_they_grow():
    with World(LAUNCHERD) as world:
        node = world.node()
        os.mkfifo(f"{world.folder}/fifo")
        world.server.start(1, 1, [SHELL, "-c", f"echo output; echo '{{\"step\":'$RANK'}}' > $DDP_METRICS; "
                                  f"if [ $RANK = 1 ]; then cat {world.folder}/fifo >> $DDP_METRICS; fi"], nproc=2)
        world.server.go(1, 1)
        assert metrics(world)["bytes"] == b'{"step":0}\n'
        first = metrics(world, 1)
        assert (first["bytes"], first["is_final"]) == (b'{"step":1}\n', False), first
        with open(f"{world.folder}/fifo", "w", encoding="ascii") as fifo:
            fifo.write("{}\n")
            fifo.flush()
            second = metrics(world, 1, offset=11)  # launcherd holds the request until there is data
            assert second["bytes"] == b"{}\n" and not second["is_final"], second
        world.server.wait_phase(1, 1, "ended")
        assert world.server.log_bytes(1, 1, 1, what="metrics") == b'{"step":1}\n{}\n'
        assert world.server.log_bytes(1, 1, 1) == b"output\n"
        world.forget(node, 1, 1)
        assert metrics(world, 1, tail_lines=1)["bytes"] == b"{}\n"  # metrics are kept, like logs


def test_a_rank_without_metrics_has_none():
    with World(LAUNCHERD) as world:
        node = world.node()
        world.server.run(1, [SHELL, "-c", "true"])
        data = metrics(world)
        assert (data["bytes"], data["is_final"], data["problem"]) == (b"", True, ""), data
        problem = world.server.log_read(9, 1, 0, what="metrics")["problem"]
        assert problem == "node node0 has no metrics of job 9, generation 1, rank 0", problem
        world.forget(node, 1, 1)


def refused(world, make):
    """The answer comes at once, though the rank still runs and could write more."""
    world.server.start(1, 1, [SHELL, "-c", f"{make}; echo made; sleep 1000"], **user_of(world))
    world.server.go(1, 1)
    assert world.server.log_read(1, 1, 0)["bytes"] == b"made\n"
    data = metrics(world)
    assert data["bytes"] == b"" and data["is_final"] and "no plain file of the job's user" in data["problem"], data
    world.server.stop(1, 1)
    world.server.wait_phase(1, 1, "ended")


def test_a_file_without_an_end_is_read_up_to_a_limit():
    """A sparse file of 4 TiB costs its writer nothing."""
    for line in (b"{}\n", b""):
        with World(LAUNCHERD) as world:
            node = world.node()
            world.server.run(1, [SHELL, "-c", f"printf '{line.decode()}' > $DDP_METRICS; truncate -s 4T $DDP_METRICS"])
            out, data = b"", {"is_final": False, "offset": 0, "bytes": b""}
            for _ in range(5):
                data = metrics(world, offset=data["offset"] + len(data["bytes"]))
                out += data["bytes"]
                if data["is_final"]:
                    break
            assert data["is_final"] and out.rstrip(b"\0") == line, (data["problem"], len(out))
            assert f"is a file of {4 << 40} bytes, of which only the first {1 << 30} are read" in data["problem"], data["problem"]
            world.forget(node, 1, 1)


def user_of(world):
    return getattr(world, "job_user", {})


def test_what_is_no_plain_file_is_not_opened():
    for make in ("mkfifo $DDP_METRICS", "mkdir $DDP_METRICS", "ln -s /etc/hostname $DDP_METRICS",
                 "ln -s $DDP_METRICS $DDP_METRICS"):
        with World(LAUNCHERD) as world:
            node = world.node()
            refused(world, make)
            world.forget(node, 1, 1)


def test_files_of_others_are_not_read_for_a_job():
    """launcherd reads as root, and user nobody owns the folder, so launcherd must not follow a link there."""
    if os.geteuid() != 0:
        raise Skip("only root runs jobs of other users")
    if pwd.getpwnam("nobody").pw_uid < 1000:
        raise Skip("nobody is an account of the system here")
    with World(LAUNCHERD) as world:
        os.chmod(world.folder, 0o755)
        with open(f"{world.folder}/secret", "w", encoding="ascii") as file:
            file.write("secret\n")
        node = world.node(extra=[])
        world.job_user = {"user": "nobody"}
        refused(world, f"ln -s {world.folder}/secret $DDP_METRICS")
        folder = f"{node.log_dir(1)}/g1-errors"
        os.unlink(f"{folder}/rank0.metrics.jsonl")
        os.link(f"{world.folder}/secret", f"{folder}/rank0.metrics.jsonl")  # as if the kernel let users do that
        assert "no plain file of the job's user" in metrics(world)["problem"]
        os.unlink(f"{folder}/rank0.metrics.jsonl")
        world.forget(node, 1, 1)


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[2:]))
