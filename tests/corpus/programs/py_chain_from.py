class ConfigError(Exception):
    pass


def load(text):
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError("train.yaml: key 'batch_size' must be a whole number") from error


load("thirty-two")
