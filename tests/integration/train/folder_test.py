"""Training on folders of pictures: what is found, what cannot be read, and that results do not depend on which process or thread reads.
usage: folder_test.py BUILD

Each test runs ddp-worker, alone or as ranks of one `ddpctl run`, on a few small PNG files that it makes."""
import glob
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), *3 * [".."])
sys.path.insert(0, os.path.join(ROOT, "tests", "lib"))
import small_pictures  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
WORKER = os.path.join(BUILD, "worker", "ddp-worker")
ENV = {**os.environ, "OMP_NUM_THREADS": "1",
       "PATH": os.pathsep.join([*(os.path.join(BUILD, name) for name in ("ddpctl", "launcherd", "rendezvous")), os.environ["PATH"]])}
COMMAND = [WORKER, "--device", "cpu", "-a", "toynet", "--image-size", "32", "-b", "4", "--lr", "0.01", "--epochs", "1"]


def run(*args):
    return subprocess.run(args, capture_output=True, text=True, errors="replace", timeout=300, check=False, env=ENV)


def train(data, *args):
    return run(*COMMAND, *args, data)


def check(condition, done):
    assert condition, f"exit {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"


def check_fails(done, *words):
    check(done.returncode == 1 and all(word in done.stderr for word in words), done)


def losses(folder, name="loss"):
    lines = []
    for path in sorted(glob.glob(f"{folder}/{name}-*")):
        with open(path, encoding="ascii") as file:
            lines.append(file.read())
    assert lines and all(lines)
    return lines


def images_of_validation(done):
    """The number of images, from an accuracy that can only be a multiple of one image."""
    return float(re.search(r"Val: Acc@1 ([0-9.]+)", done.stdout).group(1))


def test_threads_change_nothing(folder):
    data = small_pictures.write_folder(f"{folder}/data")
    seen = []
    for threads in ("0", "1", "3", "8"):
        done = train(data, "-j", threads, "--epochs", "2", "--loss-log", f"{folder}/{threads}-%r")
        check(done.returncode == 0, done)
        seen.append((losses(folder, threads), re.findall("Val: .*", done.stdout)))
    assert all(other == seen[0] for other in seen), seen
    done = train(data, "--epochs", "2", "--loss-log", f"{folder}/seed-%r", "--seed", "1")
    assert losses(folder, "seed") != seen[0][0]


def test_crops_are_drawn_anew_each_epoch(folder):
    """With learning rate 0 nothing else changes: one batch of the whole set, in another order."""
    data = small_pictures.write_folder(f"{folder}/data", classes=2, train=2)
    sums = {}
    for augment in ("imagenet", "cifar", "none"):
        done = train(data, "--epochs", "3", "--lr", "0", "-b", "4", "--augment", augment, "--loss-log", f"{folder}/{augment}-%r")
        check(done.returncode == 0, done)
        sums[augment] = [round(float(line.split()[2]), 5) for line in losses(folder, augment)[0].splitlines()]
    assert len(set(sums["none"])) == 1, sums
    assert len(set(sums["imagenet"])) == 3 and len(set(sums["cifar"])) == 3, sums


def test_ranks_see_what_one_sees(folder):
    """At learning rate 0 the sum of all ranks' losses equals the loss of one rank with as many images per step: same samples, same crops."""
    data = small_pictures.write_folder(f"{folder}/data")
    args = ["--lr", "0", "--epochs", "2", "--sync-bn", "--loss-log"]
    done = train(data, "-b", "8", *args, f"{folder}/alone-%r")
    check(done.returncode == 0, done)
    done = run("ddpctl", "run", "--standalone", "--nproc-per-node", "2", "--", *COMMAND, "-b", "4", *args, f"{folder}/two-%r", data)
    check(done.returncode == 0, done)
    alone = [float(line.split()[2]) for line in losses(folder, "alone")[0].splitlines()]
    pairs = zip(*([float(line.split()[2]) for line in lines.splitlines()] for lines in losses(folder, "two")))
    for one, two in zip(alone, pairs, strict=True):
        assert abs(one - sum(two) / 2) < 1e-5 * one, (one, two)


def test_files_that_cannot_be_read(folder):
    data = small_pictures.write_folder(f"{folder}/data", train=8, val=4)
    spoilt = ["train/class0/003.png", "train/class2/007.png", "val/class1/000.png"]
    with open(f"{data}/{spoilt[0]}", "wb"):
        pass
    with open(f"{data}/{spoilt[1]}", "r+b") as file:
        file.truncate(300)
    os.remove(f"{data}/{spoilt[2]}")
    os.mkfifo(f"{data}/{spoilt[2]}")
    done = train(data, "--epochs", "2", "--metrics", f"{folder}/m.jsonl")
    check(done.returncode == 0, done)
    with open(f"{folder}/m.jsonl", encoding="utf-8") as file:
        counts = re.findall(r'"kind":"epoch".*"unreadable":(\d+)', file.read())
    check(counts == ["2", "2"], done)
    for name in spoilt:
        check(sum(f"{data}/{name}" in line for line in done.stderr.splitlines()) == 1, done)
    check(done.stderr.count("3 files could not be read: 2 samples of this epoch were replaced by others, 1 of the validation left out") == 2,
          done)
    hits = images_of_validation(done) * 11 / 100
    check(abs(hits - round(hits)) < 0.01, done)  # 11 of 12 images count
    check_fails(train(data, "--strict"), spoilt[0] if spoilt[0] in train(data, "--strict").stderr else spoilt[1])
    for name in spoilt[:2]:
        os.remove(f"{data}/{name}")
    check_fails(train(data, "--strict"), spoilt[2], "not a regular file")


def test_a_class_that_lost_its_pictures_is_named(folder):
    data = small_pictures.write_folder(f"{folder}/data", train=4, val=4)
    for path in glob.glob(f"{data}/train/class1/*") + glob.glob(f"{data}/val/class2/*")[:1] + glob.glob(f"{data}/train/class0/*")[:1]:
        with open(path, "wb"):
            pass
    for place in ("train", "val"):
        os.makedirs(f"{data}/{place}/.ipynb_checkpoints")
    shutil.copy(glob.glob(f"{data}/train/class2/*")[0], f"{data}/train/.ipynb_checkpoints")
    words = ("class class0 lost 1 of 4 training pictures; class class1 lost all, 4 of 4 training pictures; "
             "class class2 lost 1 of 4 validation pictures: these files cannot be read")
    for ranks in ([], ["ddpctl", "run", "--standalone", "--nproc-per-node", "2", "--"]):
        done = run(*ranks, *COMMAND, "-b", "4", "--epochs", "1", data) if ranks else train(data, "--epochs", "1")
        check(done.returncode == 0 and (done.stderr + done.stdout).count(words) == 1, done)
        check((done.stderr + done.stdout).count("hidden folders are no classes: .ipynb_checkpoints is left out") == 2, done)


def test_nothing_can_be_read(folder):
    data = small_pictures.write_folder(f"{folder}/data", classes=2, train=3, val=2)
    for path in glob.glob(f"{data}/val/*/*"):
        with open(path, "wb"):
            pass
    check_fails(train(data), "none of the 4 validation samples can be read")
    for path in glob.glob(f"{data}/train/*/*"):
        with open(path, "wb"):
            pass
    check_fails(train(data), "none of the 6 samples can be read", "an empty file")


def test_names_of_any_bytes(folder):
    data = small_pictures.write_folder(f"{folder}/data", classes=2, train=3, val=2)
    name = os.fsencode(f"{data}/train/class0/") + b"\x1b[31m\n\xff.png"
    with open(name, "wb"):
        pass
    done = train(data)
    check(done.returncode == 0 and "\x1b" not in done.stderr and "an empty file" in done.stderr, done)


def test_folders_that_do_not_fit(folder):
    check_fails(train(f"{folder}/nowhere"), "there is no folder")
    os.makedirs(f"{folder}/bare/train")
    os.makedirs(f"{folder}/empty")
    check_fails(train(f"{folder}/empty"), "no data in it", "looked for", "train/ and val/")
    check_fails(train(f"{folder}/bare"), "bare/train has no folder in it")
    data = small_pictures.write_folder(f"{folder}/data", classes=2, train=3, val=2)
    os.mkdir(f"{data}/train/zebra")
    check_fails(train(data), "1 of 3 classes have no picture: zebra", "--allow-empty")
    check_fails(train(data, "--allow-empty"), "3 classes", "the validation set 2")
    os.mkdir(f"{data}/val/zebra")
    done = train(data, "--allow-empty")
    check(done.returncode == 0, done)
    os.rmdir(f"{data}/val/zebra")
    os.rmdir(f"{data}/train/zebra")
    os.rename(f"{data}/val/class1", f"{data}/val/other")
    check_fails(train(data), 'class 1 is "class1" in the training set, "other" in the validation set')
    os.rename(f"{data}/val/other", f"{data}/val/class1")
    os.symlink(".", f"{data}/train/class0/self")
    done = train(data)
    check(done.returncode == 0 and "class0/self: a symbolic link to a folder that it is in" in done.stderr, done)
    check_fails(train(data, "--strict"), "a symbolic link to a folder", "(--strict)")
    shutil.rmtree(f"{data}/val")
    check_fails(train(data), "there is no folder", "data/val")


def test_options_that_do_not_fit(folder):
    data = small_pictures.write_folder(f"{folder}/data", classes=3, train=2, val=1)
    check_fails(train(data, "--num-classes", "2"), "--num-classes 2: the data has 3 classes")
    check_fails(train(data, "--resize", "16"), "--resize 16: the images are cut out of it and have 32 pixels a side")
    done = train(data, "--num-classes", "7", "--resize", "40", "--crop-scale", "0.5,1", "--mean", "0.5", "--std", "0.25")
    check(done.returncode == 0, done)
    check_fails(run(*COMMAND, "--dummy", "--augment", "imagenet"), "--augment imagenet is for pictures")


def test_other_rules_after_a_resume_are_told(folder):
    data = small_pictures.write_folder(f"{folder}/data")
    args = ["--checkpoint-dir", f"{folder}/ckpt", "--resume", "auto"]
    image, training = "the images are other ones", "the training goes on otherwise"
    done = train(data, *args)
    check(done.returncode == 0, done)
    for more, words, none in (([], (), (image, training)), (["--mean", "0.4", "--std", "0.3"], (image,), (training,)), (["--augment", "none"], (training,), (image,)),
                              (["-e", "--augment", "none"], (), (image, training)), (["-e", "--resize", "40"], (image,), (training,))):
        done = train(data, *args, *more)
        check(done.returncode == 0 and all(word in done.stderr for word in words) and not any(word in done.stderr for word in none), done)


def test_another_training_set_is_told_apart(folder):
    data = small_pictures.write_folder(f"{folder}/data")
    args = ["--checkpoint-dir", f"{folder}/ckpt", "--resume", "auto"]
    done = train(data, *args)
    check(done.returncode == 0, done)
    os.rename(data, f"{folder}/moved")
    done = train(f"{folder}/moved", *args, "--epochs", "2")
    check(done.returncode == 0 and "resumed at step 6" in done.stdout + done.stderr, done)
    os.rename(f"{folder}/moved/train/class0/001.png", f"{folder}/moved/train/class0/009.png")
    check_fails(train(f"{folder}/moved", *args, "--epochs", "3"), "another training set of as many images")


def test_waiting_for_data_is_told(folder):
    data = small_pictures.write_folder(f"{folder}/data", classes=2, train=12, val=1)
    large = small_pictures.png(1000, 1000, random.Random(1).randbytes(3000000))
    for path in glob.glob(f"{data}/train/*/*"):
        with open(path, "wb") as file:
            file.write(large)
    # On a busy machine most of the first epoch is the start of oneDNN.
    done = run(WORKER, "--device", "cpu", "-a", "toynet", "--image-size", "32", "-b", "2", "--epochs", "2", "-j", "0", data)
    check(done.returncode == 0 and re.search(r"data-bound: \d+ % of the time .*-j, now 0", done.stdout), done)


def main():
    tests = [value for name, value in globals().items() if name.startswith("test_")]
    for test in tests:
        with tempfile.TemporaryDirectory(prefix="ddp-folder-") as folder:
            test(folder)
        print(f"ok {test.__name__[5:]}", flush=True)


if __name__ == "__main__":
    main()
