#!/usr/bin/env python3
"""launcherd, or a shim, is killed at a moment: between two system calls. EDGE_LIBRARY=LIBRARY edge_test.py LAUNCHERD [NAME...]

The library (tests/lib/edge) is preloaded into both; into the job only where a test says so. Whatever the moment, after launcherd has been started again the job
ends once, with the right report; its program has run once, or not at all if the report says so; and nothing is left."""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from processes import proc
from processes.proc import is_alive
from processes.runner import run_tests
from processes.waiting import wait_for
from processes.world import token_holders, World
from processes.server import CLUSTER
from edge import Edge

LAUNCHERD = os.path.abspath(sys.argv[1])
DAEMON, SHIM = "launcherd --server", "launcherd --shim"
NAME = f"{CLUSTER}-1-g1"


class Moment:
    """One job on a node that ends at a moment."""

    def __init__(self, has_clock=False, **server):
        self.has_clock, self.options = has_clock, server

    def __enter__(self):
        self.edge = Edge().__enter__()
        if self.has_clock:
            self.edge.clock()
        os.environ.update(self.edge.env)
        self.world = World(LAUNCHERD, **self.options).__enter__()
        self.node = self.world.node()
        self.first_pid = self.node.process.pid
        self.server = self.world.server
        self.state = f"{self.node.folder}/{self.node.name}"
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            print(*self.edge.rules, sep="\n", flush=True)
        self.edge.__exit__()
        for name in self.edge.env:
            os.environ.pop(name)
        self.world.__exit__(kind, error, trace)

    def start(self):
        """Its program notes that it ran."""
        self.server.start(1, 1, ["sh", "-c", f"echo ran >>{self.world.folder}/ran"])

    def begin(self, kind, path, program):
        """Starts the job, and waits until it is at the moment."""
        rule = self.edge.stop(kind, path, program=program)
        self.start()
        return rule.wait()

    def wait_described(self):
        """Until the shim has described itself, in its directory and in the record."""
        wait_for("the record of the shim", lambda: os.path.exists(f"{self.state}/parts/{NAME}.shim"))

    def again(self):
        """launcherd was killed, and is started again. What its hello says of the part."""
        self.node.wait()
        since = self.server.mark()
        self.node.begin().ready()
        return [(s["phase"], s["unseen"]) for s in self.server.wait_for("node_hello", since=since)["shims"]]

    def ran(self):
        try:
            with open(f"{self.world.folder}/ran", encoding="ascii") as file:
                return file.read().count("ran\n")
        except FileNotFoundError:
            return 0

    def finish(self, cause, ran):
        """The one end of the job, and that nothing is left after it is forgotten."""
        report = self.server.wait_phase(1, 1, "ended")
        assert (report["cause"], self.ran()) == (cause, ran), (report, self.ran())
        self.server.forget(1, 1)
        wait_for("the run directory to go", lambda: os.listdir(f"{self.state}/run") == [])
        wait_for("launcherd to close the descriptors of processes that have ended",
                 lambda: "anon_inode:[pidfd]" not in proc.descriptors_of(self.node.process.pid))
        assert self.node.end() == 0  # it may be writing its own files until then
        self.nothing_is_left()
        ends = {m["cause"] for _, m in self.server.messages if m["type"] == "shim_report" and m["phase"] == "ended"}
        assert ends == {cause}, ends

    def nothing_is_left(self):
        wait_for("the record to go", lambda: os.listdir(f"{self.state}/parts") in ([], ["id.json"]))
        new = [name for _, _, names in os.walk(self.state) for name in names if name.endswith(".new")]
        assert new == [], new


AWAY = "the shim of job 1 on node0 ended while launcherd was away"
TOLD = "this node was told to start its part before, and nothing of that is here any more"
KILLED = "the shim of job 1 on node0 was killed (signal 9)"


def test_launcherd_is_killed_while_it_starts_a_job():
    """Without an order on the disk the part has never begun. Has launcherd noted that it was told, it says so, since the ranks may have run;
    else it starts the part. With an order on the disk the part has ended."""
    for is_noted in (False, True):
        with Moment() as moment:
            note = moment.edge.hang("rename", "*/seen", program=DAEMON)
            rule = moment.begin("rename", "*/start.msg", DAEMON)
            note.wait()
            if is_noted:
                note.release()
                wait_for("its note", lambda: not os.path.exists(f"{moment.state}/seen.new"))
            rule.kill()
            note.drop()
            assert os.listdir(f"{moment.state}/run/{NAME}") == ["start.msg.new"]
            assert moment.again() == []
            moment.start()
            if not is_noted:
                moment.server.go(1, 1)
            moment.finish(TOLD if is_noted else "", 0 if is_noted else 1)
    for kind, path, files in (("link", f"*/parts/{NAME}.start", []), ("fork", "", [f"{NAME}.start"])):
        with Moment() as moment:
            rule = moment.begin(kind, path, DAEMON)
            assert rule.pid == moment.node.process.pid
            rule.kill()
            assert os.listdir(f"{moment.state}/run/{NAME}") == ["start.msg"]
            assert [name for name in os.listdir(f"{moment.state}/parts") if name != "id.json"] == files
            assert moment.again() == [("ended", False)]
            moment.finish(AWAY, 0)


def test_launcherd_is_killed_before_its_child_runs_the_shim():
    """The child has the lock of the state directory until then: no other launcherd begins. Then the shim is adopted, and the job runs."""
    with Moment() as moment:
        rule = moment.begin("exec", "*", DAEMON)
        assert rule.pid != moment.node.process.pid
        moment.node.process.kill()
        moment.node.wait()
        moment.node.begin()
        assert moment.node.wait() != 0
        assert f"another launcherd (pid {moment.first_pid}) uses the state directory" in moment.node.log(), moment.node.log()
        rule.release()
        moment.wait_described()
        assert moment.again() == [("preparing", False)]
        moment.server.go(1, 1)
        moment.finish("", 1)


def test_a_shim_is_killed_while_it_begins():
    for kind, path, program in (("exec", "*", DAEMON), ("open", "*/start.msg", SHIM), ("rename", "*/shim.json", SHIM), ("link", f"*/parts/{NAME}.shim", SHIM)):
        with Moment() as moment:
            moment.begin(kind, path, program).kill()
            assert moment.node.process.poll() is None
            moment.finish(KILLED, 0)


def test_launcherd_is_killed_while_a_shim_begins():
    """The shim has described itself before launcherd is there again: the job runs. It has not: it is killed. It is killed, too: it has ended."""
    with Moment() as moment:
        rule = moment.begin("rename", "*/shim.json", SHIM)
        moment.node.process.kill()
        rule.release()
        moment.wait_described()
        assert moment.again() == [("preparing", False)]
        moment.server.go(1, 1)
        moment.finish("", 1)
    with Moment() as moment:
        rule = moment.begin("rename", "*/shim.json", SHIM)
        moment.node.process.kill()
        assert moment.again() == [("ended", False)]
        assert not is_alive(rule.pid)
        assert f"{moment.state}/run/{NAME} lives, but its shim.json does not describe it: it is killed" in moment.node.log()
        moment.finish(AWAY, 0)
    for kind, path, phase in (("rename", "*/shim.json", "ended"), ("link", f"*/parts/{NAME}.shim", "preparing")):
        with Moment() as moment:
            rule = moment.begin(kind, path, SHIM)
            moment.node.process.kill()
            rule.kill()
            assert moment.again() == [(phase, False)]
            moment.finish(AWAY, 0)


def test_two_keep_the_record_of_a_shim():
    """launcherd is started again while its shim stands before the link of its record, and makes that itself."""
    with Moment() as moment:
        rule = moment.begin("link", f"*/parts/{NAME}.shim", SHIM)
        moment.node.process.kill()
        assert moment.again() == [("preparing", False)]
        moment.wait_described()
        rule.release()
        moment.server.go(1, 1)
        moment.finish("", 1)


def test_the_end_of_a_job():
    """Its program has ended well. What the shim has not written nobody knows."""
    for who, cause in (("shim", KILLED), ("launcherd", ""), ("both", AWAY)):
        with Moment() as moment:
            rule = moment.edge.stop("rename", "*/end.msg", program=SHIM)
            moment.start()
            moment.server.go(1, 1)
            rule.wait()
            if who != "shim":
                moment.node.process.kill()
            if who != "launcherd":
                rule.kill()
            else:
                rule.release()
                wait_for("its end", lambda: os.path.exists(f"{moment.state}/run/{NAME}/end.msg"))
            if who != "shim":
                moment.again()
            moment.finish(cause, 1)


def test_launcherd_is_killed_while_it_forgets_a_job():
    """It was told to forget; the server tells it again, if it still has the part."""
    for path, hello in ((f"*/parts/{NAME}.start", [("ended", False)]), (f"*/parts/{NAME}.shim", [("ended", False)]), (f"*/{NAME}/start.msg", [("ended", False)]),
                        (f"*/{NAME}/shim.json", []), (f"*/{NAME}/end.msg", []), (f"*/run/{NAME}", [])):
        with Moment() as moment:
            moment.start()
            moment.server.go(1, 1)
            moment.server.wait_phase(1, 1, "ended")
            rule = moment.edge.stop("unlink", path, program=DAEMON)
            moment.server.forget(1, 1)
            rule.wait().kill()
            assert moment.again() == hello, path
            moment.finish("", 1)


def test_a_worker_is_reached_by_the_environment_of_its_job():
    with Moment() as moment:
        rule = moment.edge.stop("mkdir", "*/made", program="mkdir*")
        moment.server.start(1, 1, ["mkdir", f"{moment.world.folder}/made"], env={"PATH": os.environ["PATH"], **moment.edge.env})
        moment.server.go(1, 1)
        report = moment.server.wait_phase(1, 1, "running")
        rule.wait()
        assert rule.pid == report["ranks"][0]["pid"] and not os.path.exists(f"{moment.world.folder}/made")
        rule.release()
        moment.finish("", 0)
        assert os.path.isdir(f"{moment.world.folder}/made")


def test_a_lease_of_two_minutes():
    """On the gated clock. It ends no earlier, and the shim says why."""
    with Moment(lease_us=120_000_000, has_clock=True) as moment:
        moment.server.start(1, 1, ["sleep", "1000"])  # this one has the real clock
        moment.server.go(1, 1)
        moment.server.wait_phase(1, 1, "running")
        shim = moment.world.note_token(moment.node, 1, 1)
        cut_at = moment.edge.now()
        moment.server.cut()
        wait_for("the end of the lease", lambda: token_holders(shim["token"]) == [])
        lasted = moment.edge.now() - cut_at
        print(f"{lasted:.1f} s", flush=True)
        assert 100 < lasted < 150, lasted
        moment.server.listen()
        moment.finish("cut off from the server for longer than the lease (120 s)", 0)


if __name__ == "__main__":
    sys.exit(run_tests([value for name, value in list(globals().items()) if name.startswith("test_")], sys.argv[2:]))
