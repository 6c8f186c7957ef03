"""The data set of a Trainer has labels that the model does not know."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        ids = torch.arange(16) + (60 if i == 13 else 0)
        return {"input_ids": ids, "labels": ids}


net = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_head=2, n_layer=1))
arguments = TrainingArguments("/tmp/out", per_device_train_batch_size=4, logging_steps=2, report_to=[], use_cpu=True, seed=3)
Trainer(net, arguments, train_dataset=Tokens()).train()
