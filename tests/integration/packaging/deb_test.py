"""The Debian packages: built from the tree, clean for lintian, and in a copy of this machine: installed, upgraded while a job
trains, removed, purged. The copy is an overlay in a mount namespace of its own, so it disappears afterwards; that needs root.
DDP_TEST_DEBS names a folder of packages that are tested in place of newly built ones."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import printed_steps  # noqa: E402
from processes.waiting import wait_for  # noqa: E402

SOURCE = os.environ["SOURCE_ROOT"]
WAIT_S = 500
PROGRAMS = ["rendezvous", "launcherd", "ddpctl", "ddp-worker"]
STEPS = 90000000  # steps of the job, which is cancelled some steps after the upgrade
STEPS_AFTER = 20


def run(*command, timeout=WAIT_S, **more):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                          timeout=timeout, **more)


def output(*command, **more):
    done = run(*command, **more)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def skip(reason):
    print(f"skip: {reason}")
    sys.exit(77)


# --- outside: build, lintian --------------------------------------------------------------------


def build(folder):
    for tool in ["dpkg-buildpackage", "dh", "lintian"]:
        if shutil.which(tool) is None:
            skip(f"{tool} is not installed (./quickstart test installs it)")
    environ = {k: v for k, v in os.environ.items() if k not in ("CFLAGS", "CXXFLAGS", "LDFLAGS", "DESTDIR", "MAKEFLAGS")}
    for language in ("CFLAGS", "CXXFLAGS"):  # only the packaging is tested, and this compiles in a quarter of the time
        environ[f"DEB_{language}_STRIP"], environ[f"DEB_{language}_APPEND"] = "-O2 -g", "-O0 -w"
    environ["DEB_BUILD_OPTIONS"] = "noautodbgsym"
    output(f"{SOURCE}/packaging/build-deb", "--cuda", "no", "--output", folder, timeout=1200, env=environ)
    print("ok build", flush=True)


def check_lintian(folder):
    changes = glob.glob(folder + "/*.changes")
    assert len(changes) == 1, changes
    done = run("lintian", "--allow-root", "--fail-on", "error,warning", *changes)
    assert done.returncode == 0 and done.stdout == "", done.stdout + done.stderr
    print("ok lintian", flush=True)


def enter_namespaces(folder):
    """The same program again, in namespaces that end with it."""
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        skip("built, and clean for lintian; installing, upgrading and removing needs root")
    if run(*command, "true").returncode != 0:
        skip("no mount and process namespaces here, so nothing was installed")
    return subprocess.run([*command, sys.executable, __file__, "inside", folder], check=False).returncode


# --- inside: a copy of this machine -------------------------------------------------------------


class Machine:
    """An overlay over / in a tmpfs, and commands in it."""

    def __init__(self, debs):
        self.top = tempfile.mkdtemp(prefix="ddp-machine-")
        output("mount", "-t", "tmpfs", "-o", "mode=0755", "machine", self.top)
        self.root = self.top + "/root"
        for name in ["root", "upper", "work"]:
            os.mkdir(f"{self.top}/{name}")
        done = run("mount", "-t", "overlay", "-o", f"lowerdir=/,upperdir={self.top}/upper,workdir={self.top}/work", "machine",
                   self.root)
        if done.returncode != 0:
            self.close()
            skip(f"no overlay over this root file system, so nothing was installed: {done.stderr.strip()}")
        output("mount", "-t", "proc", "proc", self.root + "/proc")
        output("mount", "--rbind", "/dev", self.root + "/dev")
        for name in ["run", "tmp", "var/tmp"]:
            output("mount", "-t", "tmpfs", "-o", "mode=0755" if name == "run" else "mode=1777", "tmpfs", f"{self.root}/{name}")
        policy = self.root + "/usr/sbin/policy-rc.d"
        if os.path.exists(policy):  # containers have one that forbids every service
            os.unlink(policy)
        for deb in debs:
            shutil.copy(deb, self.root + "/var/tmp/")

    def command(self, *words, user="root"):
        return ["chroot", f"--userspec={user}:", self.root, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8",
                f"HOME=/home/{user}", "DEBIAN_FRONTEND=noninteractive", *words]

    def run(self, *words, user="root"):
        return run(*self.command(*words, user=user))

    def output(self, *words, user="root"):
        return output(*self.command(*words, user=user))

    def exists(self, path):
        return os.path.lexists(self.root + path)

    def close(self):
        run("umount", "-R", "-l", self.top)
        os.rmdir(self.top)


def repack(machine, deb, version):
    """The same package with a later version."""
    machine.output("dpkg-deb", "-R", deb, "/var/tmp/package")
    control = machine.root + "/var/tmp/package/DEBIAN/control"
    with open(control, encoding="utf-8") as file:
        text = re.sub(r"^Version: .*$", f"Version: {version}", file.read(), flags=re.M)
    with open(control, "w", encoding="utf-8") as file:
        file.write(text)
    machine.output("dpkg-deb", "-b", "--root-owner-group", "/var/tmp/package", "/var/tmp/later.deb")
    return "/var/tmp/later.deb"


class Job:
    """Two ranks of ddp-worker on this node, submitted by an ordinary user."""

    def __init__(self, machine):
        self.machine = machine
        self.id = machine.output("ddpctl", "submit", "--nproc-per-node", "2", "--cwd", "/tmp", "--", "ddp-worker", "--dummy",
                                 "--epochs", "100000", "--max-steps", str(STEPS), "-b", "4", "-p", "1", "--device", "cpu", user="alice").strip()

    def status(self):
        return json.loads(self.machine.output("ddpctl", "status", self.id, "--json", user="alice"))["job"]

    def printed(self):
        """The steps of rank 0, as they were printed."""
        text = self.machine.output("ddpctl", "logs", self.id, "--rank", "0", "--raw", user="alice")
        return printed_steps.find(text)


def shims(machine):
    """Pids of shims, from their command lines."""
    found = []
    for path in glob.glob(machine.root + "/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"--shim" in words[:3]:
            found.append(int(path.split("/")[-2]))
    return found


def exe(machine, pid):
    return os.readlink(f"{machine.root}/proc/{pid}/exe")


def check_installed(machine, units):
    for name in PROGRAMS:
        assert machine.output(name, "--version") == f"{name} {machine.output('ddpctl', 'version').split()[1]}\n"
    for page in ["rendezvous.8", "launcherd.8", "ddpctl.1", "ddp-worker.1"]:
        assert machine.exists(f"/usr/share/man/man{page[-1]}/{page}.gz"), page
    assert machine.exists("/usr/share/bash-completion/completions/ddpctl")
    user = machine.output("getent", "passwd", "ddp").split(":")
    assert user[6].strip() == "/usr/sbin/nologin", user
    assert not [words for words in units.asked if "start" in words or "restart" in words], units.asked
    print("ok install: nothing was started", flush=True)


def start_services(machine, units):
    with open(machine.root + "/etc/default/launcherd", "a", encoding="utf-8") as file:
        file.write('LAUNCHERD_OPTIONS="--name n1 --slots 2"\n')
    machine.output("systemctl", "start", "rendezvous.service", "launcherd.service")
    assert units.failure is None, units.failure
    owner = os.stat(machine.root + "/var/lib/ddp/rendezvous")
    assert owner.st_uid != 0 and owner.st_mode & 0o777 == 0o700, oct(owner.st_mode)
    assert os.stat(machine.root + "/var/lib/ddp").st_uid == 0
    print("ok services run, rendezvous as user ddp", flush=True)


def upgrade_during_a_job(machine, units, deb):
    job = Job(machine)
    wait_for("the first steps", lambda: len(job.printed()) > 5, WAIT_S)
    before = {name: unit.process.pid for name, unit in units.units.items()}
    shim = shims(machine)
    assert len(shim) == 1, shim
    machine.output("dpkg", "-i", deb)
    assert units.failure is None, units.failure
    at_upgrade = len(job.printed())
    for name, unit in units.units.items():
        assert unit.process.pid != before[name], f"{name} was not restarted"
        assert not exe(machine, unit.process.pid).endswith(" (deleted)"), f"{name} still runs the old program"
    assert shims(machine) == shim and exe(machine, shim[0]).endswith(" (deleted)"), "the shim was not left alone"
    wait_for("steps after the upgrade", lambda: len(job.printed()) >= at_upgrade + STEPS_AFTER, WAIT_S)
    machine.output("ddpctl", "cancel", job.id, "--wait", user="alice")
    status = job.status()
    assert status["state"] == "cancelled", status
    assert status["generation"] == 1 and status["restarts"] == 0, status
    steps = printed_steps.check(job.printed())
    assert steps >= at_upgrade + STEPS_AFTER, (steps, at_upgrade)
    print(f"ok upgrade during a job: after {at_upgrade} of {steps} steps, none twice, none missing, generation 1, no restart",
          flush=True)


def check_removal(machine, units):
    listed = [path for path in machine.output("dpkg", "-L", "ddp-launcher").split() if path.startswith(("/usr", "/etc", "/lib"))]
    files = [path for path in listed if os.path.isfile(machine.root + path)]
    machine.output("dpkg", "-r", "ddp-launcher")
    assert not any(units.is_active(name) for name in units.units), "a service still runs"
    left = [path for path in files if machine.exists(path)]
    assert sorted(left) == ["/etc/default/ddp-http", "/etc/default/launcherd", "/etc/default/rendezvous"], left
    assert machine.exists("/var/lib/ddp/rendezvous/state.db")
    machine.output("dpkg", "-P", "ddp-launcher")
    left = [path for path in files + ["/var/lib/ddp"] if machine.exists(path)]
    assert not left, left
    print("ok remove keeps settings and state, purge does not", flush=True)


def inside(debs):
    from units import Units  # pylint: disable=import-outside-toplevel

    machine = Machine(debs)
    if machine.run("dpkg", "-s", "ddp-launcher").returncode == 0:
        machine.output("dpkg", "-P", "ddp-launcher")
    shutil.rmtree(machine.root + "/var/lib/ddp", ignore_errors=True)  # the state of this machine itself; only the overlay may change
    units = Units(machine.root)
    try:
        machine.output("useradd", "--create-home", "alice")
        deb = "/var/tmp/" + os.path.basename([d for d in debs if "launcher_" in d][0])
        machine.output("dpkg", "-i", deb)
        check_installed(machine, units)
        start_services(machine, units)
        upgrade_during_a_job(machine, units, repack(machine, deb, "9.1"))
        check_removal(machine, units)
    except BaseException:
        for unit in units.units.values():
            print(f"--- {unit.name}\n{unit.text()[-4000:]}", flush=True)
        raise
    finally:
        units.close()
        machine.close()


def main():
    if sys.argv[1:2] == ["inside"]:
        inside(glob.glob(sys.argv[2] + "/*.deb"))
        return
    with tempfile.TemporaryDirectory(prefix="ddp-debs-") as folder:
        debs = os.environ.get("DDP_TEST_DEBS")
        if not debs:
            build(folder)
            debs = folder
        check_lintian(debs)
        sys.exit(enter_namespaces(debs))


main()
