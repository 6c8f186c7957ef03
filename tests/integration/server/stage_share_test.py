"""What one user may have of the room for staged directories: stage_share_test.py RENDEZVOUS [TEST...]

The room is half of a small disk. Two users fill it."""
import base64
import contextlib
import hashlib
import os
import random
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.runner import run_tests, Skip
from processes.wire import Client, Refused, Server
from full_disk import FullDisk

BINARY = os.path.abspath(sys.argv[1])
draw = random.Random(1)  # each archive is another one
ANN, BOB, ROOT = 65533, 65534, 0
DISK_KIB = 48 * 1024
MIB = 1024 * 1024
CHUNK = 512 * 1024
SHARE = r"full: no user may have more than half of what others leave of the room for staged directories: you have (\d+\.\d) MiB of (\d+\.\d), and this one has (\d+\.\d)"


class Place:
    """A server with its state on the small disk, whose socket every user may call."""

    def __init__(self, disk):
        self.state_dir = os.path.join(disk, "state")
        self.start()

    def start(self):
        self.process = Server(BINARY, self.state_dir, "--no-fsync", "--all-users")
        os.chmod(self.state_dir, 0o711)
        os.chmod(self.process.address[5:], 0o666)

    def restart(self):
        """It forgets who has sent what."""
        self.process.kill()
        self.start()

    def client(self, uid):
        """The kernel tells the server the user that the process is when it connects."""
        os.seteuid(uid)
        try:
            return Client(self.process.address)
        finally:
            os.seteuid(0)

    def make_old(self, digest):
        os.utime(os.path.join(self.state_dir, "stage", digest + ".tar"), (0, 0))


@contextlib.contextmanager
def a_place():
    if os.geteuid() != 0:
        raise Skip("needs root, to be somebody else")
    root = tempfile.mkdtemp(prefix="ddp-share-")
    place = None
    try:
        with FullDisk(root, DISK_KIB) as disk:
            if disk is None:
                raise Skip("mounting a tmpfs is not allowed here")
            os.chmod(root, 0o711)
            os.chmod(disk, 0o711)
            try:
                place = Place(disk)
                yield place
            finally:
                if place and place.process.alive():
                    place.process.kill()
    finally:
        shutil.rmtree(root)


def begin(client, digest, total):
    return client.ask("stage_put", hash=digest, total=str(total), offset=0, bytes="")


def send(client, byte_count):
    data = draw.randbytes(byte_count)
    digest = hashlib.sha256(data).hexdigest()
    begin(client, digest, len(data))
    for offset in range(0, len(data), CHUNK):
        answer = client.ask("stage_put", hash=digest, total=str(len(data)), offset=offset, bytes=base64.b64encode(data[offset:offset + CHUNK]).decode())
    assert answer["is_complete"], answer
    return digest


def name(client, digest):
    """A job that waits: there are no nodes."""
    return client.submit(cwd=f"stage:{digest}")["job_id"]


def cancel(client, job):
    client.ask("cancel", job=str(job), signal=15, grace_us=-1)


def refusal(call):
    """What the share, one's own bytes and the archive are, in MiB."""
    try:
        call()
    except Refused as error:
        found = re.search(SHARE, str(error))
        assert found, error
        return tuple(map(float, found.groups()))
    raise AssertionError("it was not refused")


def fill(client, then=lambda digest: None):
    """Sends 1 MiB each until there is no room for this user. Returns their hashes."""
    sent = []
    while True:
        try:
            sent.append(send(client, MIB))
        except Refused as error:
            assert re.search(SHARE, str(error)), error
            return sent
        then(sent[-1])


def test_two_users_with_jobs():
    """The second one, and root, find room beside the first one, which is the same for the server that has started again."""
    with a_place() as place:
        with place.client(ANN) as ann, place.client(BOB) as bob, place.client(ROOT) as root:
            jobs = []
            sent = fill(ann, lambda digest: jobs.append(name(ann, digest)))
            assert 9 <= len(sent) <= 12, len(sent)  # half of half of 48 MiB, less the store's file
            has, most, wants = refusal(lambda: send(ann, MIB))
            assert has == len(sent) and wants == 1.0 and has + wants > most >= has, (has, most, wants)
            name(ann, sent[0])  # she has it already
            for other in (bob, root):
                for _ in range(2):
                    name(other, send(other, MIB))
            name(bob, sent[0])  # as one of his, too
            assert refusal(lambda: send(bob, 4 * MIB))[0] == 3.0
        place.restart()
        with place.client(ANN) as ann, place.client(BOB) as bob:
            assert refusal(lambda: send(ann, MIB))[0] == len(sent)
            name(bob, send(bob, MIB))
            for job in jobs:
                cancel(ann, job)
            name(ann, send(ann, MIB))  # the ones of the ended jobs were sent before the restart


def test_uploads_that_no_job_names():
    """They count for ten minutes, also when the job has ended or its client is gone."""
    with a_place() as place:
        with place.client(ANN) as ann:
            sent = fill(ann, lambda digest: cancel(ann, name(ann, digest)))
            assert 9 <= len(sent) <= 12, len(sent)
        with place.client(ANN) as ann, place.client(BOB) as bob:
            assert refusal(lambda: send(ann, MIB))[0] == len(sent)
            assert len(fill(bob)) >= 4


def test_uploads_that_have_begun():
    with a_place() as place, contextlib.ExitStack() as stack:
        ann = [stack.enter_context(place.client(ANN)) for _ in range(3)]
        bob = stack.enter_context(place.client(BOB))
        begin(ann[0], "a" * 64, 5 * MIB)
        begin(ann[1], "b" * 64, 5 * MIB)
        has, most, wants = refusal(lambda: begin(ann[2], "c" * 64, 5 * MIB))
        assert (has, wants) == (10.0, 5.0) and most < 15, (has, most, wants)
        begin(bob, "c" * 64, 5 * MIB)


def test_archives_of_before():
    """They are nobody's. Who has all that one may have gets none of them by naming it or by sending it again; they go when there is no room."""
    with a_place() as place:
        with place.client(ANN) as ann:
            before = fill(ann)
        place.restart()
        with place.client(ANN) as ann, place.client(BOB) as bob:
            fill(ann)
            assert refusal(lambda: name(ann, before[0]))[2] == 1.0
            assert refusal(lambda: begin(ann, before[0], MIB))[2] == 1.0
            assert refusal(lambda: ann.ask("stage_put", hash=before[0], total=str(MIB), offset=0, bytes="eA=="))[2] == 1.0
            name(bob, before[0])
            for digest in before:
                place.make_old(digest)
            assert len(fill(bob)) >= 3
            name(bob, before[0])


if __name__ == "__main__":
    sys.exit(run_tests([test_two_users_with_jobs, test_uploads_that_no_job_names, test_uploads_that_have_begun, test_archives_of_before],
                       sys.argv[2:]))
