"""Which GPU, driver and libraries there are: lines "fact: NAME: VALUE" for the head of the results. usage: device.py BUILD"""
import ctypes
import os
import sys

import gpu
import common


def nccl_version(file=None):
    """(2, 30, 7) of that file or of the installed one; None: it cannot be opened, or is none."""
    number = ctypes.c_int()
    try:
        code = ctypes.CDLL(file or "libnccl.so.2").ncclGetVersion(ctypes.byref(number))
    except (OSError, AttributeError) as error:
        print(error)
        return None
    return (number.value // 10000, number.value // 100 % 100, number.value % 100) if code == 0 else None


def version_of(library, call, parts):
    """"9.19.0" of cuDNN's 91900; why there is none otherwise."""
    try:
        loaded = ctypes.CDLL(library)
    except OSError as error:
        return f"not there: {error}"
    function = getattr(loaded, call)
    function.restype = ctypes.c_size_t
    value = function()
    return ".".join(str(value // big % small) for big, small in parts)


def nccl_words(file=None):
    return ".".join(map(str, nccl_version(file) or ("not there",))) + (f" ({file})" if file else "")


def cublas_version():
    """That of the module's CUDA, 13 or 12."""
    words = [version_of(f"libcublasLt.so.{major}", "cublasLtGetVersion", ((10000, 100), (100, 100), (1, 100))) for major in (13, 12)]
    return next((word for word in words if not word.startswith("not there")), words[0])


def torch_facts():
    try:
        import torch
    except ImportError as error:
        return [("PyTorch", f"not there: {error}")]
    words = torch.__version__
    if torch.cuda.is_available():
        words += f", CUDA {torch.version.cuda}, its cuDNN {torch.backends.cudnn.version()}"
    else:
        words += ", finds no GPU"
    return [("PyTorch", words)]


def main():
    try:
        name, driver, memory, used = gpu.ask("name,driver_version,memory.total,memory.used")[0]
    except (OSError, IndexError, ValueError) as error:
        print(f"skip: no GPU: {error}")
        return 77
    facts = [("device", f"{name}, {memory} MiB of which {used} in use"), ("driver", driver),
             ("cuDNN", version_of("libcudnn.so.9", "cudnnGetVersion", ((10000, 100), (100, 100), (1, 100)))),
             ("cuBLAS", cublas_version()),
             ("NCCL", nccl_words()), *([("NCCL of --nccl", nccl_words(os.environ["DDP_NCCL"]))] if "DDP_NCCL" in os.environ else []),
             *torch_facts(), ("processors", str(os.cpu_count()))]
    for fact in facts:
        print(f"fact: {fact[0]}: {fact[1]}", flush=True)
    with common.folder() as where:
        data = common.write_data(os.path.join(where, "data"), 16, 8)
        code, said = common.run([common.WORKER, "--device", "cuda", "--opt-level", "O2", "-b", "8", "--max-steps", "1", "-p", "1",
                                 data])
    print(said)
    if code != 0 or "training on" not in said:
        print(f"ddp-worker --device cuda: exit code {code}")
        return 1
    common.figure(next(line for line in said.splitlines() if "training on" in line).partition("training on ")[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
