// The lanes: what each vEU does over time. With a trace there are two bands: measured times above planned ones. Only tasks in view are
// looked at (found by binary search in their lane), and of tasks that fall into the same two pixels only the first is drawn.

const shownLanes = { begin: 0, end: Math.max(1, laneCount) };  // fractions of lanes, of every band
const lanesCanvas = byId("lanes");
if (measured) lanesCanvas.classList.add("both");

function bandsOf(height) {
  const title = 15, each = (height - kAxis) / timelines.length;
  return timelines.map((times, i) => ({ times, top: i * each + title, height: each - title - 3 }));
}
const laneHeight = (band) => band.height / (shownLanes.end - shownLanes.begin);
const yOf = (band, lane) => band.top + (lane - shownLanes.begin) * laneHeight(band);

// The first task of the lane that ends after `time`.
function firstAfter(times, lane, time) {
  let low = laneBegin[lane], high = laneBegin[lane + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times.end[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Adds rTasks that are wide enough for a name to `bars`, by rOperator.
function drawLane(context, band, lane, width, bars) {
  const { times } = band, y = Math.round(yOf(band, lane)), height = Math.max(1, Math.round(yOf(band, lane + 1)) - y);  // whole pixels: no seams
  let filled = kLeft, colour = null;
  for (let task = firstAfter(times, lane, view.begin); task < laneBegin[lane + 1] && times.begin[task] < view.end; ++task) {
    const rop = ropOf(task);
    if (rop < 0) continue;
    const left = Math.max(kLeft, xOf(times.begin[task], width)), right = Math.min(width, xOf(times.end[task], width));
    if (right <= filled && right - left < 1) continue;
    const wanted = state.matches && !state.matches[rop] ? theme.unmatched : colours[rop];
    if (wanted !== colour) context.fillStyle = colour = wanted;
    context.fillRect(left, y, Math.max(right - left < 1 ? 2 : 1, right - left - (right - left > 3 ? 0.5 : 0)), height);
    filled = Math.max(right, left + (right - left < 1 ? 2 : 1));
    if (height < 1.6 * kLetters) {
      if (right - left < kWide) continue;
      if (!bars.has(rop)) bars.set(rop, []);
      bars.get(rop).push({ left, y, width: right - left });
    } else if (right - left > kNameWide) {
      context.fillStyle = colour = theme.letters;
      context.fillText(fitting(rops[rop].name, right - left - 4), left + 2, y + height / 2 + 4);
    }
  }
}

// Lines between lanes, fainter than the tasks, so that the rTasks of one rOperator look like one area.
function drawSeams(context, band, first, last, width) {
  context.fillStyle = theme.paper;
  context.globalAlpha = laneHeight(band) > 9 ? 1 : 0.3;
  for (let lane = first; lane < last; ++lane) context.fillRect(kLeft, Math.round(yOf(band, lane + 1)) - 1, width - kLeft, 1);
  context.globalAlpha = 1;
}

// The rTasks of a rOperator that lie on lanes one below the other, over the middle of the widest one's time; the most of them that do.
function largestArea(bars, high) {
  const widest = bars.reduce((most, bar) => (bar.width > most.width ? bar : most)), x = widest.left + widest.width / 2;
  let run = [], most = [];
  for (const bar of bars) {
    if (bar.left > x || bar.left + bar.width < x) continue;
    if (run.length > 0 && bar.y - run[run.length - 1].y > 1.5 * high + 1) run = [];
    run.push(bar);
    if (run.length > most.length) most = run;
  }
  return { left: Math.max(...most.map((bar) => bar.left)), right: Math.min(...most.map((bar) => bar.left + bar.width)), top: most[0].y, bottom: most[most.length - 1].y + high };
}

// Where lanes are low, a rOperator has its name once, in its largest area, upwards where that says more. The widest come first, and names
// do not overlap.
const kLetters = 11, kWide = 14, kNameWide = 30;  // pixels
function drawNames(context, band, bars) {
  const taken = [], areas = [...bars].map(([rop, list]) => ({ rop, ...largestArea(list, laneHeight(band)) }));
  for (const { rop, left, right, top, bottom } of areas.sort((a, b) => b.right - b.left - (a.right - a.left))) {
    const width = right - left;
    const across = width > kNameWide && bottom - top >= kLetters ? fitting(rops[rop].name, width - 4) : "", upwards = width > kWide - 2 ? fitting(rops[rop].name, bottom - top - 8) : "";
    const turned = !across.includes("/") && upwards.length > across.length, text = turned ? upwards : across;
    if (!text) continue;
    const high = laneHeight(band), middleY = turned ? (top + bottom) / 2 : top + (Math.floor(Math.round((bottom - top) / high - 1) / 2) + 0.5) * high;  // in a lane, not between two
    const long = context.measureText(text).width;
    const place = turned ? { left: left + width / 2 - 6, width: 12, top: middleY - long / 2, height: long } : { left, width, top: middleY - 6, height: 12 };
    const meets = (other) => place.left < other.left + other.width && other.left < place.left + place.width && place.top < other.top + other.height && other.top < place.top + place.height;
    if (taken.some(meets)) continue;
    taken.push(place);
    const matched = !state.matches || state.matches[rop];
    context.save();
    context.translate(turned ? left + width / 2 + 4 : left + 2, turned ? middleY + long / 2 : middleY + 4);
    if (turned) context.rotate(-Math.PI / 2);
    context.strokeStyle = matched ? colours[rop] : theme.unmatched;
    context.lineWidth = 3;
    context.strokeText(text, 0, 0);
    context.fillStyle = matched ? theme.letters : theme.faint;
    context.fillText(text, 0, 0);
    context.restore();
  }
}

// The outline of a task, if it is in view.
function outline(context, band, task, width, colour, thick) {
  const { times } = band;
  if (times.end[task] < view.begin || times.begin[task] > view.end) return;
  const left = Math.max(kLeft, xOf(times.begin[task], width)), right = Math.min(width, xOf(times.end[task], width));
  context.strokeStyle = colour;
  context.lineWidth = thick;
  context.strokeRect(left, yOf(band, laneOf[task]), Math.max(1.5, right - left), Math.max(2, laneHeight(band) - 1));
}

const titleOf = ({ times }) =>
  `${times.name}: ${us(times.span)} from the begin of the first rTask to the end of the last, vEUs busy ${((100 * times.busy) / Math.max(1, times.span * laneCount)).toFixed(0)} %` +
  (times === planned && times.lead > 0 ? `; before it ${us(times.lead)} for the launch` : "");

const middle = (band, task) => yOf(band, laneOf[task]) + laneHeight(band) / 2;

function drawPath(context, band, width) {
  const { times } = band;
  context.strokeStyle = theme.path;
  context.lineWidth = 1;
  context.beginPath();
  times.path.forEach((task, i) => {
    if (i > 0) context.lineTo(xOf(times.begin[task], width), middle(band, task));
    else context.moveTo(xOf(times.begin[task], width), middle(band, task));
    context.lineTo(xOf(times.end[task], width), middle(band, task));
  });
  context.stroke();
  for (const task of times.path) outline(context, band, task, width, theme.path, 1.5);
}

// Lines from every signal that the chosen rTask waits for; the last signal of each event has a stronger line.
function drawWaits(context, band, width) {
  const task = state.task, { times } = band;
  for (const event of waitsOf(task)) {
    let last = -1;
    for (let i = firstSignaller[event]; i < firstSignaller[event + 1]; ++i)
      if (last < 0 || times.end[signallers[i]] > times.end[last]) last = signallers[i];
    for (let i = firstSignaller[event]; i < firstSignaller[event + 1]; ++i) {
      const from = signallers[i];
      context.strokeStyle = theme.choice;
      context.globalAlpha = from === last ? 1 : 0.33;
      context.lineWidth = from === last ? 2 : 1;
      context.beginPath();
      context.moveTo(xOf(times.end[from], width), middle(band, from));
      context.lineTo(xOf(times.begin[task], width), middle(band, task));
      context.stroke();
    }
  }
  context.globalAlpha = 1;
  outline(context, band, task, width, theme.ink, 2.5);
}

const lanesDrawing = drawing(lanesCanvas, (context, width, height) => {
  drawAxis(context, width, height - kAxis);
  for (const band of bandsOf(height)) {
    context.fillStyle = theme.ink;
    context.fillText(titleOf(band), kLeft, band.top - 4);
    context.save();
    context.beginPath();
    context.rect(0, band.top, width, band.height);
    context.clip();
    const first = Math.max(0, Math.floor(shownLanes.begin)), last = Math.min(laneCount, Math.ceil(shownLanes.end));
    const every = 2 ** Math.max(0, Math.ceil(Math.log2(12 / laneHeight(band))));
    const bars = new Map();
    for (let lane = first; lane < last; ++lane) {
      drawLane(context, band, lane, width, bars);
      if (lane % every !== 0) continue;
      context.fillStyle = theme.faint;
      context.fillText(`vEU ${lane}`, 2, yOf(band, lane) + Math.min(10, Math.max(8, laneHeight(band) / 2 + 4)));
    }
    context.beginPath();
    context.rect(kLeft, band.top, width - kLeft, band.height);
    context.clip();
    if (laneHeight(band) > 3) drawSeams(context, band, first, last, width);
    drawNames(context, band, bars);
    if (byId("show-path").checked) drawPath(context, band, width);
    if (state.task >= 0) drawWaits(context, band, width);
    if (state.hover >= 0) outline(context, band, state.hover, width, theme.ink, 2);  // in both bands: the same rTask, planned and measured
    context.restore();
  }
});

// The rTask at a point, or the nearest one within three pixels on the same lane; -1: none.
function taskAt(x, y) {
  const width = lanesCanvas.clientWidth;
  for (const band of bandsOf(lanesCanvas.clientHeight)) {
    if (y < band.top || y >= band.top + band.height || x < kLeft) continue;
    const lane = Math.floor(shownLanes.begin + (y - band.top) / laneHeight(band));
    if (lane < 0 || lane >= laneCount) return { task: -1, band };
    const { times } = band, slack = (3 / (width - kLeft)) * (view.end - view.begin), at = timeOf(x, width);
    let best = -1, distance = slack;
    for (let task = firstAfter(times, lane, at - slack); task < laneBegin[lane + 1] && times.begin[task] <= at + slack; ++task) {
      const off = Math.max(0, times.begin[task] - at, at - times.end[task]);
      if (ropOf(task) >= 0 && (best < 0 || off < distance)) (best = task), (distance = off);
    }
    return { task: best, band };
  }
  return { task: -1, band: null };
}

function hover(task) {
  if (task === state.hover) return;
  state.hover = task;
  lanesDrawing.redraw();
}

function zoomLanes(factor, y) {
  const band = bandsOf(lanesCanvas.clientHeight).find((each) => y < each.top + each.height) || bandsOf(lanesCanvas.clientHeight)[0];
  const at = shownLanes.begin + (y - band.top) / laneHeight(band);
  const length = Math.max(1, Math.min(laneCount, (shownLanes.end - shownLanes.begin) * factor));
  const share = (at - shownLanes.begin) / (shownLanes.end - shownLanes.begin);
  shownLanes.end = shownLanes.begin + length;
  showLanes(at - share * length);
}
function showLanes(begin) {
  const length = shownLanes.end - shownLanes.begin;
  shownLanes.begin = Math.max(0, Math.min(begin, laneCount - length));
  shownLanes.end = shownLanes.begin + length;
}
const moveLanes = (pixels) => showLanes(shownLanes.begin - pixels / laneHeight(bandsOf(lanesCanvas.clientHeight)[0]));

// Shows rOperators from the first's begin to the last's end, with some time around them, and of the lanes one that has an rTask of theirs.
function showInLanes(list) {
  const running = list.filter((rop) => tasksOfRop[rop].length > 0);
  if (running.length === 0) return;
  const spans = timelines.flatMap((times) => running.map((rop) => [times.ropBegin[rop], times.ropEnd[rop]]));
  const begin = spans.reduce((least, span) => Math.min(least, span[0]), Infinity), end = spans.reduce((most, span) => Math.max(most, span[1]), 0);
  const around = Math.max(100, running.length > 1 ? (end - begin) / 10 : end - begin);
  showTime(begin - around, end + around);
  const lanes = running.flatMap((rop) => tasksOfRop[rop].map((task) => laneOf[task]));
  if (!lanes.some((lane) => lane >= shownLanes.begin && lane + 1 <= shownLanes.end)) showLanes(lanes[0] - (shownLanes.end - shownLanes.begin) / 2);
}

follow(lanesCanvas, {
  move: (x, y, event) => {
    const { task } = taskAt(x, y);
    hover(task);
    showTip(task < 0 ? "" : factsOf(task).map(([what, text]) => (what ? `${what}: ${text}` : text)).join("\n"), event);
  },
  leave: () => {
    hover(-1);
    showTip("");
  },
  click: (x, y) => choose(taskAt(x, y).task),
  drag: (dx, dy) => {
    showTip("");
    moveTime(dx, lanesCanvas.clientWidth);
    moveLanes(dy);
    redrawAll();
  },
  wheel: (factor, x, y, shift) => {
    showTip("");
    if (shift) zoomLanes(factor, y);
    else zoomTime(factor, x, lanesCanvas.clientWidth);
    redrawAll();
  },
});
