"""A Lightning module whose validation names a metric that is not there: lightning_fit.py monitor|step."""
import sys

import lightning
import torch


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def training_step(self, batch, number):
        if sys.argv[1] == "step" and number == 5:
            batch = batch[:, :7]
        return self.layer(batch).sum()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        if sys.argv[1] == "step":
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer), "monitor": "val_loss"}}


loader = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4)
lightning.Trainer(max_epochs=1, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False).fit(Net(), loader)
