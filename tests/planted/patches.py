"""Planted bugs: what a NAME.patch says, and how it is applied.

    # what it breaks
    args: --history                  of sim, if the bug shows only in such runs
    seed: 97                         of sim, the first that found it: tried before all others, so that a bug takes a moment
    unit: start                      what it breaks is too rare for sim, and this test of tests/unit/rendezvous finds it,
                                     or (launcher-start) of tests/unit/launcherd
    tests: node-stop node            of an edge: the tests of meson that find it, the likeliest first
    file: launcherd/core/shim.c
    in: on_stop                      the function; *: anywhere in the file
    old: now_us + stop->grace_us     there once; spaces and line ends are all the same
    new: now_us + 10 * stop->grace_us

It has as many edits as it needs ("in", "old", "new" belong to the last "file"; an empty "new" removes)."""
import pathlib
import re
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Stale(Exception):
    """A patch does not fit the code."""


@dataclass
class Patch:
    name: str
    what: str = ""
    args: list = field(default_factory=list)
    seed: str = None
    unit: str = None
    tests: list = field(default_factory=list)
    edits: list = field(default_factory=list)  # [(file, function, old, new)]


def read_patch(path):
    patch = Patch(path.stem)
    file = function = old = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        key, _, value = line.partition(":")
        if line.startswith("# ") and not patch.what:
            patch.what = line[2:]
        elif key in ("args", "tests"):
            setattr(patch, key, value.split())
        elif key in ("unit", "seed"):
            setattr(patch, key, value.strip())
        elif key == "file":
            file = value.strip()
        elif key == "in":
            function = value.strip()
        elif key == "old":
            old = value.strip()
        elif key == "new" and file and function and old:
            patch.edits.append((file, function, old, value.strip()))
            old = None
        else:
            raise Stale(f"{path.name}:{number}: not \"# what it breaks\", args, seed, unit, tests, file, in, old or new: {line}")
    if not patch.what or not patch.edits or old:
        raise Stale(f"{path.name}: it needs \"# what it breaks\", file, in, old and new")
    return patch


def function_span(text, name):
    """The body of the definition that begins at the start of a line."""
    if name == "*":
        return 0, len(text)
    for match in re.finditer(rf"^[A-Za-z].*\b{re.escape(name)}\(|^{re.escape(name)}\(", text, re.MULTILINE):
        brace = re.compile(r"[;{]").search(text, match.end())
        if brace and brace.group() == "{":
            return brace.start(), text.index("\n}", brace.start())
    return None


def apply_edit(text, patch, edit):
    file, function, old, new = edit
    span = function_span(text, function)
    if span is None:
        raise Stale(f"{patch}: {file} has no function {function} any more: mend the patch")
    pattern = re.compile(r"\s*".join(re.escape(word) for word in re.findall(r"\w+|[^\w\s]", old)))
    found = list(pattern.finditer(text, *span))
    if len(found) != 1:
        raise Stale(f"{patch}: in {function} of {file}, this is there {len(found)} times, not once: {old}\n"
                    "    mend the patch: the code has changed")
    return text[:found[0].start()] + new + text[found[0].end():]


def changed_files(path):
    """The patch, and the text of each file that it changes."""
    patch = read_patch(path)
    files = {}
    for edit in patch.edits:
        text = files.get(edit[0]) or (ROOT / edit[0]).read_text()
        files[edit[0]] = apply_edit(text, path.name, edit)
    return patch, files


def check_patches(paths):
    problems = []
    for path in paths:
        try:
            changed_files(path)
        except Stale as stale:
            problems.append(str(stale))
    if problems:
        raise Stale("\n".join(problems))
