import torch

print(torch.zeros(2, 3).matmul(torch.zeros(4, 5)))
