#!/usr/bin/env python3
"""Serves a model with Ray Serve: a replica per GPU, on any number of nodes, with batches formed of the requests that wait.

    service.py MODEL.onnx [--batches 1,2,4,8,16] [--replicas N] [--doors N] [--address HOST:PORT]

tamp compiles for fixed shapes, so each replica holds the model several times, once for each batch. Requests that wait together take the
smallest batch that holds them; what is left of it is zeros.

    GET  /   what the model takes and gives, as JSON
    POST /   body: the inputs' bytes, one behind the other, in the model's order, for one element of the batch; answer: the outputs' bytes

There are two deployments. Network runs the model. Door listens for HTTP, makes batches of the requests, and keeps each request until it has
an answer: a replica of Network that dies takes none with it, since an inference changes nothing and can be asked for again elsewhere.
"""
from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import math
import os
import socket
from typing import Any

import numpy as np
import ray
from aiohttp import web
from ray import serve
from ray.exceptions import ObjectLostError, RayActorError

import tamp

TRIES = 10  # replicas that die with one and the same request before it is given up: maybe it is what kills them
AHEAD = 2  # batches that are under way for each replica: the second is there when the first is done
# A call goes through one thread on either side, not three: what a replica computes, it computes in a thread of our own.
ENVIRONMENT = {"env_vars": {"RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0", "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0"}}
FLOATS = {"f16": "float16", "f32": "float32", "f64": "float64", "bool": "bool"}
INTEGERS = {f"{name[0]}{bits}": f"{name}{bits}" for name in ("int", "uint") for bits in (8, 16, 32, 64)}
DTYPES = {**FLOATS, **INTEGERS}  # tamp's names and numpy's
Array = np.ndarray[Any, Any]


class Element:
    """A port of the model without its batch: one request's part of it."""

    def __init__(self, port: tamp.Port, batch: int) -> None:
        if not port.shape or port.shape[0] != batch:
            raise ValueError(f"{port}: its first extent is not the batch, {batch}: this model's elements cannot be taken apart")
        if port.dtype not in DTYPES:
            raise ValueError(f"{port}: numpy has no such element type")
        self.name, self.dtype, self.shape = port.name, np.dtype(DTYPES[port.dtype]), port.shape[1:]
        self.count = math.prod(self.shape)
        self.bytes = self.count * self.dtype.itemsize

    def described(self) -> dict[str, Any]:
        return {"name": self.name, "dtype": self.dtype.name, "shape": self.shape}


class Batches:
    """The model, compiled for several batches."""

    def __init__(self, path: str, sizes: list[int], options: dict[str, Any]) -> None:
        with concurrent.futures.ThreadPoolExecutor(len(sizes)) as pool:  # the first replica on a machine builds them, others find them in tamp's cache
            models = pool.map(lambda size: tamp.compile(path, batch=size, **options), sizes)
            self._models = dict(zip(sizes, models))
        for size, model in self._models.items():
            self.inputs = [Element(port, size) for port in model.inputs]
            self.outputs = [Element(port, size) for port in model.outputs]

    def __call__(self, arrays: list[Array]) -> list[Array]:
        results = self._models[len(arrays[0])](*arrays)
        return list(results) if isinstance(results, tuple) else [results]


class Bodies:
    """Turns requests' bodies into a batch, in memory that the next one takes again."""

    def __init__(self, inputs: list[Element], sizes: list[int]) -> None:
        self._inputs, self._sizes = inputs, sizes
        self._arrays = [np.empty((max(sizes), *one.shape), one.dtype) for one in inputs]

    def stack(self, bodies: list[bytes]) -> list[Array]:
        size, offset = min(size for size in self._sizes if size >= len(bodies)), 0
        for one, array in zip(self._inputs, self._arrays):
            for row, body in enumerate(bodies):
                array[row] = np.frombuffer(body, one.dtype, one.count, offset).reshape(one.shape)
            array[len(bodies):size] = 0
            offset += one.bytes
        return [array[:size] for array in self._arrays]


def cut(results: list[Array], row: int) -> bytes:
    """One request's answer."""
    return b"".join(result[row].tobytes() for result in results)


@serve.deployment(health_check_period_s=2, graceful_shutdown_timeout_s=5)
class Network:
    """One replica: the model in all its batches, on one GPU."""

    async def __init__(self, path: str, sizes: list[int], options: dict[str, Any]) -> None:
        self._batches = await asyncio.to_thread(Batches, path, sizes, options)
        self._thread = concurrent.futures.ThreadPoolExecutor(1)  # so that the next batch is received meanwhile
        self._name = f"{ray.get_runtime_context().get_node_id()[:8]}:{os.getpid()}"

    def elements(self) -> tuple[list[Element], list[Element]]:
        return self._batches.inputs, self._batches.outputs

    async def answer(self, *arrays: Array) -> tuple[list[Array], str]:
        """The outputs, and who made them."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._batches, arrays), self._name


@serve.deployment(health_check_period_s=2, graceful_shutdown_timeout_s=5)
class Door:
    """Listens for HTTP, makes batches, and asks again whenever the replica that has one dies. The Doors of a node share its port."""

    async def __init__(self, network: Any, sizes: list[int], host: str, port: int, wait_s: float, senders: int, most: int, body_s: float) -> None:
        self._network, self._sizes, self._wait_s, self._most, self._body_s = network, sizes, wait_s, most, body_s
        (self._inputs, outputs), _ = await ask(network.elements)
        self._about = {"inputs": [one.described() for one in self._inputs], "outputs": [one.described() for one in outputs], "batches": sizes}
        self._bytes = sum(one.bytes for one in self._inputs)
        self._held = 0  # requests that are not answered yet; each may take a body's memory
        self._arriving = 0  # those of them whose bodies are on their way
        self._waiting: asyncio.Queue[tuple[bytes, asyncio.Future[web.Response]]] = asyncio.Queue()
        self._forming = asyncio.Lock()
        self._senders = [asyncio.create_task(self._send()) for _ in range(senders)]
        application = web.Application()
        application.add_routes([web.get("/", self._get), web.post("/", self._post)])
        self._runner = web.AppRunner(application, access_log=None, read_bufsize=max(1 << 16, self._bytes))
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, reuse_port=True).start()

    def check_health(self) -> None:
        if any(sender.done() for sender in self._senders):
            raise RuntimeError("this Door no longer sends batches")

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(self._about)

    async def _post(self, request: web.Request) -> web.Response:
        if self._held >= self._most:
            return refused(503, f"{self._most} requests are under way here, which is the limit; send it again", {"Retry-After": "1"})
        self._held += 1
        try:
            return await self._answer(request)
        finally:
            self._held -= 1

    async def _answer(self, request: web.Request) -> web.Response:
        self._arriving += 1
        try:
            body, found = await asyncio.wait_for(self._receive(request), self._body_s)
        except asyncio.TimeoutError:
            return refused(408, f"the body did not arrive within {self._body_s:g} s")
        finally:
            self._arriving -= 1
        if found != self._bytes:
            found = request.content_length or found
            return web.Response(text=f"found {found} bytes, expected {self._bytes}: the inputs of one element, one behind the other", status=400)
        answer: asyncio.Future[web.Response] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((body, answer))
        return await answer

    async def _receive(self, request: web.Request) -> tuple[bytes, int]:
        """The body, or the beginning of one that is too long, and how many bytes came."""
        pieces, found = [], 0
        async for piece in request.content.iter_any():
            pieces.append(piece)
            found += len(piece)
            if found > self._bytes:
                break
        return b"".join(pieces), found

    async def _send(self) -> None:
        """One batch after another."""
        memory = Bodies(self._inputs, self._sizes)
        while True:
            async with self._forming:
                bodies, answers = zip(*await self._form())
            try:
                (results, replica), tries = await ask(self._network.answer, *memory.stack(bodies))
                headers = {"tamp-batch": str(len(bodies)), "tamp-replica": replica, "tamp-tries": str(tries)}
                responses = [web.Response(body=cut(results, row), headers=headers) for row in range(len(bodies))]
            except Exception as failed:  # the model's, or TRIES replicas died
                responses = [web.Response(text=str(failed), status=500) for _ in bodies]
            for answer, response in zip(answers, responses):
                if not answer.done():
                    answer.set_result(response)

    async def _form(self) -> list[tuple[bytes, asyncio.Future[web.Response]]]:
        """The requests that wait, and those whose bodies arrive soon."""
        batch = [await self._waiting.get()]
        clock = asyncio.get_running_loop().time
        until = clock() + self._wait_s
        while len(batch) < max(self._sizes):
            if self._waiting.empty() and (not self._arriving or clock() >= until):
                break
            try:
                batch.append(await asyncio.wait_for(self._waiting.get(), max(0, until - clock())))
            except asyncio.TimeoutError:
                break
        return batch


async def ask(method: Any, *arguments: Any) -> tuple[Any, int]:
    """What a replica answers, and how many were asked."""
    for tries in range(1, TRIES + 1):
        try:
            return await method.remote(*arguments), tries  # waits for a replica if there is none just now
        except (RayActorError, ObjectLostError):
            if tries == TRIES:
                raise
            await asyncio.sleep(0.05 * tries)
    raise AssertionError("not reached")


def refused(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    """Ends the connection, too: what is left of the body is not waited for."""
    response = web.Response(text=text, status=status, headers=headers)
    response.force_close()
    return response


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="an ONNX file; every node must find it, and its weights, under this path")
    parser.add_argument("--batches", default="1,2,4,8,16", help="what to compile for (default %(default)s)")
    parser.add_argument("--replicas", type=int, help="default: one for each GPU of the cluster; without GPUs 2, on the CPU")
    parser.add_argument("--doors", type=int, help="processes that listen on each node; default: one for every four cores, four at most")
    parser.add_argument("--wait-ms", type=float, default=2, help="a batch waits so long for bodies that are arriving (default %(default)s)")
    parser.add_argument("--requests", type=int, default=512, help="under way at once in a Door, their bodies in its memory; more get status 503 (default %(default)s)")
    parser.add_argument("--body-s", type=float, default=30, help="a body must have arrived after so many seconds, or gets status 408 (default %(default)s)")
    parser.add_argument("--precision", help="fp32, tf32, fp16 or bf16; default: the GPU's own")
    parser.add_argument("--vdevice", help="default: the first GPU of each node")
    parser.add_argument("--address", help="of a Ray cluster, HOST:PORT or auto; default: this machine's own, which is started if there is none")
    parser.add_argument("--host", default="127.0.0.1", help="where HTTP is listened to (default %(default)s); 0.0.0.0: from everywhere")
    parser.add_argument("--port", type=int, default=8000, help="(default %(default)s)")
    arguments = parser.parse_args()
    socket.create_server((arguments.host, arguments.port)).close()  # Doors share a port: another service's would be joined, not refused
    ray.init(address=arguments.address, log_to_driver=False)
    gpus = int(ray.cluster_resources().get("GPU", 0))
    nodes = [node for node in ray.nodes() if node["Alive"]]
    cores = min(int(node["Resources"].get("CPU", 1)) for node in nodes)
    doors = arguments.doors or max(1, min(4, cores // 4))
    replicas = arguments.replicas or gpus or 2
    senders = math.ceil(AHEAD * replicas / (doors * len(nodes)))
    sizes = sorted(int(size) for size in arguments.batches.split(","))
    options = {name: value for name, value in (("precision", arguments.precision), ("vdevice", arguments.vdevice)) if value}
    network = Network.options(num_replicas=replicas, max_ongoing_requests=max(4, senders * doors * len(nodes)),
                              ray_actor_options={"num_gpus" if gpus else "num_cpus": 1, "runtime_env": ENVIRONMENT})
    door = Door.options(num_replicas=doors * len(nodes), max_replicas_per_node=doors, ray_actor_options={"num_cpus": 0, "runtime_env": ENVIRONMENT})
    model = network.bind(os.path.abspath(arguments.model), sizes, {"device": "cuda" if gpus else "cpu", **options})
    serve.start(proxy_location="Disabled")
    try:
        serve.run(door.bind(model, sizes, arguments.host, arguments.port, arguments.wait_ms / 1e3, senders, arguments.requests, arguments.body_s), route_prefix=None)
        print(f"ready: {counted(replicas, 'replica')} on {counted(gpus, 'GPU') if gpus else 'the CPU'} of {counted(len(nodes), 'node')}, "
              f"{counted(doors, 'door')} on each, "
              f"http://{arguments.host}:{arguments.port}/", flush=True)
        asyncio.run(asyncio.Event().wait())
    except KeyboardInterrupt:
        pass
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()
