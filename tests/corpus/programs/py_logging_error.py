"""A log line with a wrong format is reported and is harmless."""
import logging

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
log = logging.getLogger("train")
log.info("loss is %.4f after %d steps", 0.25)
log.info("saving")
weights = [0.5] * 10
log.info("weight 12 is %.2f", weights[12])
