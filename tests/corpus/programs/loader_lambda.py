import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    loader = DataLoader(TensorDataset(torch.zeros(8, 3)), num_workers=1, multiprocessing_context="spawn", collate_fn=lambda items: items)
    print(next(iter(loader)))
