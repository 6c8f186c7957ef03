"""Which options of a state on etcd are refused or cause warnings before etcd is asked; no etcd is needed.
usage: store_options_test.py RENDEZVOUS DDPCTL [TEST...]"""
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes.runner import run_tests, Skip
from processes.waiting import PATIENCE_S
from processes.wire import Client, request_id

BINARY, DDPCTL = sys.argv[1:3]
TLS, PLAIN = "etcds://127.0.0.1:1", "etcd://127.0.0.1:1"  # nobody listens there


@contextlib.contextmanager
def folder():
    root = tempfile.mkdtemp(prefix="ddp-store-options-")
    try:
        yield root
    finally:
        shutil.rmtree(root)


def openssl(*words):
    if shutil.which("openssl") is None:
        raise Skip("openssl is not installed")
    subprocess.run(["openssl", *words], check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S)


def make_certificate(base):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", base + ".key",
            "-out", base + ".crt", "-subj", "/CN=test", "-days", "3")
    return base + ".crt", base + ".key"


def write(path, text):
    with open(path, "w", encoding="ascii", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
    return path


def ends(root, *options):
    """A server and a backup both exit with 2 at once, with these words."""
    server = subprocess.run([BINARY, "--state-dir", root + "/state", *options], capture_output=True, text=True,
                            timeout=PATIENCE_S, check=False)
    assert server.returncode == 2 and server.stdout == "", server
    backup = subprocess.run([BINARY, "--backup", root + "/backup", *options], capture_output=True, text=True,
                            timeout=PATIENCE_S, check=False)
    assert backup.returncode == 2, backup
    last = backup.stderr.strip().split("rendezvous: ", 1)[1]
    assert last in server.stderr, (last, server.stderr)
    return last


def files_that_cannot_be_read_end_the_start():
    with folder() as root:
        cert, key = make_certificate(root + "/a")
        empty, nowhere = write(root + "/empty", ""), root + "/nowhere"
        for option in ("--store-ca", "--store-cert", "--store-key"):
            files = {"--store-ca": cert, "--store-cert": cert, "--store-key": key}
            for path, words in ((nowhere, "No such file or directory: name a file"), (empty, "that can be read: it must be in PEM form"),
                                (root, "PEM form")):
                files[option] = path
                said = ends(root, "--store", TLS, *[word for pair in files.items() for word in pair])
                assert said.startswith("%s: " % option) and path in said and words in said, said
        for path, words in ((nowhere, "No such file or directory: name a file"), (empty, "is empty"), (root, "Is a directory")):
            os.chmod(root, 0o700)
            said = ends(root, "--store", PLAIN, "--store-user", "ddp", "--store-password-file", path)
            assert said.startswith("--store-password-file: ") and path in said and words in said, said


def a_key_with_a_passphrase_is_refused():
    """The program does not ask for the password, even if there is a terminal."""
    with folder() as root:
        cert, key = make_certificate(root + "/a")
        openssl("pkey", "-in", key, "-out", root + "/locked", "-aes256", "-passout", "pass:secret")
        said = ends(root, "--store", TLS, "--store-cert", cert, "--store-key", root + "/locked")
        assert "without a passphrase" in said and root + "/locked" in said, said


def a_certificate_and_another_key_are_refused():
    with folder() as root:
        cert, other = make_certificate(root + "/a")[0], make_certificate(root + "/b")[1]
        said = ends(root, "--store", TLS, "--store-cert", cert, "--store-key", other)
        assert "is not the private key of the certificate" in said and cert in said and other in said, said


def one_store_is_named_once():
    with folder() as root:
        said = ends(root, "--store", PLAIN, "--store", PLAIN)
        assert said == "--store is given twice: name all members of etcd in one, with commas: etcd://h1,h2,h3", said
        done = subprocess.run([DDPCTL, "backup", "--store", PLAIN, "--store", PLAIN, root + "/backup"], capture_output=True,
                              text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 2 and "--store is given twice" in done.stderr, done
        said = ends(root, "--store-ca", root)
        assert "need --store" in said, said


class Daemon:
    """A server whose log is a file."""

    def __init__(self, root, *options):
        self.log = root + "/log"
        with open(self.log, "ab") as log:
            self.begin = log.tell()
            self.process = subprocess.Popen([BINARY, "--state-dir", root + "/state", *options], stdout=subprocess.PIPE,
                                            stderr=log, stdin=subprocess.DEVNULL)
        self.address = "unix:%s/state/rendezvous.sock" % root
        assert b" ready " in self.process.stdout.readline()

    def end(self):
        """What it has logged."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0
        self.process.stdout.close()
        with open(self.log, "rb") as log:
            log.seek(self.begin)
            return log.read().decode()


def jobs_that_are_left_are_told():
    with folder() as root:
        server = Daemon(root)
        with Client(server.address) as client:
            for _ in range(2):
                client.submit(request_id(), argv=["/bin/true"], wait_for_nodes=True)
        server.end()
        said = Daemon(root, "--store", PLAIN).end()
        assert ("the state in %s/state has 2 jobs, which this server does not see" % root) in said, said
        assert "ddpctl backup --move --state-dir %s/state FILE, then ddpctl restore --store %s FILE" % (root, PLAIN) in said, said
        subprocess.run([DDPCTL, "backup", "--move", "--state-dir", root + "/state", root + "/moved"], check=True,
                       capture_output=True, timeout=PATIENCE_S)
        said = Daemon(root, "--store", PLAIN).end()
        assert "does not see" not in said, said


def nobody_leads_is_told():
    with folder() as root:
        server = Daemon(root, "--store", PLAIN)
        done = subprocess.run([DDPCTL, "--server", server.address, "nodes"], capture_output=True, text=True,
                              timeout=PATIENCE_S * 2, check=False)
        assert done.returncode == 5, done
        assert "no server that leads can be reached (unix:" in done.stderr and "look at etcd" in done.stderr, done.stderr
        assert "is rendezvous running there" not in done.stderr, done.stderr
        server.end()


if __name__ == "__main__":
    sys.exit(run_tests([files_that_cannot_be_read_end_the_start, a_key_with_a_passphrase_is_refused,
                        a_certificate_and_another_key_are_refused, one_store_is_named_once, jobs_that_are_left_are_told,
                        nobody_leads_is_told], sys.argv[3:]))
