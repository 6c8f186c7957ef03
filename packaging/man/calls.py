#!/usr/bin/env python3
"""The manual page of the library: PAGE.in, where the line @CALLS@ becomes what the header says of each call, in its own words.
Use: calls.py PAGE.in HEADER VERSION"""
import re
import sys


def roff(text):
    return re.sub(r"^(['.])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"), flags=re.M)


def words_of(comment):
    """The sentences of a comment, as one text; an empty line begins a paragraph."""
    lines = [re.sub(r"^ ?\* ?", "", line) for line in comment.strip().splitlines()]
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines))
    return "\n.PP\n".join(roff(" ".join(part.split())) for part in paragraphs)


def calls(header):
    """(prototype, comment or None) of every call, in order."""
    body = header[header.index("#define DDP_API"):]
    for comment, prototype in re.findall(r"(?:/\*((?:(?!\*/).)*)\*/\n)?DDP_API ([^;]+);", body, re.S):
        yield " ".join(prototype.split()), comment


def main():
    page, header, version = sys.argv[1:]
    with open(header, encoding="utf-8") as file:
        text = file.read()
    shown = []
    for prototype, comment in calls(text):
        shown.append(".TP\n.B " + roff(prototype) + ("\n" + words_of(comment).replace(".PP", ".IP") if comment else ""))
    with open(page, encoding="utf-8") as file:
        frame = file.read()
    assert "\n@CALLS@\n" in frame, f"{page} has no line @CALLS@"
    sys.stdout.write(frame.replace("@CALLS@\n", "\n".join(shown) + "\n").replace("@VERSION@", version))


main()
