#!/usr/bin/env python3
"""tests/gpu/pack: what it made runs where there is no build folder, with the libraries that it carries; its size is said, and it
refuses half a build. usage: pack_test.py BUILD"""
import glob
import os
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


def the_carried_programs_run(build, folder):
    packed, out = os.path.join(folder, "packed"), os.path.join(folder, "out")
    done = run([PACK, build, packed])
    assert done.returncode == 0 and "kB of 55000, commit " in done.stdout, done.stdout
    assert os.listdir(packed) == ["build.tar.gz"], os.listdir(packed)
    unpacked = os.path.join(folder, "unpacked")
    os.makedirs(unpacked)
    assert run(["tar", "-C", unpacked, "-xzf", os.path.join(packed, "build.tar.gz")]).returncode == 0
    worker, lib = os.path.join(unpacked, "worker", "ddp-worker"), os.path.join(unpacked, "lib")
    linked = run(["ldd", worker], env={**os.environ, "LD_LIBRARY_PATH": lib}).stdout
    assert f"libdnnl.so.2 => {lib}/" in linked and build not in linked, linked
    for program in glob.glob(os.path.join(unpacked, "*", "*")) + glob.glob(os.path.join(unpacked, "tests", "*", "*")):
        if os.access(program, os.X_OK) and os.path.isfile(program):
            linked = run(["ldd", program], env={**os.environ, "LD_LIBRARY_PATH": lib}).stdout
            assert "not found" not in linked and build not in linked, f"{program}: {linked}"
    # a phase, on the stand-in card, by the programs that were carried
    with standin.Nvml(folder):
        done = run([os.path.join(HERE, "run"), packed, "--out", out, "--only", "device,resume,ranks"],
                   env=standin.environ(build, folder))
    assert done.returncode == 0, done.stdout
    with open(glob.glob(os.path.join(out, "*-gpu.md"))[0], encoding="utf-8") as file:
        text = file.read()
    with open(os.path.join(unpacked, "commit"), encoding="ascii") as file:
        assert f"- commit: {file.read().strip()}\n" in text, text


def half_a_build_is_refused(_, folder):
    half = os.path.join(folder, "half")
    os.makedirs(half)
    done = run([PACK, half, os.path.join(folder, "to")])
    assert done.returncode == 1 and "rendezvous is not there" in done.stdout, done.stdout
    assert run([PACK]).returncode == 2


def too_much_is_refused(build, folder):
    """The module with 60 MB of noise behind it."""
    fat = os.path.join(folder, "fat")
    for path in ("rendezvous", "launcherd", "ddpctl", "worker", "tests/gpu", "tests/unit/worker/cuda", "tests/bench"):
        os.makedirs(os.path.join(fat, path))
        for file in glob.glob(os.path.join(build, path, "*")):
            if os.path.isfile(file) and os.access(file, os.X_OK):
                os.symlink(file, os.path.join(fat, path, os.path.basename(file)))
    os.makedirs(os.path.join(fat, "worker", "backend", "cuda"))
    with open(os.path.join(fat, "worker", "backend", "cuda", "ddp_cuda.so"), "wb") as file:
        file.write(os.urandom(60 * 1000 * 1000))
    done = run([PACK, fat, os.path.join(folder, "to")])
    assert done.returncode == 1 and "bytes are more than 55000000" in done.stdout, done.stdout
    assert not os.path.exists(os.path.join(folder, "to", "build.tar.gz"))


def main():
    build = os.path.abspath(sys.argv[1])
    if not os.path.exists(os.path.join(build, "worker", "backend", "cuda", "ddp_cuda.so")):
        print("skip: this build has no CUDA module")
        return 77
    failed = 0
    for test in (the_carried_programs_run, half_a_build_is_refused, too_much_is_refused):
        folder = tempfile.mkdtemp(prefix="ddp-pack-test-")
        try:
            test(build, folder)
            print(f"ok {test.__name__}", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"not ok {test.__name__}: {error}", flush=True)
        finally:
            shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
