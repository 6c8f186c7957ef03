"""What torch.compile can not compile: the part of the user's code comes after the error."""
import torch


@torch.compile(fullgraph=True, backend="eager")
def forward(x):
    torch._dynamo.graph_break()
    return x + 1


print(forward(torch.ones(3)))
