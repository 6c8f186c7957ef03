#!/bin/bash
python native_kill.py "$1"
exit $?
