#!/usr/bin/env python3
"""Smoke test of tests/gpu/pack: the archive runs without the build folder, with the libraries in it, and the
benchmark by itself too; half a build is refused.
usage: pack_test.py BUILD"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "standin"))
import standin  # noqa: E402

PACK = os.path.join(HERE, "pack")


def run(argv, **more):
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400, check=False, **more)


def unpack(packed, folder):
    unpacked = os.path.join(folder, "unpacked")
    os.makedirs(unpacked)
    assert run(["tar", "-C", unpacked, "-xzf", os.path.join(packed, "build.tar.gz")]).returncode == 0
    return unpacked


def the_carried_programs_run(build, packed, folder):
    out = os.path.join(folder, "out")
    done = run([PACK, build, packed])
    assert done.returncode == 0 and "kB of 55000, commit " in done.stdout, done.stdout
    assert os.listdir(packed) == ["build.tar.gz"], os.listdir(packed)
    unpacked = unpack(packed, folder)
    worker, lib = os.path.join(unpacked, "worker", "ddp-worker"), os.path.join(unpacked, "lib")
    linked = run(["ldd", worker], env={**os.environ, "LD_LIBRARY_PATH": lib}).stdout
    assert re.search(rf"libdnnl\.so\.\d+ => {re.escape(lib)}/", linked) and build not in linked, linked
    for program in glob.glob(os.path.join(unpacked, "*", "*")) + glob.glob(os.path.join(unpacked, "tests", "*", "*")):
        if os.access(program, os.X_OK) and os.path.isfile(program):
            linked = run(["ldd", program], env={**os.environ, "LD_LIBRARY_PATH": lib}).stdout
            assert "not found" not in linked and build not in linked, f"{program}: {linked}"
    # A phase on the stand-in GPU, with the programs of the archive.
    with standin.Nvml(folder):
        done = run([os.path.join(HERE, "run"), packed, "--out", out, "--only", "device"],
                   env=standin.environ(build, folder))
    assert done.returncode == 0, done.stdout
    with open(glob.glob(os.path.join(out, "*-gpu.md"))[0], encoding="utf-8") as file:
        text = file.read()
    with open(os.path.join(unpacked, "commit"), encoding="ascii") as file:
        assert f"- commit: {file.read().strip()}\n" in text, text


def the_benchmark_runs_from_the_archive(build, packed, folder):
    """By itself, and from the folder as from the archive: nothing names the CUDA module, which here is the stand-in's."""
    unpacked = unpack(packed, folder)
    environ = standin.environ(build, folder, OMP_NUM_THREADS="1", STANDIN_BUILD_MS="0")
    shutil.copyfile(environ.pop("DDP_CUDA_MODULE"), os.path.join(unpacked, "worker", "backend", "cuda", "ddp_cuda.so"))
    assert run(["tar", "-C", unpacked, "-czf", os.path.join(packed, "build.tar.gz"), "."]).returncode == 0
    for place in (unpacked, packed):
        done = run([sys.executable, os.path.join(HERE, "bench.py"), place, "--only", "norms", "--net", "convnet", "2"], env=environ)
        assert done.returncode == 0 and "norms: measured" in done.stdout, done.stdout


def half_a_build_is_refused(_, _packed, folder):
    half = os.path.join(folder, "half")
    os.makedirs(half)
    done = run([PACK, half, os.path.join(folder, "to")])
    assert done.returncode == 1 and "rendezvous is not there" in done.stdout, done.stdout
    assert run([PACK]).returncode == 2


def main():
    build = os.path.abspath(sys.argv[1])
    if not os.path.exists(os.path.join(build, "worker", "backend", "cuda", "ddp_cuda.so")):
        print("skip: this build has no CUDA module")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ddp-pack-test-") as packed:  # the first test fills it
        for test in (the_carried_programs_run, the_benchmark_runs_from_the_archive, half_a_build_is_refused):
            with tempfile.TemporaryDirectory(prefix="ddp-pack-test-") as folder:
                try:
                    test(build, packed, folder)
                    print(f"ok {test.__name__}", flush=True)
                except AssertionError as error:
                    failed += 1
                    print(f"not ok {test.__name__}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
