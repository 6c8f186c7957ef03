import common_ddp

common_ddp.start(seconds=6)
