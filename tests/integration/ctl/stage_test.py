#!/usr/bin/env python3
"""--stage copies a working directory to nodes that do not have it, completely or not at all."""
import base64
import hashlib
import os
import random
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))

from processes.case import Case, Cluster
from processes.runner import equal, run_and_exit
from processes.waiting import wait_for
from processes.wire import Client, encode, frame, Refused

CHUNK = 512 * 1024


def make_project(case, name="project", bytes_of_data=3 * 1024 * 1024):
    top = os.path.join(case.dir, name)
    os.makedirs(os.path.join(top, "sub", ".git"))
    with open(os.path.join(top, "train.sh"), "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\nsha256sum < sub/data | cut -c1-64\necho restart $TORCHELASTIC_RESTART_COUNT\n"
                "cat state 2>/dev/null\necho seen > state\n"
                "[ -z \"$FAIL_ONCE\" ] || [ $TORCHELASTIC_RESTART_COUNT -gt 0 ] || exit 3\n")
    os.chmod(os.path.join(top, "train.sh"), 0o755)
    data = random.Random(1).randbytes(bytes_of_data)
    with open(os.path.join(top, "sub", "data"), "wb") as f:
        f.write(data)
    return top, hashlib.sha256(data).hexdigest()


def archives(case, who):
    folder = os.path.join(case.dir, who, "stage")
    return [name for name in os.listdir(folder) if not name.startswith(".")] if os.path.isdir(folder) else []


def a_staged_job_runs_in_its_copy_on_every_node():
    with Case() as case, Cluster(case, nodes=2) as cluster:
        top, digest = make_project(case)
        done = cluster.ctl("submit", "--stage", top, "-N", "2", "--", "./train.sh")
        equal(done.returncode, 0, done.stderr)
        assert "staging " in done.stderr and "2 files, 3.0 MiB" in done.stderr, done.stderr
        job = done.stdout.strip()
        shutil.rmtree(top)
        equal(cluster.ctl("wait", job).returncode, 0, cluster.ctl("logs", job).stdout)
        lines = cluster.ctl("logs", job).stdout
        equal(lines.count(digest), 2, lines)
        assert cluster.status(job)["cwd"].startswith("stage:"), cluster.status(job)
        for who in ("rendezvous", "node0", "node1"):
            equal([name[64:] for name in archives(case, who)], [".tar"], who)


def a_restart_finds_the_files_that_the_job_has_made():
    with Case() as case, Cluster(case) as cluster:
        top, digest = make_project(case)
        job = cluster.submit("--stage", top, "-e", "FAIL_ONCE=1", "--", "./train.sh")
        equal(cluster.ctl("wait", job).returncode, 0, cluster.ctl("logs", job).stdout)
        lines = [line.split(None, 1)[-1].split("restart ")[-1] for line in cluster.ctl("logs", job).stdout.splitlines()]
        equal(lines[-3:], [digest, "1", "seen"])


def the_same_directory_is_sent_once():
    with Case() as case, Cluster(case) as cluster:
        top, _ = make_project(case)
        jobs = [cluster.submit("--stage", top, "--", "./train.sh") for _ in range(3)]
        for job in jobs:
            equal(cluster.ctl("wait", job).returncode, 0, cluster.ctl("logs", job).stdout)
            assert "seen" not in cluster.ctl("logs", job).stdout  # each job has its own copy
        equal((len(archives(case, "rendezvous")), len(archives(case, "node0"))), (1, 1))


def what_cannot_be_staged_is_refused_before_it_is_queued():
    with Case() as case, Cluster(case) as cluster:
        top, _ = make_project(case)
        for words, text in ((("--stage", top + "x"), "there is no such folder"),
                            (("--stage", top, "--cwd", "/tmp"), "do not go together"),
                            (("--cwd", "stage:" + "0" * 64), "does not have the staged directory")):
            done = cluster.ctl("submit", *words, "--", "./train.sh")
            assert done.returncode in (2, 3) and text in done.stderr, (words, done.returncode, done.stderr)
        with open(os.path.join(top, "huge"), "wb") as f:
            f.truncate(65 * 1024 * 1024)
        done = cluster.ctl("submit", "--stage", top, "--", "./train.sh")
        equal(done.returncode, 2)
        assert "68.0 MiB, at most 64 MiB can be staged; the largest in it is huge" in done.stderr, done.stderr
        equal(cluster.ctl("ps", "-a", "-q").stdout, "")
        equal(archives(case, "rendezvous"), [])


def piece(peer, data, digest, offset, chunk=CHUNK, total=None):
    """The answer: how much the server has, "complete", or an error code."""
    part = base64.b64encode(data[offset:offset + chunk]).decode()
    try:
        answer = peer.ask("stage_put", hash=digest, total=str(len(data) if total is None else total), offset=offset,
                          bytes=part)
    except Refused as error:
        return error.code
    return "complete" if answer["is_complete"] else int(answer["have"])


def only_whole_archives_are_kept():
    with Case() as case, Cluster(case) as cluster:
        data = random.Random(2).randbytes(CHUNK + 1000)
        right, wrong = hashlib.sha256(data).hexdigest(), hashlib.sha256(b"x").hexdigest()
        with Client(cluster.address) as peer:
            for digest, end in ((wrong, "bad_request"), (right, "complete")):
                equal([piece(peer, data, digest, 0, 0), piece(peer, data, digest, 0), piece(peer, data, digest, CHUNK)],
                      [0, CHUNK, end])
            equal(archives(case, "rendezvous"), [right + ".tar"])
            equal(piece(peer, data, right, 0, 0), "complete")  # it is there
            other = hashlib.sha256(b"y").hexdigest()
            equal(piece(peer, data, other, CHUNK), "bad_request")  # not begun
            equal([piece(peer, data, other, 0, 0, 100), piece(peer, data, other, 0, CHUNK, 100)], [0, "bad_request"])
            equal(piece(peer, data, ".." + "0" * 62, 0, 0), "bad_request")
            equal([piece(peer, data, other, 0, 0), len(archives(case, "rendezvous"))], [0, 2])
        wait_for("the end of the half", lambda: archives(case, "rendezvous") == [right + ".tar"])


def an_upload_cannot_change_another():
    """The second upload comes while the first one is being synced: the server takes it when that is done."""
    with Case() as case, Cluster(case) as cluster:
        data = random.Random(3).randbytes(1000)
        digest = hashlib.sha256(data).hexdigest()
        begin = dict(hash=digest, total=str(len(data)), offset=0, bytes="")
        last = dict(begin, bytes=base64.b64encode(data).decode())
        with Client(cluster.address) as peer:
            equal(piece(peer, data, digest, 0, 0), 0)
            peer.send_bytes(frame(encode("stage_put", **last)) + frame(encode("stage_put", **begin)))
            equal([peer.answer()["is_complete"], peer.answer()["is_complete"]], [True, True])
            with open(os.path.join(case.dir, "rendezvous", "stage", digest + ".tar"), "rb") as f:
                equal(hashlib.sha256(f.read()).hexdigest(), digest)
        wait_for("the end of the second", lambda: archives(case, "rendezvous") == [digest + ".tar"])


def old_archives_go_if_no_job_uses_them():
    with Case() as case, Cluster(case, nodes=0) as cluster:
        hashes = []
        with Client(cluster.address) as peer:
            for text in (b"used", b"unused", b"young"):
                hashes.append(hashlib.sha256(text).hexdigest())
                equal([piece(peer, text, hashes[-1], 0, 0), piece(peer, text, hashes[-1], 0)], [0, "complete"])
            for digest in hashes[:2]:
                peer.submit(cwd=f"stage:{digest}")
            cluster.ctl("cancel", "2")
            for digest in hashes[:2]:
                os.utime(os.path.join(case.dir, "rendezvous", "stage", digest + ".tar"), (0, 0))
            new = hashlib.sha256(b"new").hexdigest()
            equal([piece(peer, b"new", new, 0, 0), piece(peer, b"new", new, 0)], [0, "complete"])
            equal(sorted(archives(case, "rendezvous")), sorted(digest + ".tar" for digest in (hashes[0], hashes[2], new)))


def a_damaged_archive_in_the_cache_of_a_node_does_no_harm():
    with Case() as case, Cluster(case) as cluster:
        top, digest = make_project(case)
        equal(cluster.ctl("wait", cluster.submit("--stage", top, "--", "./train.sh")).returncode, 0)
        (name,) = archives(case, "node0")
        with open(os.path.join(case.dir, "node0", "stage", name), "r+b") as f:
            f.truncate(1000)
        job = cluster.submit("--stage", top, "--max-restarts", "0", "--", "./train.sh")
        equal(cluster.ctl("wait", job).returncode, 0, cluster.ctl("status", job).stdout)
        assert digest in cluster.ctl("logs", job).stdout


def a_node_without_libarchive_runs_all_but_staged_jobs():
    with Case() as case, Cluster(case, nodes=0) as cluster:
        cluster.launch("node0", "launcherd", "--server", cluster.address, "--name", "node0", "--slots", "1", "--allow-root",
                       LD_PRELOAD=os.environ["HIDES"], HIDE_LIBRARY="libarchive.so.13")
        equal(cluster.ctl("wait", cluster.submit("--", "true")).returncode, 0)
        top, _ = make_project(case)
        job = cluster.submit("--stage", top, "--max-restarts", "0", "--", "./train.sh")
        equal(cluster.ctl("wait", job).returncode, 125)
        reason = cluster.status(job)["reason"]
        assert "node node0: a job with --stage needs libarchive.so.13: install libarchive" in reason, reason


if __name__ == "__main__":
    run_and_exit([a_staged_job_runs_in_its_copy_on_every_node, a_restart_finds_the_files_that_the_job_has_made,
               the_same_directory_is_sent_once, what_cannot_be_staged_is_refused_before_it_is_queued,
               only_whole_archives_are_kept, an_upload_cannot_change_another, old_archives_go_if_no_job_uses_them, a_damaged_archive_in_the_cache_of_a_node_does_no_harm,
               a_node_without_libarchive_runs_all_but_staged_jobs], 3)
