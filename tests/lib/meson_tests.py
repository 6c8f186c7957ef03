#!/usr/bin/env python3
"""What meson knows of its tests.

meson_tests.py summary BUILD...       counts over the last `meson test` of each folder, skipped tests with their
                                      reasons, then the line "N passed, N failed, N skipped"; exit 1 on a failure
meson_tests.py names BUILD FOLDER     names of the tests whose program or script lies in that folder of the build
"""
import json
import os
import re
import subprocess
import sys

PASSED = ("OK", "EXPECTEDFAIL")


def runs(build):
    """The last run's tests, one object a line; None where it left none."""
    path = os.path.join(build, "meson-logs", "testlog.json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8", errors="replace") as file:
        return [json.loads(line) for line in file if line.strip()]


def reasons(test):
    """One line for each different reason: of lines that start with "skip", else the last line of a skipped test."""
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


def summary(builds):
    count = {"passed": 0, "failed": 0, "skipped": 0}
    skipped, partly, failed = [], [], []
    for build in builds:
        tests = runs(build)
        place = os.path.basename(build.rstrip("/"))
        if tests is None:
            failed.append(f"{place}: no test ran")
            count["failed"] += 1
            continue
        for test in tests:
            name = f"{place}: {test['name']}"
            if test["result"] in PASSED:
                count["passed"] += 1
                partly += [f"{name}: {reason}" for reason in reasons(test)]
            elif test["result"] == "SKIP":
                count["skipped"] += 1
                skipped += [f"{name}: {reason}" for reason in reasons(test)]
            else:
                count["failed"] += 1
                failed.append(f"{name}: {test['result']}, log in {build}/meson-logs/testlog.txt")
    for title, lines in (("Skipped:", skipped), ("Parts skipped of tests that passed:", partly), ("Failed:", failed)):
        if lines:
            print(title)
            for line in lines:
                print(f"  {line}")
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 1 if count["failed"] else 0


def names(build, folder):
    listed = subprocess.run(["meson", "introspect", "--tests", build], capture_output=True, text=True, check=True)
    for test in json.loads(listed.stdout):
        if any(f"/{folder}/" in word for word in test["cmd"]):
            print(test["name"])
    return 0


def main():
    if len(sys.argv) >= 3 and sys.argv[1] == "summary":
        return summary(sys.argv[2:])
    if len(sys.argv) == 4 and sys.argv[1] == "names":
        return names(sys.argv[2], sys.argv[3])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
