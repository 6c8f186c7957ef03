"""What must end a training with an error text and an exit code, and what must not. usage: edges_test.py BUILD

Each test runs ddp-worker alone, on --dummy images. Tests with a full disk mount a tmpfs; if that is not allowed they
skip and say so."""

import glob
import hashlib
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import small_data  # noqa: E402
from full_disk import FullDisk, run_tests  # noqa: E402

WORKER = os.path.join(os.path.abspath(sys.argv[1]), "worker", "ddp-worker")
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}
COMMAND = [WORKER, "--device", "cpu", "--dummy", "-b", "4"]


def train(*args, folder=None):
    more = ["--checkpoint-dir", folder] if folder else []
    return subprocess.run([*COMMAND, *more, *args], capture_output=True, text=True, timeout=300, check=False, env=ENV)


def run(command, *args):
    return subprocess.run([*command, *args], capture_output=True, text=True, timeout=300, check=False, env=ENV)


def checkpoints(folder):
    return sorted(int(re.search(r"step-(\d+)", name).group(1)) for name in glob.glob(f"{folder}/step-*.json"))


def check(condition, done):
    assert condition, f"exit {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"


def test_a_cycle_that_rises_for_one_step(folder):
    """PyTorch divides by zero there."""
    done = train("--max-steps", "4", "--lr-schedule", "onecycle", "--onecycle-pct-start", "0.25", "--epochs", "1", "--print-freq", "1",
                 folder=folder)
    rates = [float(rate) for rate in re.findall(r"lr ([0-9.e+-]+|nan|inf),", done.stdout)]
    check(done.returncode == 0 and len(rates) == 4 and all(rate == rate for rate in rates), done)


def test_a_loss_that_is_no_number(folder):
    done = train("--max-steps", "40", "--lr", "1e6", "--momentum", "0.99", "--checkpoint-every", "1", "--checkpoint-keep", "100",
                 folder=folder)
    check(done.returncode != 0, done)
    check(re.search(r"the loss is -?(nan|inf)|has -?(nan|inf) at element", done.stderr), done)
    for step in checkpoints(folder):
        with open(f"{folder}/step-{step:08d}.safetensors", "rb") as file:
            head = int.from_bytes(file.read(8), "little")
            file.seek(8 + head)
            values = memoryview(file.read()).cast("f")
        assert all(value == value and abs(value) != float("inf") for value in values), f"step {step} was kept"


def test_a_full_disk_at_the_end(folder):
    with FullDisk(folder, 64) as disk:
        if disk is None:
            return "skip"
        done = train("--max-steps", "3", folder=disk)
        check(done.returncode == 1 and "its last checkpoint, of step 3, could not be written" in done.stderr, done)
        check("No space left on device" in done.stderr, done)


def test_old_checkpoints_make_room(folder):
    """There is space for three checkpoints, with --checkpoint-keep 3: the fourth is written after the oldest is removed."""
    done = train("--max-steps", "1", folder=f"{folder}/one")
    check(done.returncode == 0, done)
    size = sum(os.path.getsize(name) for name in glob.glob(f"{folder}/one/step-*"))
    with FullDisk(folder, (3 * size + size // 2) // 1024) as disk:
        if disk is None:
            return "skip"
        done = train("--max-steps", "6", "--checkpoint-every", "1", "--checkpoint-keep", "3", folder=disk)
        check(done.returncode == 0 and "no checkpoint" not in done.stderr, done)
        assert checkpoints(disk) in ([4, 5, 6], [5, 6]), checkpoints(disk)


def test_a_full_disk_keeps_the_old_ones(folder):
    """There is space for one and a half checkpoints: the first one stays, and training goes on; at the end it fails, since the last checkpoint is missing."""
    done = train("--max-steps", "1", folder=f"{folder}/one")
    check(done.returncode == 0, done)
    size = sum(os.path.getsize(name) for name in glob.glob(f"{folder}/one/step-*"))
    with FullDisk(folder, (size + size // 2) // 1024) as disk:
        if disk is None:
            return "skip"
        done = train("--max-steps", "4", "--checkpoint-every", "1", "--print-freq", "1", folder=disk)
        check(done.returncode == 1 and "Step [4/" in done.stdout, done)
        check("no checkpoint at step 2: " in done.stderr and done.stderr.count("no checkpoint at step") == 1, done)
        assert checkpoints(disk) == [1] and not glob.glob(f"{disk}/*.tmp"), os.listdir(disk)
        done = train("-e", "--resume", disk)
        check(done.returncode == 0, done)


def add_tensor(folder, step, name):
    """Adds a tensor to a checkpoint, and makes its state file look like that of a version without a checksum of the state."""
    path = f"{folder}/step-{step:08d}"
    with open(f"{path}.safetensors", "rb") as file:
        content = file.read()
    head_bytes = int.from_bytes(content[:8], "little")
    head, values = json.loads(content[8:8 + head_bytes]), content[8 + head_bytes:]
    head[name] = {"dtype": "F32", "shape": [1], "data_offsets": [len(values), len(values) + 4]}
    text = json.dumps(head).encode()
    content = len(text).to_bytes(8, "little") + text + values + bytes(4)
    with open(f"{path}.safetensors", "wb") as file:
        file.write(content)
    with open(f"{path}.json", encoding="utf-8") as file:
        state = json.load(file)
    state["safetensors_bytes"], state["safetensors_sha256"] = len(content), hashlib.sha256(content).hexdigest()
    del state["state_sha256"]
    with open(f"{path}.json", "w", encoding="utf-8") as file:
        json.dump(state, file)


def test_a_tensor_too_many(folder):
    """A resume refuses it, like --pretrained, and like PyTorch with strict=True."""
    done = train("--max-steps", "1", "--momentum", "0.9", folder=folder)
    check(done.returncode == 0, done)
    add_tensor(folder, 1, "fc.more")
    for args in (["--resume", "auto", "--momentum", "0.9"], ["--resume", folder, "-e"]):
        done = train("--max-steps", "2", *args, folder=folder)
        check(done.returncode == 1 and "a tensor fc.more, which the model of --arch does not have" in done.stderr, done)
    done = train("--max-steps", "2", "--pretrained", f"{folder}/step-00000001.safetensors")
    check(done.returncode == 1 and "fc.more" in done.stderr, done)


def test_a_validation_that_is_not_finite(folder):
    """Weights that are finite but too large for a finite loss."""
    done = train("--max-steps", "1", folder=folder)
    check(done.returncode == 0, done)
    path = f"{folder}/step-00000001.safetensors"
    with open(path, "rb") as file:
        content = bytearray(file.read())
    head_bytes = int.from_bytes(content[:8], "little")
    begin, end = json.loads(content[8:8 + head_bytes])["fc.weight"]["data_offsets"]
    content[8 + head_bytes + begin:8 + head_bytes + end] = struct.pack("<ff", 3e38, -3e38) * ((end - begin) // 8)
    with open(f"{folder}/large.safetensors", "wb") as file:
        file.write(content)
    done = train("-e", "--pretrained", f"{folder}/large.safetensors")
    check(done.returncode == 1 and re.search(r"validation after step 0: the loss is (nan|infinite)", done.stderr), done)


def test_two_jobs_in_one_folder(folder):
    where = f"{folder}/both"
    with subprocess.Popen([*COMMAND, "--max-steps", "10000000", "--checkpoint-every", "1", "--print-freq", "1", "--checkpoint-dir", where],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV) as first:
        try:
            line = first.stdout.readline()
            while line and "Step [2/" not in line:
                line = first.stdout.readline()
            assert line, "the first has ended"
            second = train("--max-steps", "1", folder=where)
            check(second.returncode == 1 and f"process {first.pid} on " in second.stderr and "still writes there" in second.stderr, second)
            assert first.poll() is None, "the first has ended, too"
            second = train("--max-steps", "1", "--take-over", folder=where)
            check(second.returncode == 0, second)
            _, said = first.communicate(timeout=300)
            assert first.returncode == 1 and "taken over by" in said, said
        finally:
            if first.poll() is None:
                first.send_signal(signal.SIGKILL)
    done = train("--max-steps", "1", folder=where)  # no other run is alive
    check(done.returncode == 0, done)


def content(folder, step):
    with open(f"{folder}/step-{step:08d}.safetensors", "rb") as file:
        return file.read()


def best_in(folder):
    with open(f"{folder}/best.json", encoding="utf-8") as file:
        return json.load(file)["step"]


def test_a_file_at_the_end_of_an_epoch(folder):
    """No step follows that would write a checkpoint: the folder gets the one that --resume names, before the validation."""
    data = small_data.write_data(f"{folder}/data", 80, 40)  # 20 steps
    command = [WORKER, "--device", "cpu", "-b", "4", "--lr", "0.01", data]
    for optimizer in ("sgd", "adam"):
        first, second, third = (f"{folder}/{optimizer}-{name}" for name in ("first", "second", "third"))
        more = ["--optimizer", optimizer, *(["--momentum", "0.9"] if optimizer == "sgd" else [])]
        done = run(command, "--epochs", "1", "--checkpoint-dir", first, *more)
        check(done.returncode == 0 and checkpoints(first) == [20], done)
        done = run(command, "--epochs", "1", "--checkpoint-dir", second, "--resume", f"{first}/step-00000020.safetensors", *more)
        check(done.returncode == 0 and checkpoints(second) == [20] and "is not kept as the best" not in done.stderr, done)
        assert best_in(second) == 20 and content(second, 20) == content(first, 20), os.listdir(second)
        done = run(command, "--epochs", "1", "--checkpoint-dir", second, "--resume", "best", *more)
        check(done.returncode == 0 and content(second, 20) == content(first, 20), done)
        done = run(command, "--epochs", "2", "--checkpoint-dir", third, "--resume", f"{first}/step-00000020.safetensors", *more)
        check(done.returncode == 0 and checkpoints(third) == [20, 40] and best_in(third) in (20, 40), done)


def test_a_file_at_max_steps(folder):
    done = train("--max-steps", "5", folder=f"{folder}/first")
    check(done.returncode == 0, done)
    done = train("--max-steps", "5", "--resume", f"{folder}/first/step-00000005.safetensors", folder=f"{folder}/second")
    check(done.returncode == 0 and checkpoints(f"{folder}/second") == [5], done)


def test_a_signal_before_the_first_step(folder):
    """SIGTERM in the validation with which the training goes on."""
    data = small_data.write_patterns(f"{folder}/data", 80, 60000)
    args = [WORKER, "--device", "cpu", "-b", "4", "--max-steps", "3", "--print-freq", "1", data, "--checkpoint-dir"]
    first = subprocess.Popen([*args, f"{folder}/first"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV)
    stop_in_validation(first)
    assert checkpoints(f"{folder}/first") == [3], os.listdir(f"{folder}/first")
    resumed = subprocess.Popen([*args, f"{folder}/second", "--resume", f"{folder}/first/step-00000003.safetensors"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV)
    stop_in_validation(resumed)
    assert checkpoints(f"{folder}/second") == [3], os.listdir(f"{folder}/second")


def stop_in_validation(worker):
    with worker:
        line = "begin"
        while line and "Validating" not in line:
            line = worker.stdout.readline()
        worker.send_signal(signal.SIGTERM)
        said = worker.communicate(timeout=300)
    assert line and worker.returncode == 128 + signal.SIGTERM, (worker.returncode, said)


def test_a_best_that_cannot_be_written(folder):
    """Every epoch has the same weights, for the rate is 0. The first checkpoints do not fit on the disk, so a later one is the best."""
    with FullDisk(folder, 16384) as disk:
        if disk is None:
            return "skip"
        data = small_data.write_data(f"{folder}/data", 40, 40)
        with open(f"{folder}/net.json", "w", encoding="ascii") as file:  # without a batch norm, whose statistics would change
            json.dump({"layers": [{"op": "flatten", "name": "flatten"}, {"op": "linear", "name": "wide", "out_features": 256},
                                  {"op": "linear", "name": "fc", "out_features": "classes"}]}, file)
        with open(f"{disk}/filler", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, (16384 - 64) << 10)
        with subprocess.Popen([WORKER, "--device", "cpu", "-a", f"{folder}/net.json", "-b", "4", "--lr", "0", "--epochs", "100000",
                               "--checkpoint-dir", f"{disk}/ckpt", data],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENV) as worker:
            said = ""
            while "best so far: val_acc1" not in said and len(checkpoints(f"{disk}/ckpt")) < 2:
                ready, _, _ = select.select([worker.stderr], [], [], 0.05)
                said += worker.stderr.readline() if ready else ""
                if "is not kept as the best" in said and os.path.exists(f"{disk}/filler"):
                    os.remove(f"{disk}/filler")
                assert worker.poll() is None, said[-3000:]
            worker.kill()
            said += worker.stderr.read()
        assert "is not kept as the best" in said and "best so far: val_acc1" in said, said[-3000:]


def test_one_value_a_channel(_folder):
    net = ["-a", "resnet18", "--image-size", "32", "--max-steps", "1", "-b", "1"]
    done = train(*net)
    check(done.returncode == 1 and "layer4.0.bn1: a batch norm needs more than 1 value per channel" in done.stderr, done)
    done = train(*net, "-b", "2")
    check(done.returncode == 0, done)


def test_a_loss_log_that_is_full(_folder):
    done = train("--max-steps", "5", "--loss-log", "/dev/full")
    check(done.returncode == 0 and "--loss-log /dev/full: cannot write: No space left on device" in done.stderr, done)
    check(done.stderr.count("--loss-log") == 1, done)


def test_signals_change_no_number(_folder):
    """In some oneDNN kernels the heap is below the stack pointer: a signal handler on that stack would overwrite it."""
    args = [*COMMAND, "-a", "toynet", "--max-steps", "20", "--print-freq", "1"]
    alone = subprocess.run(args, capture_output=True, text=True, timeout=300, check=False, env=ENV)
    check(alone.returncode == 0, alone)
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENV) as worker:
        lines, count = [worker.stdout.readline()], 0  # by now the handler is installed
        os.set_blocking(worker.stdout.fileno(), False)
        while worker.poll() is None:
            worker.send_signal(signal.SIGUSR1)
            count += 1
            ready, _, _ = select.select([worker.stdout], [], [], 0.002)
            lines += worker.stdout.readlines() if ready else []
        lines += worker.stdout.readlines()
    disturbed = subprocess.CompletedProcess(args, worker.returncode, "".join(lines), f"{count} signals")
    check(disturbed.returncode == 0, disturbed)
    losses = [re.findall(r"Step \[(\d+)/\d+\], Loss: ([0-9.e+-]+),", done.stdout) for done in (alone, disturbed)]
    check(len(losses[0]) == 20 and losses[0] == losses[1], disturbed)


def blocked_signals(pid):
    """[(name of a thread, the mask of the signals that it blocks)]."""
    masks = []
    for path in glob.glob(f"/proc/{pid}/task/*/status"):
        with open(path, encoding="ascii") as file:
            text = file.read()
        masks.append((re.match(r"Name:\s*(.*)", text).group(1), int(re.search(r"^SigBlk:\s*([0-9a-f]+)", text, re.MULTILINE).group(1), 16)))
    return masks


def test_signals_reach_a_thread_of_their_own_alone(_folder):
    """The main thread and those of OpenMP run kernels of oneDNN, which use the stack pointer as a register."""
    args = [*COMMAND, "-a", "toynet", "--threads", "3", "--epochs", "1000", "--print-freq", "1"]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENV) as worker:
        while "Step [2/" not in worker.stdout.readline():
            assert worker.poll() is None, worker.returncode
        masks = blocked_signals(worker.pid)
        worker.kill()
    assert len(masks) >= 4, masks
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGALRM):
        let_through = [name for name, mask in masks if not mask >> (number - 1) & 1]
        assert let_through == ["ddp-signals"], (number, masks)


if __name__ == "__main__":
    run_tests(globals(), "ddp-edges-")
