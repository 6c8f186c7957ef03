"""tests/lib/processes itself: what must fail does, and what waits goes on. processes_test.py [NAME...]"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from processes import proc, runner
from processes.case import Case
from processes.stepper import Stepper
from processes.waiting import Gate, Stopwatch, idle_words, lasting, read_answer, read_line, wait_for, wait_gone


def fails(call, *given, words="", **more):
    """It must raise AssertionError with these words."""
    try:
        call(*given, **more)
    except AssertionError as error:
        assert words in str(error), error
        return
    raise RuntimeError(f"{call} did not fail")


def test_waits_end_with_what_did_not_come():
    looks = []
    assert wait_for("three looks", lambda: looks.append(1) or len(looks) == 3) is True
    fails(wait_for, "nothing", lambda: False, 0.05, words="not within 0.05 s: nothing")
    fails(wait_for, lambda: f"{len(looks)} looks", lambda: False, 0, words="3 looks")
    reading, writing = os.pipe()
    fails(read_answer, reading, "an answer", 0.05, words="an answer")
    os.write(writing, b"1 2\n")
    assert read_answer(reading, "an answer") == "1 2\n"
    os.close(reading)
    os.close(writing)


def test_limits_of_time_are_held():
    fails(Stopwatch().check, "nothing", at_least=60, words="nothing took 0.0")
    watch = Stopwatch(iter([0.0, 7.0]).__next__)
    fails(watch.check, "seven", at_most=6, words="seven took 7.00 s, not 0.0 to 6 s")
    hour = (15012.345678902, 18612.345678902)
    assert hour[1] - hour[0] < 3600  # by the rounding of both
    Stopwatch(iter(hour).__next__).check("an hour", at_least=3600)
    with lasting("nothing", at_most=60):
        pass


def test_the_end_of_a_process_is_seen():
    sleeper = subprocess.Popen(["sleep", "600"])
    fails(wait_gone, "the sleeper", sleeper.pid, patience_s=0.05, words=f"the sleeper: the end of process {sleeper.pid}")
    assert proc.is_alive(sleeper.pid) and sleeper.pid in proc.child_pids(os.getpid()) and proc.command_of(sleeper.pid)[:2] == ["sleep", "600"]
    sleeper.kill()
    wait_gone("the sleeper", sleeper.pid)
    assert proc.state_of(sleeper.pid) == "Z" and not proc.is_alive(sleeper.pid)
    sleeper.wait()
    assert proc.state_of(sleeper.pid) == "X" and proc.command_of(sleeper.pid) == []
    wait_gone("what has ended", sleeper.pid)


def test_a_gate_and_a_shell_that_idles():
    with Case() as case:
        gate = Gate(f"{case.dir}/gate")
        shell = subprocess.Popen(["sh", "-c", f"trap 'echo asked; exit 3' TERM; {gate.wait}; echo through; {idle_words(f'{case.dir}/idle')}"],
                                 stdout=subprocess.PIPE, text=True)
        fails(read_line, shell, "a line", 0.05, words="a line")
        gate.open()
        assert read_line(shell, "a line") == "through\n"
        shell.terminate()
        assert (shell.communicate()[0], shell.returncode) == ("asked\n", 3)


def leave_a_file():
    with Case() as case, open(f"{case.temp}/left", "w", encoding="ascii"):
        pass


def test_what_a_case_leaves_is_a_failure():
    fails(leave_a_file, words="temporary files are left: ['left']")


def test_the_stepper_does_as_it_is_told():
    with Case() as case:
        stepper = Stepper(f"{case.dir}/steps")
        for word, code in (("kill 9", -9), ("exit 7", 7)):
            worker = subprocess.Popen(stepper.argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "RANK": "0", "WORLD_SIZE": "1"})
            assert read_line(worker, "its line") == "generation 1 begins after step 0\n"
            assert stepper.step(2)[1] == 2 and stepper.save()[1] == 2
            stepper.say(word)
            worker.communicate()
            assert worker.returncode == code, worker.returncode
        stepper.close()


def test_a_failed_test_fails_its_file():
    def test_that_fails():
        raise AssertionError("as it should")

    def test_that_passes():
        pass
    assert runner.run_tests([test_that_passes]) == 0
    assert runner.run_tests([test_that_fails, test_that_passes]) == 1
    assert runner.run_tests([test_that_passes, test_that_fails], side_by_side=2) == 1
    fails(runner.run_tests, [test_that_passes], ["that_is_not_there"], words="no test has such a name")


if __name__ == "__main__":
    sys.exit(runner.run_tests(runner.tests_of(globals()), sys.argv[1:]))
