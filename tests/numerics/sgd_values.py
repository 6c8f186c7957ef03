"""Prints the values that tests/unit/worker/net/optim_test.c holds our SGD against: torch.optim.SGD on four elements.
usage: sgd_values.py (with a Python that has torch)"""
import torch

START = [1.0, -2.0, 0.5, 0.0]
GRADS = [[0.5, 0.25, -1.0, 0.0], [-0.125, 2.0, 0.75, 0.0], [3.0, -0.5, 0.0625, 0.0], [0.25, 0.25, -0.25, 0.0]]
CASES = [("plain", 0.1, 0.0, 0.0, 0.0, False), ("decay", 0.1, 0.0, 0.0, 0.01, False),
         ("momentum", 0.1, 0.9, 0.0, 0.0, False), ("dampening", 0.1, 0.9, 0.5, 0.01, False),
         ("nesterov", 0.1, 0.9, 0.0, 0.01, True)]
for name, lr, momentum, dampening, decay, nesterov in CASES:
    p = torch.nn.Parameter(torch.tensor(START))
    opt = torch.optim.SGD([p], lr, momentum=momentum, dampening=dampening, weight_decay=decay, nesterov=nesterov)
    for g in GRADS:
        p.grad = torch.tensor(g)
        opt.step()
    buf = opt.state[p].get("momentum_buffer") if momentum else None
    values = lambda t: ", ".join(f"{v.item():.9g}F" if "." in f"{v.item():.9g}" or "e" in f"{v.item():.9g}" else f"{v.item():.1f}F" for v in t)
    print(f'    {{"{name}", {{{lr}F, {momentum}F, {dampening}F, {decay}F, {str(nesterov).lower()}}},')
    print(f"     {{{values(p.data)}}},")
    print(f"     {{{values(buf) if buf is not None else '0.0F, 0.0F, 0.0F, 0.0F'}}}}},")
