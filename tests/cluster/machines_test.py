"""Tests of machines.py itself: machines reach one another, a cable can be cut, slowed down and restored, nothing is left."""
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import machines
from processes.waiting import LONG_S, Stopwatch, wait_for, wait_gone


def echo(one, two, at_least=0.0):
    """Sends one byte there and back."""
    with two.network():
        listener = socket.socket()
    listener.bind((two.v4, 0))
    listener.listen()
    watch = Stopwatch()
    near = one.connect(*listener.getsockname())
    far, _ = listener.accept()
    listener.close()
    near.sendall(b"x")
    assert far.recv(1) == b"x"
    far.sendall(b"y")
    assert near.recv(1) == b"y"
    watch.check("echo", at_least)
    near.close()
    far.close()


def child():
    """A test that waits to be killed."""
    machines.enter()
    with tempfile.TemporaryDirectory(prefix="ddp-machines-", dir="/tmp") as folder:
        machine = machines.Machine(machines.Switch(), f"{folder}/m", "m")
        sleeper = machine.start("sleeper", "sleep", "1000")
        pid = sleeper.pid
    print(pid, flush=True)
    signal.pause()


def check_killed():
    """A test that is killed leaves no process and so no network and no mount."""
    test = subprocess.Popen([sys.executable, __file__, "child"], stdout=subprocess.PIPE, text=True)
    pid = int(test.stdout.readline())
    assert os.path.exists(f"/proc/{pid}")
    test.kill()
    test.wait()
    test.stdout.close()
    wait_gone("the end of a killed test's machine", pid, patience_s=LONG_S)


def main():
    try:
        machines.enter()
        folder = tempfile.mkdtemp(prefix="ddp-machines-", dir="/tmp")
        switch = machines.Switch()
        one, two = (machines.Machine(switch, f"{folder}/{name}", name) for name in ("one", "two"))
    except machines.Missing as reason:
        print(f"skip: {reason}")
        return machines.SKIP
    one.write_hosts([one, two])
    done = one.run("sh", "-c", "hostname; getent hosts two; echo mine > /home/tester/file")
    print(done.stdout, done.stderr)
    assert done.stdout.startswith("one\n10.77.0.2"), done.stdout
    assert two.run("ls", "/home/tester").stdout == ""
    echo(one, two)
    print("slow by", two.slow(50, 0.0))
    echo(one, two, 0.2)  # two round trips
    two.cut()
    try:
        one.connect(two.v4, 4000, timeout_s=0.5)
        raise AssertionError("a cut machine answers")
    except OSError as error:
        print("cut:", error)
    two.mend()
    echo(one, two)
    sleeper = two.start("sleeper", "sleep", "1000")
    pid = sleeper.pid
    wait_for("nsenter to become its program", lambda: two.processes().get(pid, [])[:2] == ["sleep", "1000"], LONG_S)
    two.close()
    assert not os.path.exists(f"/proc/{pid}"), "a process outlived its machine"
    one.close()
    switch.close()
    shutil.rmtree(folder)
    check_killed()
    return 0


if __name__ == "__main__":
    sys.exit(child() if sys.argv[1:] == ["child"] else main())
