#!/usr/bin/env python3
"""The examples that use Ray: examples/serve_ray and examples/tune_ray, on the stand-in, in a cluster of three nodes on this machine.

    ray_test.py TAMP [WORD...]
"""
import asyncio
import importlib.util
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

import harness
import models as m
import python_package

INSIDE = "TAMP_RAY_TEST"
EXAMPLES = harness.ROOT / "examples"
ELEMENT = 28 * 28  # of mnist_mlp's input


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


# --- serve_ray: one service for all tests --------------------------------------------------------------------------------

class Service:
    """examples/serve_ray/service.py with mnist_mlp, two replicas."""

    def __init__(self, address, folder):
        python_package.run(sys.executable, EXAMPLES / "make_weights.py", EXAMPLES / "models" / "mnist_mlp.onnx", "--into", folder)
        self.model = folder / "mnist_mlp.onnx"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/"
        # Both nodes are this machine, so all Doors share one port. Batches wait long: this machine is slow, and has more to do.
        command = [sys.executable, EXAMPLES / "serve_ray" / "service.py", self.model, "--address", address, "--port", str(port), "--replicas", "2",
                   "--wait-ms", "30"]
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith("ready: "):
                break
        assert lines and lines[-1].startswith("ready: 2 replicas on the CPU of 2 nodes"), "".join(lines)[-3000:]
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def close(self):
        """Ends the service as Ctrl-C does. Ray drains its nodes first; in one of fifteen runs, in which nodes and replicas had died, it never
        got to an end. All tests are over then, so the service is killed, and the cluster's own end takes what is left."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(90)
        except subprocess.TimeoutExpired:
            print("Ray did not let the service end within 90 s of SIGINT: killed", flush=True)
            self.process.kill()
            self.process.wait()


def images(count, seed):
    return np.random.default_rng(seed).standard_normal((count, 1, 28, 28)).astype(np.float32)


def answers(found):
    return np.stack([np.frombuffer(answer, np.float32) for answer, _, _ in found])


def expected(service, x):
    import tamp
    model = tamp.compile(service.model, batch=1, device="cpu")
    return np.concatenate([model(x[i:i + 1]) for i in range(len(x))])


def ask_all(url, bodies, during=None):
    """What load.py's `ask` gives for each of the bodies, all sent at once. With `during`, which is called meanwhile with a list of what is answered,
    they are sent again and again until it returns; then this gives the whole list, of (index of the body, what `ask` gives)."""
    load = module(EXAMPLES / "serve_ray" / "load.py")

    async def all_of_them():
        import aiohttp
        done, over = [], asyncio.Event()

        async def one(session, i):
            while True:
                found = await load.ask(session, url, bodies[i])
                done.append((i, found))
                if not during or over.is_set():
                    return found

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            sent = [asyncio.create_task(one(session, i)) for i in range(len(bodies))]
            if during:
                try:
                    await asyncio.to_thread(during, done)
                finally:
                    over.set()
            found = await asyncio.gather(*sent)
            return done if during else found

    return asyncio.run(all_of_them())


def test_answers_are_those_of_direct_calls_and_batches_are_formed(tamp, service):
    x = images(48, seed=1)
    wanted, replicas = expected(service, x), set()
    for _ in range(20):  # who gets a batch is Ray's choice, and on a busy machine all of a round may go to one replica
        found = ask_all(service.url, [image.tobytes() for image in x])
        assert np.allclose(answers(found), wanted, rtol=1e-4, atol=1e-5)
        batches = [int(headers["tamp-batch"]) for _, headers, _ in found]
        assert max(batches) > 1 and max(batches) <= 16, batches
        replicas |= {headers["tamp-replica"] for _, headers, _ in found}
        if len(replicas) == 2:
            break
    assert len(replicas) == 2, "one replica did all the work"


def test_a_wrong_request_harms_no_other(tamp, service):
    import aiohttp
    about = json.loads(asyncio.run(get(aiohttp, service.url)))
    assert about["inputs"] == [{"name": "input", "dtype": "float32", "shape": [1, 28, 28]}] and about["batches"] == [1, 2, 4, 8, 16], about
    x = images(3, seed=2)
    good, bad = [image.tobytes() for image in x], b"abc"
    found = ask_all(service.url, good, during=lambda done: refused(service, bad))
    rows = [i for i, _ in found]
    assert np.allclose(answers([one for _, one in found]), expected(service, x)[rows], rtol=1e-4, atol=1e-5)


async def get(aiohttp, url):
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.text()


def refused(service, body):
    try:
        ask_all(service.url, [body])
    except ValueError as wrong:
        assert "400: found 3 bytes, expected 3136" in str(wrong), wrong
        return
    raise AssertionError("a request of 3 bytes was answered")


class Slow:
    """A model of one float, in place of the replicas: it answers nothing before it is let."""

    def __init__(self, service):
        self.open = asyncio.Event()
        part = service.Element(type("Port", (), {"name": "x", "dtype": "f32", "shape": (1, 1)})(), 1)
        self.elements = self.answer = self
        self.parts = ([part], [part])

    async def remote(self, *arrays):
        if not arrays:
            return self.parts
        await self.open.wait()
        return [2 * array for array in arrays], "slow"


def test_what_a_door_holds_is_bounded(tamp):
    """In number and in time: a client that sends slowly or not at all takes no room for ever, and many of them no more memory than a few."""
    import aiohttp
    service = module(EXAMPLES / "serve_ray" / "service.py")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def never_ends():
        yield b"ab"
        await asyncio.sleep(60)

    async def check():
        network, door = Slow(service), object.__new__(service.Door.func_or_class)
        await service.Door.func_or_class.__init__(door, network, [1, 2], "127.0.0.1", port, 0.001, 1, most=3, body_s=0.5)
        url, body = f"http://127.0.0.1:{port}/", np.float32([3]).tobytes()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            async def post(data):
                async with session.post(url, data=data) as response:
                    return response.status, await response.read(), response.headers

            held = [asyncio.create_task(post(body)) for _ in range(2)] + [asyncio.create_task(post(never_ends()))]
            await asyncio.sleep(0.2)
            status, text, headers = await post(body)
            assert status == 503 and b"3 requests are under way" in text and headers["Retry-After"] == "1", (status, text)
            status, text, _ = await held.pop()
            assert status == 408 and b"did not arrive within 0.5 s" in text, (status, text)
            held.append(asyncio.create_task(post(body)))  # there is room again
            await asyncio.sleep(0.1)
            network.open.set()
            for status, answer, _ in await asyncio.gather(*held):
                assert status == 200 and np.frombuffer(answer, np.float32) == 6, status
            assert (await post(b"abcdefgh"))[0] == 400 and door._held == 0
        for sender in door._senders:
            sender.cancel()
        await door._runner.cleanup()

    asyncio.run(check())


def wait_for_answers(done, more):
    wanted, begin = len(done) + more, time.monotonic()
    while len(done) < wanted:
        assert time.monotonic() - begin < 100, f"{len(done)} answers, expected {wanted}"
        time.sleep(0.01)


def test_no_request_is_lost_when_a_node_dies(tamp, service, cluster, second):
    """Two nodes have room for one replica each. The second one dies; a third has room for the replica's successor."""
    x = images(32, seed=4)

    def kill_node(done):
        def answers_of_it(last):
            return any(headers["tamp-replica"].startswith(f"{second.node_id[:8]}:") for _, (_, headers, _) in list(done)[-last:])

        begin = time.monotonic()
        while not answers_of_it(64):  # who gets a batch is Ray's choice: see the test of batches above
            assert time.monotonic() - begin < 100, "the node has no replica"
            wait_for_answers(done, 16)
        cluster.remove_node(second, allow_graceful=False)
        begin = time.monotonic()
        while answers_of_it(64):
            assert time.monotonic() - begin < 100
            wait_for_answers(done, 16)

    done = ask_all(service.url, [image.tobytes() for image in x], during=kill_node)
    assert {i for i, _ in done} == set(range(32))
    rows = [i for i, _ in done]
    assert np.allclose(answers([found for _, found in done]), expected(service, x)[rows], rtol=1e-4, atol=1e-5)


def door_process():
    """The process that holds the Door, of this test's cluster."""
    for process in pathlib.Path("/proc").iterdir():
        try:
            if b"ServeReplica:default:Door" in (process / "cmdline").read_bytes() and os.environ[INSIDE].encode() in (process / "environ").read_bytes():
                return int(process.name)
        except OSError:
            pass
    raise AssertionError("no process of a Door")


def asked_again(done):
    """Requests that a replica had when it died, as the Door counts them."""
    return sum(int(headers["tamp-tries"]) > 1 for _, (_, headers, _) in list(done))


def test_no_request_is_lost_when_replicas_are_killed(tamp, service):
    x = images(64, seed=3)

    def kill_some(done):
        for _ in range(5):  # once is enough, unless the replica has none at that moment
            wait_for_answers(done, 64)
            os.kill(int(done[-1][1][1]["tamp-replica"].split(":")[1]), signal.SIGKILL)
            wait_for_answers(done, 128)
            if asked_again(done):
                break
        os.kill(door_process(), signal.SIGKILL)
        wait_for_answers(done, 64)

    done = ask_all(service.url, [image.tobytes() for image in x], during=kill_some)
    assert {i for i, _ in done} == set(range(64))
    rows = [i for i, _ in done]
    assert np.allclose(answers([found for _, found in done]), expected(service, x)[rows], rtol=1e-4, atol=1e-5)
    assert asked_again(done), "no replica that was killed had a request"


def test_the_load_client_prints_its_table(tamp, service):
    out = python_package.run(sys.executable, EXAMPLES / "serve_ray" / "load.py", "--url", service.url, "--clients", "1,8", "--seconds", "1", "--processes", "2")
    title, *rows = out.splitlines()
    assert title.split() == ["clients", "mean", "batch", "largest", "requests/s", "p50", "ms", "p99", "ms", "sent", "again"], out
    for row, clients in zip(rows, [1, 8], strict=True):
        found, mean, largest, rate, p50, p99, _ = map(float, row.split())
        assert found == clients and 1 <= mean <= largest <= clients and rate > 0 and 0 < p50 <= p99, out


def test_the_model_is_timed_without_ray(tamp, service):
    out = python_package.run(sys.executable, EXAMPLES / "serve_ray" / "direct.py", service.model, "--batches", "1,2", "--seconds", "0.2", "--device", "cpu")
    title, *rows = out.splitlines()
    assert title.split() == ["batch", "from", "calls/s", "requests/s", "p50", "ms", "p99", "ms"], out
    for row, (batch, kind) in zip(rows, [("1", "arrays"), ("1", "bodies"), ("2", "arrays"), ("2", "bodies")], strict=True):
        found, what, *numbers = row.split()
        assert (found, what) == (batch, kind) and all(float(number) > 0 for number in numbers), out


# --- tune_ray ------------------------------------------------------------------------------------------------------------

def some_records(records, draw):
    """Up to 30 measurements of few keys, so that many meet again."""
    made = []
    for _ in range(draw.randrange(30)):
        key = {"vdevice": "h200", "rop": draw.choice(["Conv", "Relu"]), "veus": draw.randrange(1, 4)}
        made.append(json.dumps({**key, "us": draw.choice([1.5, 2.25, 3.0]), "runs": draw.choice([15, 30])}))
    return records.parse("\n".join(made))


def test_merging_has_one_result_in_any_order_and_any_grouping(tamp):
    records = module(EXAMPLES / "tune_ray" / "records.py")
    draw = random.Random(1)
    for _ in range(300):
        parts = [some_records(records, draw) for _ in range(draw.randrange(1, 8))]
        whole = records.text(records.merge(parts))
        shuffled = parts + draw.choices(parts, k=draw.randrange(4))  # some of them twice
        draw.shuffle(shuffled)
        while len(shuffled) > 1:
            i = draw.randrange(len(shuffled) - 1)
            shuffled[i:i + 2] = [records.merge(shuffled[i:i + 2])]
        assert records.text(shuffled[0]) == whole
        assert records.text(records.merge([records.parse(whole), parts[0]])) == whole
    ours, more, less = ({(("rop", "Conv"),): time} for time in [(2.0, 15), (9.0, 30), (1.0, 15)])
    assert records.merge([ours, less]) == less and records.merge([less, more, ours]) == more
    try:
        records.parse('{"us": 1, "runs": 15}\n{"runs": 15}\n')
    except ValueError as wrong:
        assert "line 2 is no record" in str(wrong)
    else:
        raise AssertionError("a line without a time was taken")


def test_merging_keeps_every_record_of_tamps_own(tamp):
    records = module(EXAMPLES / "tune_ray" / "records.py")
    lines = (harness.ROOT / "compiler/select/records/h200.jsonl").read_text()
    merged = records.text(records.merge([records.parse(lines)]))
    assert sorted(map(json.loads, merged.splitlines()), key=str) == sorted(map(json.loads, lines.splitlines()), key=str)
    (tamp.folder / "merged.jsonl").write_text(merged)
    (tamp.folder / "relu.onnx").write_bytes(m.relu().SerializeToString())
    tamp("compile", "relu.onnx", "-o", "out", "--records", "merged.jsonl")


def test_models_are_tuned_as_tasks(tamp, address):
    for name in ["a", "b"]:
        (tamp.folder / f"{name}.onnx").write_bytes(m.relu().SerializeToString())
    command = [sys.executable, EXAMPLES / "tune_ray" / "tune.py", "a.onnx", "none.onnx", "b.onnx", "--records", "all.jsonl", "--precisions", "tf32",
               "--address", address, "--tamp", tamp.program, "--cpus", "1", "--", "--rounds", "1", "--variants", "2"]
    done = subprocess.run([str(word) for word in command], cwd=tamp.folder, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "none.onnx tf32: FAILED: " in done.stderr and "no such file" in done.stderr.lower(), said
    for name in ["a.onnx", "b.onnx"]:
        assert re.search(rf"^{name} tf32: \d+ records?; \d+ in all.jsonl\n  untuned .* us\n  tuned ", done.stdout, re.M), done.stdout + done.stderr
    tamp("compile", "a.onnx", "-o", "out", "--vdevice", "cpu", "--precision", "tf32", "--records", "all.jsonl")
    greedy = [sys.executable, EXAMPLES / "tune_ray" / "tune.py", "a.onnx", "--records", "more.jsonl", "--address", address, "--cpus", "99"]
    done = subprocess.run([str(word) for word in greedy], cwd=tamp.folder, capture_output=True, text=True)  # Ray would wait for such a machine for ever
    assert done.returncode == 2 and "--cpus 99: no machine has more than 3 for tasks" in done.stderr, done.stdout + done.stderr


def test_tasks_of_one_gpu_take_turns(tamp):
    """By the folder of `tamp tune`'s lock. Ray names a task's GPU in CUDA_VISIBLE_DEVICES."""
    code = f"""import os, sys, tempfile
sys.path.insert(0, {str(EXAMPLES / 'tune_ray')!r})
import tune
tempfile.tempdir = sys.argv[1]
print(*[(os.environ.__setitem__("CUDA_VISIBLE_DEVICES", gpu), tune.lock_folder(own))[1] for gpu, own in [("0", "a"), ("0", "b"), ("1", "a"), ("", "a"), ("", "b")]])
"""
    same, again, other, one, two = python_package.run(sys.executable, "-c", code, tamp.folder, cwd=tamp.folder).split()
    assert same == again != other and one != two, (same, again, other, one, two)
    assert os.stat(same).st_mode & 0o077 == 0  # else `tamp tune` does not trust it


# --- the cluster ---------------------------------------------------------------------------------------------------------

def go_on(folder):
    """This program again, by a Python that has the package, Ray, and what the examples need besides."""
    python = python_package.python_of(sys.argv[1])
    python_package.pip_install(python, "-r", EXAMPLES / "serve_ray" / "requirements.txt", "-r", EXAMPLES / "tune_ray" / "requirements.txt")
    (folder / "ray").mkdir()  # Ray's default folder below RAY_TMPDIR: a cluster of 2.60 writes its address there before it makes it
    environment = {**os.environ, INSIDE: str(folder), "TAMP_CACHE_DIR": str(folder / "cache"), "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder),
                   "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60"}  # by default 5: too little where much else runs
    process = subprocess.Popen([python, *sys.argv], env=environment, stdout=subprocess.PIPE, text=True)
    summary = ""
    for line in process.stdout:  # the summary comes last, whatever Ray says when it ends
        if re.fullmatch(r"\d+ passed, \d+ failed\n", line):
            summary = line
        else:
            print(line, end="", flush=True)
    print(summary, end="", flush=True)
    return process.wait()


def main():
    if INSIDE not in os.environ:
        with tempfile.TemporaryDirectory(prefix="tamp-ray-") as folder:
            return go_on(pathlib.Path(folder))
    from ray.cluster_utils import Cluster
    folder = pathlib.Path(os.environ[INSIDE])
    node = {"num_gpus": 0, "object_store_memory": 100 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "num_cpus": 1})
    service = None
    try:
        second = cluster.add_node(**node, num_cpus=1)  # so each has one replica
        words = sys.argv[2:]
        tests = [test for test in harness.tests_of(globals()) if not words or any(word in test.__name__ for word in words)]
        parameters = {test: test.__code__.co_varnames[1:test.__code__.co_argcount] for test in tests}
        if any("service" in names for names in parameters.values()):
            service = Service(cluster.address, folder)
        cluster.add_node(**node, num_cpus=3)  # for what the dead leave behind, and for tasks
        given = {"service": service, "cluster": cluster, "second": second, "address": cluster.address}
        # One at a time: they share the service.
        return harness.main([harness.with_arguments(test, *[given[name] for name in parameters[test]]) for test in tests], jobs=1)
    finally:
        if service:
            service.close()
        cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
