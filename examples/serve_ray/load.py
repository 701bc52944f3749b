#!/usr/bin/env python3
"""Sends random requests to service.py and says how many it answers a second, and how long one takes.

    load.py [--url http://127.0.0.1:8000/] [--clients 1,4,16,64] [--seconds 5] [--processes 1]

A client sends its next request when it has the answer to the last, so as many requests are under way as there are clients, and batches grow
with them. One line for each number of clients. A request that gets no answer (the node died that had taken it in) is sent again. One process
of Python sends about a thousand large requests a second; with --processes the clients are shared among several.
"""
import argparse
import asyncio
import concurrent.futures
import math
import time

import aiohttp
import numpy as np

TRIES = 20


async def ask(session, url, body):
    """The answer's bytes, its headers, and how often the request was sent."""
    for tries in range(1, TRIES + 1):
        try:
            async with session.post(url, data=body) as response:
                if response.status == 200:
                    return await response.read(), response.headers, tries
                text = await response.text()
                if response.status < 500:
                    raise ValueError(f"{url}: {response.status}: {text}")
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, asyncio.TimeoutError) as lost:
            text = str(lost) or type(lost).__name__
        await asyncio.sleep(0.1 * tries)
    raise RuntimeError(f"{url}: no answer after {TRIES} tries: {text}")


def random_body(inputs, random):
    arrays = []
    for one in inputs:
        dtype = np.dtype(one["dtype"])
        drawn = random.standard_normal(one["shape"]) if dtype.kind == "f" else random.integers(0, 2, one["shape"])
        arrays.append(drawn.astype(dtype).tobytes())
    return b"".join(arrays)


async def measure(url, inputs, clients, seconds):
    """(milliseconds, batch, resent) of each answer, and how long all of it took."""
    found = []
    bodies = [random_body(inputs, np.random.default_rng(seed)) for seed in range(clients)]
    begin = time.perf_counter()

    async def client(body):
        while time.perf_counter() - begin < seconds:
            sent = time.perf_counter()
            _, headers, tries = await ask(session, url, body)
            found.append(((time.perf_counter() - sent) * 1e3, int(headers["tamp-batch"]), tries + int(headers["tamp-tries"]) - 2))

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=120)) as session:
        await asyncio.gather(*map(client, bodies))
    return found, time.perf_counter() - begin


def measure_in(pool, processes, url, inputs, clients, seconds):
    """The same, with the clients shared among the pool's processes."""
    shares = [clients // processes + (i < clients % processes) for i in range(min(clients, processes))]
    parts = [pool.submit(measure_alone, url, inputs, share, seconds) for share in shares]
    founds, times = zip(*[part.result() for part in parts])
    return [one for found in founds for one in found], max(times)


def measure_alone(*arguments):
    return asyncio.run(measure(*arguments))


async def inputs_of(url):
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        response.raise_for_status()
        return (await response.json())["inputs"]


def percentile(values, percent):
    """The least of the values that so many percent of them do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000/")
    parser.add_argument("--clients", default="1,4,16,64", help="requests under way at once, one measurement each (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement (default %(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="that send (default %(default)s)")
    arguments = parser.parse_args()
    inputs = asyncio.run(inputs_of(arguments.url))
    with concurrent.futures.ProcessPoolExecutor(arguments.processes) as pool:
        measure_in(pool, arguments.processes, arguments.url, inputs, 4 * arguments.processes, 0.5)  # warm
        print(f"{'clients':>8}{'mean batch':>12}{'largest':>9}{'requests/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'sent again':>12}")
        for clients in map(int, arguments.clients.split(",")):
            found, seconds = measure_in(pool, arguments.processes, arguments.url, inputs, clients, arguments.seconds)
            times, batches, again = zip(*found)
            # A batch of n answers n requests: the mean over batches, not over requests.
            mean = len(batches) / sum(1 / batch for batch in batches)
            print(f"{clients:>8}{mean:>12.1f}{max(batches):>9}{len(found) / seconds:>12.0f}{percentile(times, 50):>9.1f}"
                  f"{percentile(times, 99):>9.1f}{sum(again):>12}", flush=True)


if __name__ == "__main__":
    main()
