#!/usr/bin/env python3
"""Where the time of staged_conv's rTasks goes, on a GPU: means over a rOperator's rTasks, in us, of the whole body and from three places on to its end.

    python3 test/gpu/rtask_phases.py --tamp build/release/bin/tamp [--precision tf32] [--vdevice h200] [--batch N] MODEL.onnx [WORD...]

The program is built and traced once for each place, with the stamp that says when a rTask started moved there in the generated source:

  body     the begin of the body, as `tamp run --trace` has it
  loop     the first stages of inputs and weights are there
  end      the last product has been made
  sums     the sums are in shared memory; of tiles in two rounds, those of the second; as body where sums are rounded first
           (StagedRoundedResults)

Only rOperators whose name contains a WORD are printed. A line that the source does not have is an error, not a place that changes nothing."""
import argparse, collections, json, pathlib, shutil, statistics, subprocess, tempfile

BODY = "template <class Veu, TileSums Product, TileResults<Veu, Product> Results>\nRK_INLINE void staged_rtask(const Task<Veu>& task) {"
STAMP = """template <class Veu>
struct Slot;
template <class Veu>
RK_INLINE void stamp_started(const Task<Veu>& task) {
#if defined(TAMP_TRACE)
  if (threadIdx.x != 0 || task.launch->trace == nullptr) return;
  const size_t instruction = reinterpret_cast<const Slot<Veu>&>(task).instruction;  // the task is the slot's first member
  task.launch->trace[instruction * kTraceColumns + kTraceStarted] = now_ns();
#endif
}
"""
# place: a piece of the generated source, and whether the stamp comes before or behind it
PLACES = {
    "body": None,
    "loop": ("  weights.acquire();\n  inputs.acquire();\n  results.fetch(task, args, tile);\n", "behind"),
    "end": ("  finish_staged(task, args, tile, product, results);\n", "before"),
    "sums": ("    results.finish(task, args, tile, results.work, round);\n", "before"),
}


def stamped(source, place):
    if PLACES[place] is None:
        return source
    piece, where = PLACES[place]
    for text in (BODY, piece):
        if source.count(text) != 1:
            raise ValueError(f"place '{place}': the generated source has {source.count(text)} times '{text}', expected once")
    stamp = "  stamp_started(task);\n"
    return source.replace(piece, piece + stamp if where == "behind" else stamp + piece).replace(BODY, STAMP + BODY)


def means(trace):
    """us of a rOperator's rTasks, how many there are, and their rKernel."""
    events = json.loads(trace.read_text())
    slices = collections.defaultdict(list)
    for event in events["traceEvents"] if isinstance(events, dict) else events:
        if event.get("ph") == "X":
            slices[event["name"]].append(event)
    return {name: (statistics.fmean(e["dur"] for e in of), len(of), of[0]["args"].get("rKernel", "")) for name, of in slices.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamp", type=pathlib.Path, required=True)
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--vdevice", default="h200")
    parser.add_argument("--batch", help="first extent of all inputs; default: what the file says")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("words", nargs="*")
    args = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory(prefix="tamp-phases-") as temporary:
        folder, of_place = pathlib.Path(temporary), {}
        subprocess.run([args.tamp, "compile", args.model, "-o", folder / "body", "--vdevice", args.vdevice, "--precision", args.precision, "-q", *(["--batch", args.batch] if args.batch else [])], check=True)
        (source,) = (folder / "body").glob("*.cu")
        for place in PLACES:
            if place != "body":
                shutil.copytree(folder / "body", folder / place)
                (folder / place / source.name).write_text(stamped(source.read_text(), place))
            trace = folder / f"{place}.json"
            subprocess.run([args.tamp, "run", folder / place, "--trace", trace, "-q"], check=True, stdout=subprocess.DEVNULL)
            of_place[place] = means(trace)
    print("| rOperator | rKernel | rTasks | " + " | ".join(PLACES) + " |\n|" + "---|" * (len(PLACES) + 3))
    for name, (_, count, rkernel) in of_place["body"].items():
        if rkernel.startswith("staged_conv") and (not args.words or any(word in name for word in args.words)):
            print(f"| {name} | {rkernel} | {count} | " + " | ".join(f"{of_place[place][name][0]:.2f}" for place in PLACES) + " |")


if __name__ == "__main__":
    main()
