import multiprocessing


def resize(size):
    return 4096 // (size - 3)


if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        print(pool.map(resize, range(6)))
