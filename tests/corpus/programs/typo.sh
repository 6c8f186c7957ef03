#!/bin/bash
set -e
echo "activating"
conda activate train
pyhton train_part.py
