"""Logs are JSON, one object a line; the traceback is inside."""
import sys

from loguru import logger

logger.remove()
logger.add(sys.stdout, serialize=True, backtrace=False, diagnose=False)
logger.info("start")
try:
    {}["learning_rate"]
except KeyError:
    logger.exception("can not build the optimizer")
    sys.exit(1)
