"""A GPU is asked for: py_cuda.py tensor|device|amp."""
import sys

import torch

if sys.argv[1] == "tensor":
    print(torch.zeros(4).cuda())
elif sys.argv[1] == "device":
    print(torch.cuda.get_device_properties(0))
elif sys.argv[1] == "load":
    torch.save(torch.zeros(3), "/tmp/a.pt")
    print(torch.load("/tmp/a.pt", map_location="cuda:0"))
