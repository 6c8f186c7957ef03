"""ddpctl doctor on real daemons: what it reports about this machine, a job, a driver, things that hang and things that are gone."""
import json
import os
import re
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster
from processes.gpus import GpuCluster
from processes.relay import UnixRelay
from processes.runner import equal, run_and_exit
from processes.waiting import wait_for


def doctor(cluster, *args, **more):
    """{(check, node): [(level, text)]}, the exit code."""
    done = cluster.ctl("doctor", *args, "--json", **more)
    assert done.stdout, done.stderr
    shown = json.loads(done.stdout)
    equal(shown["schema"], "ddp.v1")
    found = {}
    for finding in shown["findings"]:
        assert (finding["remedy"] is not None) == (finding["level"] in ("warn", "fail")), finding
        found.setdefault((finding["check"], finding["node"]), []).append((finding["level"], finding["text"]))
    levels = [level for texts in found.values() for level, _ in texts]
    equal(shown["failed"], levels.count("fail"))
    equal(shown["warnings"], levels.count("warn"))
    equal(done.returncode, 1 if shown["failed"] else 0)
    return found


def ok(found, check, node):
    assert found[(check, node)] and all(level == "ok" for level, _ in found[(check, node)]), (check, node, found.get((check, node)))


def two_nodes():
    with Case() as case, Cluster(case, nodes=2) as cluster:
        found = doctor(cluster)
        for check in ("release", "peer-names"):
            ok(found, check, None)
        level, text = found[("server", None)][0]
        took_ms = re.fullmatch(r"unix:\S+ \(cluster \S+\) answers in (\S+) ms", text)
        assert took_ms and level == ("ok" if float(took_ms[1]) < 100 else "warn"), found  # a busy machine is slow to answer
        for node in ("node0", "node1"):
            for check in ("node", "answer", "clock", "disk", "ports", "connect", "packets", "stack", "account"):
                ok(found, check, node)
            equal(len(found[("disk", node)]), 3)
            equal(len(found[("connect", node)]), 1)
            assert found[("interface", node)][0][1].startswith("lo (127.0.0.1)"), found
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            first, last = file.read().split()
        assert f"from {first} to {last}" in found[("ports", "node0")][0][1], found
        alone = doctor(cluster, "--node", "node1")
        assert ("memory", "node1") in alone and ("memory", "node0") not in alone, alone
        equal(alone[("connect", None)], [("skip", "there are no two nodes to connect")])
        done = cluster.ctl("doctor", "--node", "nobody")
        equal(done.returncode, 3, done.stderr)
        assert "there is no node nobody" in done.stderr, done.stderr
        done = cluster.ctl("doctor")
        assert "failed, " in done.stdout.splitlines()[-1] and "on 2 nodes" in done.stdout.splitlines()[-1], done.stdout
        assert "\x1b" not in done.stdout and "fix: " in done.stdout, done.stdout


def without_a_server():
    with Case() as case:
        done = case.ctl("doctor", "--server", f"unix:{case.dir}/none")
        equal(done.returncode, 1, done.stderr)
        assert "FAIL  server: " in done.stdout and "fix: start rendezvous there" in done.stdout, done.stdout


def of_a_job():
    """Doctor checks only the nodes of the job, with the job's Python and folder; another user's job is not found."""
    with Case() as case, Cluster(case, nodes=2) as cluster:
        folder = f"{case.dir}/job"
        os.mkdir(folder)
        python = f"{folder}/python-of-the-job"
        with open(python, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\necho python=$0\necho python_version=9.8.7\necho torch=2.99\necho cuda=\n"
                       "echo noise\necho torch_sees_gpu=0\n[ \"$MARK\" = yes ] && exec sleep 600 <&- >&- 2>&-\n")
        os.chmod(python, 0o755)
        job = cluster.submit("--cwd", folder, "--env", "MARK=no", "--nproc-per-node", "4", "--", python, "train.py")
        wait_for("the end of the job", lambda: cluster.status(job)["state"] in ("succeeded", "failed"))
        found = doctor(cluster, job)
        nodes = {node for check, node in found if check == "memory"}
        equal(len(nodes), 1)
        node = nodes.pop()
        equal(found[("python", node)], [("ok", f"{python} 9.8.7 with torch 2.99")])
        ok(found, "job", node)
        assert any(folder in text for _, text in found[("disk", node)]), found
        os.remove(python)
        found = doctor(cluster, job)
        assert found[("job", node)][0][0] == "fail" and python in found[("job", node)][0][1], found
        done = cluster.ctl("doctor", "777")
        equal(done.returncode, 3, done.stderr)


def a_python_that_fails():
    with Case() as case, Cluster(case) as cluster:
        python = f"{case.dir}/python3"
        with open(python, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\necho 'Traceback (most recent call last):' >&2\necho 'ImportError: libfoo.so' >&2\nexit 1\n")
        os.chmod(python, 0o755)
        job = cluster.submit("--env", f"PATH={case.dir}:/usr/bin:/bin", "--", "python3", "x.py")
        wait_for("the end of the job", lambda: cluster.status(job)["state"] in ("succeeded", "failed"))
        found = doctor(cluster, job)
        equal(found[("python", "node0")][0][0], "warn")
        assert "ImportError: libfoo.so" in found[("python", "node0")][0][1], found


def gpus_by_nvml():
    with Case() as case, GpuCluster(case, lines={
            "h0": "health 0 1 0 16 16 0 18 0", "h1": "health 1 0 64 4 16 1 17 1"}) as cluster:
        found = doctor(cluster)
        gpus = found[("gpu", "node0")]
        equal(gpus[0], ("ok", "GPU 0: Stand-in GPU"))
        assert gpus[1][0] == "warn" and "next reset" in gpus[1][1], gpus
        equal(found[("driver", "node0")], [("ok", "driver 570.00, for CUDA up to 12.8, 2 GPUs")])
        for check, text in (("persistence", "GPU 1: persistence mode is off"), ("throttle", "GPU 1 is slowed down: heat (hardware)"),
                            ("pcie", "GPU 1: 4 of 16 PCIe lanes"), ("nvlink", "GPU 1: 17 of 18 NVLinks are up")):
            equal([level for level, _ in found[(check, "node0")]], ["ok", "warn"])
            equal(found[(check, "node0")][1][1], text)
        cluster.gpus.set("ecc", "ecc 0 7")
        found = doctor(cluster)
        equal(found[("gpu", "node0")][0], ("fail", "GPU 0: 7 uncorrected memory errors since the driver was loaded"))
        cluster.gpus.set("hang", "hang")  # the other checks still work
        found = doctor(cluster)
        assert ("fail", "nothing is known of its gpus: no answer within 15 s") in found[("answer", "node0")], found
        ok(found, "stack", "node0")
        cluster.gpus.clear("hang")


def nobody_holds_up_launcherd():
    """launcherd refuses further questions, with a reason, when too many are open at once; when it ends, no process of a question is left."""
    with Case() as case, GpuCluster(case) as cluster:
        cluster.gpus.set("hang", "hang")
        asking = [case.start("--server", cluster.address, "doctor", "--json") for _ in range(10)]
        wait_for("answers to those that were refused", lambda: sum(one.poll() is not None for one in asking) >= 2)
        texts = [one.communicate()[0] for one in asking if one.poll() is not None]
        equal(len(texts), 2)
        assert all("it answers others; ask again" in text for text in texts), texts
        cluster.gpus.clear("hang")
        cluster.end_node()
        for one in asking:
            one.wait(60)
            one.stdout.close()
            one.stderr.close()


def one_user_takes_half_of_the_places():
    """Checks that hang, of a user with a key: the others of this user are told so, and the administrator is answered."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Case() as case, GpuCluster(case, server_options=("--listen", f"127.0.0.1:{port}", "--require-key")) as cluster:
        equal(case.ctl("login", cluster.ctl("user", "add", "nobody", "-q").stdout.strip()).returncode, 0)
        cluster.gpus.set("hang", "hang")
        asking = [case.start("doctor", "--json") for _ in range(10)]
        wait_for("answers to those that were refused", lambda: sum(one.poll() is not None for one in asking) >= 6)
        texts = [one.communicate()[0] for one in asking if one.poll() is not None]
        equal(len(texts), 6, texts)
        for text in texts:
            bad = [(item["check"], item["text"]) for item in json.loads(text)["findings"] if item["level"] == "fail"]
            equal(bad, [("turn", "you have 4 checks running there already; wait until one has ended")])
        cluster.gpus.clear("hang")
        assert ("turn", "node0") not in doctor(cluster)
        for one in asking:
            one.wait(60)
            one.stdout.close()
            one.stderr.close()


class Silent(UnixRelay):
    """Between client and server: node1 lets each question pass, which the server says at once and not after a minute."""

    asked = 0

    def move(self, source, target, passed):
        while head := source.recv(4, socket.MSG_WAITALL):
            frame = head + source.recv(struct.unpack(">I", head)[0], socket.MSG_WAITALL)
            msg = json.loads(frame[4:])
            if msg["type"] == "node_read" and msg["node"] == "node1":
                self.asked += 1
                body = json.dumps({"type": "node_data", "request_id": msg["request_id"], "bytes": "", "problem": "the node does not answer",
                                   "node_ms": "0", "server_ms": "0"}).encode()
                source.sendall(struct.pack(">I", len(body)) + body)
            else:
                target.sendall(frame)


def a_node_that_does_not_answer():
    """It is asked once, not once for each of four rounds of a minute; only "answer" fails, and nothing blames the network."""
    with Case() as case, Cluster(case, nodes=3) as cluster:
        with Silent(f"{case.dir}/between.sock", cluster.address.removeprefix("unix:")) as relay:
            cluster.address = relay.address
            found = doctor(cluster)
        equal(relay.asked, 1)
        equal(found[("answer", "node1")], [("fail", "the node does not answer")])
        equal([check for check, node in found if node == "node1"], ["node", "answer"])
        equal(len(found[("connect", "node0")]), 1)
        ok(found, "connect", "node0")
        ok(found, "connect", "node2")


if __name__ == "__main__":
    sys.exit(run_and_exit([two_nodes, without_a_server, of_a_job, a_python_that_fails, gpus_by_nvml, nobody_holds_up_launcherd,
                        one_user_takes_half_of_the_places, a_node_that_does_not_answer],
                       side_by_side=3))
