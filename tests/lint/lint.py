#!/usr/bin/env python3
"""One check over the tree: lint.py CHECK. Exit 0 clean, 1 findings (one a line), 77 the tool is missing.

SOURCE_ROOT and BUILD_ROOT say where (this tree and its build/ if they do not). Every check looks at tracked files (all files where there is no
git), or at what was built.
"""
import concurrent.futures
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.environ.get("SOURCE_ROOT") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD_ROOT") or os.path.join(SOURCE, "build")
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
CORES = ["rendezvous_core", "launcherd_core", "shim_core"]

# What a core may call that it does not define: no clock, socket, file, heap, process or random source. <ctype.h> reads
# the locale, which no program here sets.
CORE_SYMBOLS = re.compile(
    r"^(mem(cpy|set|move|cmp|chr)|str(len|nlen|cmp|ncmp|chr|rchr|spn|cspn|str)|v?snprintf|"
    r"__(mem(cpy|set|move)|v?snprintf|str(cpy|cat|ncpy))_chk|__assert_fail|__stack_chk_fail|"
    r"__ctype_(b|tolower|toupper)_loc|qsort|bsearch|abs|labs|llabs|u?intdiv|l?l?div|"
    r"(exp|exp2|log|log2|pow|sqrt|floor|ceil|round|fmin|fmax|fabs|ldexp|frexp|isnan|isinf)f?|"
    r"__(popcount|clz|ctz|u?div|u?mod|u?mul|u?cmp)[sdt]i[234]|_GLOBAL_OFFSET_TABLE_|__(asan|ubsan|tsan|sanitizer)_\w+|__start_\w+|__stop_\w+)$"
)
CORE_WORDS = re.compile(r"\b(time|gettimeofday|clock_gettime|rand|random|getrandom|getenv|malloc|calloc|realloc|free|"
                        r"socket|open|fopen|printf|fork)\s*\(|\buv_")


def skip(reason):
    print(f"skip: {reason}")
    sys.exit(77)


def tool(*names):
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    skip(f"{names[0]} is not installed (./quickstart test installs it)")


def tracked():
    """Paths of the sources, relative to the root."""
    listed = subprocess.run(["git", "-C", SOURCE, "ls-files", "-co", "--exclude-standard"], capture_output=True,
                            text=True) if shutil.which("git") else None
    if listed is not None and listed.returncode == 0:
        return [p for p in listed.stdout.splitlines() if os.path.isfile(os.path.join(SOURCE, p))]
    found = []
    for folder, folders, files in os.walk(SOURCE):
        folders[:] = [f for f in folders if f != ".git" and not f.startswith("build")]
        found += [os.path.relpath(os.path.join(folder, f), SOURCE) for f in files]
    return found


def with_suffix(*suffixes):
    return sorted(p for p in tracked() if p.endswith(suffixes))


def text_of(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def report(findings, checked):
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings in {checked}")
    return 1 if findings else 0


def check_format():
    formatter = tool("clang-format-14", "clang-format")
    files = with_suffix(".c", ".h", ".cc", ".cpp", ".cu", ".cuh")
    run = subprocess.run([formatter, "--dry-run", "-Werror"] + files, cwd=SOURCE, capture_output=True, text=True)
    bad = sorted({line.split(":")[0] for line in run.stderr.splitlines() if "error:" in line})
    if run.returncode != 0 and not bad:
        print(run.stderr)
        return 1
    return report([f"{path}: not as clang-format makes it (clang-format -i {path})" for path in bad],
                  f"{len(files)} files")


def package_flags():
    flags = []
    for package in ["libuv", "libcjson", "sqlite3", "libcrypto"]:
        run = subprocess.run(["pkg-config", "--cflags", package], capture_output=True, text=True)
        flags += run.stdout.split() if run.returncode == 0 else []
    return flags


def check_headers():
    compiler = os.environ.get("CC", "cc").split()
    flags = ["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", SOURCE]
    headers = with_suffix(".h")
    findings = []
    for header in headers:
        text = f'#include "{header}"\n#include "{header}"\n'  # twice: the guard
        is_cpp = re.search(r"^#include <[a-z_]+>$", text_of(header), re.M)  # <chrono>: the Gloo shim's own
        language = ["-x", "c++", "-std=c++17"] if is_cpp else ["-x", "c", "-std=c17"]
        run = subprocess.run(compiler + flags + language + package_flags() + ["-"], input=text, capture_output=True, text=True)
        if run.returncode != 0:
            findings.append(f"{header} does not compile alone:\n{run.stderr}")
        guard = re.sub(r"[^A-Z0-9]", "_", header.upper())
        if f"#ifndef {guard}\n#define {guard}\n" not in text_of(header):
            findings.append(f"{header}: the guard is not {guard}")
    return report(findings, f"{len(headers)} headers")


def long_functions(path):
    """Functions by layout: clang-format puts their braces into column 0."""
    begin = None
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if line == "{":
            begin = number
        elif line == "}" and begin is not None:
            if number - begin - 1 > FUNCTION_LINES_MAX:
                yield f"{path}:{begin}: a function of {number - begin - 1} lines, over {FUNCTION_LINES_MAX}"
            begin = None


def check_sizes():
    files = with_suffix(".c", ".h", ".cc", ".cpp", ".cu", ".cuh")
    findings = []
    for path in files:
        findings += long_functions(path)
        lines = text_of(path).count("\n")
        if lines > FILE_LINES_MAX:
            findings.append(f"{path}: {lines} lines, over {FILE_LINES_MAX}")
    return report(findings, f"{len(files)} files")


def check_paths():
    """No path and no mirror of the machine that somebody worked on."""
    roots = "|".join(["/" + "work/", "/" + "root/", re.escape(SOURCE) + "/"])
    pattern = re.compile(r"(?<![\w$}./])(" + roots + ")")
    files = tracked()
    findings = []
    for path in files:
        for number, line in enumerate(text_of(path).splitlines(), 1):
            if pattern.search(line):
                findings.append(f"{path}:{number}: a path of one machine: {line.strip()[:100]}")
    return report(findings, f"{len(files)} files")


def commands():
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        return json.load(file)


def built_cores():
    found = {}
    for core in CORES:
        archives = glob.glob(os.path.join(BUILD, "**", f"lib{core}.a"), recursive=True)
        if archives:
            found[core] = archives[0]
    if not found:
        skip("no core library was built: " + ", ".join(CORES))
    return found


def closure_symbols(archive):
    """What is still undefined after the core and all that it draws from our other libraries is put together."""
    others = [a for a in glob.glob(os.path.join(BUILD, "**", "lib*.a"), recursive=True)
              if a != archive and "/tests/" not in a]
    with tempfile.TemporaryDirectory() as folder:
        joined = os.path.join(folder, "core.o")
        subprocess.run(["ld", "-r", "-o", joined, "--whole-archive", archive, "--no-whole-archive", "--start-group"]
                       + others + ["--end-group"], check=True)
        run = subprocess.run(["nm", "-u", joined], capture_output=True, text=True, check=True)
    return [line.split()[-1].split("@")[0] for line in run.stdout.splitlines() if line.split()]


def check_cores():
    cores = built_cores()
    findings = [f"{core} calls {symbol}, which no core may" for core, archive in cores.items()
                for symbol in closure_symbols(archive) if not CORE_SYMBOLS.match(symbol)]
    for core in CORES:
        if core not in cores:
            print(f"note: {core} was not built")
    return report(findings, f"{len(cores)} cores")


def without_comments(text):
    blank = lambda match: re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def check_core_words():
    cores = built_cores()
    sources = set()
    for command in commands():
        if any(f"lib{core}.a.p/" in command.get("output", "") for core in cores):
            path = os.path.relpath(os.path.join(command["directory"], command["file"]), SOURCE)
            sources.add(path)
            header = os.path.splitext(path)[0] + ".h"
            if os.path.exists(os.path.join(SOURCE, header)):
                sources.add(header)
    findings = []
    for path in sorted(sources):
        for number, line in enumerate(without_comments(text_of(path)).splitlines(), 1):
            match = CORE_WORDS.search(line)
            if match:
                findings.append(f"{path}:{number}: a core with {match.group(0)}")
    return report(findings, f"{len(sources)} files of cores")


def is_shell(path):
    return re.match(r"#!/bin/sh|#!/bin/dash|#!/usr/bin/env sh", text_of(path)) is not None


def check_shell():
    scripts = [p for p in tracked() if os.access(os.path.join(SOURCE, p), os.X_OK) and is_shell(p)]
    findings = []
    checker = shutil.which("shellcheck")
    for path in scripts:
        run = subprocess.run(["dash", "-n", os.path.join(SOURCE, path)], capture_output=True, text=True)
        if run.returncode != 0:
            findings.append(run.stderr.strip())
    if checker:
        run = subprocess.run([checker, "-s", "sh", "-f", "gcc"] + scripts, cwd=SOURCE, capture_output=True, text=True)
        findings += run.stdout.splitlines()
    else:
        print("note: shellcheck is not installed; syntax alone was checked")
    return report(findings, f"{len(scripts)} scripts")


def tidy_key(command, version):
    """A hash of all that clang-tidy's answer for one file depends on; None where the file cannot be preprocessed."""
    words = [w for w in command["command"].split() if w not in ("-c", "-MD")]
    for option in ("-o", "-MQ", "-MF"):
        if option in words:
            del words[words.index(option):words.index(option) + 2]
    run = subprocess.run(" ".join(words + ["-E", "-CC"]), shell=True, cwd=command["directory"], capture_output=True)
    if run.returncode != 0:
        return None
    return hashlib.sha256(version + text_of(".clang-tidy").encode() + run.stdout).hexdigest()


def tidy_one(tidy, command, version):
    """Findings in one file. What was clean once, with the same text and settings, is not looked at again."""
    key = tidy_key(command, version)
    stamp = os.path.join(BUILD, "lint-clean", key) if key else None
    if stamp and os.path.exists(stamp):
        return []
    run = subprocess.run([tidy, "-quiet", "-p", BUILD, os.path.join(command["directory"], command["file"])],
                         capture_output=True, text=True)
    prefix = os.path.abspath(SOURCE) + "/"
    lines = [re.sub(r"^(build[^/]*/)?(\.\./)+", "", line.replace(prefix, "")) for line in run.stdout.splitlines()]
    findings = [line for line in lines if re.search(r": (warning|error): ", line)]
    if run.returncode != 0 and not findings:
        findings = [f"{command['file']}: clang-tidy failed: {run.stdout[-1000:]} {run.stderr[-1000:]}"]
    if stamp and not findings:
        with open(stamp, "w", encoding="utf-8"):
            pass
    return findings


def check_tidy():
    tidy = tool("clang-tidy-14", "clang-tidy")
    version = subprocess.run([tidy, "--version"], capture_output=True, check=True).stdout
    root = os.path.abspath(SOURCE) + "/"
    ours = {}
    for command in commands():
        path = os.path.abspath(os.path.join(command["directory"], command["file"]))
        if path.startswith(root) and path.endswith((".c", ".cc", ".cpp")):
            ours.setdefault(path, command)
    os.makedirs(os.path.join(BUILD, "lint-clean"), exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = list(pool.map(lambda command: tidy_one(tidy, command, version), ours.values()))
    return report(list(dict.fromkeys(finding for one in found for finding in one)), f"{len(ours)} files")


def main():
    checks = {"format": check_format, "headers": check_headers, "sizes": check_sizes, "paths": check_paths,
              "cores": check_cores, "core-words": check_core_words, "shell": check_shell, "tidy": check_tidy}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        sys.exit(f"use: lint.py {'|'.join(checks)}")
    sys.exit(checks[sys.argv[1]]())


if __name__ == "__main__":
    main()
