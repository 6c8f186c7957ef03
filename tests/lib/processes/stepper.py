"""A worker that does one step for each word of the test (tests/lib/stepper.c), in place of a training that must be held back."""
import os

from processes.case import BUILD
from processes.waiting import LONG_S, read_answer

PROGRAM = os.environ.get("STEPPER", os.path.join(BUILD, "tests", "integration", "stepper"))


class Stepper:
    """`argv` is its command. The ranks keep nothing between two words, so a rank can be killed anywhere; the next generation takes the words that
    are said after its start."""

    def __init__(self, folder, ranks=1):
        os.mkdir(folder)
        self.argv, self.ranks = [PROGRAM, folder], range(ranks)
        for rank in self.ranks:
            os.mkfifo(f"{folder}/{rank}.words")
            os.mkfifo(f"{folder}/{rank}.answers")
        # both ends are held, so that a rank's end is none of the pipe
        self.words = [os.open(f"{folder}/{rank}.words", os.O_RDWR | os.O_CLOEXEC) for rank in self.ranks]
        self.answers = [os.open(f"{folder}/{rank}.answers", os.O_RDWR | os.O_CLOEXEC) for rank in self.ranks]

    def say(self, word, *ranks):
        """To these ranks, or to all."""
        for rank in ranks or self.ranks:
            os.write(self.words[rank], f"{word}\n".encode())

    def do(self, word, *ranks, patience_s=LONG_S):
        """Waits until each of them has done it. Returns the (generation, step) of the last one."""
        self.say(word, *ranks)
        for rank in ranks or self.ranks:
            answer = read_answer(self.answers[rank], f"rank {rank} to {word}", patience_s)
        return tuple(map(int, answer.split()))

    def step(self, count=1):
        """All ranks make that many steps."""
        for _ in range(count):
            last = self.do("step")
        return last

    def save(self):
        """Rank 0 commits a checkpoint of its step."""
        return self.do("save", 0)

    def close(self):
        for fd in self.words + self.answers:
            os.close(fd)
