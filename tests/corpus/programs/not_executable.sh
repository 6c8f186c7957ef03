#!/bin/sh
echo training
