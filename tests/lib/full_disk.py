"""A small disk that fills up soon, and a runner for tests of which some need such a disk."""
import os
import subprocess
import tempfile


class FullDisk:
    """A tmpfs of `kib` KiB, mounted on a new folder in `folder`; None if mounting is not allowed."""

    def __init__(self, folder, kib):
        self.folder, self.kib = f"{folder}/disk", kib

    def __enter__(self):
        os.mkdir(self.folder)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.kib}k", "ddp-test", self.folder], capture_output=True,
                              text=True, check=False)
        self.is_mounted = done.returncode == 0
        return self.folder if self.is_mounted else None

    def __exit__(self, *_):
        if self.is_mounted:
            subprocess.run(["umount", self.folder], check=True)


def run_tests(names, prefix):
    """Runs each function test_*(folder) in a folder of its own. A test that returns "skip" needs a disk that cannot be mounted here."""
    for name, test in [(name, test) for name, test in names.items() if name.startswith("test_")]:
        with tempfile.TemporaryDirectory(prefix=prefix) as folder:
            word = "skip" if test(folder) == "skip" else "ok"
        print(f"{word} {name[5:]}" + (": mounting a tmpfs is not allowed here" if word == "skip" else ""), flush=True)
