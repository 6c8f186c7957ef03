for step in range(20000):
    print(f"step {step}")
