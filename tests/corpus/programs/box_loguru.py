import sys

from loguru import logger


def split(samples, parts):
    return [samples[i * len(samples) // parts:(i + 1) * len(samples) // parts] for i in range(parts)]


@logger.catch(onerror=lambda _: sys.exit(1))
def main():
    logger.info("splitting")
    split(list(range(10)), "4")


main()
