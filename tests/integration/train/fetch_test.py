"""ddp-worker --fetch against a server of the test, with right and wrong answers. usage: fetch_test.py BUILD

Tests with a full disk mount a tmpfs; if that is not allowed they skip and say so."""

import hashlib
import http.server
import os
import re
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from full_disk import FullDisk, run_tests  # noqa: E402

WORKER = os.path.join(os.path.abspath(sys.argv[1]), "worker", "ddp-worker")
BYTES = bytes(i * i % 251 for i in range(300000))


class Server(http.server.ThreadingHTTPServer):
    """Sends BYTES under every name. First calls `behave` with the request, which returns True if it has answered."""
    daemon_threads = True

    def __init__(self, behave=None, ranges=True):
        super().__init__(("127.0.0.1", 0), Handler)
        self.behave, self.ranges, self.asked, self.ending = behave, ranges, [], threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        first = int(re.match(r"bytes=(\d+)-", self.headers.get("Range", "bytes=0-")).group(1))
        self.server.asked.append((self.path, first))
        if self.server.behave and self.server.behave(self, first):
            return
        if first >= len(BYTES):
            self.send_error(416)
            return
        self.answer(first if self.server.ranges else 0)
        self.wfile.write(BYTES[first if self.server.ranges else 0:])

    def answer(self, first):
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(BYTES) - 1}/{len(BYTES)}")
        self.send_header("Content-Length", str(len(BYTES) - first))
        self.end_headers()

    def log_message(self, *_):
        pass


def fetch(folder, url, *args, to=None):
    return subprocess.run([WORKER, "--fetch", f"{folder}/sums", "--mirror", url, *args, to or f"{folder}/data"], capture_output=True, text=True,
                          timeout=120, check=False)


def write_sums(folder, name="a.bin", content=BYTES, kind=hashlib.md5):
    with open(f"{folder}/sums", "a", encoding="ascii") as file:
        file.write(f"{kind(content).hexdigest()}  {name}\n")


def check(condition, done):
    assert condition, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"


def check_whole(folder, names=("a.bin",)):
    """The folder has only the files, each complete."""
    assert sorted(os.listdir(f"{folder}/data")) == sorted(names), os.listdir(f"{folder}/data")
    for name in names:
        with open(f"{folder}/data/{name}", "rb") as file:
            assert file.read() == BYTES, name


def part(folder):
    path = f"{folder}/data/.a.bin.part"
    return os.path.getsize(path) if os.path.exists(path) else None


def test_files_are_downloaded_once(folder):
    write_sums(folder)
    write_sums(folder, "b.bin", kind=hashlib.sha256)
    with Server() as server:
        done = fetch(folder, server.url + "/set/")
        check(done.returncode == 0 and "a.bin: downloaded, its MD5 is right" in done.stdout, done)
        check("b.bin: downloaded, its SHA-256 is right" in done.stdout, done)
        check_whole(folder, ("a.bin", "b.bin"))
        assert server.asked == [("/set/a.bin", 0), ("/set/b.bin", 0)], server.asked
        done = fetch(folder, server.url + "/set/")
        check(done.returncode == 0 and done.stdout.count("there already") == 2 and len(server.asked) == 2, done)


def test_the_mirror_of_the_environment(folder):
    write_sums(folder)
    with Server() as server:
        command = [WORKER, "--fetch", f"{folder}/sums", f"{folder}/data"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                              env={**os.environ, "DDP_MIRROR": server.url})
        check(done.returncode == 0, done)
        check_whole(folder)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        check(done.returncode == 1 and "give --mirror URL" in done.stderr, done)


def test_the_names_of_sets(folder):
    """The published hashes are checked: other bytes with the right name are refused."""
    with Server() as server:
        done = subprocess.run([WORKER, "--fetch", "mnist", "--mirror", server.url, folder], capture_output=True, text=True, timeout=120,
                              check=False)
        check(done.returncode == 1 and "train-images-idx3-ubyte.gz" in done.stderr and "f68b3c2dcbeaaa9fbdd348bbdeb94873" in done.stderr, done)
        assert os.listdir(folder) == [], os.listdir(folder)
        done = subprocess.run([WORKER, "--fetch", "cifar11", "--mirror", server.url, folder], capture_output=True, text=True, timeout=120,
                              check=False)
        check(done.returncode == 1 and "expected mnist, cifar10, or a file" in done.stderr, done)


def test_a_wrong_hash(folder):
    write_sums(folder, content=b"other")
    with Server() as server:
        done = fetch(folder, server.url)
        check(done.returncode == 1 and f"has hash {hashlib.md5(BYTES).hexdigest()}, expected" in done.stderr, done)
        assert os.listdir(f"{folder}/data") == [] and len(server.asked) == 1, server.asked


def test_a_file_of_ones_own_stays(folder):
    write_sums(folder)
    os.mkdir(f"{folder}/data")
    with open(f"{folder}/data/a.bin", "wb") as file:
        file.write(b"mine")
    with Server() as server:
        done = fetch(folder, server.url)
        check(done.returncode == 1 and "is there with another hash" in done.stderr and server.asked == [], done)
    assert os.path.getsize(f"{folder}/data/a.bin") == 4


def cut(at):
    def behave(handler, first):
        if handler.server.asked.count((handler.path, first)) > 1 or first:
            return False
        handler.answer(first)
        handler.wfile.write(BYTES[:at])
        handler.close_connection = True
        return True
    return behave


def test_cut_off_and_gone_on_with(folder):
    write_sums(folder)
    with Server(cut(100000)) as server:
        done = fetch(folder, server.url)
        check(done.returncode == 1 and "cut off after 100000 bytes: run it again" in done.stderr and part(folder) == 100000, done)
        done = fetch(folder, server.url)
        check(done.returncode == 0 and server.asked[1] == ("/a.bin", 100000), done)
        check_whole(folder)


def test_a_server_without_parts(folder):
    write_sums(folder)
    with Server(cut(100000), ranges=False) as server:
        check(fetch(folder, server.url).returncode == 1 and part(folder) == 100000, fetch)
        done = fetch(folder, server.url)
        check(done.returncode == 0, done)
        check_whole(folder)


def test_a_damaged_part(folder):
    """The partial file on disk is not a beginning of the real file: it is loaded again from the start."""
    write_sums(folder)
    os.mkdir(f"{folder}/data")
    for size in (1000, len(BYTES) + 5):
        with open(f"{folder}/data/.a.bin.part", "wb") as file:
            file.write(b"x" * size)
        with Server() as server:
            done = fetch(folder, server.url)
            check(done.returncode == 0 and server.asked[-1] == ("/a.bin", 0), done)
            check_whole(folder)
        os.unlink(f"{folder}/data/a.bin")


def test_a_whole_part(folder):
    """A download that ended after the last byte and before the rename."""
    write_sums(folder)
    os.mkdir(f"{folder}/data")
    with open(f"{folder}/data/.a.bin.part", "wb") as file:
        file.write(BYTES)
    with Server() as server:
        done = fetch(folder, server.url)
        check(done.returncode == 0 and server.asked == [], done)
        check_whole(folder)


def answers(code, location=None):
    def behave(handler, _):
        handler.send_response(code)
        if location:
            handler.send_header("Location", location(handler))
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return True
    return behave


def test_answers_of_the_server(folder):
    write_sums(folder)
    for behave, words in ((answers(404), "answers 404 (not found)"), (answers(500), "answers 500"),
                          (answers(302, lambda handler: handler.path + "x"), "over 5 redirects"),
                          (answers(302, lambda handler: "file:///etc/hostname"), "rotocol")):
        with Server(behave) as server:
            done = fetch(folder, server.url)
            check(done.returncode == 1 and words in done.stderr and server.url + "/a.bin" in done.stderr, done)
            assert not os.path.exists(f"{folder}/data/a.bin")
    done = fetch(folder, "ftp://127.0.0.1/")
    check(done.returncode == 1 and "expected https://" in done.stderr, done)


def test_nobody_there(folder):
    write_sums(folder)
    with Server() as server:
        url = server.url
    done = fetch(folder, url)
    check(done.returncode == 1 and url in done.stderr, done)
    done = fetch(folder, url.replace("://", "://user:secret@"))
    check(done.returncode == 1 and url in done.stderr and "secret" not in done.stderr, done)


def test_a_server_that_hangs(folder):
    write_sums(folder)

    def behave(handler, first):
        handler.answer(first)
        handler.wfile.write(BYTES[:1000])
        handler.wfile.flush()
        handler.server.ending.wait(100)
        return True
    with Server(behave) as server:
        done = fetch(folder, server.url, "--fetch-timeout", "5")
        check(done.returncode == 1 and "no byte for 5 s after 1000 bytes" in done.stderr, done)


def test_a_full_disk(folder):
    write_sums(folder)
    os.mkdir(f"{folder}/data")
    with FullDisk(f"{folder}/data", 128) as disk:
        if disk is None:
            return "skip"
        with Server() as server:
            done = fetch(folder, server.url, to=disk)
            check(done.returncode == 1 and "No space left on device" in done.stderr and "make room" in done.stderr, done)
            assert os.listdir(disk) == [".a.bin.part"], os.listdir(disk)


def test_several_at_once(folder):
    write_sums(folder)
    meet = threading.Event()

    def behave(handler, first):
        meet.wait(30)
        return False
    with Server(behave) as server:
        command = [WORKER, "--fetch", f"{folder}/sums", "--mirror", server.url, f"{folder}/data"]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
        meet.set()
        said = [one.communicate(timeout=120)[0] for one in running]
        assert all(one.returncode == 0 for one in running), said
        assert len(server.asked) == 1, server.asked
        assert sum("downloaded" in one for one in said) == 1 and sum("there already" in one for one in said) == 3, said
    check_whole(folder)


if __name__ == "__main__":
    run_tests(globals(), "ddp-fetch-")
