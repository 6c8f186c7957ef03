#!/usr/bin/env python3
"""Reads the results of `meson test` and the list of tests.

meson_tests.py summary BUILD[:LOG]... counts over the `meson test` that wrote that log of the folder (testlog), skipped tests with their
                                      reasons, seeds that were drawn, failed tests with the end of their output, then the line
                                      "N passed, N failed, N skipped"; exit 1 on a failure. A test that
                                      failed and passed when run again counts as passed, and is named
meson_tests.py hurry PID              gives a process and all its descendants, which have idle priority, the usual one
meson_tests.py again BUILD            names of the failed tests, where all may run again: at most MOST_AGAIN, all of them
                                      of suite integration, whose real processes run beside others
meson_tests.py names BUILD FOLDER     names of the tests whose program or script lies in that folder of the build
meson_tests.py targets BUILD [NAME...] [--suite SUITE]... [--no-suite SUITE]...
                                      targets of ninja that these tests, and those of these suites, need
"""
import json
import os
import re
import sys

PASSED = ("OK", "EXPECTEDFAIL")
AGAIN = "again"  # name of the log of tests that ran again
MOST_AGAIN = 3
LAST_LINES = 12  # how many lines of a failed test's output are shown


def runs(build, log="testlog"):
    """The tests of the last run; its log has one JSON object a line. None if there is no log."""
    path = os.path.join(build, "meson-logs", f"{log}.json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8", errors="replace") as file:
        return [json.loads(line) for line in file if line.strip()]


def reasons(test):
    """One line for each different reason, from lines that start with "skip", or else from the last line of a skipped test."""
    lines = [line.strip() for line in ((test.get("stdout") or "") + "\n" + (test.get("stderr") or "")).splitlines()]
    found = {}
    for line in lines:
        match = re.match(r"skip[a-z]*(?: ([^:]*))?: *(.*)", line, re.I)
        if match:
            found.setdefault(match[2], []).append(match[1])
    if not found and test["result"] == "SKIP":
        return [line for line in lines if line][-1:] or ["no reason given"]
    said = []
    for reason, parts in found.items():
        more = f" and {len(parts) - 1} more" if len(parts) > 1 else ""
        said.append(f"{parts[0]}{more}: {reason}" if parts[0] else reason)
    return said


def last_lines(test):
    """Lines that name a failed case, and the last lines of stdout and of stderr."""
    said = []
    for stream in ("stdout", "stderr"):
        lines = [line.rstrip() for line in (test.get(stream) or "").splitlines() if line.strip()]
        early = [line for line in lines[:-LAST_LINES] if line.startswith("not ok")]
        said += [f"  {line[:400]}" for line in early + lines[-LAST_LINES:]]
    return said


def is_failed(test):
    return test["result"] not in PASSED and test["result"] != "SKIP"


def again(build):
    failed = [test["name"] for test in runs(build) or [] if is_failed(test)]
    if len(failed) <= MOST_AGAIN and all(name.split(" / ")[0].split(":")[1].split("+")[0] == "integration" for name in failed):
        print("\n".join(name.split(" / ")[1] for name in failed))
    return 0


def descendants(pid):
    """The process and those that it started, and so on."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            pass  # it has ended
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def hurry(pid):
    """A thread that one which is still idle starts meanwhile is idle too, so it looks again until there is none."""
    while True:
        idle = 0
        for one in descendants(pid):
            try:
                for task in map(int, os.listdir(f"/proc/{one}/task")):
                    if os.sched_getscheduler(task) == os.SCHED_IDLE:
                        os.sched_setscheduler(task, os.SCHED_OTHER, os.sched_param(0))
                        idle += 1
            except OSError:
                pass  # it has ended
        if idle == 0:
            return 0


def summary(places):
    count = {"passed": 0, "failed": 0, "skipped": 0}
    skipped, partly, drawn, late, failed = [], [], [], [], []
    for where in places:
        build, _, log = where.partition(":")
        log = log or "testlog"
        tests = runs(build, log)
        place = os.path.basename(build.rstrip("/"))
        if tests is None:
            failed.append(f"{place}: no test ran for {log}")
            count["failed"] += 1
            continue
        second = {test["name"]: test for test in runs(build, AGAIN) or []} if log == "testlog" else {}
        for test in tests:
            name = f"{place}: {test['name']}"
            if is_failed(test) and second.get(test["name"], test)["result"] in PASSED:
                late += [f"{name}: {test['result']}", *last_lines(test)]
                test = second[test["name"]]
            drawn += [f"{name}: {line[7:]}" for line in (test.get("stdout") or "").splitlines() if line.startswith("drawn: ")]
            if test["result"] in PASSED:
                count["passed"] += 1
                partly += [f"{name}: {reason}" for reason in reasons(test)]
            elif test["result"] == "SKIP":
                count["skipped"] += 1
                skipped += [f"{name}: {reason}" for reason in reasons(test)]
            else:
                count["failed"] += 1
                failed += [f"{name}: {test['result']}, log in {build}/meson-logs/{log}.txt", *last_lines(test)]
    for title, lines in (("Skipped:", skipped), ("Parts skipped of tests that passed:", partly),
                         ("Seeds drawn:", drawn), ("Failed, then passed alone:", late), ("Failed:", failed)):
        if lines:
            print(title)
            for line in lines:
                print(f"  {line}")
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 1 if count["failed"] else 0


def introspect(build, what):
    with open(os.path.join(build, "meson-info", f"intro-{what}.json"), encoding="utf-8") as file:
        return json.load(file)


def names(build, folder):
    for test in introspect(build, "tests"):
        if any(f"/{folder}/" in word for word in test["cmd"]):
            print(test["name"])
    return 0


def targets(build, words):
    said = {"--suite": set(), "--no-suite": set(), "": set()}
    words = iter(words)
    for word in words:
        said[word if word in said else ""].add(next(words) if word in said else word)
    files = {target["id"]: target["filename"] for target in introspect(build, "targets")}
    found = set()
    for test in introspect(build, "tests"):
        suites = {suite.split(":")[-1] for suite in test["suite"]}
        if test["name"] in said[""] or (suites & said["--suite"] and not suites & said["--no-suite"]):
            found.update(os.path.relpath(file, os.path.realpath(build)) for depends in test["depends"] for file in files[depends])
    print("\n".join(sorted(found)))
    return 0


def main():
    if len(sys.argv) >= 3 and sys.argv[1] == "summary":
        return summary(sys.argv[2:])
    if len(sys.argv) == 3 and sys.argv[1] == "hurry":
        return hurry(int(sys.argv[2]))
    if len(sys.argv) == 3 and sys.argv[1] == "again":
        return again(sys.argv[2])
    if len(sys.argv) == 4 and sys.argv[1] == "names":
        return names(sys.argv[2], sys.argv[3])
    if len(sys.argv) >= 3 and sys.argv[1] == "targets":
        return targets(sys.argv[2], sys.argv[3:])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
