"""A thread fails, the main thread sees that no result came."""
import sys
import threading

result = {}


def evaluate(samples):
    correct = sum(1 for sample in samples if sample["label"] == sample["prediction"])
    result["accuracy"] = correct / len(samples)


thread = threading.Thread(target=evaluate, args=([],), name="evaluate")
thread.start()
thread.join()
if "accuracy" not in result:
    print("evaluation gave no result", file=sys.stderr)
    sys.exit(1)
