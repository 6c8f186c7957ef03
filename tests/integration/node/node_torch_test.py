#!/usr/bin/env python3
"""An unmodified PyTorch script, started as by torchrun, finds its peers: node_torch_test.py LAUNCHERD

Skipped (77) without PyTorch.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.world import World

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "pytorch"))
import pytorch  # noqa: E402

# Exits by os._exit: PyTorch 2.15 sometimes aborts in its own clean-up at the interpreter's end, also under torchrun.
SCRIPT = """
import os
import torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(one)
assert one.tolist() == [3.0, 3.0, 3.0], one
assert dist.is_torchelastic_launched()
print("sum", one.tolist(), "of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
os._exit(0)
"""


def main():
    python = pytorch.python_or_skip()
    with World(os.path.abspath(sys.argv[1])) as world:
        node = world.node()
        env = {k: os.environ[k] for k in ("PATH", "HOME") if k in os.environ}
        report = world.server.run(1, [python, "-c", SCRIPT], nproc=2, env=env)
        print(world.server.log_bytes(1, 1, 0).decode())
        assert report["cause"] == "", report
        for rank in (0, 1):
            assert b"sum [3.0, 3.0, 3.0] of 2" in world.server.log_bytes(1, 1, rank)
        world.forget(node, 1, 1)
    print("ok torch")
    return 0


if __name__ == "__main__":
    sys.exit(main())
