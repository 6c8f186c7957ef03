"""What ddp-worker reports to its shim, and what it does at SIGUSR1: two ranks, with this test in place of their shims. usage: shim_test.py BUILD

now: during training `doing` names the layer, or the bucket that is being reduced while it waits for the other rank.
asked: SIGUSR1 writes a checkpoint at the end of the step, training goes on, and a later run resumes from it; with a folder that both ranks
share, and with a folder for each, where checkpoints are copied. Without a folder it is a warning. With a folder for each rank, rank 0
tells of no checkpoint before another rank has a copy of one: a job that goes on on other nodes would be refused.
file: --resume FILE at --max-steps, with a folder for each rank: each gets that checkpoint.
last: SIGTERM before the first checkpoint, with a folder for each rank: the one of the end is copied, then told.
validation: SIGTERM ends each rank at its next batch. SIGALRM is blocked, so ddp-worker's own limit of 8 s for its end cannot end it.
sums: SIGTERM also ends a rank that has finished its part of a validation and waits for rank 0's."""

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.wire import Closed, Link, PROTOCOL
from processes.waiting import Stopwatch
from small_pictures import png  # noqa: E402

PATIENCE_S = 300
MODEL = ["-a", "convnet", "--dummy", "--device", "cpu", "-b", "4", "--epochs", "10000", "-p", "100000"]


class Ranks:
    """Two ranks of one generation. Each has a folder and a log of its own."""

    def __init__(self, build, folder, args, own_folders=False, generation=1, blocked=(), more=None):
        self.processes, self.peers = [], []
        self.newest = [{}, {}]
        self.logs = [os.path.join(folder, f"rank{rank}.log") for rank in range(2)]
        for rank in range(2):
            ours, theirs = socket.socketpair()
            cwd = os.path.join(folder, f"node{rank if own_folders else 0}")
            os.makedirs(cwd, exist_ok=True)
            environ = {**os.environ, "OMP_NUM_THREADS": "1", "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                       "DDP_SHIM_FD": str(theirs.fileno()), "DDP_JOB_ID": "7", "DDP_GENERATION": str(generation), "DDP_NODE_ADDRESS": "127.0.0.1",
                       "DDP_NODE_NAME": f"node{rank}", "DDP_CLUSTER": "test", "DDP_SHIM_PROTOCOL": str(PROTOCOL), **(more or {})}
            with open(self.logs[rank], "ab") as log:
                self.processes.append(subprocess.Popen([f"{build}/worker/ddp-worker", *args], cwd=cwd, env=environ, stdin=subprocess.DEVNULL,
                                                       stdout=log, stderr=subprocess.STDOUT, pass_fds=[theirs.fileno()],
                                                       preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, blocked)))
            theirs.close()
            self.peers.append(Link(ours))
        blob = self.await_join(0)["blob"]
        self.await_join(1)
        for peer in self.peers:
            peer.send("world", job_id=7, generation=generation, blob=blob)

    def await_join(self, rank):
        try:
            while (message := self.peers[rank].recv())["type"] != "worker_join":
                pass
        except Closed as error:
            raise AssertionError(f"rank {rank} has left: {self.said(rank)[-2000:]}") from error
        return message

    def said(self, rank=0):
        with open(self.logs[rank], encoding="utf-8") as file:
            return file.read()

    def listen(self, what, wanted):
        """Receives the ranks' messages until `wanted(rank, message)` is true for one."""
        watch = Stopwatch()
        with selectors.DefaultSelector() as selector:
            for rank, peer in enumerate(self.peers):
                selector.register(peer.socket, selectors.EVENT_READ, rank)
            while watch.passed_s < PATIENCE_S:
                for key, _ in selector.select(1):
                    message = self.peers[key.data].recv()
                    if message["type"] == "progress":
                        self.newest[key.data] = message
                    if wanted(key.data, message):
                        return message
        raise AssertionError(f"{what} did not come: {self.said()[-2000:]}")

    def await_step(self, step):
        self.listen(f"step {step}", lambda rank, message: rank == 0 and message["type"] == "progress" and message["step"] >= step)

    def signal(self, number):
        for process in self.processes:
            process.send_signal(number)

    def stop(self):
        """Stops the ranks as a shim does, and receives their last messages. Returns the newest committed step that rank 0 has reported."""
        self.signal(signal.SIGTERM)
        return self.end(128 + signal.SIGTERM)

    def end(self, code):
        """Receives the ranks' messages until they end."""
        for rank, peer in enumerate(self.peers):
            try:
                while True:
                    message = peer.recv()
                    if message["type"] == "progress":
                        self.newest[rank] = message
            except Closed:
                pass
        codes = [process.wait(PATIENCE_S) for process in self.processes]
        assert codes[0] == code, (codes, self.said()[-2000:])
        return self.newest[0]["checkpoint_step"]

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        for process in self.processes:
            process.kill()
            process.wait()
        for peer in self.peers:
            peer.socket.close()


def check_now(build, folder):
    def telling(pattern, in_collective):
        def look(rank, message):
            if rank != 0 or message["type"] != "progress" or not re.match(pattern, message.get("doing", "")):
                return False
            assert message.get("in_collective", False) == in_collective, message
            return True
        return look
    # A step takes seconds, so what is reported once a second is a layer.
    with Ranks(build, folder, ["-a", "resnet18", "--dummy", "--device", "cpu", "-b", "8", "--epochs", "100000"]) as ranks:
        layer = ranks.listen("a layer", telling(r"(forward|backward) \S+ \([a-z0-9_]+\)$", False))["doing"]
    # A step is much shorter than the 5 s after which rank 0 gives up the stopped rank, also on a busy machine.
    with Ranks(build, folder, MODEL) as ranks:
        ranks.await_step(3)
        ranks.processes[1].send_signal(signal.SIGSTOP)  # so the other rank waits for it
        bucket = ranks.listen("a bucket", telling(r"all-reduce number \d+: bucket \d+ of \d+$", True))["doing"]
    print(f"ok now: {layer}, {bucket}")


def ask(ranks, ckpt, before, is_told):
    """Asks for a checkpoint and returns its step. The end of an epoch may write further checkpoints."""
    ranks.signal(signal.SIGUSR1)

    def steps():
        return [int(step) for step in re.findall(r"SIGUSR1: writing a checkpoint of step (\d+), training goes on", ranks.said())]
    def is_written(rank, message):
        if rank != 0 or message["type"] != "progress" or not steps() or steps()[-1] <= before:
            return False
        if is_told:
            return steps()[-1] <= message["checkpoint_step"]
        assert message["checkpoint_step"] == 0, message
        return f"the checkpoint of step {steps()[-1]} that SIGUSR1 asked for is written" in ranks.said()
    ranks.listen("the checkpoint", is_written)
    asked = steps()[-1]
    assert os.path.exists(f"{ckpt}/step-{asked:08d}.safetensors"), (asked, os.listdir(ckpt))
    return asked


def check_asked(build, folder, own_folders):
    args = [*MODEL, "--checkpoint-dir", "ckpt", "--checkpoint-keep", "1000", "--resume", "auto"]
    ckpt = os.path.join(folder, "node0", "ckpt")
    with Ranks(build, folder, args, own_folders) as ranks:
        ranks.await_step(3)
        asked = ask(ranks, ckpt, 0, not own_folders)
        ranks.await_step(asked + 2)
        again = ask(ranks, ckpt, asked, not own_folders)
        ranks.await_step(again + 2)
        assert own_folders == (ranks.newest[0]["checkpoint_step"] == 0), ranks.newest
        for process in ranks.processes:  # no checkpoint is written at the end
            process.kill()
    with Ranks(build, folder, args, own_folders, generation=2) as ranks:
        ranks.await_step(again + 1)
        assert f"resumed at step {again} " in ranks.said(), ranks.said()
        if own_folders:  # the copy of it was sent at the resume
            assert os.path.exists(f"{folder}/node1/ckpt/step-{again:08d}.safetensors"), ranks.said()
            ranks.listen("its report", lambda rank, message: rank == 0 and message["type"] == "progress" and message["checkpoint_step"] == again)
        last = ranks.stop()
        assert last > again and os.path.exists(f"{ckpt}/step-{last:08d}.safetensors"), (last, os.listdir(ckpt))
    print(f"ok asked, {'a folder of each' if own_folders else 'one folder'}: steps {asked} and {again}, then {last} at SIGTERM, which was told")


def check_last(build, folder):
    args = [*MODEL, "--checkpoint-dir", "ckpt"]
    with Ranks(build, folder, args, own_folders=True) as ranks:
        ranks.await_step(3)
        last = ranks.stop()
        assert last >= 3, ranks.said()
        for node in ("node0", "node1"):
            assert os.path.exists(f"{folder}/{node}/ckpt/step-{last:08d}.safetensors"), (node, last, ranks.said(), ranks.said(1))
        assert [process.returncode for process in ranks.processes] == [128 + signal.SIGTERM] * 2, (ranks.said(), ranks.said(1))
    print(f"ok last: step {last}, copied and told")


def check_file(build, folder):
    for args in (["--checkpoint-dir", "ckpt"],
                 ["--checkpoint-dir", "new", "--resume", f"{folder}/node0/ckpt/step-00000003.safetensors"]):
        with Ranks(build, folder, [*MODEL, "--max-steps", "3", *args], own_folders=True) as ranks:
            assert ranks.end(0) == 3, ranks.said()
        for node in ("node0", "node1"):
            assert os.path.exists(f"{folder}/{node}/{args[1]}/step-00000003.safetensors"), (node, args, ranks.said())
    print("ok file")


def check_no_copy(build, folder):
    """Nobody has a checkpoint, and the server knows of none: the training begins again, and says so."""
    args = [*MODEL, "--checkpoint-dir", "ckpt"]
    with Ranks(build, folder, args, own_folders=True, generation=2) as ranks:
        ranks.await_step(1)
        assert "PROGRESS LOST" in ranks.said() and "PROGRESS LOST" not in ranks.said(1), ranks.said()
        ranks.stop()
    print("ok no copy")


def check_no_folder(build, folder):
    with Ranks(build, folder, MODEL) as ranks:
        ranks.await_step(2)
        ranks.signal(signal.SIGUSR1)
        ranks.listen("the warning", lambda rank, message: "SIGUSR1 asks for a checkpoint, but there is no --checkpoint-dir" in ranks.said())
        step = ranks.newest[0]["step"]
        ranks.await_step(step + 2)
        ranks.stop()
    print("ok no folder")


def check_validation(build, folder):
    args = ["-e", "-a", "resnet18", "--dummy", "--device", "cpu", "-b", "1"]  # minutes
    with Ranks(build, folder, args, blocked={signal.SIGALRM}) as ranks:
        for rank in range(2):
            ranks.listen(f"rank {rank} validating", lambda of, message, rank=rank: of == rank and "validation: forward" in message.get("doing", ""))
        ranks.stop()
        assert [process.returncode for process in ranks.processes] == [128 + signal.SIGTERM] * 2, (ranks.said(), ranks.said(1))
    print("ok validation")


def write_uneven(where, pairs):
    """An ImageFolder whose pictures for rank 0 of two are so large that it needs much longer than rank 1, whose pictures are small."""
    for part, count in (("train", 1), ("val", pairs)):
        os.makedirs(f"{where}/{part}/only")
        for name, side in (("0-large", 4000), ("1-small", 8)):
            with open(f"{where}/{part}/{name}.png", "wb") as file:
                file.write(png(side, side, bytes(3 * side * side)))
            for i in range(count):
                os.link(f"{where}/{part}/{name}.png", f"{where}/{part}/only/{i:04d}-{name}.png")
            os.remove(f"{where}/{part}/{name}.png")
    return where


def check_sums(build, folder):
    args = ["-e", "-a", "toynet", "--image-size", "32", "--device", "cpu", "-b", "1", "-j", "1", write_uneven(os.path.join(folder, "pictures"), 400)]
    with Ranks(build, folder, args) as ranks:
        ranks.listen("rank 1 waiting", lambda of, message: of == 1 and message.get("doing", "").startswith("validation: all-reduce number"))
        assert ranks.newest[0]["doing"].startswith("validation") and not ranks.newest[0].get("in_collective", False), ranks.newest
        ranks.stop()
        assert [process.returncode for process in ranks.processes] == [128 + signal.SIGTERM] * 2, (ranks.said(), ranks.said(1))
    print("ok sums")


def main():
    build = os.path.abspath(sys.argv[1])
    for check, more in ((check_now, ()), (check_asked, (False,)), (check_asked, (True,)), (check_file, ()), (check_last, ()), (check_no_copy, ()), (check_no_folder, ()), (check_validation, ()),
                        (check_sums, ())):
        with tempfile.TemporaryDirectory(prefix="ddp-train-shim-") as folder:
            check(build, folder, *more)
    return 0


if __name__ == "__main__":
    sys.exit(main())
