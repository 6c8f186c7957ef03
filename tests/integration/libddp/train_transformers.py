"""python3 train_transformers.py FOLDER STEPS: transformers' Trainer with libddp's callback, on the CPU."""
import sys

import torch
from transformers import Trainer, TrainingArguments

import libddp_callbacks


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return {"loss": self.layer(x).pow(2).mean()}


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 6400

    def __getitem__(self, index):
        return {"x": torch.full((4,), float(index % 7))}


folder, steps = sys.argv[1], int(sys.argv[2])
args = TrainingArguments(output_dir=folder, max_steps=steps, per_device_train_batch_size=4, use_cpu=True, report_to=[], save_strategy="no",
                         disable_tqdm=True, logging_steps=100)
trainer = Trainer(model=Module(), args=args, train_dataset=Data(), callbacks=[libddp_callbacks.for_trainer(folder, every=2)])
resumed = libddp_callbacks.newest_checkpoint(folder, libddp_callbacks.TRAINER)
print("resumes from", resumed, flush=True)
trainer.train(resume_from_checkpoint=resumed)
print("ends after step", trainer.state.global_step, flush=True)
