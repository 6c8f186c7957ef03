from circular_b import Trainer


class Config:
    pass
