#!/usr/bin/env python3
"""`tamp inspect --html`: the page in a real browser, without a screen (chromium, in test_packages of cmake/packages.sh). And what else inspect
writes: --perfetto, --json, the text, the generated source.

    page_test.py TAMP [WORD...]
"""
import html
import json
import os
import re
import shutil
import subprocess
import sys
import time

import numpy as np

import harness
import models as m

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">&lt;b&gt;'\"\\"
GENERATED = harness.ROOT / "examples" / "generated"


def browser():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "no chromium: test/run.sh installs it (test_packages of cmake/packages.sh)"
    return found


def shown(tamp, page, place="", size="1400,1000", options=()):
    """The page's elements after its script has run, as text. Whatever the browser's console says is a failure."""
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tamp.folder / 'browser'}", "--enable-logging=stderr", "--v=0",
               "--virtual-time-budget=5000", f"--window-size={size}", *options, "--dump-dom", f"file://{tamp.folder / page}{place}"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120)
    said = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    assert done.returncode == 0 and not said, f"exit code {done.returncode}: {said or done.stderr[-1000:]}"
    assert re.search(r'<html[^>]* data-loaded="\d+"', done.stdout), f"the script did not come to its end: {done.stdout[-1500:]}"
    return done.stdout


def details(dom):
    return html.unescape(re.sub(r"<[^>]*>", "\n", re.search(r"<aside.*?</aside>", dom, re.S)[0]))


def branches(tamp, prefix=""):
    """A convolution, two on its result, their sum: Waits between vEUs, a critical path, memory that is used again."""
    weight = lambda name, *shape: m.constant(name, np.full(shape, 0.1))
    nodes = [m.node("Conv", ["x", "w0"], ["a"], prefix + "stem", pads=[1, 1, 1, 1]), m.node("Conv", ["a", "w1"], ["b"], prefix + "left", pads=[1, 1, 1, 1]),
             m.node("Conv", ["a", "w2"], ["c"], prefix + "right"), m.node("Concat", ["b", "c"], ["d"], prefix + "both", axis=1), m.node("Conv", ["d", "w3"], ["y"], prefix + "last")]
    made = m.model(nodes, [m.value("x", [1, 8, 12, 12])], [m.value("y", [1, 4, 12, 12])],
                   [weight("w0", 32, 8, 3, 3), weight("w1", 32, 32, 3, 3), weight("w2", 16, 32, 1, 1), weight("w3", 4, 48, 1, 1)])
    (tamp.folder / "branches.onnx").write_bytes(made.SerializeToString())
    return "branches.onnx"


def compiled(tamp, **options):
    tamp("compile", branches(tamp, **options), "-o", "out", "-q", "--vdevice", "h200")
    return json.loads((tamp.folder / "out" / "branches.rprogram.json").read_text())


def test_the_page_shows_the_program_and_what_is_chosen(tamp):
    plan = compiled(tamp)
    tamp("inspect", "out", "--html", "page.html")
    dom = shown(tamp, "page.html")
    assert "Nothing is chosen" in dom and "critical path, planned" in details(dom) and all(f">{rop['name']}<" in dom for rop in plan["rops"])
    assert not re.search(r'(src|href)="', dom), "the page wants another file"
    veu, position = next((v, i) for v, lane in enumerate(plan["lanes"]) for i, entry in enumerate(lane) if entry["rop"] >= 0 and entry["waits"])
    entry = plan["lanes"][veu][position]
    rop = plan["rops"][entry["rop"]]
    facts = details(shown(tamp, "page.html", f"#task={veu},{position}"))
    begin, end = plan["planned_ns"][veu][2 * position:2 * position + 2]
    for part in [rop["name"], rop["rkernel"], f"on vEU {veu}", plan["events"][entry["waits"][0]]["name"], f"{(end - begin) / 1000:.2f} us", "of activations"]:
        assert part in facts, f"lacks {part!r}: {facts}"
    source = (tamp.folder / "out" / "branches.cu").read_text().splitlines()
    lane_line, arguments = re.search(r"branches\.cu:(\d+); arguments (\d+)", facts).groups()
    record = f"{rop['name']}_phase{entry['phase']}" if entry["phase"] else rop["name"]
    assert f"run(r_{record}," in source[int(lane_line) - 1], source[int(lane_line) - 1]
    assert rop["name"] in source[int(arguments) - 1] and "= {" in source[int(arguments) - 1], source[int(arguments) - 1]


def did(tamp, page, script, **options):
    """What a hand does on the lanes, by a script behind the page's own: `point(band, task, type)`; it leaves what it saw in `said`."""
    hand = """<script>
      HTMLCanvasElement.prototype.setPointerCapture = () => {};
      const said = {}, lanes = byId("lanes"), box = lanes.getBoundingClientRect();
      const send = (type, { x, y }, more = {}) => lanes.dispatchEvent(new (type === "wheel" ? WheelEvent : PointerEvent)(type, { clientX: box.left + x, clientY: box.top + y, cancelable: true, ...more }));
      const at = (band, task) => ({ x: xOf((band.times.begin[task] + band.times.end[task]) / 2, lanes.clientWidth), y: middle(band, task) });
      const point = (band, task, type, more) => send(type, at(band, task), more);
      """ + script + """
      document.body.dataset.said = JSON.stringify(said);
    </script>"""
    (tamp.folder / "hand.html").write_text((tamp.folder / page).read_text().replace("</body>", hand + "</body>"))
    return json.loads(html.unescape(re.search(r'data-said="([^"]*)"', shown(tamp, "hand.html", **options))[1]))


def test_pointing_zooming_choosing_and_sorting(tamp):
    """What a hand does, by a script behind the page's own."""
    compiled(tamp)
    tamp("inspect", "out", "--html", "page.html")
    said = did(tamp, "page.html", """
      const task = tasksOfRop[1][0], [band] = bandsOf(lanes.clientHeight);
      point(band, task, "pointermove");
      said.tip = byId("tip").textContent;
      const before = view.end - view.begin, { x } = at(band, task);
      point(band, task, "wheel", { deltaY: -300 });
      said.zoomed = (view.end - view.begin) / before;
      said.stays = Math.abs(at(band, task).x - x);
      point(band, task, "wheel", { deltaY: -300, shiftKey: true });
      said.lanes = shownLanes.end - shownLanes.begin;
      const begin = view.begin;
      point(band, task, "pointerdown");
      send("pointermove", { x: at(band, task).x + 50, y: at(band, task).y });
      point(band, task, "pointerup");
      said.moved = view.begin - begin;
      said.chosenByDrag = state.task;
      point(band, task, "pointerdown");
      point(band, task, "pointerup");
      said.chosen = state.task === task;
      byId("whole").click();
      said.whole = view.end - view.begin;
      said.span = wholeSpan;
      byId("table").tHead.rows[0].cells[9].click();
      said.sorted = [...byId("table").tBodies[0].rows].map((row) => Number(row.cells[9].textContent));
      byId("table").tBodies[0].rows[0].cells[1].click();
      said.row = rows[state.rop] === byId("table").tBodies[0].rows[0];
      byId("find").value = "conv";
      byId("find").dispatchEvent(new Event("input"));
      byId("controls").requestSubmit();
      said.next = state.rop;""")
    assert "rKernel: " in said["tip"] and "planned: " in said["tip"] and "branches.cu:" in said["tip"], said
    assert said["zoomed"] < 0.5 and said["stays"] < 3 and said["lanes"] < 60, said
    assert said["moved"] < 0 and said["chosenByDrag"] == -1 and said["chosen"] is True and said["whole"] == said["span"], said
    assert len(said["sorted"]) > 3 and said["sorted"] == sorted(said["sorted"], reverse=True), said
    assert said["row"] and said["next"] >= 0, said


def test_the_page_and_the_json_say_what_takes_the_time(tamp):
    """Kinds and layers in the text, in JSON and on the page; a legend; a search for a kind goes to it in the lanes and the graph."""
    compiled(tamp, prefix="/block/")
    time_of = json.loads(tamp("inspect", "out", "--json").stdout)["time"]
    conv = next(kind for kind in time_of["kinds"] if kind["name"] == "Conv")
    assert [kind["name"] for kind in time_of["kinds"]][0] == "Conv" and conv["rops"] == [0, 1, 2, 3] and conv["critical_us"] > 0, time_of
    for shares in (time_of["kinds"], time_of["layers"]):
        assert abs(sum(share["critical_us"] for share in shares) - time_of["computing_us"]) < 1e-6 and abs(sum(share["busy_share"] for share in shares) - 1) < 1e-6
        assert [share["critical_us"] for share in shares] == sorted((share["critical_us"] for share in shares), reverse=True)
    text = tamp("inspect", "out").stdout
    assert re.search(rf"\nTIME BY KIND .*\nConv +4 +{conv['critical_us']:.2f} +{100 * conv['critical_share']:.1f} ", text) and re.search(r"\nTIME BY LAYER .*\n/block ", text), text
    tamp("inspect", "out", "--html", "page.html")
    dom = shown(tamp, "page.html")
    assert f">{100 * conv['critical_share']:.1f} %<" in dom and "by layer" in details(dom) and "/block" in details(dom)
    said = did(tamp, "page.html", """
      const buttons = [...byId("legend").querySelectorAll("button")];
      said.kinds = buttons.map((button) => button.textContent);
      said.colours = new Set(colours).size;
      searchFor("last");
      said.last = [view.begin <= timelines[0].ropBegin[rops.length - 1], view.end >= timelines[0].ropEnd[rops.length - 1], (view.end - view.begin) / wholeSpan];
      said.node = [nodeX(rops.length - 1), graphCanvas.clientWidth];
      zoomLanes(0.01, 100);
      showLanes(laneCount);
      buttons[0].click();
      said.find = byId("find").value;
      said.found = state.matches.filter(Boolean).length;
      said.hash = location.hash;
      said.lanes = tasksOfRop.slice(0, 4).flat().some((task) => laneOf[task] >= shownLanes.begin && laneOf[task] < shownLanes.end);""")
    assert said["kinds"] == [kind["name"] for kind in time_of["kinds"]] and said["colours"] == 3, said
    assert said["last"][:2] == [True, True] and said["last"][2] < 0.9 and 0 < said["node"][0] < said["node"][1], said
    assert said["find"] == "kind:Conv" and said["found"] == 4 and said["hash"] == "#find=kind%3AConv" and said["lanes"], said


def test_a_dark_screen_has_a_dark_page(tamp):
    compiled(tamp)
    tamp("inspect", "out", "--html", "page.html")
    script = "said.paper = getComputedStyle(document.documentElement).backgroundColor; said.ink = theme.ink;"
    light, dark = (did(tamp, "page.html", script, options=[f"--blink-settings=preferredColorScheme={scheme}"]) for scheme in (1, 0))
    assert light["paper"] == "rgb(255, 255, 255)" and max(map(int, re.findall(r"\d+", dark["paper"]))) < 48 and light["ink"] != dark["ink"], (light, dark)


def test_a_narrow_window_has_the_facts_below_the_drawings(tamp):
    compiled(tamp)
    tamp("inspect", "out", "--html", "page.html")
    script = """const facts = byId("details").getBoundingClientRect();
      Object.assign(said, { lanes: box.width, beside: facts.left >= box.right, below: facts.top >= box.bottom, page: document.documentElement.scrollWidth - innerWidth });"""
    narrow, wide = (did(tamp, "page.html", script, size=size) for size in ["800,1000", "1400,1000"])
    assert narrow["lanes"] > 700 and narrow["below"] and narrow["page"] <= 0, narrow
    assert wide["beside"] and not wide["below"], wide


def test_a_search_finds_onnx_names(tamp):
    plan = compiled(tamp)
    tamp("inspect", "out", "--html", "page.html")
    dom = shown(tamp, "page.html", "#find=LEFT")
    assert re.search(r">1 of \d+<", dom) and len(re.findall(r"<tr [^>]*hidden", dom)) == len(plan["rops"]) - 1


def test_a_trace_is_drawn_above_the_plan(tamp):
    compiled(tamp)
    tamp("inspect", "out", "--perfetto", "trace.json")
    trace = json.loads((tamp.folder / "trace.json").read_text())
    for event in trace["traceEvents"]:  # twice as slow, and its clock began 7.5 us earlier
        if event["ph"] == "X":
            event["ts"], event["dur"] = event["ts"] * 2 + 7.5, event["dur"] * 2
    (tamp.folder / "trace.json").write_text(json.dumps(trace))
    tamp("inspect", "out", "--html", "page.html", "--trace", "trace.json")
    dom = shown(tamp, "page.html")
    measured, planned = map(float, re.search(r"measured ([\d.]+) us, planned ([\d.]+) us", dom).groups())
    assert abs(measured - 2 * planned) < 0.02 and ">measured us<" in dom, (measured, planned)
    said = did(tamp, "page.html", """
      const first = tasksOfRop[0].reduce((least, task) => (planned.begin[task] < planned.begin[least] ? task : least)), [above, below] = bandsOf(lanes.clientHeight);
      said.begins = [measured.begin[first], planned.begin[first]];
      said.names = [above.times.name, below.times.name];
      point(above, first, "pointermove");
      said.above = byId("tip").textContent;
      said.hover = state.hover === first;
      point(below, first, "pointermove");
      said.below = byId("tip").textContent;
      said.lead = planned.lead;
      point(below, first, "pointerleave");
      said.left = state.hover;""")
    assert said["names"] == ["measured", "planned"] and all(abs(begin) < 0.01 for begin in said["begins"]), said
    assert said["above"] == said["below"] and said["hover"] and said["left"] == -1, said
    durations = [float(re.search(rf"{name}: ([\d.]+) us, from 0.00 us", said["above"])[1]) for name in said["names"]]
    assert abs(durations[0] - 2 * durations[1]) < 0.02 and "measured / planned: 2.00" in said["above"] and said["lead"] > 0, said
    slices = [i for i, event in enumerate(trace["traceEvents"]) if event["ph"] == "X"]
    changes = {"another rTask": lambda events: events[slices[0]]["args"].update(rTask=999), "another name": lambda events: events[slices[0]].update(name="other"),
               "one more": lambda events: events.append(events[slices[-1]]), "one less": lambda events: events.pop(slices[-1]),
               "no time": lambda events: events[slices[0]].pop("ts"), "a vEU that is not there": lambda events: events[slices[0]].update(tid=4000)}
    for change in changes.values():
        wrong = json.loads((tamp.folder / "trace.json").read_text())
        change(wrong["traceEvents"])
        (tamp.folder / "wrong.json").write_text(json.dumps(wrong))
        tamp("inspect", "out", "--html", "wrong.html", "--trace", "wrong.json", code=1, says="wrong.json: is ")
        assert not (tamp.folder / "wrong.html").exists()
    (tamp.folder / "wrong.json").write_text("{")
    tamp("inspect", "out", "--html", "wrong.html", "--trace", "wrong.json", code=1, says="is not a trace")
    tamp("inspect", "out", "--trace", "trace.json", code=1, says="--trace is of --html")


def test_names_of_a_model_cannot_run_as_script(tamp):
    path = branches(tamp, prefix=HOSTILE)
    tamp("inspect", path, "--html", "page.html")  # of a model, without a folder
    page = (tamp.folder / "page.html").read_text()
    assert page.count("<script") == 2 and page.count("</script") == 2 and "<img" not in page
    dom = shown(tamp, "page.html", "#rop=0")
    assert "<title>branches: rProgram</title>" in dom and "<img" not in dom
    assert HOSTILE + "stem" in details(dom), details(dom)


def test_a_damaged_folder_is_refused(tamp):
    plan = compiled(tamp)
    path = tamp.folder / "out" / "branches.rprogram.json"
    busy = next(v for v, lane in enumerate(plan["lanes"]) if lane)
    def with_entry(**fields):
        lanes = json.loads(json.dumps(plan["lanes"]))
        lanes[busy][0].update(fields)
        return {**plan, "lanes": lanes}
    damaged = [{**plan, "planned_ns": []}, {**plan, "planned_ns": plan["planned_ns"][:-1]}, {**plan, "planned_ns": [[1]] * len(plan["lanes"])}, with_entry(signal=10**6),
               with_entry(waits=[-1]), with_entry(phase=77), {**plan, "arena": [{"offset": 0}]}, {**plan, "arena": 3}, {**plan, "lane_lines": ["x"]},
               {**plan, "rops": [{**rop, "after": [len(plan["rops"])]} for rop in plan["rops"]]}]
    for wrong in damaged:
        path.write_text(json.dumps(wrong))
        tamp("inspect", "out", "--html", "page.html", code=1, says="error: ")
        assert not (tamp.folder / "page.html").exists()


def test_the_planned_trace_has_every_rtask(tamp):
    plan = compiled(tamp)
    tamp("inspect", "out", "--perfetto", "plan.json")
    slices = [event for event in json.loads((tamp.folder / "plan.json").read_text())["traceEvents"] if event["ph"] == "X"]
    assert len(slices) == sum(entry["rop"] >= 0 for lane in plan["lanes"] for entry in lane)
    assert abs(max(event["ts"] + event["dur"] for event in slices) - plan["estimated_us"]) < 0.01
    tamp("inspect", "out", "--perfetto", ".", code=1, says="is a folder")


def test_json_says_what_the_text_says(tamp):
    plan = compiled(tamp)
    read = json.loads(tamp("inspect", "out", "--json").stdout)
    assert [rop["name"] for rop in read["rops"]] == [rop["name"] for rop in plan["rops"]] and all(rop["estimated_us"] > 0 for rop in read["rops"])
    assert sum(lane["rtasks"] for lane in read["lanes"]) == sum(rop["rtasks"] for rop in plan["rops"])
    model = json.loads(tamp("inspect", "branches.onnx", "--json").stdout)
    assert model["supported"] is True and model["operators"] == {"Concat": 1, "Conv": 4}
    assert [(port["name"], port["dtype"]) for port in model["inputs"]] == [("x", "f32")] and all(isinstance(extent, int) for extent in model["inputs"][0]["shape"])
    (tamp.folder / "open.onnx").write_bytes(m.model([m.node("Relu", ["x"], ["y"])], [m.value("x", [1, "N", 3])], [m.value("y", None)]).SerializeToString())
    symbolic = json.loads(tamp("inspect", "open.onnx", "--json", code=1, error=False).stdout)
    assert symbolic["inputs"][0]["shape"] == [1, "N", 3] and symbolic["outputs"][0]["shape"] is None and "--dim N=" in symbolic["error"], symbolic
    (tamp.folder / "odd.onnx").write_bytes(m.model([m.node("Frobnicate", ["x"], ["y"], "f")], [m.value("x", [1])], [m.value("y", [1])]).SerializeToString())
    odd = json.loads(tamp("inspect", "odd.onnx", "--json", code=2, error=False).stdout)
    assert odd["supported"] is False and "Frobnicate" in odd["not_supported"][0]
    tamp("inspect", "out", "--json", "--html", "x.html", code=1, says="--json")


def test_names_are_whole_in_a_pipe(tamp):
    name = "a_rather_long_name_/of_a_module" * 8
    plan = compiled(tamp, prefix=name)
    text = tamp("inspect", "out").stdout
    assert all(rop["name"] in text for rop in plan["rops"]) and "ESTIMATED US" in text


def test_verbose_says_why_a_rkernel_was_chosen(tamp):
    branches(tamp)
    said = tamp("compile", "branches.onnx", "-o", "out", "-v", "--vdevice", "h200").stderr
    assert re.search(r"stem: .* us alone on the vDevice \((record|model)\), \d+\w\w of \d+; others: .* us", said), said


# --- the source as a thing to read -------------------------------------------------------------------------------------


def test_the_contents_point_where_things_stand(tamp):
    for execution in ["persistent", "graph"]:
        tamp("compile", branches(tamp), "-o", execution, "--execution", execution, "-q", "--vdevice", "h200")
        lines = (tamp.folder / execution / "branches.cu").read_text().splitlines()
        contents = [re.fullmatch(r"//  +(\d+)  (.*)", line) for line in lines[:lines.index("")]]
        entries = [(int(found[1]), found[2]) for found in contents if found]
        assert len(entries) >= 8 and all(lines[line - 1].startswith(f"// --- {title} ") for line, title in entries), entries
        arguments = [int(line) for line in re.findall(r"^// #\d+ .*\(line (\d+)\)$", "\n".join(lines), re.M)]
        assert len(arguments) >= 4 and all("args_" in lines[line - 1] and lines[line - 1].endswith("{") for line in arguments), arguments
    assert "// Options: --vdevice h200 --execution graph." in lines


def test_the_program_comes_first_and_brings_only_what_it_uses(tamp):
    """Of a model without convolutions: no boxes, no clusters. In graph execution the kernels are not interpreted."""
    def source_of(path, *options):
        tamp("compile", path, "-o", "made", "--name", "model", "-q", "--vdevice", "h200", *options)
        return (tamp.folder / "made" / "model.cu").read_text()

    mnist, convs = harness.ROOT / "examples" / "models" / "mnist_mlp.onnx", branches(tamp)
    subprocess.run([sys.executable, harness.ROOT / "examples" / "make_weights.py", mnist, "--into", tamp.folder], check=True, stdout=subprocess.DEVNULL)
    small = source_of("mnist_mlp.onnx")
    order = [small.index(text) for text in ("// --- the network", "// --- vocabulary", "struct GemvOfRowsArgs {", "args_1_Gemm = {", "kRecords[] =", "kEventCount[] =", "#define LANE_0(n)",
                                            "gemv_row<Veu", "switch (body)", "model_kernel(", "// --- device code", "RK_BODY void gemv_row(", "// --- host runtime", "kRecordNames[] =")]
    assert order == sorted(order), order
    assert small[:small.index("#define LANE_0(n)")].count("\n") < 400
    files = lambda text: set(re.findall(r"^// >>> kernels/vdevice/(\w+)\.cuh$", text, re.M))
    assert {"interpreter", "control", "words"} <= files(small) and not {"boxes", "cluster", "phase"} & files(small), files(small)
    assert {"interpreter", "boxes"} <= files(source_of(convs)) and "cluster" not in files(source_of(convs))
    assert {"phase", "boxes"} <= files(source_of(convs, "--execution", "graph")) and "interpreter" not in files(source_of(convs, "--execution", "graph"))
    assert not {"boxes", "interpreter"} & files(source_of("mnist_mlp.onnx", "--execution", "graph"))
    assert "/*ACTIVATION=*/rk::kRelu" in small and "/*WORDS=*/rk::kGemvOutWords" in small and ".activation = rk::kRelu" in small
    arguments = small[small.index("// --- rOperators"):small.index("// --- records")]
    assert not re.search(r"= (0|0\.0f|nothing\(\)),|, 0}|= {}|nothing\(\)}", arguments), "values that need not be said"


def without_library(text):
    """Kernels and the runtime change often, and with them lines; the example is there to be read, not to hold them still."""
    text = re.sub(r"(?ms)^// >>> (\S+)\n.*?^// <<< \1\n\n?", r"// >>> \1\n", text)
    return re.sub(r"(?m)^// +\d+  (?=\S)|\(line \d+\)$|^#include <.*>\n|/\*structure=\*/0x[0-9a-f]{16}", "", text)


def test_the_example_source_and_its_text_are_as_committed(tamp):
    """TAMP_UPDATE_GOLDEN=1 writes them anew."""
    model = harness.ROOT / "examples" / "models" / "mnist_mlp.onnx"
    subprocess.run([sys.executable, harness.ROOT / "examples" / "make_weights.py", model, "--into", tamp.folder], check=True, stdout=subprocess.DEVNULL)
    tamp("compile", "mnist_mlp.onnx", "-o", "out", "-q", "--vdevice", "h200")
    made = {"mnist_mlp.cu": (tamp.folder / "out" / "mnist_mlp.cu").read_text(), "mnist_mlp.inspect.txt": tamp("inspect", "out").stdout}
    for name, text in made.items():
        if os.environ.get("TAMP_UPDATE_GOLDEN"):
            GENERATED.mkdir(exist_ok=True)
            (GENERATED / name).write_text(text)
        assert without_library((GENERATED / name).read_text()) == without_library(text), f"examples/generated/{name} is out of date: TAMP_UPDATE_GOLDEN=1 writes it"


def test_a_large_page_is_quick(tamp):
    """200,000 rTasks: many times the largest network. The limit is generous, since other tests run beside this one."""
    plan = compiled(tamp)
    entry = {"rop": 0, "phase": 0, "index": 0, "waits": [], "signal": -1}
    lanes, each = len(plan["lanes"]), 200_000 // len(plan["lanes"]) + 1
    plan["lanes"], plan["lane_lines"] = [[entry] * each] * lanes, [1] * lanes
    plan["planned_ns"] = [[time for i in range(each) for time in (1000 * i, 1000 * i + 900)]] * lanes
    (tamp.folder / "out" / "branches.rprogram.json").write_text(json.dumps(plan))
    tamp("inspect", "out", "--html", "page.html")
    assert (tamp.folder / "page.html").stat().st_size < 5 << 20
    begin = time.monotonic()
    shown(tamp, "page.html")
    assert time.monotonic() - begin < 60


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
