import numpy

table = numpy.zeros((1_000_000, 1_000), dtype=numpy.float64)
print(table.sum())
