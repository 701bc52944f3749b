#!/usr/bin/env python3
"""Times models compiled by several builds of tamp, or for several vDevices, in turns in one run on one GPU.

    python3 test/gpu/compare_builds.py --models FOLDER --builds old=PATH,new=PATH[@VDEVICE.json] [--rounds 3] [--out FILE.json] [--traces FOLDER] NAME:PRECISION[:BATCH]...

FOLDER as for measure.py. Two machines of one kind differ by 2 %, so only times of one run say which build is faster. Each round runs
every build once, one after another (`--repeat 20 --graph --train 50` of the runner); the lowest of the rounds is printed, in us.
An answer that is wrong in any run, of one or of two instances, is printed as WRONG instead of its time. --traces writes the trace of one inference of
each build (trace.py's, as text)."""
import argparse, concurrent.futures, json, pathlib, subprocess, sys, tempfile

import measure


def parse_builds(text):
    """LABEL=PATH[@VDEVICE],... -> [(label, path, vDevice)]."""
    builds = []
    for entry in text.split(","):
        label, _, rest = entry.partition("=")
        path, _, vdevice = rest.partition("@")
        builds.append((label, pathlib.Path(path).resolve(), vdevice or "h200"))
    return builds


def parse_network(text):
    name, precision, *batch = text.split(":")
    return name, precision, int(batch[0]) if batch else None


def traced(out, name, arguments, text):
    """Builds with -DTAMP_TRACE, runs once and writes what trace.py says to the file `text`."""
    measure.build_runner(out, name, "sm_90a", ["-DTAMP_TRACE"], "traced")
    measure.timed([out / "traced", *arguments, "--repeat", "20", "--trace", out / "trace.bin"])
    done, _ = measure.timed([sys.executable, pathlib.Path(measure.__file__).parent / "trace.py", out / f"{name}.rprogram.json", out / "trace.bin"])
    text.write_text(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", required=True, type=pathlib.Path)
    parser.add_argument("--builds", required=True, type=parse_builds)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--traces", type=pathlib.Path)
    parser.add_argument("networks", nargs="+", type=parse_network)
    args = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp())
    metas = {name: json.loads((args.models / f"{name}.weights.json").read_text()) for name, _, _ in args.networks}
    for name, meta in metas.items():
        measure.make_weights(args.models, name, meta)

    def place(label, network):
        return work / label / str(network[2] or "file")

    def make(build, network):
        label, tamp, vdevice = build
        name, precision, batch = network
        place(label, network).mkdir(parents=True, exist_ok=True)
        return measure.build(tamp, args.models, name, precision, vdevice, "sm_90a", place(label, network), "best", ["--batch", str(batch)] if batch else [])

    def go(build, network, *more):
        name, precision, batch = network
        return measure.once(place(build[0], network), args.models, name, precision, metas[name], batch, *more)

    pairs = [(build, network) for network in args.networks for build in args.builds]
    facts, best, failed = {}, {}, 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        jobs = {(pair[0][0], pair[1]): pool.submit(make, *pair) for pair in pairs}
        for key, job in jobs.items():
            try:
                facts[key] = job.result()
            except (RuntimeError, subprocess.TimeoutExpired) as problem:
                print(f"{key}: {str(problem)[-800:]}", flush=True)
                facts[key] = None
    for network in args.networks:
        cells = []
        for turn in range(args.rounds):
            for build in args.builds:
                key = (build[0], network)
                if facts[key] is None or best.get(key) == "WRONG":
                    continue
                try:
                    ran = go(build, network, "--repeat", "20", "--graph", "--train", "50")
                    good = ran["good"] and (turn or go(build, network, "--repeat", "10", "--instances", "2")["good"])
                    best[key] = min(best.get(key, 1e30), ran["train_us"]) if good else "WRONG"
                except (RuntimeError, subprocess.TimeoutExpired) as problem:
                    print(f"{key}: {str(problem)[-800:]}", flush=True)
                    best[key] = "WRONG"
        for build in args.builds:
            key = (build[0], network)
            time = best.get(key, "no build")
            failed += not isinstance(time, float)
            cells.append(f"{build[0]} {time:.1f} ({facts[key]['estimated_us']:.0f}, {facts[key]['waves']})" if isinstance(time, float) else f"{build[0]} {time}")
        print(":".join(str(part) for part in network if part).ljust(32), "  ".join(cells), flush=True)
    if args.traces:
        args.traces.mkdir(parents=True, exist_ok=True)

        def trace(pair):
            build, network = pair
            name, precision, batch = network
            out = place(build[0], network) / f"{name}-{precision}"
            arguments, _, _ = measure.arguments_of(out, args.models, name, metas[name], batch)
            traced(out, name, arguments, args.traces / f"{name}-{precision}-{batch or 1}-{build[0]}.txt")

        for pair in pairs:
            if isinstance(best.get((pair[0][0], pair[1])), float):
                trace(pair)
    if args.out:
        args.out.write_text(json.dumps({f"{':'.join(str(part) for part in network if part)} {label}": time for (label, network), time in best.items()}, indent=1))
    print(f"{len(pairs) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
