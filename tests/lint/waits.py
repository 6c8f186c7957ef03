"""How tests wait: on events, or by tests/lib/processes (waiting.py), which alone sleeps, polls and holds real time against limits."""
import ast
import re

FOLDERS = ("tests/integration/", "tests/cluster/", "tests/chaos/", "tests/gpu/", "tests/lib/")
# The library; what measures; a network whose delays are time; programs whose polling is what is tested (Horovod's, a hang in a script).
FREE = ("tests/lib/processes/", "tests/lib/edge", "tests/gpu/bench", "tests/cluster/machines.py", "tests/integration/ctl/horovod_test.py",
        "tests/integration/hang/hang_test.py")
CLOCKS = {"sleep": "sleep", "monotonic": "the clock", "monotonic_ns": "the clock", "perf_counter": "the clock", "perf_counter_ns": "the clock"}
SHELL_LOOP = re.compile(r"\b(while|until)\b[^\n]*[;\n]\s*do\s+[^\n]*?\bsleep\s+[\d.]")
PYTHON_LOOP = re.compile(r"\bwhile\b[^\n]*:\s*time\.sleep\(")


def is_clock(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and \
        node.func.value.id == "time" and node.func.attr in CLOCKS


def is_empty_select(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "select" and len(node.args) == 4 and \
        all(isinstance(arg, ast.List) and not arg.elts for arg in node.args[:3])


def text_in(node):
    """A text of the program, also one with values in it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def of_python(text):
    """(line, what) of each place; programs that are texts in a test, too."""
    for node in ast.walk(ast.parse(text)):
        if is_clock(node):
            yield node.lineno, f"time.{node.func.attr}(): use wait_for, Stopwatch, lasting or let_pass"
        elif is_empty_select(node):
            yield node.lineno, "a select that waits for nothing: use wait_for"
        elif isinstance(node, ast.ImportFrom) and node.module == "time" and any(name.name in CLOCKS for name in node.names):
            yield node.lineno, "import time, so that this check sees its calls"
        elif (program := text_in(node)) and (SHELL_LOOP.search(program) or PYTHON_LOOP.search(program)):
            yield node.lineno, "a program that polls: use Gate, idle_words or Stepper"


def of_shell(text):
    for found in SHELL_LOOP.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, "a loop that polls"


def findings(paths, text_of):
    """`paths`: below the root. What each file has that it may not have."""
    found = []
    for path in sorted(path for path in paths if path.startswith(FOLDERS) and not path.startswith(FREE)):
        is_shell = path.endswith(".sh")
        if not path.endswith(".py") and not is_shell:
            continue
        places = list((of_shell if is_shell else of_python)(text_of(path)))
        found += [f"{path}:{line}: {what}" for line, what in places]
    return found

