"""`ddp-worker export` without PyTorch: the archive, damaged input, and a full disk. usage: export_test.py BUILD

tests/pytorch/pth.py has PyTorch read the files. The test with a full disk mounts a tmpfs; if that is not allowed it skips and says so."""

import glob
import os
import pickletools
import stat
import subprocess
import sys
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from full_disk import FullDisk, run_tests  # noqa: E402

WORKER = os.path.join(os.path.abspath(sys.argv[1]), "worker", "ddp-worker")
KNOWN = {"collections OrderedDict", "torch._utils _rebuild_tensor_v2", "torch FloatStorage", "torch LongStorage"}


def worker(*args):
    return subprocess.run([WORKER, *args], capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})


def check(condition, done):
    assert condition, f"exit {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"


def trained(folder):
    done = worker("--device", "cpu", "--dummy", "-b", "4", "--max-steps", "2", "--checkpoint-every", "1", "--checkpoint-dir", f"{folder}/ck")
    check(done.returncode == 0, done)
    return f"{folder}/ck"


def content(path):
    with open(path, "rb") as file:
        return file.read()


def test_the_archive(folder):
    out = f"{folder}/model.pth"
    done = worker("export", "--from", trained(folder), out)
    check(done.returncode == 0 and "16 tensors of convnet, step 2 of" in done.stdout, done)
    with zipfile.ZipFile(out) as archive:
        assert archive.testzip() is None
        assert all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())
        assert archive.read("archive/byteorder") == b"little" and archive.read("archive/version") == b"3\n"
        opcodes = list(pickletools.genops(archive.read("archive/data.pkl")))
        values = {name for name in archive.namelist() if name.startswith("archive/data/")}
    assert max(code.proto for code, _, _ in opcodes) == 2
    assert {argument for code, argument, _ in opcodes if code.name == "GLOBAL"} == KNOWN
    tensors = sum(code.name == "BINPERSID" for code, _, _ in opcodes)
    assert len(values) == tensors == 16, (tensors, values)  # 14, and two counters of batches
    again = f"{folder}/again.pth"
    check(worker("export", "--from", f"{folder}/ck/step-00000002.json", again).returncode == 0, done)
    assert content(out) == content(again)


def test_a_damaged_checkpoint_is_passed_over(folder):
    checkpoints, out = trained(folder), f"{folder}/model.pth"
    newest = f"{checkpoints}/step-00000002.safetensors"
    data = content(newest)
    with open(newest, "wb") as file:
        file.write(data[:-1] + bytes([data[-1] ^ 1]))
    done = worker("export", "--from", checkpoints, out)
    check(done.returncode == 0 and "step 1 of" in done.stdout, done)
    check("warning: passed over:" in done.stderr and "step-00000002.safetensors: damaged" in done.stderr, done)
    os.remove(out)
    done = worker("export", "--from", newest, out)
    check(done.returncode == 1 and "damaged" in done.stderr and not os.path.exists(out), done)


def test_no_name_commands_a_terminal(folder):
    done = worker("export", "--from", f"{folder}/\x1b[31m.safetensors", f"{folder}/x.pth")
    check(done.returncode == 1 and "?[31m" in done.stderr and "\x1b" not in done.stdout + done.stderr, done)


def test_bad_words(folder):
    done = worker("export")
    check(done.returncode == 2 and "export writes one file" in done.stderr, done)
    done = worker("export", "--form", "x", f"{folder}/x.pth")
    check(done.returncode == 2 and "--from" in done.stderr, done)
    done = worker("export", "--help")
    check(done.returncode == 0 and "--which" in done.stdout, done)
    done = worker("export", "--from", trained(folder), f"{folder}/none/x.pth")
    check(done.returncode == 1 and f"{folder}/none/x.pth" in done.stderr and "No such file or directory" in done.stderr, done)


def test_a_pipe_is_not_replaced(folder):
    checkpoints, pipe = trained(folder), f"{folder}/pipe"
    os.mkfifo(pipe)
    done = worker("export", "--from", checkpoints, pipe)
    check(done.returncode == 1 and f"{pipe} is no ordinary file" in done.stderr, done)
    assert stat.S_ISFIFO(os.stat(pipe).st_mode), "the pipe was replaced"


def test_a_full_disk(folder):
    checkpoints = trained(folder)
    with FullDisk(folder, 64) as disk:
        if disk is None:
            return "skip"
        with open(f"{disk}/model.pth", "w", encoding="ascii") as file:
            file.write("the old one")
        done = worker("export", "--from", checkpoints, f"{disk}/model.pth")
        check(done.returncode == 1 and "No space left on device" in done.stderr, done)
        assert glob.glob(f"{disk}/*") == [f"{disk}/model.pth"] and content(f"{disk}/model.pth") == b"the old one"


run_tests(dict(globals()), "ddp-export-")
