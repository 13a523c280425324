const head = event.target.closest('thead th'), body = head && head.closest('table').tBodies[0];
if (body) {
  const way = {ascending: -1, descending: 0}[head.ariaSort] ?? 1, rows = [...body.rows];
  rows.forEach((row, place) => row.place ??= place);
  for (const other of head.parentElement.cells) {
    other.title ||= other.textContent;
    other.textContent = other.title;
    other.ariaSort = 'none';
  }
  if (way) head.textContent += way > 0 ? ' ▲' : ' ▼';
  head.ariaSort = way > 0 ? 'ascending' : way ? 'descending' : 'none';
  const text = row => row.cells[head.cellIndex]?.textContent ?? '';
  const number = text => {
    const found = text.replace(/[\s\u202f]/g, '').match(/^±?(-?[\d.]+(e[-+]?\d+)?)($|to)/);
    return found ? Number(found[1]) : NaN;
  };
  const compare = (a, b) => {
    if (a === 'NULL' || b === 'NULL') return (a === 'NULL') - (b === 'NULL');
    const order = number(a) - number(b);
    return way * (Number.isNaN(order) ? a.localeCompare(b, undefined, {numeric: true}) : order);
  };
  body.append(...rows.sort((a, b) => (way && compare(text(a), text(b))) || a.place - b.place));
}
