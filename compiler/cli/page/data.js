// The page's data, from the JSON that `tamp inspect --html` wrote (compiler/cli/page.cpp). Values that exist per rTask are in typed arrays,
// lane after lane, so that 200,000 rTasks take a few megabytes. Times are nanoseconds.
//
// Names come from a model that nobody trusts. They reach the page as JSON, and the screen as text of nodes or of a canvas, never as HTML.

"use strict";

performance.mark("begun");  // test/bench/page_load.py reads these marks
const data = JSON.parse(document.getElementById("data").textContent);
const rops = data.rops;
const laneCount = data.lanes.length;

// data.steps: what an entry of a lane does, [rOperator or -1, phase, event that it signals or -1, events that it waits for...]. data.lanes:
// four numbers for each entry: step, rTask, pause since the entry before, duration.
const laneBegin = new Int32Array(laneCount + 1);
data.lanes.forEach((lane, veu) => (laneBegin[veu + 1] = laneBegin[veu] + lane.length / 4));
const taskCount = laneBegin[laneCount];
const stepOf = new Int32Array(taskCount), indexOf = new Int32Array(taskCount), laneOf = new Int32Array(taskCount), lineOf = new Int32Array(taskCount),
  ropOfTask = new Int32Array(taskCount);
const planned = { name: "planned", begin: new Float64Array(taskCount), end: new Float64Array(taskCount) };
const measured = data.measured && { name: "measured", begin: new Float64Array(taskCount), end: new Float64Array(taskCount) };

const ropOf = (task) => ropOfTask[task];  // -1: the entry only waits and signals
const phaseOf = (task) => data.steps[stepOf[task]][1];
const signalOf = (task) => data.steps[stepOf[task]][2];
const waitsOf = (task) => data.steps[stepOf[task]].slice(3);

data.lanes.forEach((lane, veu) => {
  let time = 0, line = data.lines[veu];  // 0: the source has no lanes
  for (let i = 0; i < lane.length; i += 4) {
    const task = laneBegin[veu] + i / 4;
    stepOf[task] = lane[i];
    ropOfTask[task] = data.steps[lane[i]][0];
    indexOf[task] = lane[i + 1];
    laneOf[task] = veu;
    planned.begin[task] = time + lane[i + 2];
    time = planned.end[task] = planned.begin[task] + lane[i + 3];
    // Waits that do not fit an instruction have rows of their own before the instruction's.
    line += Math.max(0, Math.ceil((data.steps[lane[i]].length - 3) / data.waits_of_row) - 1);
    lineOf[task] = data.lines[veu] > 0 ? line++ : 0;
  }
});

// A trace has rTasks only: begin and duration of each, in the order of the lane. An entry that only waits and signals is taken to be done
// as soon as it can be.
if (measured) {
  data.measured.forEach((times, veu) => {
    let at = 0;
    for (let task = laneBegin[veu]; task < laneBegin[veu + 1]; ++task) {
      const before = task > laneBegin[veu] ? measured.end[task - 1] : 0;
      const runs = ropOf(task) >= 0;
      measured.begin[task] = runs ? times[at] : before;
      measured.end[task] = runs ? times[at] + times[at + 1] : before;
      if (runs) at += 2;
    }
  });
}
const timelines = measured ? [measured, planned] : [planned];

// Planned times begin with the launch of the kernel, measured times with the first stamp. Both are shifted so that time 0 is the begin of
// the first rTask.
for (const times of timelines) {
  times.lead = Infinity;
  for (let task = 0; task < taskCount; ++task) if (ropOf(task) >= 0) times.lead = Math.min(times.lead, times.begin[task]);
  if (times.lead === Infinity) times.lead = 0;
  for (let task = 0; task < taskCount; ++task) {
    times.begin[task] -= times.lead;
    times.end[task] -= times.lead;
  }
}

// Tasks that signal an event: signallers[firstSignaller[event] .. firstSignaller[event + 1]).
const firstSignaller = new Int32Array(data.events.length + 1);
for (let task = 0; task < taskCount; ++task) if (signalOf(task) >= 0) ++firstSignaller[signalOf(task) + 1];
for (let event = 0; event < data.events.length; ++event) firstSignaller[event + 1] += firstSignaller[event];
const signallers = new Int32Array(firstSignaller[data.events.length]);
{
  const next = firstSignaller.slice();
  for (let task = 0; task < taskCount; ++task) if (signalOf(task) >= 0) signallers[next[signalOf(task)]++] = task;
}

const tasksOfRop = rops.map(() => []);
for (let task = 0; task < taskCount; ++task) if (ropOf(task) >= 0) tasksOfRop[ropOf(task)].push(task);

// What takes the time and the critical path are found by compiler/cli/time_shares.cpp; the path is pairs of vEU and position in its lane.
for (const times of timelines) {
  times.shares = data.shares[times.name];
  const { path } = times.shares;
  times.path = path.filter((_, i) => i % 2 === 0).map((veu, i) => laneBegin[veu] + path[2 * i + 1]);
  times.onPath = new Uint8Array(taskCount);
  for (const task of times.path) times.onPath[task] = 1;
  times.span = times.end.reduce((most, end) => Math.max(most, end), 0);
  times.busy = 0;
  for (let task = 0; task < taskCount; ++task) if (ropOf(task) >= 0) times.busy += times.end[task] - times.begin[task];
  // Per rOperator: from the begin of its first rTask to the end of its last, and its part of the critical path.
  times.ropBegin = rops.map((_, rop) => tasksOfRop[rop].reduce((least, task) => Math.min(least, times.begin[task]), Infinity));
  times.ropEnd = rops.map((_, rop) => tasksOfRop[rop].reduce((most, task) => Math.max(most, times.end[task]), 0));
  times.ropOnPath = new Float64Array(rops.length);
  for (const task of times.path) if (ropOf(task) >= 0) times.ropOnPath[ropOf(task)] += times.end[task] - times.begin[task];
}
const wholeSpan = Math.max(1, ...timelines.map((times) => times.span)) * 1.01;

const us = (ns) => (ns / 1000).toFixed(2) + " us";
// -1: nothing to compare with.
const ratioOf = (ns, other) => (other > 0 && isFinite(ns) ? ns / other : -1);
const ratioText = (ratio) => (ratio < 0 ? "" : ratio.toFixed(2));
const plural = (number, noun) => `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;
const grouped = (number) => Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, ",");  // toLocaleString takes ten times as long
function bytesText(bytes) {
  for (const [unit, size] of [["GB", 2 ** 30], ["MB", 2 ** 20], ["KB", 2 ** 10]]) if (bytes >= size) return (bytes / size).toFixed(1) + " " + unit;
  return Math.round(bytes) + " B";
}
const shapeText = (shape) => "[" + shape.join(",") + "]";

// A hue for each kind of rOperator, those that take most time first, and grey for kinds behind them. Neighbours of one kind differ a little.
// All are light enough for dark letters.
const kHues = 12;
const kinds = data.shares.planned.kinds;
const even = CSS.supports("color", "oklch(0.8 0.1 0)");
function colourOf(kind, shade) {
  const hue = (250 + kind * 137.508) % 360, colourful = kind < kHues;
  return even ? `oklch(${0.84 - 0.05 * shade} ${colourful ? 0.1 : 0} ${hue.toFixed(1)})` : `hsl(${hue.toFixed(1)} ${colourful ? 55 : 0}% ${77 - 6 * shade}%)`;
}
const colours = [];
kinds.forEach(({ rops }, kind) => rops.forEach((rop, i) => (colours[rop] = colourOf(kind, i % 3))));

// Of an rTask: its phase's priced bytes. Of an rTask of a gang, whose price is the time of its steps: an equal share.
function bytesOf(task) {
  const rop = rops[ropOf(task)], phase = rop.phases[phaseOf(task)];
  if (rop.gang) return { activations: rop.bytes / rop.rtasks, weights: rop.weight_bytes / rop.rtasks };
  return { activations: phase[1], weights: phase[2] };
}

// What is chosen (-1: nothing), and, during a search, which rOperators match.
const state = { task: -1, rop: -1, hover: -1, matches: null };

// The texts that a search looks at, per rOperator.
const words = rops.map((rop) => [rop.name, rop.op, rop.rkernel, ...rop.origin].join("\n").toLowerCase());
performance.mark("parsed");
