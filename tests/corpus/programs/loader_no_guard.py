import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.zeros(8, 3)), num_workers=1, multiprocessing_context="spawn")
for batch in loader:
    print(batch)
