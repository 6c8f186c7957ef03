"""The jobs of the chaos test, and how each must end."""

import os
import re

from processes import wire
from processes.waiting import LONG_S, wait_for
from faults_test import last_parameters

HERE = os.path.dirname(os.path.abspath(__file__))
ENDED = ("succeeded", "failed", "cancelled")


class Kind:
    def __init__(self, cluster):
        self.cluster, self.calm = cluster, None

    def fields(self, folder):
        raise NotImplementedError

    def result(self, folder):
        return None


class Training(Kind):
    """ddp-worker; it commits a checkpoint every ten steps."""
    name, state = "ddp-worker", "succeeded"

    def fields(self, folder):
        argv = [f"{self.cluster.build}/worker/ddp-worker", "-a", "convnet", "--dummy", "-b", "20", "--lr", "0.01", "--momentum",
                "0.9", "--epochs", "1", "--max-steps", "100", "--checkpoint-every", "10", "--checkpoint-dir", folder]
        return {"nodes": 2, "nproc_per_node": 2, "max_restarts": 20, "argv": argv}

    def result(self, folder):
        return last_parameters(folder)


class Torch(Kind):
    """A PyTorch script without any code for this launcher."""
    name, state = "pytorch", "succeeded"

    def __init__(self, cluster, python):
        super().__init__(cluster)
        self.python = python

    def fields(self, folder):
        return {"nodes": 2, "nproc_per_node": 1, "max_restarts": 20,
                "argv": [self.python, os.path.join(HERE, "train_torch.py"), folder]}

    def result(self, folder):
        with open(f"{folder}/final", encoding="ascii") as file:
            return file.read()


class Endless(Kind):
    """Runs until it is cancelled."""
    name, state = "cancelled", "cancelled"

    def fields(self, folder):
        return {"nodes": 1, "nproc_per_node": 2, "max_restarts": 20, "argv": ["sleep", "100000"]}


class Job:
    def __init__(self, kind, number):
        self.kind, self.number = kind, number
        self.folder = f"{kind.cluster.folder}/{kind.name}-{number}"
        os.mkdir(self.folder)
        self.request = wire.request_id()
        self.hits, self.summary = 0, None
        self.id = kind.cluster.insist(lambda client: client.submit(
            self.request, name=f"{kind.name}-{number}", cwd=self.folder, wait_for_nodes=True,
            env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": self.folder},
            **kind.fields(self.folder)))["job_id"]

    def look(self):
        """The job's state, or None while the server does not answer."""
        answer = self.kind.cluster.ask(lambda client: client.job(self.id))
        if answer:
            self.summary = answer["jobs"][0]
            self.resume_nodes()
        return self.summary["state"] if answer else None

    def resume_nodes(self):
        """Resumes nodes, as an operator would. Otherwise a node that has failed a job twice gets none of its ranks for ten minutes."""
        for node in re.findall(r'"ddpctl node resume (\w+)"', self.summary["reason"]):
            self.kind.cluster.ask(lambda client, node=node: client.ask("node_resume", name=node, slot_mask=0))

    def has_ended(self):
        return self.look() in ENDED

    def cancel(self):
        self.kind.cluster.insist(lambda client: client.ask("cancel", job=str(self.id), signal=15, grace_us=1000000))

    def wait_end(self):
        wait_for(lambda: f"the end of job {self.id} ({self.kind.name}): {self.summary}", self.has_ended, 2 * LONG_S)

    def has_checkpoint(self):
        return os.path.exists(f"{self.folder}/last.pt")

    def resumed(self):
        """How often a script resumed from its checkpoint."""
        path = f"{self.folder}/resumed"
        if not os.path.exists(path):
            return 0
        with open(path, encoding="ascii") as file:
            return len(file.readlines())

    def check(self):
        if self.summary["state"] != self.kind.state:
            raise AssertionError(f"job {self.id} ({self.kind.name}) is {self.summary['state']}, not {self.kind.state}: "
                                 f"{self.summary['reason']}")
        result = self.kind.result(self.folder)
        if self.kind.calm is None:
            self.kind.calm = result
        elif result != self.kind.calm:
            raise AssertionError(f"job {self.id} ({self.kind.name}): other weights than undisturbed: {result}")
