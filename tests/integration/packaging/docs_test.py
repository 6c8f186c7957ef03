"""Manual pages and completions have every option that --help shows, and the shells accept them: docs_test.py pages|bash|zsh|fish."""
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile

BUILD = os.environ["BUILD_ROOT"]
PROGRAMS = {"rendezvous": ("rendezvous/rendezvous", 8), "launcherd": ("launcherd/launcherd", 8),
            "ddpctl": ("ddpctl/ddpctl", 1), "ddp-worker": ("worker/ddp-worker", 1)}


def run(*command, **more):
    environ = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100", "MANROFFSEQ": "", **more}
    return subprocess.run(command, capture_output=True, text=True, env=environ, stdin=subprocess.DEVNULL, timeout=300)


def output(*command, **more):
    done = run(*command, **more)
    assert done.returncode == 0 and done.stderr == "", f"{command}: {done.returncode} {done.stderr}"
    return done.stdout


def program(name):
    return os.path.join(BUILD, PROGRAMS[name][0])


def made(name):
    return os.path.join(BUILD, "packaging", name)


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def options_of(help_text):
    """The long options that start a line."""
    found = set(re.findall(r"^ {2,6}(?:-\w,? )?--([\w-]+)", help_text, re.M))
    assert len(found) > 3, help_text
    return found - {"version"}


@functools.cache
def verbs():
    """The verbs that `ddpctl help` lists and explains."""
    listed = re.findall(r"^  ([a-z]+) +[a-z]", output(program("ddpctl"), "help"), re.M)
    listed = [verb for verb in listed if "usage: ddpctl " + verb in run(program("ddpctl"), "help", verb).stdout]
    assert {"run", "submit", "completion", "help"} <= set(listed), listed
    return listed


def need(tool):
    if shutil.which(tool) is None:
        print(f"skip: {tool} is not installed (./quickstart test installs it)")
        sys.exit(77)


def roff(option):
    return "\\-\\-" + option.replace("-", "\\-") + "\\fR"


def test_pages():
    need("man")
    for name, (_, section) in PROGRAMS.items():
        page = made(f"{name}.{section}")
        shown = output("man", "--warnings", "-E", "UTF-8", "-l", page)  # a warning of groff goes to stderr
        assert f"{name.upper()}({section})" in shown and "NAME" in shown and "SEE ALSO" in shown, shown
        source = text_of(page)
        if name != "ddpctl":
            missing = [o for o in options_of(output(program(name), "--help")) if roff(o) not in source]
            assert not missing, f"{page} lacks {missing}"
            continue
        for verb in verbs():
            part = re.search(rf"^\.SS {verb}\n(.*?)(?=^\.S[SH] )", source, re.M | re.S)
            common = source[source.index(".SH OPTIONS OF ALL VERBS"):]
            assert part, f"{page} has no section {verb}"
            missing = [o for o in options_of(output(program(name), "help", verb)) if roff(o) not in part[1] + common]
            assert not missing, f"{page}, {verb} lacks {missing}"


class Bash:
    """A bash that loads only our script, and completes as readline would."""

    def __init__(self, name):
        self.name, self.script, self.function = name, made(name), "_" + name.replace("-", "_")

    def complete(self, *words, folder="/"):
        driver = ('set -u; cd "$1"; source "$2"; function=$3; shift 3; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                  '"$function"; ((${#COMPREPLY[@]})) && printf "%s\\n" "${COMPREPLY[@]}" || true')
        return set(output("bash", "--norc", "--noprofile", "-c", driver, "bash", folder, self.script, self.function,
                          self.name, *words).split())


def equal(actual, expected):
    assert actual == expected, f"{actual} is not {expected}"


def test_bash():
    need("bash")
    for name in PROGRAMS:
        if shutil.which("shellcheck"):
            output("shellcheck", made(name))
        if name != "ddpctl":
            found = Bash(name).complete("--")
            missing = {"--" + o for o in options_of(output(program(name), "--help"))} - found
            assert not missing, f"{name}: {missing}"
    ctl = Bash("ddpctl")
    for verb in verbs():
        shown = {"--" + o for o in options_of(output(program("ddpctl"), "help", verb))}
        equal(ctl.complete(verb, "--"), shown)
    equal(ctl.complete(""), set(verbs()))
    equal(ctl.complete("--server", "unix:/nowhere", "stat"), {"status"})
    equal(ctl.complete("--color", ""), {"auto", "always", "never"})
    equal(ctl.complete("ps", "--color", "=", "a"), {"auto", "always"})
    equal(ctl.complete("ps", "--color", "="), {"auto", "always", "never"})
    equal(ctl.complete("completion", ""), {"bash", "zsh", "fish"})
    assert {"show", "drain", "resume"} <= ctl.complete("node", "")
    equal(ctl.complete("wait", "--for", ""), {"running", "finished"})
    assert "bash" in ctl.complete("run", "--nodes", "2", "--", "bas")
    assert "bash" in ctl.complete("run", "-N", "2", "bas")
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(folder + "/check points")
        with open(folder + "/train.py", "w", encoding="utf-8"):
            pass
        equal(ctl.complete("run", "python3", "tr", folder=folder), {"train.py"})
        equal(Bash("ddp-worker").complete("--checkpoint-dir", "", folder=folder), {"check", "points"})
        equal(Bash("ddp-worker").complete("", folder=folder), {"check", "points"})
    equal(Bash("rendezvous").complete("--log-format", ""), {"text", "json"})
    equal(text_of(ctl.script), output(program("ddpctl"), "completion", "bash"))


def test_refusal():
    for words in [("completion",), ("completion", "tcsh"), ("completion", "man")]:
        done = run(program("ddpctl"), *words)
        assert done.returncode == 2 and "bash, zsh" in done.stderr, done


def test_zsh():
    need("zsh")
    for name in PROGRAMS:
        output("zsh", "-f", "-n", made("_" + name))
        source = text_of(made("_" + name))
        assert source.startswith(f"#compdef {name}\n"), source[:40]
        missing = [o for o in options_of(output(program(name), "--help")) - {"help"} if f"--{o}" not in source]
        assert not missing, f"zsh {name}: {missing}"
    # Completion in zsh needs a terminal; the specifications are checked with a stand-in for _arguments and _describe.
    checked = output("zsh", "-f", "-c", '_arguments() { for a; do print -r -- "$a"; done }; _describe() { }; '
                     'state=; source "$1"', "zsh", made("_ddp-worker"))
    assert "--arch=[" in checked or "--arch=" in checked, checked


def test_fish():
    need("fish")

    def complete(name, line):
        with tempfile.TemporaryDirectory() as home:  # where fish keeps its history
            shown = output("fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", made(name + ".fish"), line,
                           HOME=home, PATH=os.path.join(BUILD, "ddpctl") + ":/usr/bin:/bin", DDP_SERVER="unix:/nonexistent")
        return {text.split("\t")[0] for text in shown.splitlines()}

    for name in PROGRAMS:
        if name != "ddpctl":
            missing = {"--" + o for o in options_of(output(program(name), "--help")) - {"help"}} - complete(name, name + " --")
            assert not missing, f"fish {name}: {missing}"
    for verb in verbs():
        shown = {"--" + o for o in options_of(output(program("ddpctl"), "help", verb)) - {"help"}}
        missing = shown - complete("ddpctl", f"ddpctl {verb} --")
        assert not missing, f"fish ddpctl {verb}: {missing}"
    assert set(verbs()) <= complete("ddpctl", "ddpctl ")
    equal(complete("ddpctl", "ddpctl ps --color a"), {"auto", "always"})


def main():
    what = sys.argv[1]
    tests = {"pages": [test_pages], "bash": [test_bash, test_refusal], "zsh": [test_zsh], "fish": [test_fish]}
    for test in tests[what]:
        test()
        print(f"ok {test.__name__}", flush=True)


main()
