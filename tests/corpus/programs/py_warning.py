import numpy

print("scaling")
print(numpy.float32(3e38) * numpy.float32(10))
