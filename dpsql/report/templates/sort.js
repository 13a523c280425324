const head = event.target.closest(`thead th`), body = head?.closest(`table`).tBodies[0];
if (body) {
  const way = {ascending: -1, descending: 0}[head.ariaSort] ?? 1;
  [...body.rows].forEach((row, place) => row.place ??= place);
  for (const other of head.parentElement.cells) {
    other.textContent = other.title ||= other.textContent;
    other.ariaSort = `none`;
  }
  if (way) {
    head.textContent += way > 0 ? ` ▲` : ` ▼`;
    head.ariaSort = way > 0 ? `ascending` : `descending`;
  }
  const text = row => row.cells[head.cellIndex]?.textContent ?? ``;
  const number = said => Number(said.replace(/[\s\u202f±]/g, ``).replace(/to.*/, ``) || NaN);
  const compare = (a, b) => (a == `NULL`) - (b == `NULL`) ||
    way * (number(a) - number(b) || a.localeCompare(b, undefined, {numeric: true}));
  body.append(...[...body.rows].sort((a, b) => way && compare(text(a), text(b)) || a.place - b.place));
}
