"""One member of etcd with TLS, or with users: certificates made by openssl, users and roles by etcd's own API."""

import base64
import json
import os
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.etcd import free_port, wait_for
from processes.waiting import LONG_S


def write(path, text):
    with open(path, "w", encoding="ascii", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
    return path


def openssl(*words):
    if shutil.which("openssl") is None:
        print("skipped: openssl is not installed")
        sys.exit(77)
    subprocess.run(["openssl", *words], check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)


EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


class Authority:
    """Signs certificates: FOLDER/NAME.crt and FOLDER/NAME.key."""

    def __init__(self, folder, name):
        self.folder, self.base = folder, "%s/%s" % (folder, name)
        self.ca = self.base + ".crt"
        openssl("req", "-x509", *EC, "-keyout", self.base + ".key", "-out", self.ca, "-subj", "/CN=" + name, "-days", "3")

    def sign(self, name, alternative="DNS:nobody", days=3):
        """etcd's own gateway uses the server's certificate as a client certificate, so each certificate is for both uses."""
        base = "%s/%s" % (self.folder, name)
        extensions = write(base + ".ext", "subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n" % alternative)
        openssl("req", *EC, "-keyout", base + ".key", "-out", base + ".csr", "-subj", "/O=ddp")
        openssl("x509", "-req", "-in", base + ".csr", "-CA", self.ca, "-CAkey", self.base + ".key", "-CAcreateserial",
                "-days", str(days), "-extfile", extensions, "-out", base + ".crt")
        return base + ".crt", base + ".key"


class SecureEtcd:
    """One member. A subclass sets its special options in `arguments` before the start."""

    scheme, options, arguments, context = "etcd", [], [], None

    def __init__(self, folder):
        self.folder = folder
        self.prepare()
        for _ in range(5):  # a port that was free may be taken when etcd starts
            self.port = free_port()
            self.start()
            wait_for("etcd answers, or ends", lambda: self.is_up() or self.process.poll() is not None)
            if self.process.poll() is None:
                break
            shutil.rmtree(folder + "/etcd", ignore_errors=True)
        else:
            raise AssertionError("etcd does not start: see %s/etcd.log" % folder)
        self.set_up()

    def prepare(self):
        pass

    def set_up(self):
        pass

    def start(self):
        client = "%s://127.0.0.1:%d" % ("https" if self.scheme == "etcds" else "http", self.port)
        with open(self.folder + "/etcd.log", "ab") as log:
            self.process = subprocess.Popen(
                ["etcd", "--name", "m", "--data-dir", self.folder + "/etcd", "--listen-client-urls", client,
                 "--advertise-client-urls", client, "--listen-peer-urls", "http://127.0.0.1:0",
                 "--initial-advertise-peer-urls", "http://127.0.0.1:1", "--initial-cluster", "m=http://127.0.0.1:1",
                 "--heartbeat-interval", "20", "--election-timeout", "100", "--log-level", "error", "--unsafe-no-fsync",
                 *self.arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def open(self, path, data=None, token=None):
        url = "%s://127.0.0.1:%d/%s" % ("https" if self.scheme == "etcds" else "http", self.port, path)
        request = urllib.request.Request(url, data, {"Authorization": token} if token else {})
        return urllib.request.urlopen(request, timeout=LONG_S, context=self.context)

    def call(self, path, body, token=None):
        """etcd's answer to POST /v3/PATH, also if it refuses."""
        try:
            with self.open("v3/" + path, json.dumps(body).encode(), token) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def is_up(self):
        try:
            with self.open("health") as answer:
                return b'"true"' in answer.read()
        except OSError:
            return False

    def client_ports(self):
        return [self.port]

    def url(self, host="127.0.0.1"):
        return "%s://%s:%d" % (self.scheme, host, self.port)

    def again(self):
        """kill -9, then a new start with the same data."""
        self.close()

        def is_back():
            if self.process.poll() is not None:  # also if another program has its port for a while
                self.start()
            return self.is_up()
        wait_for("etcd answers again", is_back)

    def close(self):
        self.process.kill()
        self.process.wait()


class TlsEtcd(SecureEtcd):
    """A member that accepts only clients with a certificate of its authority."""

    scheme = "etcds"

    def prepare(self):
        self.authority, self.other = Authority(self.folder, "ca"), Authority(self.folder, "other-ca")
        cert, key = self.authority.sign("etcd", "IP:127.0.0.1")
        self.cert, self.key = self.authority.sign("server")
        self.foreign_cert, self.foreign_key = self.other.sign("foreign")
        self.arguments = ["--cert-file", cert, "--key-file", key, "--client-cert-auth",
                          "--trusted-ca-file", self.authority.ca]
        self.options = self.with_files()
        self.context = ssl.create_default_context(cafile=self.authority.ca)
        self.context.load_cert_chain(self.cert, self.key)

    def with_files(self, ca=None, cert=None, key=None):
        return ["--store-ca", ca or self.authority.ca, "--store-cert", cert or self.cert, "--store-key", key or self.key]


def coded(text):
    return base64.b64encode(text.encode()).decode()


class UsersEtcd(SecureEtcd):
    """A member with users: root, `ddp` with rights on its own prefix only, and `guest` without any rights."""

    def set_up(self):
        for name in ("root", "ddp", "guest"):
            self.must("auth/user/add", {"name": name, "password": "of " + name})
            self.must("auth/role/add", {"name": name})
            self.must("auth/user/grant", {"user": name, "role": name})
        self.must("auth/role/grant", {"name": "ddp", "perm": {
            "permType": "READWRITE", "key": coded("/ddp/"), "range_end": coded("/ddp0")}})
        self.must("auth/enable", {})
        self.options = self.as_user("ddp", "of ddp")

    def must(self, path, body, token=None):
        answer = self.call(path, body, token)
        assert "header" in answer, (path, body, answer)
        return answer

    def as_user(self, name, password):
        path = "%s/password-%s-%d" % (self.folder, name, len(password))
        return ["--store-user", name, "--store-password-file", write(path, password + "\n")]

    def token(self):
        return self.must("auth/authenticate", {"name": "ddp", "password": "of ddp"})["token"]

    def takes(self, token):
        """Whether etcd still accepts this token."""
        def ask():
            answer = self.call("kv/range", {"key": coded("/ddp/seq")}, token)
            return answer if "header" in answer or "invalid auth token" in answer["message"] else None  # otherwise etcd is busy
        return "header" in wait_for("etcd says whether it takes a token", ask)


class ShortEtcd(UsersEtcd):
    """A member whose tokens end after two seconds, used or not."""

    def prepare(self):
        private, public = self.folder + "/jwt.key", self.folder + "/jwt.pub"
        openssl("genrsa", "-out", private, "2048")
        openssl("rsa", "-in", private, "-pubout", "-out", public)
        self.arguments = ["--auth-token", "jwt,pub-key=%s,priv-key=%s,sign-method=RS256,ttl=2s" % (public, private)]
