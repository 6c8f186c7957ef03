"""Training from tar shards, from CIFAR-10's files and with a cache, and the errors that end it. usage: shards_test.py BUILD

Tests with a full disk mount a tmpfs; if that is not allowed they skip and say so."""

import collections
import glob
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from full_disk import FullDisk, run_tests  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
WORKER = os.path.join(BUILD, "worker", "ddp-worker")
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}
COMMON = ["--device", "cpu", "-b", "4", "--image-size", "16", "-p", "1000"]
CLASSES = ("ant", "bee", "cat")
COUNT = 8  # pictures per class


def picture(seed, width=24, height=20):
    """A PNM file, which counts as a picture whatever its name's suffix is."""
    return b"P6 %d %d 255\n" % (width, height) + bytes((seed * 37 + i * 7 + i // width * seed) % 256 for i in range(width * height * 3))


def pictures(split):
    """(class, name, bytes) of every picture of the training or the validation set."""
    return [(name, f"{i}.jpg", picture(label * 100 + i + (50 if split == "val" else 0)))
            for label, name in enumerate(CLASSES) for i in range(COUNT)]


def add(tar, name, content, kind=tarfile.REGTYPE, link=""):
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = len(content), kind, link
    tar.addfile(member, io.BytesIO(content))


def write_folder(where):
    for split in ("train", "val"):
        for name, file, content in pictures(split):
            os.makedirs(f"{where}/{split}/{name}", exist_ok=True)
            with open(f"{where}/{split}/{name}/{file}", "wb") as out:
                out.write(content)
    return where


def write_foldered(where):
    """The same pictures as write_folder's, one class per shard."""
    os.makedirs(where)
    for split in ("train", "val"):
        for shard, wanted in enumerate(CLASSES):
            with tarfile.open(f"{where}/{split}-{shard:02}.tar", "w") as tar:
                for name, file, content in pictures(split):
                    if name == wanted:
                        add(tar, f"{split}/{name}/{file}", content)
    return where


def write_keyed(where, more=()):
    os.makedirs(where)
    for split in ("train", "val"):
        with tarfile.open(f"{where}/{split}-00.tar", "w") as tar:
            for at, (name, _, content) in enumerate(pictures(split)):
                add(tar, f"{at:04}.jpg", content)
                add(tar, f"{at:04}.cls", b"%d\n" % CLASSES.index(name))
            for entry in more:
                add(tar, *entry)
    return where


def train(data, *args):
    return subprocess.run([WORKER, *COMMON, *args, data], capture_output=True, text=True, timeout=300, check=False, env=ENV)


def check(condition, done):
    assert condition, f"exit {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"


def losses(folder, data, *args):
    log = f"{folder}/losses"
    done = train(data, "--epochs", "2", "--loss-log", log, *args)
    check(done.returncode == 0, done)
    with open(log, encoding="ascii") as file:
        return file.read(), done


def samples(path):
    """{(epoch, rank): the samples of that rank, in order}"""
    found = collections.defaultdict(list)
    for name in sorted(glob.glob(path.replace("%r", "*"))):
        with open(name, encoding="ascii") as file:
            for line in file:
                numbers = [int(word) for word in re.findall(r"\d+", line)]
                found[numbers[0], name].extend(numbers[2:])
    return found


# -- shards --

def test_shards_are_what_the_folder_is(folder):
    results = []
    for data in (write_folder(f"{folder}/folder"), write_foldered(f"{folder}/foldered"), write_keyed(f"{folder}/keyed"),
                 f"{folder}/foldered/{{train,val}}-{{00..02}}.tar"):
        done = train(data, "-e")
        check(done.returncode == 0, done)
        results.append([line for line in done.stdout.splitlines() if line.startswith("Val: ")])
    assert results[0] and all(result == results[0] for result in results), results


def test_each_sample_once_an_epoch(folder):
    data = write_foldered(f"{folder}/data")
    orders = {}
    for window in ("0", "10000"):
        log = f"{folder}/samples-{window}"
        done = train(data, "--epochs", "2", "--shuffle-window", window, "--sample-log", log)
        check(done.returncode == 0, done)
        orders[window] = samples(log)
        assert len(orders[window]) == 2 and all(sorted(order) == list(range(3 * COUNT)) for order in orders[window].values()), orders
    for order in orders["0"].values():  # whole shards, one after the other
        assert [at % COUNT for at in order] == 3 * list(range(COUNT)), order
    assert all(order != sorted(order) for order in orders["10000"].values())


def test_ranks_read_shards_of_their_own(folder):
    data = write_foldered(f"{folder}/data")
    log = f"{folder}/samples-%r"
    done = subprocess.run([os.path.join(BUILD, "ddpctl", "ddpctl"), "run", "--standalone", "--nproc-per-node", "3", "--", WORKER, *COMMON,
                           "--epochs", "1", "--shuffle-window", "0", "--sample-log", log, data],
                          capture_output=True, text=True, timeout=300, check=False, env=ENV)
    check(done.returncode == 0, done)
    found = sorted(samples(log).values())
    assert found == [list(range(shard * COUNT, (shard + 1) * COUNT)) for shard in range(3)], found


def test_what_shards_have_that_is_no_sample(folder):
    bad = [("../up.jpg", picture(1)), ("/etc/up.jpg", picture(1)), ("link.jpg", b"", tarfile.SYMTYPE, "/etc/passwd"),
           ("lone.jpg", picture(1)), ("0000.jpg", picture(1)), ("0000.cls", b"0"), ("empty.jpg", b"")]
    data = write_keyed(f"{folder}/data", bad)
    done = train(data, "--epochs", "1")
    check(done.returncode == 0 and re.search(r"6 files of the shards were left out, the first: .*\.\./up\.jpg: \"\.\.\" in its name",
                                             done.stderr), done)
    assert not os.path.exists(f"{folder}/up.jpg")
    done = train(data, "--epochs", "1", "--strict")
    check(done.returncode == 1 and "\"..\" in its name (--strict)" in done.stderr, done)


def test_a_sparse_file_at_the_end(folder):
    data, pictures_in = f"{folder}/data", write_folder(f"{folder}/pictures")
    with open(f"{folder}/sparse.jpg", "wb") as file:
        file.truncate(3 << 20)
    os.mkdir(data)
    for split, more in (("train", ["-C", folder, "sparse.jpg"]), ("val", [])):
        subprocess.run(["tar", "--format=gnu", "-cSf", f"{data}/{split}-0.tar", "-C", pictures_in, split, *more], check=True)
    done = train(data, "--epochs", "1")
    check(done.returncode == 0 and re.search(r"left out, the first: .*sparse\.jpg: ", done.stderr), done)


def test_shards_of_refused_files_alone(folder):
    data = f"{folder}/data"
    os.mkdir(data)
    for split in ("train", "val"):
        with tarfile.open(f"{data}/{split}-0.tar", "w") as tar:
            add(tar, "../up.jpg", picture(1))
    done = train(data)
    check(done.returncode == 1 and re.search(r"no sample in it: .*; left out: .*\.\./up\.jpg: \"\.\.\" in its name", done.stderr), done)


def test_pictures_of_shards_that_are_broken(folder):
    """Broken pictures are counted and listed, like those in folders."""
    data = write_keyed(f"{folder}/data", [("broken.jpg", b"no picture"), ("broken.cls", b"1")])
    done = train(data, "--epochs", "1")
    check(done.returncode == 0 and "train-00.tar: broken.jpg" in done.stderr, done)
    done = train(data, "--epochs", "1", "--strict")
    check(done.returncode == 1 and "train-00.tar: broken.jpg" in done.stderr, done)


def test_shards_that_are_refused(folder):
    data = write_keyed(f"{folder}/data")
    shard = f"{data}/train-00.tar"
    with open(shard, "rb") as file:
        whole = file.read()
    for content, words in ((whole[:-1000 - len(whole) // 2], "train-00.tar"), (b"\x1f\x8b" + whole, "compressed (gzip)"), (b"", "train-00.tar"),
                           (b"text" * 500, "not a whole tar")):
        with open(shard, "wb") as file:
            file.write(content)
        done = train(data, "--epochs", "1")
        check(done.returncode == 1 and words in done.stderr, done)
    done = train(f"{folder}/none-{{0..1}}.tar", "--epochs", "1")
    check(done.returncode == 1 and "none-0.tar: cannot open the shard" in done.stderr, done)
    done = train(f"{folder}/none-{{1..0}}.tar", "--epochs", "1")
    check(done.returncode == 1 and "expected {FIRST..LAST}" in done.stderr, done)


# -- CIFAR-10 --

def test_cifar(folder):
    record = b"\x03" + bytes(range(256)) * 12
    with open(f"{folder}/test_batch.bin", "wb") as file:
        file.write(record * 10000)
    command = [WORKER, "--device", "cpu", "-b", "500", "-e", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=ENV)
    check(done.returncode == 0 and re.search(r"Val: Acc@1 (0|100)\.00", done.stdout), done)
    os.truncate(f"{folder}/test_batch.bin", 3073 * 9999)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=ENV)
    check(done.returncode == 1 and "test_batch.bin: expected 30730000 bytes" in done.stderr, done)


# -- the cache --

def test_a_cache_changes_no_loss(folder):
    """Neither the losses of the first epoch, in which the cache is made, nor those of a run that finds it; with shards too."""
    write_folder(f"{folder}/folder")
    for data in (f"{folder}/folder", write_foldered(f"{folder}/shards")):
        for more in (["--augment", "crop"], []):
            cache = f"{folder}/cache"
            first, done = losses(folder, data, "--cache", cache, *more)
            check("warning" not in done.stderr, done)
            kept = {name: os.path.getsize(name) for name in glob.glob(f"{cache}*")}
            assert sorted(kept) == [cache, f"{cache}.val"] and kept[cache] > 3 * COUNT * 18 * 18 * 3, kept
            again, _ = losses(folder, data, "--cache", cache, *more)
            assert first == again
            assert kept == {name: os.path.getsize(name) for name in kept}, "something was added"
            threads, _ = losses(folder, data, "--cache", cache, "--cache-rebuild", "-j", "3", *more)
            assert first == threads
            for name in kept:
                os.unlink(name)
    with_crops, without = losses(folder, f"{folder}/folder", "--augment", "crop"), losses(folder, f"{folder}/folder", "--augment", "none")
    assert with_crops[0] != without[0]


def test_a_cache_that_is_refused(folder):
    data, cache = write_folder(f"{folder}/folder"), f"{folder}/cache"
    first, _ = losses(folder, data, "--cache", cache)
    shutil.copytree(data, f"{folder}/other")
    os.unlink(f"{folder}/other/train/bee/3.jpg")
    done = train(f"{folder}/other", "--cache", cache)
    check(done.returncode == 1 and f"--cache {cache}: a cache of other data (24 pictures" in done.stderr, done)
    done = train(data, "--cache", cache, "--resize", "19")
    check(done.returncode == 1 and "a cache of other data" in done.stderr, done)
    losses(folder, f"{folder}/other", "--cache", cache, "--cache-rebuild")
    with open(f"{folder}/text", "w", encoding="ascii") as file:
        file.write("text\n" * 1000)
    done = train(data, "--cache", f"{folder}/text", "--cache-rebuild")
    check(done.returncode == 1 and "is no cache: it stays" in done.stderr and os.path.getsize(f"{folder}/text") == 5000, done)
    done = subprocess.run([WORKER, "--device", "cpu", "--cache", cache, "digits"], capture_output=True, text=True, timeout=300, check=False)
    check(done.returncode == 1 and "--cache is for pictures" in done.stderr, done)
    again, _ = losses(folder, data, "--cache", f"{folder}/new")
    assert again == first


def test_a_torn_cache(folder):
    data, cache = write_folder(f"{folder}/folder"), f"{folder}/cache"
    first, _ = losses(folder, data, "--cache", cache)
    os.truncate(cache, os.path.getsize(cache) - 3000)
    again, done = losses(folder, data, "--cache", cache)
    check("is damaged; it, and others like it, are decoded again" in done.stderr, done)
    assert again == first
    with open(cache, "r+b") as file:
        file.seek(-2000, os.SEEK_END)
        file.write(b"\xa5" * 1000)
    again, done = losses(folder, data, "--cache", cache)
    check("is damaged" in done.stderr, done)
    assert again == first
    _, done = losses(folder, data, "--cache", cache)  # mended
    check("damaged" not in done.stderr, done)
    os.truncate(cache, 4100)
    done = train(data, "--cache", cache)
    check(done.returncode == 1 and "the cache is damaged: --cache-rebuild" in done.stderr, done)


def test_no_room_for_a_cache(folder):
    data = write_folder(f"{folder}/folder")
    first, _ = losses(folder, data, "--cache", f"{folder}/cache")
    with FullDisk(folder, 16) as disk:
        if disk is None:
            return "skip"
        again, done = losses(folder, data, "--cache", f"{disk}/cache")
        check("the cache needs about" in done.stderr and "training goes on without a cache" in done.stderr, done)
        assert again == first
    again, done = losses(folder, data, "--cache", f"{folder}/none/cache")
    check("cannot make the cache: No such file or directory" in done.stderr, done)
    assert again == first


if __name__ == "__main__":
    run_tests(globals(), "ddp-shards-")
