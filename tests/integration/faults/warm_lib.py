"""Processes that wait on spare nodes for ranks (launcherd/shim/warm_main.h)."""

import re


def warm_processes(cluster):
    """Workers that were started without a rank: {pid: name of the node}. Some may have got a rank since."""
    found = {}
    for pid, _ in cluster.processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read().split(b"\0")
        except OSError:
            continue
        if any(entry.startswith(b"DDP_WARM_FD=") for entry in environment):
            node = [entry for entry in environment if entry.startswith(b"DDP_NODE_NAME=")]
            found[pid] = node[0].split(b"=", 1)[1].decode()
    return found


def warm_parents(cluster):
    """The processes that start warm workers: `launcherd --warm`."""
    return [pid for pid, command in cluster.processes() if re.match(r"launcherd --warm ", command)]
