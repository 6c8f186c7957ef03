"""A checkpoint that can not be read: py_checkpoint.py cut|html|unsafe|shape|keys|empty."""
import pathlib
import sys

import torch
from torch import nn

HOW, PATH = sys.argv[1], pathlib.Path("/tmp/last.ckpt")


def net(width):
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width)) for _ in range(20)])


class Config:
    lr = 0.1


state = net(8).state_dict()
if HOW == "unsafe":
    state["config"] = Config()
torch.save(state, PATH)
data = PATH.read_bytes()
if HOW == "cut":
    PATH.write_bytes(data[:len(data) // 2])
elif HOW == "html":
    PATH.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 135\n")
elif HOW == "empty":
    PATH.write_bytes(b"")
print(f"resuming from {PATH}", flush=True)
loaded = torch.load(PATH)
if HOW == "keys":
    loaded = {"module." + key: value for key, value in loaded.items()}
net(16 if HOW == "shape" else 8).load_state_dict(loaded)
