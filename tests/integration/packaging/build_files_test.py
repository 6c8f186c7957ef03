#!/usr/bin/env python3
"""What meson prints if a tool or library cannot be used: an nvcc that refuses this machine's compiler. A real `meson setup` of the sources."""
import os
import subprocess
import sys
import tempfile

SOURCE = os.environ["SOURCE_ROOT"]
REFUSAL = "#error -- unsupported GNU version! gcc versions later than 14 are not supported!"
NVCC = f"""#!/bin/sh
case $* in
--version) echo "Cuda compilation tools, release 12.8, V12.8.61" ;;
*) echo "In file included from cuda_runtime.h:83:" >&2
   echo 'host_config.h:132:2: error: {REFUSAL}' >&2
   exit 1 ;;
esac
"""


def set_up(folder, cuda):
    """`meson setup` with that nvcc first in PATH."""
    bin_folder = os.path.join(folder, "bin")
    os.makedirs(bin_folder, exist_ok=True)
    nvcc = os.path.join(bin_folder, "nvcc")
    with open(nvcc, "w", encoding="ascii") as file:
        file.write(NVCC)
    os.chmod(nvcc, 0o755)
    environ = {**os.environ, "PATH": bin_folder + ":" + os.environ["PATH"]}
    done = subprocess.run(["meson", "setup", os.path.join(folder, "build-" + cuda), SOURCE, "-Dcuda=" + cuda, "-Dtests=false"],
                          env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def main():
    with tempfile.TemporaryDirectory(prefix="ddp-build-files-") as folder:
        code, said = set_up(folder, "enabled")
        assert code != 0, said
        for words in ("ERROR: Problem encountered: nvcc 12.8.61 does not work with this machine's C++ compiler or C library", "NVCC_CCBIN=g++-13",
                      "-Dcuda=disabled", "nvcc says: host_config.h:132:2: error: " + REFUSAL):
            assert words in said, f"{words}\nis not in\n{said}"
        code, said = set_up(folder, "auto")
        assert code == 0, said
        assert "WARNING: nvcc 12.8.61 does not work with" in said, said
        assert "CUDA module: not built: nvcc 12.8.61 does not work with this machine's C++ compiler or C library" in said, said
        assert "oneDNN " in said, said
    print("ok build files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
