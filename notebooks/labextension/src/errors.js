// Which line of a cell an error of ours is about. Its excerpt says so; nothing is marked where that line is not in the cell.

const EXCERPT = /^ {2}(\d+) \| {3}([^\n]*)\n *\^/m;

/** The number of the line, from 1; undefined where there is none. */
export function errorLine(text, traceback) {
  const found = EXCERPT.exec(traceback.join('\n'));
  const lines = text.split('\n').map(line => line.replace(/\t/g, ' '));
  const head = lines.findIndex(line => line.trim());
  if (!found || head < 0 || !/^\s*(?:[\w.]+\s*=\s*)?%/.test(lines[head])) {
    return undefined;
  }
  const told = found[2].trimEnd();
  const holds = index => lines[index] !== undefined && lines[index].includes(told);
  if (/^\s*%%/.test(lines[head])) {
    const index = head + Number(found[1]);
    return holds(index) ? index + 1 : undefined;
  }
  const index = lines.findIndex((_, i) => holds(i));
  return index < 0 ? undefined : index + 1;
}
