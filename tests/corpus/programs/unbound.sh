#!/bin/bash
set -u
echo "data from $DATA_ROOT"
