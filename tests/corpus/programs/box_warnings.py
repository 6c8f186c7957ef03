"""Many warnings with words as error and fail in them, and lines that look like an exception."""
import sys
import warnings

print("ERROR_LIMIT=3 FAIL_FAST=0")
print("ValueError: this line is from the help text of the trainer, see docs")
for i in range(3):
    warnings.warn(f"failed to import optional package nr. {i}: Error: no such package", UserWarning, stacklevel=1)
print("Test error: 0.3121, train error: 0.2907", flush=True)
print("2 of 9000 samples had errors and were skipped", file=sys.stderr)
raise NameError("name 'schedular' is not defined")
