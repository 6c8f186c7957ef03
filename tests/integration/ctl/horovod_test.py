#!/usr/bin/env python3
"""ddpctl run --env-style horovod: ranks of two nodes meet as Horovod's Gloo controller does (gloo_context.cc, http_store.cc of 0.28):
in the scopes global, local_HOST and cross_LOCALRANK each puts its address under its rank, reads those of the others until they are
there, and deletes its own; a second hvd.init() does the same again."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case
from processes.runner import equal, run_and_exit

RANK = r"""
import http.client, json, os, time
E = os.environ
rank, size = int(E["HOROVOD_RANK"]), int(E["HOROVOD_SIZE"])
local, local_size = int(E["HOROVOD_LOCAL_RANK"]), int(E["HOROVOD_LOCAL_SIZE"])
cross, cross_size = int(E["HOROVOD_CROSS_RANK"]), int(E["HOROVOD_CROSS_SIZE"])

def ask(method, path, body=b""):
    # a connection for each request, as Horovod's client
    connection = http.client.HTTPConnection(E["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(E["HOROVOD_GLOO_RENDEZVOUS_PORT"]), timeout=60)
    connection.request(method, path, body)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data

def meet(scope, rank, size, value):
    assert ask("PUT", f"/{scope}/{rank}", value) == (200, b"")
    found = []
    for other in range(size):
        while (answer := ask("GET", f"/{scope}/{other}"))[0] == 404:
            time.sleep(0.01)
        assert answer[0] == 200, answer
        found.append(answer[1].hex())
    return found

out = []
for turn in range(2):
    for scope, at, count in (("global", rank, size), ("local_" + E["HOROVOD_HOSTNAME"], local, local_size),
                             (f"cross_{local}", cross, cross_size)):
        found = meet(f"{scope}", at, count, b"%d \x00\xff of %d in turn %d" % (at, rank, turn))
        meet(f"all_have_read_{turn}_{scope}", at, count, b"")  # Gloo's full mesh of connections: nobody is missing
        assert ask("DELETE", f"/{scope}/{at}") == (200, b"")
        while ask("GET", f"/{scope}/{at}")[0] != 404:  # until all have deleted theirs
            time.sleep(0.01)
        out.append([bytes.fromhex(text).decode("latin-1") for text in found])
print(json.dumps({"rank": rank, "found": out, "controller": E["HOROVOD_CONTROLLER"], "cpu": E["HOROVOD_CPU_OPERATIONS"]}), flush=True)
"""


def ranks_meet_in_all_scopes_twice():
    with Case() as case:
        done = case.ctl("run", "--standalone", "--max-restarts", "0", "--nnodes", "2", "--nproc-per-node", "2", "--env-style",
                        "horovod", "--", "python3", "-c", RANK)
        equal(done.returncode, 0, done.stderr)
        ranks = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda one: one["rank"])
        for rank, one in enumerate(ranks):
            node, local = divmod(rank, 2)
            equal((one["rank"], one["controller"], one["cpu"]), (rank, "gloo", "gloo"))
            for turn in range(2):
                scopes = ([(i, i) for i in range(4)], [(i, 2 * node + i) for i in range(2)], [(i, 2 * i + local) for i in range(2)])
                equal(one["found"][3 * turn:3 * turn + 3],
                      [[f"{at} \0\xff of {owner} in turn {turn}" for at, owner in scope] for scope in scopes])


LAST_REQUEST = r"""
import os, socket, time
address = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
value = bytes(range(256)) * 16384

def last(request):
    with socket.create_connection(address, timeout=300) as peer:
        peer.sendall(request)
        time.sleep(0.5)  # more than a socket takes waits in the server
        answer = b""
        while part := peer.recv(1 << 20):
            answer += part
        return answer

assert last(b"PUT /s/k HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(value) + value).startswith(b"HTTP/1.1 200 OK\r\n")
for request in b"GET /s/k HTTP/1.0\r\n\r\n", b"GET /s/k HTTP/1.1\r\nConnection: close\r\n\r\n":
    head, end, found = last(request).partition(b"\r\n\r\n")
    assert found == value, (head, len(found))
print("whole")
"""


def a_connection_ends_after_its_last_answer():
    with Case() as case:
        done = case.ctl("run", "--standalone", "--max-restarts", "0", "--env-style", "horovod", "--", "python3", "-c", LAST_REQUEST)
        equal((done.returncode, done.stdout), (0, "whole\n"), done.stderr)
        assert "store client" not in done.stderr, done.stderr


def what_the_job_sets_itself_stands():
    with Case() as case:
        done = case.ctl("run", "--standalone", "--env-style", "horovod", "--env", "HOROVOD_CONTROLLER=mpi", "--", "sh", "-c",
                        'echo "$HOROVOD_CONTROLLER $HOROVOD_CPU_OPERATIONS"')
        equal((done.returncode, done.stdout), (0, "mpi gloo\n"), done.stderr)
        done = case.ctl("run", "--standalone", "--no-store", "--env-style", "horovod", "--", "sh", "-c",
                        'echo "${HOROVOD_GLOO_RENDEZVOUS_PORT-none} $HOROVOD_RANK"')
        equal((done.returncode, done.stdout), (0, "none 0\n"), done.stderr)


if __name__ == "__main__":
    run_and_exit([ranks_meet_in_all_scopes_twice, a_connection_ends_after_its_last_answer, what_the_job_sets_itself_stands])
