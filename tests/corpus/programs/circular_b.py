from circular_a import Config


class Trainer:
    config = Config
