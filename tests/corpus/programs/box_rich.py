import rich.traceback

rich.traceback.install(show_locals=True, width=100)


def normalise(values):
    mean = sum(values) / len(values)
    return [value - mean for value in values]


print("normalising")
normalise([])
