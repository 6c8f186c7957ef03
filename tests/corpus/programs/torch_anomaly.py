"""Anomaly detection prints where the forward call was, as a warning with a traceback, before the error."""
import torch

torch.autograd.set_detect_anomaly(True)
weight = torch.zeros(3, requires_grad=True)


def norm(x):
    return (x * 0).sum().sqrt() * 0


print("step 0", flush=True)
norm(weight).backward()
