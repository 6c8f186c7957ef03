"""The handler of the first error fails itself, for want of a name."""
import json

try:
    config = json.loads('{"layers": 12, "heads": }')
except json.JSONDecodeError as error:
    logger.error("bad config: %s", error)
    raise
