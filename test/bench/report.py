#!/usr/bin/env python3
"""Writes bench.py's results as Markdown tables, with the least possible times (floors). Nothing here measures.

    python3 test/bench/report.py results.json...                              prints the tables
    python3 test/bench/report.py results.json... --into PAGE.md               puts them between the lines <!-- bench:NAME --> and
                                                                              <!-- bench:end --> (NAME: machine, times, plot, floors, losses)
    python3 test/bench/report.py results.json... --json all.json              writes several runs as one
If rows are of several commits, a column says which. --peers-of OTHER.json: where the results have no peers, takes those of another run, perhaps of
another commit but on the same kind of machine; the line about the machine says so."""
import argparse, json, pathlib, re, statistics

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# Of one H200. Arithmetic: dense mma.sync on tensor cores, fused multiply-adds for fp32. L2: reads by all SMs.
FLOPS_PER_S = {"fp32": 60e12, "tf32": 302e12, "fp16": 601e12, "bf16": 601e12}
DRAM_BYTES_PER_S, L2_BYTES_PER_S = 4.3e12, 5.5e12
WEIGHT_BYTES = {"fp32": 4, "tf32": 2, "fp16": 2, "bf16": 2}  # tf32 by 16-bit weights and scales, as most of tamp's products have them


def vdevice(name):
    fields = json.loads((REPOSITORY / f"compiler/ir/vdevices/{name}.json").read_text())
    return {**vdevice(fields["like"]), **fields} if "like" in fields else fields


def floor(work, precision, waves, device):
    """Least times in us: arithmetic; the weights read once (from L2 where they stay there from run to run); an edge for each wave. A network
    whose waves depend on each other takes at least the edges and the larger of the others."""
    flops, elements = work
    weight_bytes = elements * WEIGHT_BYTES[precision]
    arithmetic = flops / FLOPS_PER_S[precision] * 1e6
    weights = weight_bytes / (L2_BYTES_PER_S if weight_bytes < device["l2_bytes"] else DRAM_BYTES_PER_S) * 1e6
    edges = waves * device["edge_us"]
    return {"arithmetic_us": arithmetic, "weights_us": weights, "edges_us": edges, "us": edges + max(arithmetic, weights)}


# --- several runs as one ---------------------------------------------------------------------------------------------------


def machine_of(run):
    return run["facts"]["gpu"].get("name"), run["facts"]["gpu"].get("driver_version")


def merged(runs):
    """Joins results of several runs on one kind of machine; the later run counts if a row is in two. Rows have their commit if there are several."""
    for run in runs[1:]:
        if machine_of(run) != machine_of(runs[0]):
            raise ValueError(f"results of different machines: {machine_of(runs[0])} and {machine_of(run)}")
    commits = list(dict.fromkeys(commit for run in runs for commit in run["facts"].get("commits", [run["facts"].get("commit")])))
    rows, peers = {}, {}
    for run in runs:
        of = {"commit": run["facts"].get("commit")} if len(commits) > 1 else {}
        rows.update({(row["model"], row["precision"], row["execution"]): {**of, **row} for row in run["rows"]})
        peers.update({(peer["model"], peer["precision"], peer["peer"]): peer for peer in run["peers"]})
    more = {"facts_of_later_runs": [run["facts"] for run in runs[1:]]} if len(runs) > 1 else {}
    return {"facts": {**runs[0]["facts"], "commits": commits}, **more, "rows": list(rows.values()), "peers": list(peers.values())}


def with_peers(results, other):
    """The results, with the peers of another run where there are none."""
    if machine_of(results) != machine_of(other):
        raise ValueError(f"peers of another machine: {machine_of(other)}, not {machine_of(results)}")
    what = lambda peer: (peer["model"], peer["precision"], peer["peer"])
    have, rows = {what(peer) for peer in results["peers"]}, {(row["model"], row["precision"]) for row in results["rows"]}
    added = [peer for peer in other["peers"] if what(peer)[:2] in rows and what(peer) not in have]
    if not added:
        return results
    kinds = sorted({f"{peer['peer']} in {peer['precision']}" for peer in added})
    facts = {**results["facts"], "peers_of": {"commit": other["facts"].get("commit"), "date": other["facts"]["date"], "kinds": kinds}}
    return {**results, "facts": facts, "peers": results["peers"] + added}


def read(paths):
    return merged([json.loads(pathlib.Path(path).read_text()) for path in paths])


# --- who is best -----------------------------------------------------------------------------------------------------------


def peers_of(results, row):
    return {peer["peer"]: peer for peer in results["peers"] if (peer["model"], peer["precision"]) == (row["model"], row["precision"])}


def best_peer(results, row):
    """-> (name, us) of the fastest peer with a time, or None."""
    times = [(peer["us"], name) for name, peer in peers_of(results, row).items() if "us" in peer]
    return min(times)[::-1] if times else None


def ratio(results, row):
    best = best_peer(results, row)
    return best[1] / row["us"] if best and "us" in row else None


def peer_names(results):
    return list(dict.fromkeys(peer["peer"] for peer in results["peers"]))


# --- Markdown --------------------------------------------------------------------------------------------------------------


def line(cells):
    return "| " + " | ".join(cells) + " |"


def table(head, rows):
    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)]) + "\n"


def noted(text, notes):
    """" (N)": the number of the note, which is added if it is new."""
    text = text.replace("|", "/").replace("\n", " ")
    if text not in notes:
        notes.append(text)
    return f" ({notes.index(text) + 1})"


def peer_cell(peer, notes):
    if peer is None:
        return "not run"
    note = noted(f"{peer['peer']} of {peer['model']} in {peer['precision']}: {peer['failure']}", notes) if "failure" in peer else ""
    return (f"{peer['us']:.1f}" if "us" in peer else "none") + note


def tamp_cell(row, notes):
    note = ""
    if "failure" in row:
        note = noted(f"tamp, {row['model']} in {row['precision']}, {row['execution']}: {row['failure'].strip().splitlines()[-1][:200]}", notes)
    return (f"**{row['us']:.1f}**" if "us" in row else "failed") + note


def times_table(results, notes):
    names = peer_names(results)
    several = len({row["execution"] for row in results["rows"]}) > 1
    commits = any("commit" in row for row in results["rows"])
    head = ["model", "precision", *(["execution"] if several else []), *(["commit"] if commits else []), "error", "bar", "tamp us", *(f"{name} us" for name in names), "best peer / tamp"]
    rows = []
    for row in results["rows"]:
        peers = peers_of(results, row)
        gain = ratio(results, row)
        rows.append([row["model"], row["precision"], *([row["execution"]] if several else []), *([row["commit"][:7]] if commits else []), f"{row['error']:.1e}" if "error" in row else "", f"{row['bar']:.1e}" if "bar" in row else "",
                     tamp_cell(row, notes), *(peer_cell(peers.get(name), notes) for name in names), f"{gain:.2f}" if gain else ""])
    return table(head, rows)


def floor_table(results):
    head = ["model", "precision", "execution", "floor us", "of it arithmetic / weights / edges", "measured / floor", "estimate / measured", "rOperators", "waves", "tamp compile s", "nvcc s"]
    rows = []
    for row in results["rows"]:
        if "us" not in row:
            continue
        least = row["floor"]
        rows.append([row["model"], row["precision"], row["execution"], f"{least['us']:.1f}", f"{least['arithmetic_us']:.1f} / {least['weights_us']:.1f} / {least['edges_us']:.1f}",
                     f"{row['us'] / least['us']:.1f}", f"{row['estimated_us'] / row['us']:.2f}", str(row["rops"]), str(row["waves"]), f"{row['compile_s']:.1f}", f"{row['nvcc_s']:.1f}"])
    return table(head, rows)


def losses_table(results):
    parts = ("computing", "starting", "edges", "producers", "idle")
    head = ["model", "precision", "traced us", *(f"{part} %" for part in parts), "path: rTasks", "path: computing us", "path: between us", "path: most computing us", "path: longest rTasks us"]
    rows = []
    for row in results["rows"]:
        if "trace" not in row:
            continue
        numbers, path = row["trace"], row["trace"]["path"]
        most = ", ".join(f"{name} {family['computing_us']:.0f}" for name, family in list(path["families"].items())[:3])
        longest = ", ".join(f"{step['name']} {step['computing_us']:.1f}" for step in path["largest"][:2])
        rows.append([row["model"], row["precision"], f"{numbers['span_us']:.1f}", *(f"{100 * numbers['us_of_a_veu'][part] / numbers['span_us']:.0f}" for part in parts),
                     str(path["steps"]), f"{path['computing_us']:.1f}", f"{path['gaps_us']:.1f}", most, longest])
    return table(head, rows) if rows else ""


def versions_line(results):
    facts = results["facts"]
    versions = next((peer["versions"] for peer in results["peers"] if "versions" in peer), {})
    gpu = facts["gpu"]
    commits = [commit for commit in facts.get("commits", [facts.get("commit")]) if commit]
    words = [gpu.get("name"), gpu.get("driver_version") and f"driver {gpu['driver_version']}", gpu.get("clocks.max.sm") and f"at most {gpu['clocks.max.sm']} MHz", versions.get("torch") and f"PyTorch {versions['torch']}",
             versions.get("cudnn") and f"cuDNN {versions['cudnn']}", facts.get("nvcc"), facts.get("tamp"), commits and f"commit{'s' * (len(commits) > 1)} {', '.join(commit[:12] for commit in commits)}", facts["date"][:10]]
    text = ", ".join(word for word in words if word) + "."
    if other := facts.get("peers_of"):
        text += f" {', '.join(other['kinds'])}: by the run of commit {other['commit'][:12]}, {other['date'][:10]}."
    return text


def parts_of(results):
    """name -> Markdown"""
    notes = []
    times = times_table(results, notes)
    if notes:
        times += "\n" + "\n".join(f"({i + 1}) {note}  " for i, note in enumerate(notes))
    plot = "![tamp and its best peer](../images/cnn_batch1.svg)"  # as docs/log/2026-11-21.md names it; plot_bench.py draws it
    parts = {"machine": versions_line(results), "times": times, "plot": plot, "floors": floor_table(results), "losses": losses_table(results)}
    return {name: text.strip() for name, text in parts.items()}


def tables(results):
    return "\n\n".join(text for name, text in parts_of(results).items() if text and name != "plot") + "\n"


def filled(document, results):
    """The document with the tables between its marks; a mark of another name is an error."""
    parts = parts_of(results)

    def part(match):
        if match[1] not in parts:
            raise ValueError(f"unknown mark '{match[1]}'; there are {', '.join(parts)}")
        return f"<!-- bench:{match[1]} -->\n{parts[match[1]]}\n<!-- bench:end -->"

    return re.sub(r"<!-- bench:(\w+) -->\n.*?<!-- bench:end -->", part, document, flags=re.S)


def summary_line(results):
    gains = [gain for gain in (ratio(results, row) for row in results["rows"]) if gain]
    if not gains:
        return "nothing to compare"
    return f"best peer / tamp: least {min(gains):.2f}, median {statistics.median(gains):.2f}, most {max(gains):.2f}, of {len(gains)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path, nargs="+")
    parser.add_argument("--into", type=pathlib.Path, help="a document with marks")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--peers-of", type=pathlib.Path)
    args = parser.parse_args()
    results = read(args.results)
    if args.peers_of:
        results = with_peers(results, json.loads(args.peers_of.read_text()))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    if args.into:
        args.into.write_text(filled(args.into.read_text(), results))
    else:
        print(tables(results), end="")


if __name__ == "__main__":
    main()
