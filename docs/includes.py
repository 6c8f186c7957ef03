#!/usr/bin/env python3
"""Which folder includes which, taken from the sources: docs/includes.py [dot|list|write|check].

dot    Graphviz text on standard output: docs/includes.py dot | dot -Tsvg > includes.svg
list   the same as text, layer by layer
write  docs/includes.md
check  exit 1 where docs/includes.md is not what the sources give
Every form fails (exit 1) where folders include one another in a circle.
"""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "lint"))
sys.dont_write_bytecode = True
import layers  # noqa: E402

PAGE = os.path.join(ROOT, "docs", "includes.md")
HEAD = """# Includes between folders

Made from the `#include` lines by `docs/includes.py write`; `main.c` files, which put a program together, are left out. A folder
includes folders of the layers above it only. `tests/lint/layers.py` has the table of what is allowed, `docs/includes.py dot`
draws the picture.

"""


def sources():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
    if listed.returncode == 0:
        return [path for path in listed.stdout.splitlines() if os.path.isfile(os.path.join(ROOT, path))]
    return [os.path.relpath(os.path.join(folder, file), ROOT) for top in layers.PROGRAMS
            for folder, _, files in os.walk(os.path.join(ROOT, top)) for file in files]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def layer_list(edges):
    """Folders by depth: one that includes nothing is in layer 0, any other one deeper than all that it includes."""
    depth = {}

    def depth_of(folder):
        if folder not in depth:
            depth[folder] = 1 + max((depth_of(other) for other in edges[folder]), default=-1)
        return depth[folder]

    for folder in edges:
        depth_of(folder)
    lines = []
    for layer in range(max(depth.values()) + 1):
        lines.append(f"layer {layer}")
        for folder in sorted(folder for folder in edges if depth[folder] == layer):
            others = ", ".join(sorted(edges[folder]))
            lines.append(f"    {folder}/".ljust(34) + (f" includes {others}" if others else " includes nothing"))
    return "\n".join(lines) + "\n"


def dot(edges):
    lines = ["digraph includes {", "    rankdir=BT;", "    node [shape=box];"]
    lines += [f'    "{folder}";' for folder in sorted(edges)]
    lines += [f'    "{folder}" -> "{other}";' for folder in sorted(edges) for other in sorted(edges[folder])]
    return "\n".join(lines + ["}"]) + "\n"


def page(edges):
    indented = "".join(f"    {line}\n" for line in layer_list(edges).splitlines())
    return HEAD + indented


def main():
    form = sys.argv[1] if len(sys.argv) == 2 else "list"
    edges = layers.folder_edges(layers.includes(read, sources()))
    circle = layers.cycle(edges)

    if circle:
        sys.exit("folders include one another in a circle: " + " -> ".join(circle))
    if form == "dot":
        print(dot(edges), end="")
    elif form == "list":
        print(layer_list(edges), end="")
    elif form == "write":
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(page(edges))
    elif form == "check":
        if not os.path.exists(PAGE) or read("docs/includes.md") != page(edges):
            sys.exit("docs/includes.md is not what the sources give (docs/includes.py write)")
    else:
        sys.exit("use: includes.py [dot|list|write|check]")


if __name__ == "__main__":
    main()
