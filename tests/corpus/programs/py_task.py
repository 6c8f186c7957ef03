import asyncio


async def fetch(name):
    await asyncio.sleep(0)
    raise ConnectionRefusedError(111, f"Connect call failed ('10.0.0.7', 8086) for {name}")


async def train():
    asyncio.create_task(fetch("metrics"))
    await asyncio.sleep(0.2)
    for step in range(10):
        await asyncio.sleep(0)
        assert step < 6, f"step {step}: loss 14.2 is above the limit 10"

asyncio.run(train())
