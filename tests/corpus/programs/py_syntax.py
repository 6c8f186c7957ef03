import torch

def train(epochs)
    for epoch in range(epochs):
        print(epoch)
