// Colours cells that begin with %%dpsql, as SQL. Marks are laid over what Python's highlighting makes of the text; nothing
// is read but the cell's own text and its error, nothing is sent, no other cell is touched.
import { IEditorExtensionRegistry, EditorExtensionRegistry } from '@jupyterlab/codemirror';
import { NotebookActions } from '@jupyterlab/notebook';
import { Prec, RangeSetBuilder, StateEffect, StateField } from '@codemirror/state';
import { Decoration, EditorView, ViewPlugin } from '@codemirror/view';
import budget from './budget.js';
import { errorLine } from './errors.js';
import { tokens } from './tokens.js';

const mark = (name, weight) =>
  Decoration.mark({
    attributes: { style: `color: var(${name}); font-weight: ${weight || 'normal'}; font-style: normal`, 'data-dpsql': name }
  });
const MARKS = {
  comment: mark('--jp-mirror-editor-comment-color'),
  string: mark('--jp-mirror-editor-string-color'),
  number: mark('--jp-mirror-editor-number-color'),
  variable: mark('--jp-mirror-editor-variable-2-color'),
  keyword: mark('--jp-mirror-editor-keyword-color', 'bold'),
  call: mark('--jp-mirror-editor-builtin-color'),
  named: mark('--jp-mirror-editor-attribute-color'),
  operator: mark('--jp-mirror-editor-operator-color'),
  plain: mark('--jp-content-font-color1')
};

function marks(doc) {
  const builder = new RangeSetBuilder();
  for (const [start, end, kind] of tokens(doc.toString())) {
    builder.add(start, end, MARKS[kind]);
  }
  return builder.finish();
}

const colours = Prec.highest(
  ViewPlugin.fromClass(
    class {
      constructor(view) {
        this.decorations = marks(view.state.doc);
      }
      update(update) {
        if (update.docChanged) {
          this.decorations = marks(update.state.doc);
        }
      }
    },
    { decorations: plugin => plugin.decorations }
  )
);

// The line that the error below a cell is about, from its run to the next one or to the next change of the text.
const wrong = Decoration.line({
  attributes: {
    style: 'background: color-mix(in srgb, var(--jp-error-color1) 14%, transparent); box-shadow: inset 3px 0 var(--jp-error-color1)',
    title: 'The error below is about this line.',
    'data-dpsql-error': 'line'
  }
});
const setLine = StateEffect.define();
const wrongLine = StateField.define({
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

function markLine(cell, line) {
  const view = cell.editor?.editor;
  if (cell.model.type === 'code' && view?.state?.field(wrongLine, false)) {
    view.dispatch({ effects: setLine.of(line ?? 0) });
  }
}

const errors = {
  id: 'dpsql-labextension:errors',
  description: 'Marks the line of a cell that the error below it is about.',
  autoStart: true,
  requires: [IEditorExtensionRegistry],
  activate: (app, registry) => {
    registry.addExtension({
      name: 'dpsql-labextension:errors',
      factory: () => EditorExtensionRegistry.createImmutableExtension(wrongLine)
    });
    NotebookActions.executionScheduled.connect((_, { cell }) => markLine(cell));
    NotebookActions.executed.connect((_, { cell }) => {
      const outputs = cell.model.type === 'code' ? cell.model.outputs.toJSON() : [];
      const failed = outputs.find(output => output.output_type === 'error');
      markLine(cell, failed && errorLine(cell.model.sharedModel.getSource(), failed.traceback ?? []));
    });
  }
};

const colouring = {
  id: 'dpsql-labextension:colours',
  description: 'Colours %%dpsql cells.',
  autoStart: true,
  requires: [IEditorExtensionRegistry],
  activate: (app, registry) => {
    registry.addExtension({
      name: 'dpsql-labextension:colours',
      factory: () => EditorExtensionRegistry.createImmutableExtension(colours)
    });
  }
};

export default [colouring, errors, budget];
