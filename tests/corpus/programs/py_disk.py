"""Files: py_disk.py full|half|readonly|denied|many|stale|quota."""
import errno
import os
import sys

HOW = sys.argv[1]
if HOW == "full":
    with open("/home/ada/train/out/metrics.log", "w") as file:
        for step in range(100000):
            file.write(f"step {step} loss {1 / (step + 1):.6f}\n")
elif HOW == "half":
    import torch
    state = {f"layer{i}.weight": torch.zeros(256, 256) for i in range(20)}
    torch.save(state, "/home/ada/train/out/model.pt")
elif HOW == "readonly":
    open("/home/ada/train/out/events.0", "w")
elif HOW == "denied":
    open("/etc/shadow").read()
elif HOW == "many":
    files = [open(f"/tmp/shard{i}", "w") for i in range(5000)]
elif HOW == "stale":
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), "/mnt/nfs/data/train-00017.parquet")
elif HOW == "quota":
    raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/home/ada/train/out/epoch3.pt")
