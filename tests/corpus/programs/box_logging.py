"""logging.exception with a prefix on each line, since the handler splits the record."""
import logging
import sys


class EachLine(logging.Formatter):
    def format(self, record):
        text = super().format(record)
        head, _, rest = text.partition(" - ")
        return "\n".join(f"{head} - {line}" for line in rest.splitlines())


handler = logging.StreamHandler()
handler.setFormatter(EachLine("%(asctime)s [%(levelname)s] [%(process)d] %(name)s - %(message)s"))
logging.basicConfig(level=logging.INFO, handlers=[handler])
log = logging.getLogger("trainer.loop")
log.info("epoch 0")
try:
    log.info("batch of %d", [4, 4, 2][3])
except IndexError:
    log.exception("training failed")
    sys.exit(1)
