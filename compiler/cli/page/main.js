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

function element(kind, text, className) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}
function linkTo(text, colour, go) {
  const button = element("button", undefined, "link");
  button.type = "button";
  if (colour) {
    const swatch = element("span", undefined, "swatch");
    swatch.style.background = colour;
    button.append(swatch);
  }
  button.append(text);
  button.addEventListener("click", go);
  return button;
}
function showFacts(heading, facts, colour) {
  const title = element("h3"), list = element("dl"), swatch = element("span", undefined, "swatch");
  swatch.style.background = colour;
  title.append(swatch, heading);
  for (const [what, text] of facts) if (what) list.append(element("dt", what), element("dd", text));
  byId("details").append(title, list);
}
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const searchFor = (text) => {
  byId("find").value = text;
  find(text, true);
};

// What takes the time, by kind or by layer: the largest first, as many as help.
const kMostShown = 10, kSharesShown = 30;
function shareTable(what, key) {
  const times = timelines[0], all = times.shares, list = all[key];
  const table = element("table", undefined, "shares"), head = table.createTHead().insertRow(), body = table.createTBody();
  const planned = new Map(data.shares.planned[key].map((share) => [share.name, share]));
  const columns = [`by ${what}`, "% of path", "us", ...(measured ? ["planned us"] : []), "% of vEUs"];
  columns.forEach((title, i) => head.append(element("th", title, i > 0 ? "number" : "")));
  const line = (name, share, texts) => {
    const row = body.insertRow(), cell = row.insertCell();
    cell.append(name);
    cell.style.setProperty("--share", `${100 * share}%`);
    for (const text of texts) row.append(element("td", text, "number"));
  };
  const textsOf = (share, plan) => [percent(share.critical_share), (share.critical_us).toFixed(2), ...(measured ? [plan.toFixed(2)] : []), percent(share.busy_share)];
  for (const share of list.slice(0, kSharesShown)) {
    const colour = what === "kind" && colourOf(kinds.findIndex((kind) => kind.name === share.name), 0);
    line(linkTo(share.name, colour, () => searchFor(`${what}:${share.name}`)), share.critical_share, textsOf(share, planned.get(share.name)?.critical_us ?? 0));
  }
  const rest = list.slice(kSharesShown), sum = (field) => rest.reduce((all, share) => all + share[field], 0);
  if (rest.length > 0) line(`and ${rest.length} more`, sum("critical_share"), [percent(sum("critical_share")), sum("critical_us").toFixed(2), ...(measured ? [""] : []), percent(sum("busy_share"))]);
  const between = all.critical_us - all.computing_us, plan = data.shares.planned;
  line("between rTasks", between / Math.max(1e-9, all.critical_us), [percent(between / Math.max(1e-9, all.critical_us)), between.toFixed(2), ...(measured ? [(plan.critical_us - plan.computing_us).toFixed(2)] : []), ""]);
  return table;
}

// What takes the time: what to look at first.
function showOverview() {
  const times = timelines[0], longest = rops.map((_, rop) => rop).filter((rop) => times.ropOnPath[rop] > 0).sort((a, b) => times.ropOnPath[b] - times.ropOnPath[a]);
  const list = element("dl"), { critical_us, computing_us, critical_rtasks } = times.shares;
  const line = (what, value) => {
    const place = element("dd");
    place.append(value);
    list.append(element("dt", what), place);
  };
  for (const rop of longest.slice(0, kMostShown)) line(us(times.ropOnPath[rop]), linkTo(rops[rop].name, colours[rop], () => goTo(rop)));
  if (longest.length > kMostShown) line("", `and ${plural(longest.length - kMostShown, "rOperator")} more, in the table`);
  byId("details").append(
    element("p", kNoneChosen),
    element("h3", `critical path, ${times.name}: ${critical_us.toFixed(2)} us`),
    element("p", `${computing_us.toFixed(2)} us in ${plural(critical_rtasks, "rTask")}; between them signals are on their way and rTasks start`),
    shareTable("kind", "kinds"),
    shareTable("layer", "layers"),
    element("h3", "longest rOperators on it"),
    list,
  );
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
  showInLanes([rop]);
  chooseRop(rop);
  centreGraph([rop]);
}

// kind:NAME and layer:NAME are what the tables of shares have; other texts are parts of names.
function matchesOf(text) {
  const wanted = text.trim().toLowerCase(), [, what, name] = /^(kind|layer):(.*)$/.exec(wanted) || [];
  if (!wanted) return null;
  const group = what && data.shares.planned[`${what}s`].find((share) => share.name.toLowerCase() === name);
  return group ? rops.map((_, rop) => group.rops.includes(rop)) : words.map((all) => all.includes(wanted));
}
// With `show` the lanes and the graph go to what is found.
function find(text, show) {
  state.matches = matchesOf(text);
  const found = state.matches ? rops.map((_, rop) => rop).filter((rop) => state.matches[rop]) : [];
  byId("found").textContent = state.matches ? `${found.length} of ${rops.length}` : "";
  if (show && found.length > 0) {
    showInLanes(found);
    centreGraph(found);
  }
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
  find(byId("find").value, true);
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
byId("find").addEventListener("input", () => find(byId("find").value, true));
byId("show-path").addEventListener("change", update);
byId("whole").addEventListener("click", () => {
  showTime(0, wholeSpan);
  shownLanes.begin = 0;
  shownLanes.end = Math.max(1, laneCount);
  graphView.scale = 0;  // fit the window again
  update();
});
kinds.slice(0, kHues).forEach((kind, i) => byId("legend").append(linkTo(kind.name, colourOf(i, 0), () => searchFor(`kind:${kind.name}`))));
if (kinds.length > kHues) byId("legend").append(element("span", `grey: ${plural(kinds.length - kHues, "kind")} more`));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readTheme();
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
