// Colours cells that begin with %%dpsql, as SQL. Marks are laid over what Python's highlighting makes of the text; nothing
// is read but the cell's own text and its error, no other cell is touched. What is sent goes to the notebook's own kernel.
import { IEditorExtensionRegistry, EditorExtensionRegistry } from '@jupyterlab/codemirror';
import { NotebookActions } from '@jupyterlab/notebook';
import { Prec, RangeSetBuilder } from '@codemirror/state';
import { Decoration, EditorView, ViewPlugin } from '@codemirror/view';
import budget from './budget.js';
import { markLine, problem, wrongLine } from './editor.js';
import { errorLine } from './errors.js';
import { isOurs, tokens } from './tokens.js';

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

// Names the editors of our cells for the selectors of keys.
const named = EditorView.editorAttributes.of(view => (isOurs(view.state.doc.toString()) ? { 'data-dpsql-cell': '' } : null));

const errors = {
  id: 'dpsql-labextension:errors',
  description: 'Marks the line of a cell that the error below it is about.',
  autoStart: true,
  requires: [IEditorExtensionRegistry],
  activate: (app, registry) => {
    registry.addExtension({
      name: 'dpsql-labextension:errors',
      factory: () => EditorExtensionRegistry.createImmutableExtension([wrongLine, problem])
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
      factory: () => EditorExtensionRegistry.createImmutableExtension([colours, named])
    });
  }
};

export default [colouring, errors, budget];
