"""A GPU is asked for: py_cuda.py tensor|load."""
import sys

import torch

if sys.argv[1] == "tensor":
    print(torch.zeros(4).cuda())
elif sys.argv[1] == "load":
    torch.save(torch.zeros(3), "/tmp/a.pt")
    print(torch.load("/tmp/a.pt", map_location="cuda:0"))
