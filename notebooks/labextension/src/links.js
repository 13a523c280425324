// Which cell asked a statement, where the kernel does not know: it was restarted, or another session asked.

const flat = text => text.replace(/\s+/g, ' ').trim();

// The identifier of the first cell whose text holds the statement; undefined where none does.
export function findCell(cells, statement) {
  const wanted = flat(statement).replace(/\.\.\.$/, '').trimEnd();
  if (wanted.length < 8) {
    return undefined;
  }
  return cells.find(cell => flat(cell.text).includes(wanted))?.id;
}

// Whether a cell may ask something: only these are sent to be priced, and the kernel decides.
export function mayAsk(text) {
  return /^\s*(?:[\w.]+\s*=\s*)?%%?[A-Za-z_]/.test(text);
}

// The identifier of the cell that a link leads to, as JupyterLab and nbconvert address cells.
export function cellOf(href) {
  return href?.startsWith('#cell-id=') ? decodeURIComponent(href.slice('#cell-id='.length)) : undefined;
}
