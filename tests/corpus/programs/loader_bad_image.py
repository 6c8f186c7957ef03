import pathlib

import torch
from PIL import Image
from torchvision import datasets, transforms

for name in ("cat", "dog"):
    folder = pathlib.Path("/tmp/pets") / name
    folder.mkdir(parents=True)
    for i in range(6):
        Image.new("RGB", (40, 40)).save(folder / f"{i}.png")
pathlib.Path("/tmp/pets/dog/3.png").write_text("<html>429 Too Many Requests</html>")
pets = datasets.ImageFolder("/tmp/pets", transforms.Compose([transforms.RandomCrop(32), transforms.ToTensor()]))
for images, labels in torch.utils.data.DataLoader(pets, batch_size=4, num_workers=2):
    print(images.shape, labels.tolist())
