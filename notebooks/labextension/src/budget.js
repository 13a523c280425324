// The panel beside the notebook: what is left of the budget, each statement with its cost and a link to its cell, and the price
// of the cell under the cursor before it runs. Everything shown comes from the notebook's own kernel, through one comm, and is sanitized.
import { ILayoutRestorer } from '@jupyterlab/application';
import { ICommandPalette, Notification, Sanitizer } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookActions } from '@jupyterlab/notebook';
import { Widget } from '@lumino/widgets';
import { markProblem, replaceText } from './editor.js';
import { cellOf, findCell, mayAsk } from './links.js';

const TARGET = 'dpsql.panel';
const COMMAND = 'dpsql:show-budget';
const FORMAT = 'dpsql:format-cell';
const PATIENCE = 400; // milliseconds without a keystroke before a cell is priced
const CLOSED = 'No session of dpsql is open in this notebook. Run %load_ext dpsql, then %dpsql connect.';
const FREE = 'This cell asks nothing that costs.';
const BUSY = 'The price follows when the running cell has ended.';

const ROLES = [['table', 'table'], ['thead, tbody', 'rowgroup'], ['tr', 'row'], ['th', 'columnheader'], ['td', 'cell']];

const STYLE = `
.dpsql-panel { padding: 8px 12px; overflow: auto; min-width: 220px; background: var(--jp-layout-color1); color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size1); line-height: 1.45; }
.dpsql-panel:focus { outline: none; }
.dpsql-panel h2 { font-size: var(--jp-ui-font-size1); font-weight: 600; margin: 12px 0 4px; }
.dpsql-panel p { margin: 0 0 6px; overflow-wrap: anywhere; }
.dpsql-panel meter { display: block; width: 100%; height: 12px; margin: 4px 0; }
.dpsql-panel meter::-webkit-meter-bar { background: var(--jp-layout-color3); border: none; border-radius: 3px; }
.dpsql-panel meter::-webkit-meter-optimum-value { background: var(--jp-brand-color1); border-radius: 3px; }
.dpsql-panel meter::-moz-meter-bar { background: var(--jp-brand-color1); }
.dpsql-panel table { display: block; width: 100%; font-size: var(--jp-ui-font-size0); }
.dpsql-panel thead, .dpsql-panel tbody { display: block; }
.dpsql-panel tr { display: flex; flex-wrap: wrap; column-gap: 10px; padding: 4px 0; border-bottom: 1px solid var(--jp-border-color2); }
.dpsql-panel th, .dpsql-panel td { padding: 0; text-align: left; overflow-wrap: anywhere; }
.dpsql-panel td:last-child { flex-basis: 100%; }
.dpsql-panel thead { position: absolute; clip-path: inset(50%); }
.dpsql-panel caption { display: none; }
.dpsql-panel td:last-child > a { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; }
.dpsql-panel a { color: var(--jp-content-link-color); text-decoration: underline; }
.dpsql-panel a:focus-visible { outline: 2px solid var(--jp-brand-color1); outline-offset: 1px; }
`;

class BudgetPanel extends Widget {
  constructor(tracker) {
    super();
    this.id = 'dpsql-budget';
    this.title.label = 'dpsql';
    this.title.caption = 'dpsql: budget, and the price of the cell';
    this.addClass('dpsql-panel');
    this.node.tabIndex = -1;
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'dpsql: budget, and the price of the cell');
    this.node.innerHTML =
      '<h2 id="dpsql-price-title">This cell</h2><div class="dpsql-price" role="status" aria-live="polite" ' +
      'aria-labelledby="dpsql-price-title"></div><h2>Budget</h2><div class="dpsql-state"></div>';
    this.price = this.node.querySelector('.dpsql-price');
    this.state = this.node.querySelector('.dpsql-state');
    this.node.addEventListener('click', event => this.follow(event));
    this.tracker = tracker;
    this.sanitizer = new Sanitizer();
    this.number = 0;
    this.watched = null;
    tracker.currentChanged.connect((_, panel) => this.attachTo(panel));
    tracker.activeCellChanged.connect((_, cell) => this.watch(cell));
    NotebookActions.executed.connect((_, { notebook, cell }) => this.ran(notebook, cell));
    this.changedText = () => this.ask(PATIENCE);
    this.changedKernel = () => this.attachTo(this.panel);
    this.changedStatus = (_, status) => status.endsWith('restarting') && this.drop();
    this.attachTo(tracker.currentWidget);
    this.watch(tracker.activeCell);
  }

  onActivateRequest() {
    this.node.focus();
  }

  attachTo(panel) {
    this.drop();
    this.panel?.sessionContext.kernelChanged.disconnect(this.changedKernel);
    this.panel?.sessionContext.statusChanged.disconnect(this.changedStatus);
    this.panel = panel && !panel.isDisposed ? panel : null;
    if (!this.panel) {
      return;
    }
    const current = this.panel;
    current.sessionContext.kernelChanged.connect(this.changedKernel);
    current.sessionContext.statusChanged.connect(this.changedStatus);
    Promise.all([current.sessionContext.ready, current.revealed]).then(() => {
      const used = cell => cell.type === 'code' && cell.executionCount !== null && cell.sharedModel.getSource().includes('dpsql');
      if (this.panel === current && [...current.content.model.cells].some(used)) {
        this.open();
      }
    });
  }

  // A kernel where the extension is not loaded closes the comm at once.
  open() {
    const kernel = this.panel?.sessionContext.session?.kernel;
    if (!kernel || this.comm || kernel.handleComms === false) {
      return;
    }
    const comm = kernel.createComm(TARGET);
    this.comm = comm;
    comm.onMsg = message => this.comm === comm && this.receive(message.content.data);
    comm.onClose = () => this.comm === comm && this.drop();
    comm.open({});
    this.ask(0);
  }

  drop() {
    const comm = this.comm;
    this.comm = null;
    if (comm && !comm.isDisposed) {
      comm.dispose();
    }
    this.price.textContent = '';
    this.state.textContent = CLOSED;
    markProblem(this.tracker.activeCell);
  }

  ran(notebook, cell) {
    if (this.panel?.content !== notebook) {
      return;
    }
    if (!this.comm && cell.model.sharedModel.getSource().includes('dpsql')) {
      this.open();
    } else {
      this.ask(0);
    }
  }

  watch(cell) {
    this.watched?.contentChanged.disconnect(this.changedText);
    this.watched = cell?.model ?? null;
    this.watched?.contentChanged.connect(this.changedText);
    this.ask(PATIENCE);
  }

  ask(after) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (!this.comm || !this.watched || this.watched.isDisposed) {
        return;
      }
      const text = this.watched.type === 'code' ? this.watched.sharedModel.getSource() : '';
      this.number += 1;
      if (!mayAsk(text)) {
        this.say(this.price, FREE);
        markProblem(this.tracker.activeCell);
        return;
      }
      if (this.panel.sessionContext.session?.kernel?.status === 'busy') {
        this.say(this.price, BUSY);
      }
      this.comm.send({ want: 'price', text, number: this.number });
    }, after);
  }

  receive(data) {
    if (data.kind === 'budget') {
      if (data.open) {
        this.fill(this.state, data.html, made => this.link(made));
      } else {
        this.state.textContent = CLOSED;
      }
    } else if (data.kind === 'layout') {
      this.lay(data);
    } else if (data.kind === 'price' && data.number === this.number) {
      const cell = this.tracker.activeCell;
      if (cell?.model === this.watched && cell.model.sharedModel.getSource() === data.of) {
        markProblem(cell, data.problem);
      }
      if (data.html) {
        this.fill(this.price, data.html);
      } else {
        this.say(this.price, FREE);
      }
    }
  }

  // Ask the kernel to lay out the active cell; what is written meanwhile stays as it is.
  format() {
    const cell = this.tracker.activeCell;
    if (!this.comm) {
      Notification.warning(CLOSED);
    } else if (cell) {
      this.comm.send({ want: 'layout', text: cell.model.sharedModel.getSource() });
    }
  }

  lay(data) {
    const cell = this.tracker.activeCell;
    if (data.refused) {
      Notification.warning(data.refused);
    } else if (cell?.model.sharedModel.getSource() === data.of) {
      replaceText(cell, data.text);
    }
  }

  // What did not change is not written again, so that a screen reader does not say it again.
  say(node, text) {
    if (node.textContent !== text) {
      node.textContent = text;
    }
  }

  fill(node, html, finish = () => {}) {
    const made = document.createElement('div');
    made.innerHTML = this.sanitizer.sanitize(html);
    for (const meter of made.querySelectorAll('meter')) {
      meter.setAttribute('aria-label', meter.title || meter.textContent);
    }
    // Laid out in lines, a table would be none to a screen reader.
    for (const [element, role] of ROLES) {
      made.querySelectorAll(element).forEach(found => found.setAttribute('role', role));
    }
    finish(made);
    if (node.innerHTML !== made.innerHTML) {
      node.replaceChildren(...made.childNodes);
    }
  }

  // The newest statement first; links to cells that the kernel does not know of, by the statement's text.
  link(made) {
    const cells = [...this.panel.content.model.cells].map(cell => ({ id: cell.id, text: cell.sharedModel.getSource() }));
    for (const row of made.querySelectorAll('tbody tr')) {
      row.parentElement.prepend(row);
      const last = row.lastElementChild;
      const known = last.querySelector('a');
      const id = known ? cellOf(known.getAttribute('href')) : findCell(cells, last.textContent);
      if (known && !cells.some(cell => cell.id === id)) {
        known.replaceWith(known.textContent);
      } else if (!known && id) {
        const link = document.createElement('a');
        link.href = `#cell-id=${encodeURIComponent(id)}`;
        link.textContent = last.textContent;
        last.replaceChildren(link);
      }
      last.title = last.textContent;
    }
  }

  follow(event) {
    const id = cellOf(event.target.closest?.('a')?.getAttribute('href'));
    if (id === undefined) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    const notebook = this.panel?.content;
    const index = notebook ? notebook.widgets.findIndex(cell => cell.model.id === id) : -1;
    if (index >= 0) {
      notebook.activeCellIndex = index;
      notebook.deselectAll();
      Promise.resolve(notebook.scrollToItem(index, 'smart')).finally(() => notebook.activate());
    }
  }
}

export default {
  id: 'dpsql-labextension:budget',
  description: 'Shows the budget beside the notebook, and the price of the cell.',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ICommandPalette, ILayoutRestorer],
  activate: (app, tracker, palette, restorer) => {
    const style = document.createElement('style');
    style.textContent = STYLE;
    document.head.append(style);
    const panel = new BudgetPanel(tracker);
    app.shell.add(panel, 'right', { rank: 900 });
    restorer?.add(panel, panel.id);
    app.commands.addCommand(COMMAND, {
      label: 'Show the Budget of dpsql',
      execute: () => app.shell.activateById(panel.id)
    });
    app.commands.addKeyBinding({ command: COMMAND, keys: ['Alt Shift B'], selector: 'body' });
    app.commands.addCommand(FORMAT, { label: 'Format the SQL of a %%dpsql Cell', execute: () => panel.format() });
    app.commands.addKeyBinding({ command: FORMAT, keys: ['Accel Shift F'], selector: '.cm-editor[data-dpsql-cell]' });
    for (const command of [COMMAND, FORMAT]) {
      palette?.addItem({ command, category: 'Notebook Operations' });
    }
  }
};
