// A row for each rOperator, sorted by any column.

const spanOf = (times, rop) => Math.max(0, times.ropEnd[rop] - times.ropBegin[rop]);
const kColumns = [
  { title: "#", value: (rop) => rop, number: true },
  { title: "rOperator", value: (rop) => rops[rop].name },
  { title: "op", value: (rop) => rops[rop].op },
  { title: "result", value: (rop) => rops[rop].dtype + shapeText(rops[rop].shape) },
  { title: "rKernel", value: (rop) => rops[rop].rkernel },
  { title: "chosen by", value: (rop) => rops[rop].chosen_by },
  { title: "rTasks", value: (rop) => rops[rop].rtasks, show: grouped, number: true },
  { title: "vEUs", value: (rop) => rops[rop].veus, number: true },
  { title: "begins us", value: (rop) => (tasksOfRop[rop].length ? planned.ropBegin[rop] : 0), show: (ns) => (ns / 1000).toFixed(2), number: true },
  { title: "planned us", value: (rop) => spanOf(planned, rop), show: (ns) => (ns / 1000).toFixed(2), number: true },
  ...(measured ? [{ title: "measured us", value: (rop) => spanOf(measured, rop), show: (ns) => (ns / 1000).toFixed(2), number: true }] : []),
  ...(measured ? [{ title: "measured / planned", value: (rop) => ratioOf(spanOf(measured, rop), spanOf(planned, rop)), show: ratioText, number: true }] : []),
  ...timelines.map((times) => ({ title: measured ? `critical us (${times.name})` : "critical us", value: (rop) => times.ropOnPath[rop], show: (ns) => (ns / 1000).toFixed(2), number: true })),
  { title: "FLOP", value: (rop) => rops[rop].flops, show: grouped, number: true },
  { title: "bytes", value: (rop) => rops[rop].bytes, show: grouped, number: true },
  { title: "weights", value: (rop) => rops[rop].weight_bytes, show: grouped, number: true },
  { title: "line", value: (rop) => rops[rop].line, number: true },
];
const order = { column: 0, down: false };
const rows = rops.map((_, rop) => {
  const row = document.createElement("tr");
  row.dataset.rop = rop;
  for (const column of kColumns) {
    const cell = row.insertCell(), value = column.value(rop);
    cell.textContent = column.show ? column.show(value) : value;
    cell.className = column.number ? "number" : "text";
  }
  return row;
});
byId("table").tBodies[0].addEventListener("click", (event) => chooseRop(Number(event.target.closest("tr").dataset.rop)));

function sortTable(column) {
  order.down = order.column === column ? !order.down : Boolean(kColumns[column].number && column !== 0);
  order.column = column;
  const { value, number } = kColumns[column];
  const sorted = rops.map((_, rop) => rop).sort((a, b) => {
    const difference = number ? value(a) - value(b) : value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0;
    return (order.down ? -difference : difference) || a - b;
  });
  byId("table").tBodies[0].replaceChildren(...sorted.map((rop) => rows[rop]));
  [...byId("table").tHead.rows[0].cells].forEach((cell, i) => (cell.textContent = kColumns[i].title + (i !== column ? "" : order.down ? " \u25be" : " \u25b4")));
}

function updateTable() {
  rows.forEach((row, rop) => {
    row.hidden = Boolean(state.matches && !state.matches[rop]);
    row.classList.toggle("chosen", state.rop === rop);
  });
}

{
  const head = document.createElement("tr");
  kColumns.forEach((column, i) => {
    const cell = document.createElement("th");
    cell.className = column.number ? "number" : "";
    cell.addEventListener("click", () => sortTable(i));
    head.append(cell);
  });
  byId("table").tHead.append(head);
  order.column = -1;  // not shown yet
}
