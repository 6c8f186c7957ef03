"""What stdout has kept comes at exit, after the traceback."""
import sys

sys.stdout = open(1, "w", buffering=1 << 20, closefd=False)
for step in range(1200):
    print(f"step {step} loss {1 / (1 + step):.4f}")
raise ArithmeticError("step 1200: loss scale reached 0")
