"""python3 train_lightning.py FOLDER STEPS: Lightning with libddp's callback, on the CPU, as many ranks as the launcher starts."""
import sys

import torch
from lightning.pytorch import LightningModule, Trainer

import libddp
import libddp_callbacks


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)


folder, steps = sys.argv[1], int(sys.argv[2])
world = libddp.place().world
trainer = Trainer(accelerator="cpu", devices=libddp.place().local_world, num_nodes=libddp.place().node_count,
                  strategy="ddp" if world > 1 else "auto", max_steps=steps, max_epochs=-1, logger=False, enable_checkpointing=False,
                  enable_progress_bar=False, enable_model_summary=False, callbacks=[libddp_callbacks.for_lightning(folder, every=2)])
resumed = libddp_callbacks.newest_checkpoint(folder, libddp_callbacks.LIGHTNING)
print("resumes from", resumed, flush=True)
trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(6400, 4), batch_size=4), ckpt_path=resumed)
print("ends after step", trainer.global_step, flush=True)
