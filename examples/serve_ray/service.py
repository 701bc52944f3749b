#!/usr/bin/env python3
"""Serves a model with Ray Serve: a replica per GPU, on any number of nodes, with batches formed of the requests that wait.

    service.py MODEL.onnx [--batches 1,2,4,8,16] [--replicas N] [--address HOST:PORT]

tamp compiles for fixed shapes, so each replica holds the model several times, once for each batch. Requests that wait together take the
smallest batch that holds them; what is left of it is zeros.

    GET  /   what the model takes and gives, as JSON
    POST /   body: the inputs' bytes, one behind the other, in the model's order, for one element of the batch; answer: the outputs' bytes

There are two deployments. Network runs the model. Door speaks HTTP and keeps each request until it has an answer: a replica of Network
that dies takes none with it, since an inference changes nothing and can be asked for again elsewhere.
"""
from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import os
from typing import Any

import numpy as np
import ray
from ray import serve
from ray.exceptions import RayActorError
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

import tamp

TRIES = 10  # replicas that die with one and the same request before it is given up: maybe it is what kills them
FLOATS = {"f16": "float16", "f32": "float32", "f64": "float64", "bool": "bool"}
INTEGERS = {f"{name[0]}{bits}": f"{name}{bits}" for name in ("int", "uint") for bits in (8, 16, 32, 64)}
DTYPES = {**FLOATS, **INTEGERS}  # tamp's names and numpy's


class Element:
    """A port of the model without its batch: one request's part of it."""

    def __init__(self, port: tamp.Port, batch: int) -> None:
        if not port.shape or port.shape[0] != batch:
            raise ValueError(f"{port}: its first extent is not the batch, {batch}: this model's elements cannot be taken apart")
        if port.dtype not in DTYPES:
            raise ValueError(f"{port}: numpy has no such element type")
        self.name, self.dtype, self.shape = port.name, np.dtype(DTYPES[port.dtype]), port.shape[1:]
        self.bytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@serve.deployment(health_check_period_s=2, graceful_shutdown_timeout_s=5)
class Network:
    """One replica: the model in all its batches, on one GPU."""

    def __init__(self, path: str, batches: list[int], options: dict[str, Any], wait_s: float) -> None:
        with concurrent.futures.ThreadPoolExecutor(len(batches)) as pool:  # the first replica on a machine builds them, others find them in tamp's cache
            models = pool.map(lambda batch: tamp.compile(path, batch=batch, **options), batches)
            self._models = dict(zip(batches, models))
        for batch, model in self._models.items():
            self._inputs = [Element(port, batch) for port in model.inputs]
            self._outputs = [Element(port, batch) for port in model.outputs]
        self._answers.set_max_batch_size(max(batches))
        self._answers.set_batch_wait_timeout_s(wait_s)

    def about(self) -> dict[str, Any]:
        def described(elements: list[Element]) -> list[dict[str, Any]]:
            return [{"name": one.name, "dtype": one.dtype.name, "shape": one.shape} for one in elements]
        return {"inputs": described(self._inputs), "outputs": described(self._outputs), "batches": sorted(self._models)}

    async def answer(self, body: bytes) -> tuple[bytes, int, str]:
        """The outputs, the batch that was formed, and who ran it. ValueError: the request is wrong; no other one hears of it."""
        expected = sum(one.bytes for one in self._inputs)
        if len(body) != expected:
            raise ValueError(f"found {len(body)} bytes, expected {expected}: the inputs of one element, one behind the other")
        return await self._answers(body)

    @serve.batch
    async def _answers(self, bodies: list[bytes]) -> list[tuple[bytes, int, str]]:
        # In a thread, so that the next batch is formed meanwhile.
        answers = await asyncio.to_thread(self._run, bodies)
        return [(answer, len(bodies), f"{ray.get_runtime_context().get_node_id()[:8]}:{os.getpid()}") for answer in answers]

    def _run(self, bodies: list[bytes]) -> list[bytes]:
        batch = min(size for size in self._models if size >= len(bodies))
        arrays, offset = [], 0
        for one in self._inputs:
            array = np.zeros((batch, *one.shape), one.dtype)
            for row, body in enumerate(bodies):
                array[row] = np.frombuffer(body, one.dtype, array[row].size, offset).reshape(one.shape)
            arrays.append(array)
            offset += one.bytes
        results = self._models[batch](*arrays)
        results = results if isinstance(results, tuple) else (results,)
        return [b"".join(result[row].tobytes() for result in results) for row in range(len(bodies))]


@serve.deployment(max_ongoing_requests=1024, health_check_period_s=2)
class Door:
    """Takes requests in, and asks again whenever the replica that has one dies."""

    def __init__(self, network: serve.handle.DeploymentHandle) -> None:
        self._network = network

    async def __call__(self, request: Request) -> Response:
        if request.method == "GET":
            return JSONResponse((await self._ask(self._network.about))[0])
        try:
            (answer, batch, replica), tries = await self._ask(self._network.answer, await request.body())
        except ValueError as wrong:
            return PlainTextResponse(str(getattr(wrong, "cause", wrong)), 400)
        return Response(answer, media_type="application/octet-stream",
                        headers={"tamp-batch": str(batch), "tamp-replica": replica, "tamp-tries": str(tries)})

    async def _ask(self, method: Any, *args: Any) -> tuple[Any, int]:
        for tries in range(1, TRIES + 1):
            try:
                return await method.remote(*args), tries  # waits for a replica if there is none just now
            except RayActorError:
                if tries == TRIES:
                    raise
                await asyncio.sleep(0.05 * tries)
        raise AssertionError("not reached")


def application(path: str, batches: list[int], replicas: int, doors: int, on_gpu: bool, options: dict[str, Any], wait_s: float) -> serve.Application:
    waiting = max(128, 4 * max(batches))  # requests that a replica takes in at once, so that the next batches can form
    network = Network.options(num_replicas=replicas, max_ongoing_requests=waiting, ray_actor_options={"num_gpus": 1} if on_gpu else {"num_cpus": 1})
    options = {"device": "cuda" if on_gpu else "cpu", **options}
    door = Door.options(num_replicas=doors, ray_actor_options={"num_cpus": 0})
    return door.bind(network.bind(os.path.abspath(path), sorted(batches), options, wait_s))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="an ONNX file; every node must find it, and its weights, under this path")
    parser.add_argument("--batches", default="1,2,4,8,16", help="what to compile for (default %(default)s)")
    parser.add_argument("--replicas", type=int, help="default: one for each GPU of the cluster; without GPUs 2, on the CPU")
    parser.add_argument("--wait-ms", type=float, default=2, help="the first request of a batch waits so long for others (default %(default)s)")
    parser.add_argument("--precision", help="fp32, tf32, fp16 or bf16; default: the GPU's own")
    parser.add_argument("--vdevice", help="default: the first GPU of each node")
    parser.add_argument("--address", help="of a Ray cluster, HOST:PORT or auto; default: this machine's own, which is started if there is none")
    parser.add_argument("--host", default="127.0.0.1", help="where HTTP is listened to (default %(default)s); 0.0.0.0: from everywhere")
    parser.add_argument("--port", type=int, default=8000, help="(default %(default)s)")
    parser.add_argument("--proxies", choices=["EveryNode", "HeadOnly"], default="EveryNode", help="which nodes listen (default %(default)s)")
    arguments = parser.parse_args()
    ray.init(address=arguments.address, log_to_driver=False)
    gpus = int(ray.cluster_resources().get("GPU", 0))
    nodes = sum(node["Alive"] for node in ray.nodes())
    replicas = arguments.replicas or gpus or 2
    options = {name: value for name, value in (("precision", arguments.precision), ("vdevice", arguments.vdevice)) if value}
    batches = [int(batch) for batch in arguments.batches.split(",")]
    serve.start(proxy_location=arguments.proxies, http_options={"host": arguments.host, "port": arguments.port})
    try:
        serve.run(application(arguments.model, batches, replicas, nodes, gpus > 0, options, arguments.wait_ms / 1e3), route_prefix="/")
        print(f"ready: {replicas} replicas on {f'{gpus} GPUs' if gpus else 'the CPU'} of {nodes} nodes, http://{arguments.host}:{arguments.port}/", flush=True)
        asyncio.run(asyncio.Event().wait())
    except KeyboardInterrupt:
        pass
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()
