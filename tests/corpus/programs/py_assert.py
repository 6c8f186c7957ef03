import torch

hidden, heads = 770, 12
print("building the model")
assert hidden % heads == 0
print(torch.zeros(hidden // heads))
