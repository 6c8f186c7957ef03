"""The names of tests/lib/processes that the tests of staged directories import."""
from processes.node import Node  # noqa: F401
from processes.runner import Skip, run_tests  # noqa: F401
from processes.wire import *  # noqa: F401, F403
from processes.wire import PATIENCE_S  # noqa: F401
