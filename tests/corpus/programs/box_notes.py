"""An exception with notes after its message."""
try:
    int("0x1f")
except ValueError as error:
    error.add_note("while reading column 'id'")
    error.add_note("in row 3012 of train.csv")
    raise
