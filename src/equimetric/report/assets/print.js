"use strict";
// Printing: what is folded is opened, figures are drawn for the width of a sheet, and tables that are wider are shown in
// blocks of columns; afterwards all is as it was.

{
  const root = document.documentElement;
  let opened = [], split = [];

  /** Figures follow the width of their containers when the window says that its size has changed. */
  const redraw = () => window.dispatchEvent(new Event("resize"));

  /** The columns of each block that fits a width; every block begins with the first column, the names of the rows. */
  const groupColumns = (widths, available) =>
    [...widths.keys()].slice(1).filter((column) => widths[column] > 0).reduce((blocks, column) => {
      const taken = [...blocks.at(-1), column].reduce((sum, other) => sum + widths[other], 0);
      const last = taken > available && blocks.at(-1).length > 1 ? [0] : blocks.pop();
      return [...blocks, [...last, column]];
    }, [[0]]);

  /** A copy of a table with some of its columns, without the ids, which stay those of the table itself. */
  const copyColumns = (table, columns) => {
    const copy = table.cloneNode(true);
    for (const row of copy.rows) {
      row.replaceChildren(...columns.map((column) => row.cells[column]));
    }
    [copy, ...copy.querySelectorAll("[id]")].forEach((one) => one.removeAttribute("id"));
    return copy;
  };

  /** Show a table that is wider than the sheet in blocks of columns. */
  const splitTable = (table) => {
    const room = table.parentElement.clientWidth;
    if (table.offsetWidth <= room || table.querySelector("[colspan]")) {
      return;
    }
    const widths = [...table.rows[0].cells].map((cell) => cell.offsetWidth);
    const copies = groupColumns(widths, room).map((columns) => copyColumns(table, columns));
    table.hidden = true;
    table.after(...copies);
    split.push({ table, copies });
  };

  const prepare = () => {
    // The folders of runs, and the names of all classes of a group, would take more room than what they belong to.
    opened = [...document.querySelectorAll("details:not([open], .runs, .fan-key details)")];
    opened.forEach((one) => (one.open = true));
    root.classList.add("printing");
    document.querySelectorAll(".scroll > .results").forEach(splitTable);
    equimetric.drawWaiting?.();
    redraw();
  };

  const restore = () => {
    opened.forEach((one) => (one.open = false));
    split.forEach(({ table, copies }) => {
      copies.forEach((copy) => copy.remove());
      table.hidden = false;
    });
    [opened, split] = [[], []];
    root.classList.remove("printing");
    redraw();
  };

  equimetric.ready(() => {
    window.addEventListener("beforeprint", prepare);
    window.addEventListener("afterprint", restore);
  });
}
