"""Where the programs of a build and their libraries lie: a build folder, or what tests/gpu/pack made of one."""
import ctypes
import os
import subprocess
import tarfile


def unpack(build, scratch):
    """The build folder; of what tests/gpu/pack made, in `scratch`."""
    packed = os.path.join(build, "build.tar.gz")
    if not os.path.isfile(packed):
        return build
    folder = os.path.join(scratch, "build")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return folder


def is_here(name):
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def starts(build, folders):
    environ = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(folders)}
    return subprocess.run([os.path.join(build, "worker", "ddp-worker"), "--version"], env=environ, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


def carried_libraries(build, scratch, known):
    """Of the libraries that pack carries those that this machine lacks: its own belong to its Python. All, where that is not
    enough, as where they are too old here."""
    carried = os.path.join(build, "lib")
    if not os.path.isdir(carried):
        return []
    lacking = os.path.join(scratch, "lib")
    os.makedirs(lacking)
    for name in os.listdir(carried):
        if not is_here(name):
            os.symlink(os.path.join(carried, name), os.path.join(lacking, name))
    return [lacking] if starts(build, [*known, lacking]) else [carried]


def library_folders(paths):
    """Python's packages may be the only ones that bring cuDNN, cuBLAS and NCCL; they lie in `paths`."""
    folders = [os.path.join(path, "nvidia", package, "lib") for path in paths
               for package in ("cudnn", "nccl", "cublas", "cu13", "cuda_runtime")]
    return [folder for folder in [*folders, "/usr/local/cuda/lib64"] if os.path.isdir(folder)]


def environ_of(build, scratch, python_paths):
    """For all programs of the build. What the caller's environment names stays."""
    known = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path]
    folders = [*known, *carried_libraries(build, scratch, known), *library_folders(python_paths)]
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1",
               "XDG_CACHE_HOME": os.path.join(scratch, "cache"), "LD_LIBRARY_PATH": os.pathsep.join(dict.fromkeys(folders)),
               "PATH": os.environ.get("PATH", "") + os.pathsep + "/usr/local/cuda/bin"}
    environ.setdefault("DDP_CUDA_MODULE", os.path.join(build, "worker", "backend", "cuda", "ddp_cuda.so"))
    return environ
