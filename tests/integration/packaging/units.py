"""The part of systemd that an upgrade needs, as in systemd.service(5): it starts and stops units of a root folder with their
ExecStart=, User=, EnvironmentFile=, folders, Type=notify and KillMode=. `systemctl` in that folder sends its words here."""
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import threading

WAIT_S = 120
SYSTEMCTL = '''#!/usr/bin/python3
import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect("/run/units.sock")
    s.sendall("\\n".join(sys.argv[1:]).encode())
    s.shutdown(socket.SHUT_WR)
    sys.exit(int(s.makefile().read()))
'''


class Unit:
    def __init__(self, root, name):
        self.root, self.name, self.process, self.log = root, name, None, f"{root}/tmp/{name}.log"
        with open(f"{root}/lib/systemd/system/{name}", encoding="utf-8") as file:
            self.lines = re.findall(r"^(\w+)=(.*)$", file.read(), re.M)

    def one(self, key, default=""):
        values = [value for name, value in self.lines if name == key]
        assert len(values) <= 1, f"{self.name}: {key} is there {len(values)} times"
        return values[0] if values else default

    def folder(self, path, mode):
        """The innermost folder belongs to the unit's user, those above it to root (systemd.exec(5), StateDirectory=)."""
        os.makedirs(self.root + path, exist_ok=True)
        os.chmod(self.root + path, mode)
        user = self.one("User", "root")
        subprocess.run(["chroot", self.root, "chown", f"{user}:", path], check=True)

    def command(self):
        variables = {}
        with open(self.root + self.one("EnvironmentFile").lstrip("-"), encoding="utf-8") as file:
            for line in file:
                if not line.startswith("#") and "=" in line:
                    name, value = line.strip().split("=", 1)
                    variables[name] = shlex.split(value)[0] if value not in ('""', "") else ""
        words = []
        for word in self.one("ExecStart").split():
            words += variables[word[1:]].split() if word.startswith("$") else [word]
        return words

    def start(self):
        assert self.one("Type") == "notify"
        if self.one("RuntimeDirectory"):
            self.folder("/run/" + self.one("RuntimeDirectory"), 0o755)
        self.folder("/var/lib/" + self.one("StateDirectory"), int(self.one("StateDirectoryMode", "0755"), 8))
        user = self.one("User", "root")
        notify = f"/run/notify-{self.name}"
        if os.path.exists(self.root + notify):
            os.unlink(self.root + notify)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, open(self.log, "ab") as log:
            ready.bind(self.root + notify)
            os.chmod(self.root + notify, 0o777)
            ready.settimeout(WAIT_S)
            # chroot becomes the program, so its pid is the main pid
            self.process = subprocess.Popen(["chroot", f"--userspec={user}:", self.root, *self.command()], cwd="/",
                                            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "NOTIFY_SOCKET": notify},
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
            assert ready.recv(64) == b"READY=1"

    def stop(self):
        """KillMode=process: SIGTERM only to the main process. The server has no other processes."""
        assert self.name == "rendezvous.service" or self.one("KillMode") == "process"
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(WAIT_S) == 0, self.text()
        self.process = None

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()


class Units:
    """Requests are kept in `asked`, as lists of words."""

    def __init__(self, root):
        self.root, self.units, self.asked, self.failure = root, {}, [], None
        with open(f"{root}/usr/bin/systemctl.new", "w", encoding="utf-8") as file:
            file.write(SYSTEMCTL)
        os.chmod(f"{root}/usr/bin/systemctl.new", 0o755)
        os.rename(f"{root}/usr/bin/systemctl.new", f"{root}/usr/bin/systemctl")
        os.makedirs(f"{root}/run/systemd/system")  # what sd_booted(3) looks for
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{root}/run/units.sock")
        self.listener.listen(4)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            peer, _ = self.listener.accept()
            with peer, peer.makefile() as words:
                asked = words.read().split("\n")
                try:
                    code = self.do(asked)
                except Exception as error:  # pylint: disable=broad-except
                    self.failure, code = error, 1
                peer.sendall(str(code).encode())

    def is_active(self, name):
        return name in self.units and self.units[name].process is not None

    def do(self, words):
        self.asked.append(words)
        verb, *names = [word for word in words if not word.startswith("-")]
        active = [name for name in names if self.is_active(name)]
        if verb == "start":
            for name in names:
                self.units[name] = Unit(self.root, name)
                self.units[name].start()
        elif verb == "stop":
            for name in active:
                self.units[name].stop()
        elif verb == "try-restart":  # the jobs of one transaction: all stops, then the starts, in the order of After=
            for name in active:
                self.units[name].stop()
            for name in sorted(active, key=lambda n: n != "rendezvous.service"):
                self.units[name] = Unit(self.root, name)
                self.units[name].start()
        else:
            assert verb == "daemon-reload", words
        return 0

    def close(self):
        self.listener.close()
        for unit in self.units.values():
            if unit.process is not None:
                unit.process.kill()
                unit.process.wait()
        shutil.rmtree(f"{self.root}/run/systemd", ignore_errors=True)
