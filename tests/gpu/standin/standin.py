"""The stand-in GPU for tests: its module, driver, nvidia-smi and NVML, all of which agree on who is on it."""
import os
import runpy
import threading

HERE = os.path.dirname(os.path.abspath(__file__))


def environ(build, folder, **more):
    """What programs need to find the stand-in; `folder` is the GPU's own."""
    return {**os.environ, "DDP_GPU_STANDIN": "1", "STANDIN_CARD": folder, "STANDIN_BUILD_MS": "300", "STANDIN_RESET_MS": "300",
            "DDP_CUDA_MODULE": os.path.join(build, "tests", "standin", "cuda", "libstandin_ddp_cuda.so"),
            "LD_LIBRARY_PATH": os.pathsep.join(os.path.join(build, *path) for path in (("tests", "standin", "cuda"),
                                                                                      ("tests", "standin", "nvml"))),
            "STAND_IN_NVML": os.path.join(folder, "nvml"), "PATH": HERE + os.pathsep + os.environ["PATH"],
            "PYTHONDONTWRITEBYTECODE": "1", **more}


class Nvml(threading.Thread):
    """Keeps the script of the stand-in libnvidia-ml.so.1 (tests/standin/nvml/nvml.c) true."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.path = os.path.join(folder, "nvml")
        self.smi = runpy.run_path(os.path.join(HERE, "nvidia-smi"))
        self.token = folder
        self.done = threading.Event()
        self.write()

    def write(self):
        on_card = list(self.smi["processes"](self.token))
        used = self.smi["IDLE_MIB"] + self.smi["EACH_MIB"] * len(on_card)
        lines = ["gpus 1", f"memory 0 {used}", *[f"process 0 {pid} {self.smi['EACH_MIB']}" for pid in on_card]]
        with open(self.path + ".new", "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")
        os.rename(self.path + ".new", self.path)

    def run(self):
        while not self.done.wait(0.05):
            self.write()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *rest):
        self.done.set()
        self.join()
