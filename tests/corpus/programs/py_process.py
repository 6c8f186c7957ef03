"""A child of multiprocessing fails."""
import multiprocessing


def tokenize(part):
    vocabulary = {"a": 0, "b": 1}
    return [vocabulary[letter] for letter in "abc"[:part + 1]]


if __name__ == "__main__":
    children = [multiprocessing.Process(target=tokenize, args=(part,), name=f"tokenizer-{part}") for part in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    bad = [child.name for child in children if child.exitcode != 0]
    if bad:
        raise RuntimeError(f"{len(bad)} of {len(children)} tokenizers failed: {bad}")
