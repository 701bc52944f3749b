// The arena over time: memory goes up, time to the right. A part is alive from the planned begin of the first rTask that makes it to the
// planned end of the last rTask that needs it.

const arenaCanvas = byId("arena");
const arenaParts = data.arena.map((part) => {
  const users = [...part.made_by, ...part.needed_by].filter((rop) => tasksOfRop[rop].length > 0);
  return {
    ...part,
    begin: users.reduce((least, rop) => Math.min(least, planned.ropBegin[rop]), Infinity),
    end: users.reduce((most, rop) => Math.max(most, planned.ropEnd[rop]), 0),
    colour: part.made_by.length > 0 ? colours[part.made_by[0]] : "#c9d0d8",
  };
});
const arenaY = (offset, height) => (height - kAxis) * (1 - offset / Math.max(1, data.arena_bytes));

const arenaDrawing = drawing(arenaCanvas, (context, width, height) => {
  drawAxis(context, width, height - kAxis);
  context.fillStyle = theme.faint;
  context.fillText(bytesText(data.arena_bytes), 2, 10);
  context.fillText("0", 2, height - kAxis);
  for (const part of arenaParts) {
    if (part.begin > part.end || part.end < view.begin || part.begin > view.end) continue;
    const left = Math.max(kLeft, xOf(part.begin, width)), right = Math.min(width, xOf(part.end, width));
    const top = arenaY(part.offset + part.bytes, height), bottom = arenaY(part.offset, height);
    const matched = !state.matches || [...part.made_by, ...part.needed_by].some((rop) => state.matches[rop]);
    context.fillStyle = matched ? part.colour : theme.unmatched;
    context.fillRect(left, top, Math.max(1, right - left), Math.max(1, bottom - top));
    const chosen = state.rop >= 0 && (part.made_by.includes(state.rop) || part.needed_by.includes(state.rop));
    context.strokeStyle = chosen ? theme.ink : theme.paper;
    context.lineWidth = chosen ? 2 : 0.5;
    context.strokeRect(left, top, Math.max(1, right - left), Math.max(1, bottom - top));
    if (bottom - top < 11 || right - left < 40) continue;
    context.fillStyle = theme.letters;
    context.fillText(fitting(part.tensors[0] || part.what, right - left - 4), left + 2, (top + bottom) / 2 + 4);
  }
});

function partAt(x, y) {
  const time = timeOf(x, arenaCanvas.clientWidth), height = arenaCanvas.clientHeight;
  return arenaParts.find((part) => part.begin <= time && time <= part.end && y <= arenaY(part.offset, height) && y >= arenaY(part.offset + part.bytes, height));
}
const namesOf = (list) => list.slice(0, 6).map((rop) => rops[rop].name).join(", ") + (list.length > 6 ? `, ${list.length - 6} more` : "");

follow(arenaCanvas, {
  move: (x, y, event) => {
    const part = partAt(x, y);
    if (!part) return showTip("");
    const names = part.tensors.slice(0, 6).join(", ") + (part.tensors.length > 6 ? `, ${part.tensors.length - 6} more` : "");
    showTip(`${names || part.what}\nbytes ${grouped(part.offset)} to ${grouped(part.offset + part.bytes)} (${bytesText(part.bytes)})\n` +
      `made by: ${namesOf(part.made_by)}\nneeded by: ${namesOf(part.needed_by)}\n${us(part.begin)} to ${us(part.end)}`, event);
  },
  leave: () => showTip(""),
  click: (x, y) => {
    const part = partAt(x, y);
    if (part && part.made_by.length > 0) chooseRop(part.made_by[0]);
  },
  drag: (dx) => {
    moveTime(dx, arenaCanvas.clientWidth);
    redrawAll();
  },
  wheel: (factor, x) => {
    zoomTime(factor, x, arenaCanvas.clientWidth);
    redrawAll();
  },
});
