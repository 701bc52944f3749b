// The graph of rOperators, from left to right. A rOperator is one column behind the last of those whose results it needs, and near the
// middle of these in its column.

const graphCanvas = byId("graph");
const kColumn = 150, kRow = 30, kBoxWidth = 118, kBoxHeight = 20;  // in units of the drawing: `scale` pixels each, upwards `scale * stretch`
const graphView = { x: 0, y: 0, scale: 0, stretch: 1 };
const scaleY = () => graphView.scale * graphView.stretch;

const nodes = rops.map(() => ({ column: 0, row: 0 }));
const columns = [];
rops.forEach((rop, i) => {  // rOperators are in topological order
  nodes[i].column = rop.after.reduce((most, other) => Math.max(most, nodes[other].column + 1), 0);
  (columns[nodes[i].column] ||= []).push(i);
});
const consumersOf = rops.map(() => []);
rops.forEach((rop, i) => rop.after.forEach((other) => consumersOf[other].push(i)));

// Sorts each column by the middles of its rOperators' neighbours, first from the left, then from the right.
function arrange(list, neighbours) {
  const middle = new Map(list.map((i) => {
    const rows = neighbours(i).map((other) => nodes[other].row);
    return [i, rows.length > 0 ? rows.reduce((sum, row) => sum + row, 0) / rows.length : nodes[i].row];
  }));
  list.sort((a, b) => middle.get(a) - middle.get(b) || a - b);
  list.forEach((i, place) => (nodes[i].row = place - (list.length - 1) / 2));
}
columns.forEach((list) => arrange(list, (i) => rops[i].after));
for (let column = columns.length - 1; column >= 0; --column) arrange(columns[column], (i) => consumersOf[i]);
columns.forEach((list) => arrange(list, (i) => rops[i].after));

const nodeX = (i) => (nodes[i].column * kColumn - graphView.x) * graphView.scale;
const nodeY = (i) => (nodes[i].row * kRow - graphView.y) * scaleY();

function fitGraph() {
  const wide = Math.max(1, columns.length) * kColumn, high = Math.max(1, ...columns.map((list) => list.length)) * kRow;
  const width = graphCanvas.clientWidth, height = graphCanvas.clientHeight;
  graphView.scale = Math.min(1.2, Math.max(0.04, Math.min(width / wide, height / high)));
  graphView.stretch = Math.max(1, Math.min(1.2, height / high) / graphView.scale);  // most networks are long and thin
  graphView.x = -(width / graphView.scale - wide) / 2;
  graphView.y = -height / scaleY() / 2;
}
// Shows rOperators, as large as they fit.
function centreGraph(list) {
  const least = (of) => list.reduce((low, rop) => Math.min(low, of(nodes[rop])), Infinity), most = (of) => list.reduce((high, rop) => Math.max(high, of(nodes[rop])), -Infinity);
  const left = least((node) => node.column) * kColumn, right = most((node) => node.column) * kColumn + kBoxWidth;
  const top = least((node) => node.row) * kRow, bottom = most((node) => node.row) * kRow;
  const fitted = Math.min(graphCanvas.clientWidth / (right - left + kColumn), graphCanvas.clientHeight / (bottom - top + 2 * kRow));
  graphView.scale = Math.max(0.04, Math.min(1, fitted));
  graphView.stretch = Math.max(1, Math.min(1 / graphView.scale, graphCanvas.clientHeight / (bottom - top + 2 * kRow) / graphView.scale));
  graphView.x = (left + right) / 2 - graphCanvas.clientWidth / graphView.scale / 2;
  graphView.y = (top + bottom) / 2 - graphCanvas.clientHeight / scaleY() / 2;
}

const graphDrawing = drawing(graphCanvas, (context, width, height) => {
  if (graphView.scale === 0) fitGraph();
  const wide = kBoxWidth * graphView.scale, high = kBoxHeight * scaleY();
  const onPath = byId("show-path").checked ? timelines[0].ropOnPath : null;
  const letters = Math.max(8, Math.min(11, 14 * graphView.scale));  // pixels
  context.font = `${letters}px system-ui, sans-serif`;
  const inView = (i) => nodeX(i) > -wide && nodeX(i) < width && nodeY(i) > -high && nodeY(i) < height + high;
  rops.forEach((rop, i) => {
    for (const other of rop.after) {
      if (nodeX(i) < 0 || nodeX(other) > width) continue;
      const chosen = state.rop === i || state.rop === other, x = nodeX(other) + wide, middle = (x + nodeX(i)) / 2;
      context.strokeStyle = chosen ? theme.choice : theme.edge;
      context.lineWidth = chosen ? 2 : 1;
      context.beginPath();
      context.moveTo(x, nodeY(other));
      context.bezierCurveTo(middle, nodeY(other), middle, nodeY(i), nodeX(i), nodeY(i));
      context.stroke();
    }
  });
  rops.forEach((rop, i) => {
    if (!inView(i)) return;
    context.fillStyle = state.matches && !state.matches[i] ? theme.unmatched : colours[i];
    context.fillRect(nodeX(i), nodeY(i) - high / 2, wide, high);
    context.strokeStyle = state.rop === i ? theme.ink : onPath && onPath[i] > 0 ? theme.path : theme.edge;
    context.lineWidth = state.rop === i ? 2.5 : 1;
    context.strokeRect(nodeX(i), nodeY(i) - high / 2, wide, high);
    if (high < 11) return;
    context.fillStyle = theme.letters;
    context.fillText(fitting(rop.name, ((wide - 5) * 11) / letters), nodeX(i) + 3, nodeY(i) + 4);
  });
});

function nodeAt(x, y) {
  const wide = kBoxWidth * graphView.scale, high = Math.max(6, kBoxHeight * scaleY());
  return rops.findIndex((_, i) => x >= nodeX(i) && x <= nodeX(i) + wide && Math.abs(y - nodeY(i)) <= high / 2);
}

follow(graphCanvas, {
  move: (x, y, event) => {
    const rop = nodeAt(x, y);
    showTip(rop < 0 ? "" : factsOfRop(rop).map(([what, text]) => (what ? `${what}: ${text}` : text)).join("\n"), event);
  },
  leave: () => showTip(""),
  click: (x, y) => chooseRop(nodeAt(x, y)),
  drag: (dx, dy) => {
    graphView.x -= dx / graphView.scale;
    graphView.y -= dy / scaleY();
    graphDrawing.redraw();
  },
  wheel: (factor, x, y) => {
    const before = { x: graphView.x + x / graphView.scale, y: graphView.y + y / scaleY() };
    graphView.scale = Math.max(0.02, Math.min(4, graphView.scale / factor));
    graphView.stretch = Math.max(1, Math.min(graphView.stretch, 1.5 / graphView.scale));
    graphView.x = before.x - x / graphView.scale;
    graphView.y = before.y - y / scaleY();
    graphDrawing.redraw();
  },
});
