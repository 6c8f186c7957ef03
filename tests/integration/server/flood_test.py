"""Local users who occupy the server's unix socket with connections that say nothing: flood_test.py RENDEZVOUS [TEST...]"""

import contextlib
import os
import select
import shutil
import socket
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.node import Node
from processes.runner import run_tests, Skip
from processes.waiting import Stopwatch
from processes.wire import Client, Server, with_descriptors

BINARY = sys.argv[1]
FLOODER, OTHER = 65534, 65533
HELLO_S = 5.0  # limits.h: HELLO_TIMEOUT_US
DESCRIPTORS = 4096
OF_USER, OF_ALL = 64, 128  # door.c: a 16th of the connections that so many descriptors allow, and half of that


@contextlib.contextmanager
def server(descriptors=DESCRIPTORS):
    """One whose socket every user may call."""
    root = tempfile.mkdtemp(prefix="ddp-flood-")
    directory = os.path.join(root, "state")
    process = None
    try:
        process = Server(with_descriptors(BINARY, directory + "-limited", descriptors), directory, "--no-fsync")
        os.chmod(root, 0o711)
        os.chmod(directory, 0o711)
        os.chmod(process.address[5:], 0o666)
        yield process
    except BaseException:
        sys.stderr.write(process.log()[-4000:] if process else "")
        raise
    finally:
        if process and process.alive():
            process.kill()
        shutil.rmtree(root)


@contextlib.contextmanager
def as_user(uid):
    """The kernel tells the server the user that the process is when it connects."""
    if os.geteuid() != 0:
        raise Skip("needs root, to be somebody else")
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def connect(process):
    """It says nothing. If the kernel's queue is full, it waits."""
    one = socket.socket(socket.AF_UNIX)
    one.connect(process.address[5:])
    return one


def crowd_of(stack, process, uid, count):
    with as_user(uid):
        return [stack.enter_context(connect(process)) for _ in range(count)]


def closed_of(crowd):
    poll = select.poll()
    for one in crowd:
        poll.register(one, select.POLLRDHUP)
    ended = {fd for fd, _ in poll.poll(0)}
    return [one.fileno() in ended for one in crowd]


def answers(process):
    """A connection is answered: what came before it has been accepted."""
    with Client(process.address) as client:
        client.submit()


def within_the_hello_time(attempt):
    """What is silent for 5 s is closed whatever else happens: on a machine that was so slow, an attempt proves nothing."""
    for left in range(4, -1, -1):
        watch = Stopwatch()
        with contextlib.ExitStack() as stack:
            try:
                return attempt(stack)
            except AssertionError:
                if left == 0 or watch.passed_s < HELLO_S - 1:
                    raise


def test_a_newcomer_pushes_out_the_oldest_of_its_user():
    """Neither another user's, which is older, nor root's."""
    with server() as process:
        def attempt(stack):
            root = stack.enter_context(connect(process))
            other, = crowd_of(stack, process, OTHER, 1)
            crowd = crowd_of(stack, process, FLOODER, 3 * OF_USER)
            answers(process)
            closed = closed_of(crowd)
            assert closed == [True] * 2 * OF_USER + [False] * OF_USER, (sum(closed), closed.index(False))
            assert closed_of([root, other]) == [False, False]

        within_the_hello_time(attempt)


def test_of_many_users_the_one_with_the_most_makes_room():
    with server() as process:
        def attempt(stack):
            few = crowd_of(stack, process, OTHER, 10)
            most = crowd_of(stack, process, FLOODER, OF_USER)
            rest = [crowd_of(stack, process, 60000 + i, 1)[0] for i in range(OF_ALL - OF_USER)]
            answers(process)
            closed = closed_of(most)
            assert closed == [True] * 10 + [False] * (OF_USER - 10), closed
            assert not any(closed_of(few + rest))

        within_the_hello_time(attempt)


def test_with_few_descriptors_silent_connections_leave_room():
    """A user's silent connections, many more than the server may have: root, another user and a node get in at the first call."""
    with server(descriptors=400) as process, contextlib.ExitStack() as stack:
        crowd_of(stack, process, FLOODER, 600)
        for _ in range(20):
            answers(process)
        with as_user(OTHER):
            answers(process)
        with as_user(FLOODER):
            answers(process)
        node = stack.enter_context(contextlib.closing(Node(process.address, "node0")))
        node.wait(lambda n: n.welcomed or n.error, "a welcome")
        assert node.welcomed, node.error


def test_half_a_hello_holds_no_place():
    """The start of a message makes a connection no client: it makes room, too."""
    with server() as process:
        def attempt(stack):
            crowd = []
            for count in (OF_USER - 1, 1):
                crowd += crowd_of(stack, process, FLOODER, count)
                for one in crowd[-count:]:
                    one.sendall(b"\0\0\1\0{")
                with as_user(FLOODER):  # by the second answer the bytes that came before were read
                    answers(process)
            closed = closed_of(crowd)
            assert closed == [True] + [False] * (OF_USER - 1), closed

        within_the_hello_time(attempt)


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items())
                        if name.startswith("test_")], sys.argv[2:]))
