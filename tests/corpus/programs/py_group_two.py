def check(config):
    errors = []
    for key, limit in (("dropout", 1), ("warmup", 1000), ("depth", 48)):
        if config[key] > limit:
            errors.append(ValueError(f"{key}={config[key]} is above {limit}"))
    if errors:
        raise ExceptionGroup("config is not valid", errors)


check({"dropout": 1.5, "warmup": 500, "depth": 96})
