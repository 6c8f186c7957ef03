#!/usr/bin/env python3
"""--tune and the start of ddp-worker, over the stand-in for CUDA: what a person sees. usage: start_test.py BUILD"""
import os
import subprocess
import sys

BUILD = sys.argv[1]
STANDIN = os.path.join(BUILD, "tests", "standin", "cuda")


def worker(*words):
    env = {**os.environ, "DDP_CUDA_MODULE": os.path.join(STANDIN, "libstandin_ddp_cuda.so"), "LD_LIBRARY_PATH": STANDIN}
    done = subprocess.run([os.path.join(BUILD, "worker", "ddp-worker"), *words], env=env, text=True, capture_output=True, timeout=200)
    return done.returncode, done.stdout, done.stderr


def equal(a, b):
    assert a == b, f"{a!r} is not {b!r}"


def tune_makes_both_batches_and_ends():
    # 60,000 images of --dummy are 600 x 100: a last batch of 64 needs another size
    code, out, err = worker("--tune", "--device", "cuda", "--dummy", "-b", "64")
    equal((code, out), (0, ""))
    for words in ("batch 64: 12 plans, 0 from the cache, 12 built", "batch 32: 8 plans", "engines are chosen"):
        assert words in err, err


def tune_needs_a_gpu():
    code, _, err = worker("--tune", "--device", "cpu", "--dummy")
    equal(code, 1)
    assert "--tune times engines of a GPU, and this training is on the CPU" in err, err


def a_start_says_what_it_built():
    code, _, err = worker("--device", "cuda", "--dummy", "-b", "8", "--max-steps", "2")
    equal(code, 0)
    assert "batch 8: 12 plans, 0 from the cache, 8 built" in err, err
    assert "batch" not in err.split("8 built", 1)[1].replace("batch norms", ""), err


for test in (tune_makes_both_batches_and_ends, tune_needs_a_gpu, a_start_says_what_it_built):
    test()
    print("ok", test.__name__)
