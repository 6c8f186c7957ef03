#!/usr/bin/env python3
"""One check over the tree: lint.py CHECK. Exit 0 clean, 1 findings (one a line), 77 the tool is missing.

The environment's SOURCE_ROOT and BUILD_ROOT name the folders; without them it checks this tree and its build/. A check reads the
tracked files (all files without git), or what was built.
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

sys.dont_write_bytecode = True
import layers  # noqa: E402
import waits  # noqa: E402

SOURCE = os.environ.get("SOURCE_ROOT") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD_ROOT") or os.path.join(SOURCE, "build")
# The static analyzer takes nearly all of clang-tidy's time. It gives up on a function after this many states (its default is
# 225000): only long numeric loops reach the limit, and there it costs half of the time and has found nothing.
ANALYZER_ARGS = ["--extra-arg=-Xclang", "--extra-arg=-analyzer-config", "--extra-arg=-Xclang", "--extra-arg=max-nodes=75000"]
TIDY_COMMITS = 10
TIDY_FILES_MAX = 16
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
CORES = ["rendezvous_core", "launcherd_core", "shim_core", "c10d_core", "cause"]  # libraries
CORE_FILES = ["worker/comm/live.c", "worker/backend/cuda/nccl/watch.c", "worker/net/schedule.c"]  # pure, beside others

# What a core may call that it does not define: no clock, socket, file, heap, process or random source. <ctype.h> reads
# the locale, which no program here sets.
CORE_SYMBOLS = re.compile(
    r"^(inet_pton|mem(cpy|set|move|cmp|chr|mem)|str(len|nlen|cmp|ncmp|chr|rchr|spn|cspn|str)|v?snprintf|"
    r"__(mem(cpy|set|move)|v?snprintf|str(cpy|cat|ncpy))_chk|__assert_fail|__stack_chk_fail|"
    r"__ctype_(b|tolower|toupper)_loc|qsort|bsearch|abs|labs|llabs|u?intdiv|l?l?div|"
    r"(exp|exp2|log|log2|pow|sqrt|sin|cos|floor|ceil|round|fmin|fmax|fabs|ldexp|frexp|isnan|isinf)f?|"
    r"__(popcount|clz|ctz|u?div|u?mod|u?mul|u?cmp)[sdt]i[234]|_GLOBAL_OFFSET_TABLE_|__(asan|ubsan|tsan|sanitizer)_\w+|__start_\w+|__stop_\w+)$"
)
# The loops of launcherd, of its shims and of rendezvous make no call to the file system, since a disk may never answer (common/io/file_work.h). Checked are calls
# that name a path, change a file, ask the user database, start a process or wait for one. Reading and writing descriptors is not: the loop's are sockets, pipes
# and memory. LOOP_THREADS: what runs on threads; the loop may take the address of its functions, and call only LOOP_MAY_CALL.
LOOP_FOLDERS = {"launcherd/node": "launcherd", "launcherd/shim": "a shim", "rendezvous/server": "rendezvous"}
LOOP_THREADS = re.compile(r"^(launcherd/(node|shim)|rendezvous/server)/(\w+_files|slots_file|state_id|key_mark)\.c$")
LOOP_MAY_CALL = re.compile(r"_(new|new_unwatch|free|drop|fd)$")
LOOP_FILE_CALLS = re.compile(
    r"^(open|openat|creat|fopen|freopen|mkdir|mkdirat|rmdir|unlink|unlinkat|remove|rename|renameat2?|link|linkat|symlink|symlinkat|"
    r"readlink|readlinkat|realpath|canonicalize_file_name|[lf]?stat|fstatat|statx|f?statvfs|f?statfs|e?uidaccess|access|faccessat|"
    r"opendir|fdopendir|readdir|scandir|glob|nftw|ftw|fts_open|f?truncate|fallocate|posix_fallocate|f?chmod|fchmodat|[lf]?chown|fchownat|"
    r"utimes?|utimensat|futimens|f?sync|fdatasync|syncfs|flock|lockf|mkstemp|mkdtemp|chdir|fchdir|mknod|mkfifo|"
    r"(get|set|end)(pw|gr)\w*|getgrouplist|initgroups|dlopen|inotify_add_watch|inotify_rm_watch|exec[vl]\w*|sendfile|uv_fs_\w+|"
    r"_?v?fork|forkpty|clone[23]?|posix_spawnp?|uv_spawn|system|popen|pclose|daemon|wait|waitpid|wait[34]|waitid|"
    r"pthread_(timed|clock)?join(_np)?|uv_thread_join|sigwait(info)?|sigtimedwait)(64)?$")
# What the loop may call although its object makes such calls, and why it does not hang on a disk.
LOOP_ALLOWED = {
    # /proc and /sys are the kernel's memory; of a process only /proc/PID/stat, status and the links exe and fd/N are read here, which wait for no lock of it
    "launcherd/process/proc.c": r"proc_(boot_id|pid_ns|is_stopped|pidfd|reap|start_ticks|stat_of|find_descendants|kill_descendants|signal_exactly|answers|ignores|pipe|program|program_id)$",
    "launcherd/process/cgroup.c": r"cgroup_(find_base|has)$",
    # memory
    "launcherd/process/lease_page.c": r"lease_page_(until_us|extend|unmap|is_guarded)$",
    # names only
    "launcherd/process/rundir.c": r"rundir_(join|path|warm_path|log_dir|rank_dir|rank_log|rank_error|rank_metrics)$",
    # /dev/null and memory. Not spawn_process: the child may be stopped before it runs its program
    "launcherd/process/spawn.c": r"spawn_(open_null|open_output|refuse|watch_pid)$",
    # its driver is asked by threads of its own, or in another process
    "launcherd/gpu/gpu_watch.c": r"gpu_watch_\w+$", "launcherd/gpu/nvml.c": r"nvml_\w+$", "launcherd/gpu/gpu_holders.c": r"gpu_holders_\w+$",
    # before the loop runs: the reserve opens "/", TLS loads its library, threads are tried; after it, the lock of the state directory is closed
    "common/io/own_path.c": r"own_reserve$", "common/io/spare_threads.c": r"spare_threads_check$", "common/io/folder_lock.c": r"folder_lock_(release|is_ours)$",
    "common/io/standard_missing.c": r"standard_missing$",
    "common/io/tls.c": r"tls_\w+$", "common/openssl_library.c": r"openssl_\w+$", "common/dl_library.c": r"dl_\w+$",
    # sockets; of a server on this machine by its path
    "common/io/address.c": r"address_\w+$",
}
# The same for a shim. SHIM_OTHERS: code of a child with a limit, of the thread of the logs (log_writer.h), of the guard, which is another process,
# and of one without a job: whoever waits for warm processes that do not come starts others. What it calls is not looked at.
SHIM_OTHERS = {"launcherd/shim/preflight.c", "launcherd/shim/stage_unpack.c", "launcherd/shim/log_file.c", "launcherd/shim/warm_main.c", "launcherd/shim/guard.c"}
SHIM_ALLOWED = {
    # the same
    "launcherd/process/proc.c": LOOP_ALLOWED["launcherd/process/proc.c"][:-2] + r"|token_make|dumps_core)$",
    "launcherd/process/cgroup.c": r"cgroup_\w+$", "launcherd/shim/core_file.c": r"core_file_\w+$", "launcherd/shim/terminal.c": r"terminal_\w+$",
    # memory, which is made before the loop runs
    "launcherd/process/lease_page.c": r"lease_page_(make|until_us|extend)$",
    # names only; and before the loop runs start.msg and shim.json with its record, whose disk only launcherd can name
    "launcherd/process/rundir.c": LOOP_ALLOWED["launcherd/process/rundir.c"][:-2] + r"|read_msg|read_shim|write_shim)$",
    "launcherd/process/part_record.c": r"part_record_keep$",
    # before the loop runs: the kernel's memory, and /etc/machine-id, on the disk of our own program's libraries
    "launcherd/process/machine_id.c": r"machine_id$",
    # the main thread waits until a rank runs its program, whose disk only launcherd's limit ends
    "launcherd/process/spawn.c": r"spawn_\w+$",
    # beside that: a thread that was told to end, and a child that has told why it cannot run its program
    "launcherd/process/spawn_guard.c": r"spawn_guard_\w+$",
    "launcherd/shim/preflight.c": r"preflight_(begin|close)$",
    # by the thread of the logs, which is joined when it has ended
    "launcherd/shim/log_file.c": r"log_file_(write|close)$", "launcherd/shim/log_writer.c": r"log_writer_\w+$",
    "launcherd/shim/failures.c": r"failures_\w+$", "launcherd/process/foreign_file.c": r"foreign_file_open$",
    "launcherd/shim/shm_watch.c": r"shm_watch_\w+$", "launcherd/process/shm_folder.c": r"shm_\w+$",
    # /dev/null; children that are reaped without waiting
    "launcherd/shim/shim_workers.c": r"shim_workers_\w+$", "launcherd/shim/warm_workers.c": r"warm_workers_\w+$",
    # a thread that was told to end
    "launcherd/shim/store_child.c": r"store_child_\w+$",
    # not by a shim: by the daemons, before their loops run; threads that end at once
    "common/io/spare_threads.c": r"spare_threads_check$", "common/io/standard_missing.c": r"standard_missing$",
    # before the loop runs: the folders of launcherd's program, and stage.tar
    "launcherd/shim/tools_dir.c": r"tools_\w+$", "common/io/own_path.c": r"own_(reserve|file_open)$",
    "launcherd/process/account.c": r"account_free$",
    "common/io/tls.c": r"tls_\w+$", "common/openssl_library.c": r"openssl_\w+$", "common/dl_library.c": r"dl_\w+$",
    "common/io/address.c": r"address_\w+$",
}
# The same for rendezvous. Not found here, since it is SQLite's: reads and commits of state.db, of a server without etcd (docs/architecture.md).
# RENDEZVOUS_OTHERS: not a server's loop; and what begins the process anew.
RENDEZVOUS_OTHERS = {"rendezvous/server/transfer.c", "rendezvous/server/again.c"}
RENDEZVOUS_ALLOWED = {
    # a thread looks names up; when the server opens, its own and root's, without which it serves nobody
    "rendezvous/server/names.c": r"names_\w+$",
    # the lock, before the loop runs; the rest by way of struct store_disk: beside SQLite, on its disk
    "rendezvous/store/disk.c": r"store_hold$",
    # on a thread of its own
    "rendezvous/store/seen_keeper.c": r"seen_keeper_\w+$", "rendezvous/store/seen.c": r"seen_text$",
    # threads that are joined: requests of theirs to etcd have time limits. A server that is stuck there gives the lead up
    "rendezvous/server/election.c": r"election_\w+$", "rendezvous/server/loop_watch.c": r"loop_watch_\w+$", "rendezvous/store/store_copy.c": r"store_copy_\w+$",
    # the files of --store-cert and others: before the loop runs, and once a day while the server stands by. libcurl reads them, too,
    # for each new connection; a server whose loop hangs there gives the lead up (core/leader.h)
    "rendezvous/store/etcd_files.c": r"etcd_files_\w+$", "rendezvous/store/etcd_place.c": r"etcd_place_make$",
    # /proc is the kernel's memory
    "common/io/boot_id.c": r"boot_id_read$",
    # before the loop runs
    "rendezvous/store/witness_files.c": r"witness_(open|close)$",
    "rendezvous/store/backup.c": r"backup_jobs_left$", "rendezvous/server/again.c": r"again_(start|bound|is_set)$",
    "common/io/own_path.c": r"own_reserve$", "common/io/folder_lock.c": r"folder_lock_(release|is_ours)$", "common/io/tls.c": r"tls_\w+$", "common/openssl_library.c": r"openssl_\w+$",
    "common/io/spare_threads.c": r"spare_threads_check$", "common/io/standard_missing.c": r"standard_missing$",
    "common/curl_library.c": r"curl_\w+$", "common/dl_library.c": r"dl_\w+$",
    # sockets; a server's own by its path, when it opens and closes
    "common/io/address.c": r"address_\w+$",
}
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
    flags = ["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", SOURCE, "-I", os.path.join(SOURCE, "libddp")]
    headers = with_suffix(".h")
    findings = []
    no_cuda = 0
    for header in headers:
        text = f'#include "{header}"\n#include "{header}"\n'  # twice: the guard
        is_cpp = re.search(r"^#include <[a-z_]+>$", text_of(header), re.M)  # <chrono>: the Gloo shim's own
        language = ["-x", "c++", "-std=c++17"] if is_cpp else ["-x", "c", "-std=c17"]
        run = subprocess.run(compiler + flags + language + package_flags() + ["-"], input=text, capture_output=True, text=True)
        if re.search(r"fatal error: '?(cu\w+|nccl|nvml)\.h'?:? (No such file|file not found)", run.stderr):
            no_cuda += 1
        elif run.returncode != 0:
            findings.append(f"{header} does not compile alone:\n{run.stderr}")
        guard = re.sub(r"[^A-Z0-9]", "_", header.upper())
        if f"#ifndef {guard}\n#define {guard}\n" not in text_of(header):
            findings.append(f"{header}: the guard is not {guard}")
    return report(findings, f"{len(headers)} headers" + (f"; {no_cuda} not compiled: no CUDA Toolkit here" if no_cuda else ""))


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


def source_of(command):
    return os.path.relpath(os.path.join(command["directory"], command["file"]), SOURCE)


def built_cores():
    """{name: archive or object} of what was built: CORES by library, CORE_FILES by object."""
    found = {}
    for core in CORES:
        archives = glob.glob(os.path.join(BUILD, "**", f"lib{core}.a"), recursive=True)
        if archives:
            found[core] = archives[0]
    for command in commands():
        built = os.path.join(command["directory"], command.get("output", ""))
        if source_of(command) in CORE_FILES and os.path.isfile(built):
            found.setdefault(source_of(command), built)
    if not found:
        skip("no core was built: " + ", ".join(CORES + CORE_FILES))
    return found


def closure_symbols(core):
    """What is still undefined after the core and all that it draws from our other libraries is put together."""
    others = [a for a in glob.glob(os.path.join(BUILD, "**", "lib*.a"), recursive=True)
              if a != core and "/tests/" not in a]
    with tempfile.TemporaryDirectory() as folder:
        joined = os.path.join(folder, "core.o")
        subprocess.run(["ld", "-r", "-o", joined, "--whole-archive", core, "--no-whole-archive", "--start-group"]
                       + others + ["--end-group"], check=True)
        run = subprocess.run(["nm", "-u", joined], capture_output=True, text=True, check=True)
    return [line.split()[-1].split("@")[0] for line in run.stdout.splitlines() if line.split()]


def check_cores():
    cores = built_cores()
    findings = [f"{core} calls {symbol}, which no core may" for core, archive in cores.items()
                for symbol in closure_symbols(archive) if not CORE_SYMBOLS.match(symbol)]
    for core in CORES + CORE_FILES:
        if not os.path.exists(os.path.join(SOURCE, core)) and core in CORE_FILES:
            findings.append(f"{core} is gone: correct CORE_FILES in tests/lint/lint.py")
        elif core not in cores:
            print(f"note: {core} was not built")
    return report(findings, f"{len(cores)} cores")


def without_comments(text):
    blank = lambda match: re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def check_core_words():
    cores = built_cores()
    sources = set()
    for command in commands():
        path = source_of(command)
        if path in CORE_FILES or any(f"lib{core}.a.p/" in command.get("output", "") for core in cores):
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


def objects_of(program):
    """{source: object} of what a program is linked from: its own sources, and those of the libraries in its folder and in common."""
    found = {}
    for command in commands():
        built = os.path.join(command["directory"], command.get("output", ""))
        folder = os.path.basename(os.path.dirname(built))
        is_ours = folder == f"{program}.p" or re.match(r"lib\w+\.a\.p$", folder)
        if is_ours and source_of(command).startswith((f"{program}/", "common/")) and os.path.isfile(built):
            found.setdefault(source_of(command), built)
    return found


def symbols_of(built):
    """The functions that an object defines, what it uses of others, and which of these it calls."""
    names = {"defined": set(), "used": set(), "called": set()}
    run = subprocess.run(["nm", "-g", built], capture_output=True, text=True, check=True)
    for line in run.stdout.splitlines():
        words = line.split()
        names["used" if words[-2] == "U" else "defined"].add(words[-1])
    run = subprocess.run(["readelf", "-rW", built], capture_output=True, text=True, check=True)
    for match in re.finditer(r"R_(?:X86_64_PLT32|AARCH64_CALL26|AARCH64_JUMP26)\s+\S+\s+(\w+)", run.stdout):
        names["called"].add(match.group(1))
    return names


def loop_findings(path, symbols, owner, table, reached):
    """What an object on the loop's thread may not do. Objects that it calls into are added to `reached`."""
    if path not in table:
        for symbol in sorted(symbols[path]["used"]):
            if LOOP_FILE_CALLS.match(symbol):
                yield f"{path}: the loop calls {symbol}: it belongs to a thread, common/io/file_work.h"
    for symbol in sorted(symbols[path]["called"]):
        target = owner.get(symbol)
        if target is None or target == path:
            continue
        if LOOP_THREADS.match(target):
            if not LOOP_MAY_CALL.search(symbol):
                yield f"{path}: the loop calls {symbol}, which is for threads ({target})"
        elif target in table:
            if not re.match(table[target], symbol):
                yield f"{path}: the loop calls {symbol} of {target}, which may touch files"
        else:
            reached.append(target)


def thread_findings(path, symbols):
    for symbol in sorted(symbols[path]["used"]):
        if symbol.startswith("uv_"):
            yield f"{path}: a thread calls {symbol}, which is the loop's"


def check_loop():
    """The loops of launcherd, of its shims and of rendezvous touch no file: see LOOP_FOLDERS."""
    findings, counts, programs = [], [], {}
    for (folder, whose), (others, table) in zip(LOOP_FOLDERS.items(), ((SHIM_OTHERS, LOOP_ALLOWED), (SHIM_OTHERS, SHIM_ALLOWED),
                                                                       (RENDEZVOUS_OTHERS, RENDEZVOUS_ALLOWED))):
        program = folder.split("/")[0]
        if program not in programs:
            programs[program] = {path: symbols_of(built) for path, built in objects_of(program).items()}
        symbols = programs[program]
        owner = {symbol: path for path, names in symbols.items() for symbol in names["defined"]}
        ours = [path for path in symbols if os.path.dirname(path) == folder and path not in others]
        if not ours:
            skip(f"{program} was not built")
        if not any(names["called"] for names in symbols.values()):
            skip("no calls are found in the objects of this machine")
        findings += [finding for path in ours if LOOP_THREADS.match(path) for finding in thread_findings(path, symbols)]
        findings += [f"{path} is gone: correct the tables in tests/lint/lint.py" for path in table if path not in symbols]
        seen, reached = set(), [path for path in ours if not LOOP_THREADS.match(path)]
        while reached:
            path = reached.pop()
            if path not in seen:
                seen.add(path)
                findings += loop_findings(path, symbols, owner, table, reached)
        counts.append(f"{len(seen)} objects on the loop of {whose}")
    return report(findings, " and ".join(counts))


def check_layers():
    """Includes between folders go one way, and only public headers are included from elsewhere."""
    found = layers.includes(text_of, tracked())
    findings = [f"{path} includes {header}: {why}" for path, header in found
                for why in [layers.refused(path, header)] if why is not None]
    circle = layers.cycle(layers.folder_edges(found))
    if circle:
        findings.append("folders include one another in a circle: " + " -> ".join(circle))
    return report(findings, f"{len(found)} includes")


def check_waits():
    paths = tracked()
    return report(waits.findings(paths, text_of), f"{len(paths)} files")


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
    """A hash of everything that clang-tidy's findings in one file depend on; None where the file cannot be preprocessed."""
    words = [w for w in command["command"].split() if w not in ("-c", "-MD")]
    for option in ("-o", "-MQ", "-MF"):
        if option in words:
            del words[words.index(option):words.index(option) + 2]
    run = subprocess.run(" ".join(words + ["-E", "-CC"]), shell=True, cwd=command["directory"], capture_output=True)
    if run.returncode != 0:
        return None
    return hashlib.sha256(version + " ".join(ANALYZER_ARGS).encode() + text_of(".clang-tidy").encode() + run.stdout).hexdigest()


def tidy_one(tidy, command, version):
    """Findings in one file. A file that was clean is not checked again until its text or the settings change."""
    key = tidy_key(command, version)
    stamp = os.path.join(BUILD, "lint-clean", key) if key else None
    if stamp and os.path.exists(stamp):
        return []
    run = subprocess.run(["nice", "-n", "5", tidy, "-quiet", "-p", BUILD, *ANALYZER_ARGS, os.path.join(command["directory"], command["file"])],
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


def git(*words):
    run = subprocess.run(["git", *words], cwd=SOURCE, capture_output=True, text=True)
    return run.stdout.splitlines() if run.returncode == 0 else []


def changed_files():
    """Paths below SOURCE that differ from the main branch, and those that are not committed. On the main branch itself, where no commit differs: what its newest
    commits changed, from the newest on until they are TIDY_FILES_MAX."""
    changed = git("diff", "--name-only", "HEAD") + git("ls-files", "--others", "--exclude-standard")
    base = git("merge-base", "HEAD", "origin/main")
    if base and base != git("rev-parse", "HEAD"):
        return changed + git("diff", "--name-only", base[0], "HEAD"), None
    return changed + git("log", f"-{TIDY_COMMITS}", "--first-parent", "-m", "--name-only", "--format="), TIDY_FILES_MAX


def tidy_choice(paths):
    """Those of `paths` to check: what changed, with the .c file of a changed header. DDP_TIDY_ALL=1: all."""
    if os.environ.get("DDP_TIDY_ALL"):
        return paths
    ours, chosen = {}, {}
    for path in paths:
        ours.setdefault(os.path.splitext(os.path.relpath(path, SOURCE))[0], []).append(path)
    changed, most = changed_files()
    for path in changed:
        if path.endswith((".c", ".cc", ".cpp", ".h")):
            chosen.update(dict.fromkeys(ours.get(os.path.splitext(path)[0], [])))
    return list(chosen)[:most]


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
    chosen = tidy_choice(sorted(ours))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = list(pool.map(lambda path: tidy_one(tidy, ours[path], version), chosen))
    words = f"{len(chosen)} files" + (f", which changed, of {len(ours)}" if len(chosen) < len(ours) else "")
    return report(list(dict.fromkeys(finding for one in found for finding in one)), words)


def main():
    checks = {"format": check_format, "headers": check_headers, "sizes": check_sizes, "paths": check_paths,
              "cores": check_cores, "core-words": check_core_words, "layers": check_layers, "loop": check_loop, "shell": check_shell,
              "waits": check_waits, "tidy": check_tidy}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        sys.exit(f"use: lint.py {'|'.join(checks)}")
    sys.exit(checks[sys.argv[1]]())


if __name__ == "__main__":
    main()
