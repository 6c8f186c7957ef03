"""One line of 20 kB: the value is in the message."""
values = {f"feature_{i:03d}": i * 0.1234567 for i in range(700)}
raise ValueError("feature_700 is not among the features of the model, which are " + repr(values))
