// Choosing and searching, the facts about what is chosen, and the start. The part of the address behind # says what is chosen (#find=NAME,
// #rop=N, #task=VEU,POSITION), so that a view can be passed on.

const kNoneChosen = "Nothing is chosen. Point at a rTask for its facts, click it to keep them here and to see its Waits.";

function factsOfRop(rop) {
  const r = rops[rop];
  return [
    ["", `#${rop} ${r.name}`],
    ["op", `${r.op} ${r.dtype}${shapeText(r.shape)}`],
    ["ONNX", r.origin.slice(0, 8).join(", ") + (r.origin.length > 8 ? `, ${r.origin.length - 8} more` : "")],
    ["rKernel", `${r.rkernel} (chosen by ${r.chosen_by})`],
    ["rTasks", `${grouped(r.rtasks)} on ${plural(r.veus, "vEU")}${r.gang ? ", a gang" : ""}`],
    ["work", `${grouped(r.flops)} FLOP, ${bytesText(r.bytes)} of activations, ${bytesText(r.weight_bytes)} of weights`],
    ...timelines.map((times) => [times.name, tasksOfRop[rop].length ? `${us(spanOf(times, rop))}, from ${us(times.ropBegin[rop])}; ${us(times.ropOnPath[rop])} on the critical path` : "nothing to run"]),
    ...(measured && tasksOfRop[rop].length ? [["measured / planned", ratioText(ratioOf(spanOf(measured, rop), spanOf(planned, rop)))]] : []),
    ["after", namesOf(r.after) || "the inputs"],
    ...(r.line > 0 ? [["arguments", `${data.name}.cu:${r.line}`]] : []),
  ];
}

function factsOf(task) {
  const rop = ropOf(task), r = rops[rop], bytes = bytesOf(task), waits = waitsOf(task);
  return [
    ["", `#${rop} ${r.name}`],
    ["rTask", `${indexOf[task]}${r.phases.length > 1 ? ` of phase ${phaseOf(task)}` : ""}, on vEU ${laneOf[task]}`],
    ["rKernel", r.rkernel],
    ["ONNX", r.origin.slice(0, 4).join(", ") + (r.origin.length > 4 ? `, ${r.origin.length - 4} more` : "")],
    ["waits", waits.slice(0, 6).map((event) => data.events[event]).join(", ") + (waits.length > 6 ? `, ${waits.length - 6} more` : "") || "for nothing of other vEUs"],
    ["signals", signalOf(task) >= 0 ? data.events[signalOf(task)] : "nobody"],
    ["bytes", `${bytesText(bytes.activations)} of activations, ${bytesText(bytes.weights)} of weights`],
    ...timelines.map((times) => [times.name, `${us(times.end[task] - times.begin[task])}, from ${us(times.begin[task])} to ${us(times.end[task])}${times.onPath[task] ? "; on the critical path" : ""}`]),
    ...(measured ? [["measured / planned", ratioText(ratioOf(measured.end[task] - measured.begin[task], planned.end[task] - planned.begin[task]))]] : []),
    ...(lineOf[task] > 0 ? [["line", `${data.name}.cu:${lineOf[task]}; arguments ${r.line}`]] : []),
  ];
}

function showFacts(heading, facts, colour) {
  const title = document.createElement("h3"), list = document.createElement("dl");
  const swatch = document.createElement("span");
  swatch.className = "swatch";
  swatch.style.background = colour;
  title.append(swatch, heading);
  for (const [what, text] of facts) {
    if (!what) continue;
    const term = document.createElement("dt"), value = document.createElement("dd");
    term.textContent = what;
    value.textContent = text;
    list.append(term, value);
  }
  byId("details").append(title, list);
}

// The rOperators that take most time: what to look at first.
const kMostShown = 10;
function showOverview() {
  const hint = document.createElement("p"), times = timelines[0], title = document.createElement("h3"), list = document.createElement("dl");
  hint.textContent = kNoneChosen;
  const longest = rops.map((_, rop) => rop).filter((rop) => times.ropOnPath[rop] > 0).sort((a, b) => times.ropOnPath[b] - times.ropOnPath[a]);
  const running = longest.reduce((sum, rop) => sum + times.ropOnPath[rop], 0);
  title.textContent = `critical path, ${times.name}`;
  const line = (what, text, rop) => {
    const term = document.createElement("dt"), value = document.createElement("dd");
    term.textContent = what;
    if (rop === undefined) {
      value.textContent = text;
    } else {
      const button = document.createElement("button"), swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.background = colours[rop];
      button.type = "button";
      button.className = "link";
      button.append(swatch, text);
      button.addEventListener("click", () => goTo(rop));
      value.append(button);
    }
    list.append(term, value);
  };
  line(us(running), `in ${plural(times.path.filter((task) => ropOf(task) >= 0).length, "rTask")}`);
  line(us(Math.max(0, times.span - running)), "between them: signals on their way, the next rTask starting");
  for (const rop of longest.slice(0, kMostShown)) line(us(times.ropOnPath[rop]), rops[rop].name, rop);
  if (longest.length > kMostShown) line("", `and ${plural(longest.length - kMostShown, "rOperator")} more, in the table`);
  byId("details").append(hint, title, list);
}

function showDetails() {
  byId("details").replaceChildren();
  if (state.task >= 0) showFacts(`rTask ${indexOf[state.task]}`, factsOf(state.task), colours[state.rop]);
  if (state.rop >= 0) showFacts(factsOfRop(state.rop)[0][1], factsOfRop(state.rop), colours[state.rop]);
  else showOverview();
}

function redrawAll() {
  lanesDrawing.redraw();
  arenaDrawing.redraw();
}
function update() {
  showDetails();
  updateTable();
  redrawAll();
  graphDrawing.redraw();
  const parts = [];
  if (byId("find").value) parts.push(`find=${encodeURIComponent(byId("find").value)}`);
  if (state.task >= 0) parts.push(`task=${laneOf[state.task]},${state.task - laneBegin[laneOf[state.task]]}`);
  else if (state.rop >= 0) parts.push(`rop=${state.rop}`);
  history.replaceState(null, "", parts.length > 0 ? `#${parts.join("&")}` : location.pathname + location.search);
}

function choose(task) {
  state.task = task;
  state.rop = task >= 0 ? ropOf(task) : -1;
  update();
}
// Chooses a rOperator, and of its rTasks the one that ends last, which others wait for.
function chooseRop(rop) {
  if (rop < 0) return choose(-1);
  const { end } = timelines[0];
  const last = tasksOfRop[rop].reduce((best, task) => (best < 0 || end[task] > end[best] ? task : best), -1);
  if (last >= 0) return choose(last);
  state.task = -1;
  state.rop = rop;
  update();
}
function goTo(rop) {
  const times = timelines[0], length = Math.max(200, spanOf(times, rop) * 3);
  if (tasksOfRop[rop].length > 0) showTime((times.ropBegin[rop] + times.ropEnd[rop] - length) / 2, (times.ropBegin[rop] + times.ropEnd[rop] + length) / 2);
  chooseRop(rop);
  centreGraph(rop);
}

function find(text) {
  const wanted = text.trim().toLowerCase();
  state.matches = wanted ? words.map((all) => all.includes(wanted)) : null;
  byId("found").textContent = wanted ? `${state.matches.filter(Boolean).length} of ${rops.length}` : "";
  update();
}
function nextMatch() {
  if (!state.matches) return;
  for (let i = 1; i <= rops.length; ++i) {
    const rop = (Math.max(state.rop, -1) + i) % rops.length;
    if (state.matches[rop]) return goTo(rop);
  }
}

function fromAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  const [veu, position] = (said.get("task") || "").split(",").map(Number), rop = Number(said.get("rop") ?? -1);
  byId("find").value = said.get("find") || "";
  find(byId("find").value);
  if (said.has("task") && veu in data.lanes && position >= 0 && position < laneBegin[veu + 1] - laneBegin[veu]) {
    const task = laneBegin[veu] + position;
    if (ropOf(task) >= 0) choose(task);
  } else if (said.has("rop") && rops[rop]) {
    goTo(rop);
  }
}

const rtaskCount = rops.reduce((sum, rop) => sum + rop.rtasks, 0);
document.title = `${data.name}: rProgram`;
byId("title").textContent = data.name;
byId("summary").textContent =
  `${data.source}, tamp ${data.tamp}: ${plural(rops.length, "rOperator")}, ${plural(rtaskCount, "rTask")} on ${plural(laneCount, "vEU")} of ${data.vdevice} (${data.precision}, ` +
  `${data.policy} policy, ${data.execution} execution); ${timelines.map((times) => `${times.name} ${us(times.span)}`).join(", ")}; ` +
  `weights ${bytesText(data.weight_bytes)}, arena ${bytesText(data.arena_bytes)}`;
byId("controls").addEventListener("submit", (event) => {
  event.preventDefault();
  nextMatch();
});
byId("find").addEventListener("input", () => find(byId("find").value));
byId("show-path").addEventListener("change", update);
byId("whole").addEventListener("click", () => {
  showTime(0, wholeSpan);
  shownLanes.begin = 0;
  shownLanes.end = Math.max(1, laneCount);
  graphView.scale = 0;  // fit the window again
  update();
});
new ResizeObserver(([header]) => document.documentElement.style.setProperty("--header", `${header.target.offsetHeight}px`)).observe(document.querySelector("header"));
performance.mark("laid out");
fromAddress();
for (const each of [lanesDrawing, arenaDrawing, graphDrawing]) each.now();
performance.mark("drawn");
// The table comes last, when the drawings are there: its layout takes longer than all of them.
addEventListener("load", () => setTimeout(() => order.column < 0 && sortTable(0), 0));
document.documentElement.dataset.loaded = Math.round(performance.now());  // milliseconds, for tests
