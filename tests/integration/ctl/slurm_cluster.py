"""A Slurm cluster on this machine for a test: Debian's slurmctld, a slurmd for each node, and munged with a key of its own, all in
one folder, on free ports. Files of an installed Slurm are neither read nor changed."""
import os
import re
import shutil
import signal
import socket
import subprocess

from processes.waiting import wait_for

PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "sbatch", "salloc", "squeue", "scancel", "scontrol", "sinfo")

CONFIG = """ClusterName=test
SlurmctldHost={host}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
JobRequeue=1
ReturnToService=2
KillWait={kill_wait}
MinJobAge=600
MessageTimeout=10
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
StateSaveLocation={folder}/state
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdSpoolDir={folder}/spool-%n
SlurmdParameters=config_overrides
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def programs_path():
    return os.environ["PATH"] + os.pathsep + "/usr/sbin" + os.pathsep + "/sbin"


def missing():
    """The reason why no cluster can run here; empty: it can."""
    names = [name for name in PROGRAMS if not shutil.which(name, path=programs_path())]
    return f"not installed: {', '.join(names)} (Debian: slurmctld slurmd slurm-client munge)" if names else ""


def held_ports(count):
    """Sockets that keep ports of the kernel's choice from all who ask for any. Slurm's daemons may bind them all the same: they reuse addresses, as
    these do, and these do not listen."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("0.0.0.0", 0))
    return held


class SlurmCluster:
    """with SlurmCluster(folder, nodes=2, gpus=2) as cluster: cluster.run("srun", "hostname")"""

    def __init__(self, folder, nodes=2, gpus=0, cpus=4, kill_wait=30):
        self.folder, self.nodes, self.processes = folder, [f"n{i}" for i in range(nodes)], []
        host = socket.gethostname().split(".")[0]
        self.held = held_ports(1 + nodes)
        ports = [one.getsockname()[1] for one in self.held]
        with open(f"{folder}/munge.key", "wb") as file:
            file.write(os.urandom(128))
        os.chmod(f"{folder}/munge.key", 0o600)
        os.mkdir(f"{folder}/state")
        text = CONFIG.format(host=f"{host}(127.0.0.1)", user=subprocess.check_output(["id", "-un"], text=True).strip(),
                             folder=folder, ports=ports, kill_wait=kill_wait)
        gres = ""
        for i in range(gpus):  # Slurm wants a file for each
            with open(f"{folder}/gpu{i}", "w", encoding="utf-8"):
                pass
        for name, port in zip(self.nodes, ports[1:]):
            os.mkdir(f"{folder}/spool-{name}")
            text += (f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=512"
                     f"{f' Gres=gpu:{gpus}' if gpus else ''} State=UNKNOWN\n")
            if gpus:
                gres += "".join(f"NodeName={name} Name=gpu File={folder}/gpu{i}\n" for i in range(gpus))
        for name, content in (("slurm.conf", text), ("gres.conf", gres), ("cgroup.conf", "")):
            with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                file.write(content)

    def environ(self, **variables):
        kept = {name: value for name, value in os.environ.items() if not re.match("(SLURM|SRUN|SBATCH|SALLOC)", name)}
        return {**kept, "PATH": programs_path(), "SLURM_CONF": f"{self.folder}/slurm.conf", **variables}

    def start(self, *command):
        with open(f"{self.folder}/{len(self.processes)}-{os.path.basename(command[0])}.out", "wb") as out:
            self.processes.append(subprocess.Popen(command, env=self.environ(), stdin=subprocess.DEVNULL, stdout=out,
                                                   stderr=out, start_new_session=True))
        return self.processes[-1]

    def run(self, *command, **options):
        options = {"env": self.environ(), "capture_output": True, "text": True, "timeout": 180, "cwd": self.folder, **options}
        return subprocess.run(command, check=False, **options)

    def wait(self, what, is_true, seconds=180):
        def is_true_and_all_run():
            for process in self.processes:
                assert process.poll() is None, f"{process.args[0]} ended with {process.returncode}: {self.words()}"
            return is_true()
        wait_for(lambda: f"{what}: {self.words()}", is_true_and_all_run, seconds)

    def words(self):
        """The last output of each daemon."""
        texts = []
        for name in sorted(os.listdir(self.folder)):
            if name.endswith((".log", ".out")):
                with open(f"{self.folder}/{name}", encoding="utf-8", errors="replace") as file:
                    texts.append(f"== {name}\n{file.read()[-300:]}")
        return "\n".join(texts)

    def __enter__(self):
        try:
            self.start("munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key",
                       f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munge.pid",
                       f"--log-file={self.folder}/munge.log", f"--seed-file={self.folder}/munge.seed")
            self.wait("munged listens", lambda: os.path.exists(f"{self.folder}/munge.socket"))
            self.start("slurmctld", "-D", "-f", f"{self.folder}/slurm.conf")
            for name in self.nodes:
                self.start("slurmd", "-D", "-N", name, "-f", f"{self.folder}/slurm.conf")
            self.wait("all nodes are idle", lambda: self.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").stdout.split()
                      == self.nodes)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def left(self):
        """Processes of this cluster: after a failed test, steps and their processes outlive slurmd."""
        mark, found = f"SLURM_CONF={self.folder}/slurm.conf".encode(), []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read():
                        found.append(int(name))
            except OSError:
                continue
        return found

    def __exit__(self, kind, value, trace):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self.processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)
        for one in self.held:
            one.close()
