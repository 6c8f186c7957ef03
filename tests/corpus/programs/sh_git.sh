#!/bin/bash
set -e
version=$(git describe --tags)
echo "training version $version"
