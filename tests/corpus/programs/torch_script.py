"""An error of the interpreter of TorchScript, which has a traceback of its own."""
import torch


@torch.jit.script
def attend(q, k):
    scores = torch.matmul(q, k)
    return torch.softmax(scores, dim=-1)


print(attend(torch.ones(2, 3), torch.ones(4, 5)))
