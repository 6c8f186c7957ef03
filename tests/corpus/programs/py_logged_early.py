"""An error that was dealt with is in the log, long before the one that ends the program."""
import logging
import time

logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(levelname)s %(message)s")
try:
    import flash_attention_kernels
except ImportError:
    logging.exception("fused attention is not available, using the plain one")
for epoch in range(5):
    for step in range(20):
        time.sleep(0.002)
        logging.info("epoch %d step %d loss %.3f", epoch, step, 2.0 / (1 + step))
raise OverflowError("cannot convert float infinity to integer")
