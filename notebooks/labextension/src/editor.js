// Marks in a cell's editor: the line that the error below is about, and the words for which the cell would be refused.
import { StateEffect, StateField } from '@codemirror/state';
import { Decoration, EditorView } from '@codemirror/view';

// The line that the error below a cell is about, from its run to the next one or to the next change of the text.
const wrong = Decoration.line({
  attributes: {
    style: 'background: color-mix(in srgb, var(--jp-error-color1) 14%, transparent); box-shadow: inset 3px 0 var(--jp-error-color1)',
    title: 'The error below is about this line.',
    'data-dpsql-error': 'line'
  }
});
const setLine = StateEffect.define();
export const wrongLine = StateField.define({
  create: () => Decoration.none,
  update(marks, transaction) {
    let made = transaction.docChanged ? Decoration.none : marks;
    for (const effect of transaction.effects.filter(each => each.is(setLine))) {
      const inside = effect.value >= 1 && effect.value <= transaction.state.doc.lines;
      made = inside ? Decoration.set([wrong.range(transaction.state.doc.line(effect.value).from)]) : Decoration.none;
    }
    return made;
  },
  provide: field => EditorView.decorations.from(field)
});

export function markLine(cell, line) {
  const view = cell.editor?.editor;
  if (cell.model.type === 'code' && view?.state?.field(wrongLine, false)) {
    view.dispatch({ effects: setLine.of(line ?? 0) });
  }
}

// The words of a cell for which it would be refused, found while it is written; nothing ran, nothing was charged.
const setProblem = StateEffect.define();
export const problem = StateField.define({
  create: () => Decoration.none,
  update(marks, transaction) {
    let made = marks.map(transaction.changes);
    for (const { value } of transaction.effects.filter(each => each.is(setProblem))) {
      const inside = value && value.from < value.to && value.to <= transaction.state.doc.length;
      const attributes = {
        style: 'text-decoration: underline wavy var(--jp-error-color1); text-underline-offset: 3px',
        title: value?.message,
        'data-dpsql-problem': 'words'
      };
      made = inside ? Decoration.set([Decoration.mark({ attributes }).range(value.from, value.to)]) : Decoration.none;
    }
    return made;
  },
  provide: field => EditorView.decorations.from(field)
});

/** Underline words with a message; without a value, remove the underlines. */
export function markProblem(cell, value) {
  const view = cell?.editor?.editor;
  const known = view?.state?.field(problem, false);
  if (known && (value || known.size)) {
    view.dispatch({ effects: setProblem.of(value ?? null) });
  }
}

/** Replace a cell's text by one that differs in white space only; the cursor stays at its word. */
export function replaceText(cell, text) {
  const view = cell?.editor?.editor;
  if (view && view.state.doc.toString() !== text) {
    const before = view.state.sliceDoc(0, view.state.selection.main.head).replace(/\s/g, '').length;
    let anchor = 0;
    for (let seen = 0; anchor < text.length && seen < before; anchor += 1) {
      seen += /\S/.test(text[anchor]) ? 1 : 0;
    }
    view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text }, selection: { anchor } });
  }
}
