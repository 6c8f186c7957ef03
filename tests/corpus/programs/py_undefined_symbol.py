import fused_ops

fused_ops.run()
