cache = []
while True:
    cache.append(bytearray(1 << 24))
