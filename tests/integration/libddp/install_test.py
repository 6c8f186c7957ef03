#!/usr/bin/env python3
"""The installed library: pkg-config, C99 and C++, shared and static, its exported symbols and dependencies, its manual page.
install_test.py BUILD"""
import os
import re
import subprocess
import sys
import tempfile

BUILD = sys.argv[1]
HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "..", "..", "..")
HELLO = os.path.join(SOURCE, "libddp", "examples", "hello.c")
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]


def output(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, check=False, **more)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def declared():
    with open(os.path.join(SOURCE, "libddp", "ddp.h"), encoding="utf-8") as file:
        return sorted(re.findall(r"^DDP_API [^(]*?(ddp_\w+)\(", file.read(), re.M))


def install(folder):
    """Installs the library's files with `meson install`; the build of this test suite has built all of them."""
    output("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", folder, "--quiet")
    found = [os.path.join(at, "libddp.pc") for at, _, files in os.walk(folder) if "libddp.pc" in files]
    assert len(found) == 1, found
    return found[0]


def flags(folder, pc, *more):
    """The environment of a machine whose root is `folder`."""
    environ = {**os.environ, "PKG_CONFIG_PATH": os.path.dirname(pc), "PKG_CONFIG_SYSROOT_DIR": folder}
    assert output("pkg-config", "--modversion", "libddp", env=environ).strip() == output(
        os.path.join(BUILD, "ddpctl", "ddpctl"), "version").split()[1]
    return output("pkg-config", "--cflags", "--libs", *more, "libddp", env=environ).split()


def check_programs(folder, pc):
    lib_dir = os.path.dirname(os.path.dirname(pc))
    program = os.path.join(folder, "hello")
    alone = "rank 0 of 1, generation 1\n"
    environ = {k: v for k, v in os.environ.items() if not k.startswith("DDP_")}

    for compiler in (["cc", "-std=c99"], ["c++", "-std=c++98", "-Wno-variadic-macros", "-x", "c++"]):
        output(*compiler, *STRICT, HELLO, "-o", program, "-x", "none", *flags(folder, pc))
        assert "libddp.so.0" in output("readelf", "-d", program)
        assert output(program, env={**environ, "LD_LIBRARY_PATH": lib_dir}) == alone
    output("cc", "-std=c99", *STRICT, "-D_Thread_local=", HELLO, "-o", program, "-I", os.path.join(folder, "usr/local/include"),
           *[flag for flag in flags(folder, pc) if flag.startswith("-I")], os.path.join(lib_dir, "libddp.a"), "-pthread")
    assert "libddp" not in output("readelf", "-d", program)
    assert output(program, env=environ) == alone
    print("ok C99 and C++, shared and static")


def check_symbols(pc):
    lib_dir = os.path.dirname(os.path.dirname(pc))
    shared, archive = (os.path.join(lib_dir, name) for name in ("libddp.so.0", "libddp.a"))
    exported = [line.split()[-1] for line in output("nm", "-D", "--defined-only", shared).splitlines()]
    assert sorted(exported) == sorted(["DDP_0", *(name + "@@DDP_0" for name in declared())]), exported
    assert "Library soname: [libddp.so.0]" in output("readelf", "-d", shared)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", shared))
    if not os.environ.get("DDP_TEST_SANITIZED"):
        assert set(needed) <= {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, needed
    names = [line.split()[-1] for line in output("nm", "-g", "--defined-only", archive).splitlines() if " T " in line or " D " in line
             or " B " in line or " R " in line]
    assert sorted(names) == declared(), names
    print(f"ok {len(declared())} functions, and nothing else")


def check_page(folder):
    pages = [os.path.join(at, "ddp.3") for at, _, files in os.walk(folder) if "ddp.3" in files]
    assert len(pages) == 1, pages
    with open(pages[0], encoding="utf-8") as file:
        text = file.read()
    for name in declared():
        assert re.search(rf"^\.B .*\b{name}\(", text, re.M), f"ddp(3) does not have {name}"
    print("ok ddp(3) has every function")


def main():
    with tempfile.TemporaryDirectory(prefix="ddp-libddp-") as folder:
        pc = install(folder)
        check_programs(folder, pc)
        check_symbols(pc)
        check_page(folder)


main()
