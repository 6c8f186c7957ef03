#!/bin/bash
ulimit -c 0
exec python py_assert.py
