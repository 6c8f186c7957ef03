import asyncio


async def load(shard):
    await asyncio.sleep(0.01 * shard)
    if shard == 2:
        raise FileNotFoundError(2, "No such file or directory", f"/data/shard-{shard:05d}.tar")
    await asyncio.sleep(5)


async def main():
    async with asyncio.TaskGroup() as group:
        for shard in range(4):
            group.create_task(load(shard))

asyncio.run(main())
