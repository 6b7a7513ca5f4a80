"use strict";
// The leaderboard: sort by any column, filter by name, judge all rows against the one that is chosen.

{
  // A page of one run has neither a filter nor folded columns.

  /** The sort key of a row in a column. */
  const keyOf = (row, column, kind) => {
    const value = row.cells[column].dataset.value ?? "";
    if (kind === "text") {
      return value;
    }
    return value === "" ? Number.NEGATIVE_INFINITY : Number(value);
  };

  /** Put the rows of every body in order; baselines stay apart from trained methods. */
  const sortRows = (table, column, kind, direction) => {
    const sign = direction === "ascending" ? 1 : -1;
    for (const body of table.tBodies) {
      const rows = [...body.rows];
      rows.sort((one, other) => {
        const [a, b] = [keyOf(one, column, kind), keyOf(other, column, kind)];
        return sign * (kind === "text" ? a.localeCompare(b, "en", { numeric: true }) : a - b || 0);
      });
      body.append(...rows);
    }
  };

  /** Put the rows in the order that a heading claims, after values have changed. */
  const sortAgain = (table) => {
    const headings = [...table.tHead.rows[0].cells];
    const column = headings.findIndex((heading) => heading.hasAttribute("aria-sort"));
    if (column >= 0) {
      sortRows(table, column, headings[column].dataset.sort, headings[column].getAttribute("aria-sort"));
    }
  };

  /** Make the headings buttons that sort. */
  const makeSortable = (table) => {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const kind = heading.dataset.sort;
      if (!kind) {
        return;
      }
      const button = equimetric.element("button", { type: "button", class: "sort" }, [...heading.childNodes]);
      heading.replaceChildren(button);
      button.addEventListener("click", () => {
        const first = kind === "text" ? "ascending" : "descending";
        const second = first === "ascending" ? "descending" : "ascending";
        const direction = heading.getAttribute("aria-sort") === first ? second : first;
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", direction);
        sortRows(table, column, kind, direction);
        equimetric.announce(`sorted by ${button.textContent.trim()}, ${direction}`);
      });
    });
  };

  /** Show the rows whose names hold the words, and only those tied with the best where that is asked for. */
  const makeFilter = (table) => {
    const words = document.getElementById("leaderboard-filter");
    if (!words) {
      return;
    }
    const tied = document.getElementById("leaderboard-tied");
    const count = document.getElementById("leaderboard-count");
    const rows = [...table.querySelectorAll("tbody tr")];
    const apply = () => {
      const wanted = words.value.trim().toLowerCase();
      for (const row of rows) {
        const named = row.dataset.row.toLowerCase().includes(wanted);
        row.hidden = !named || Boolean(tied?.checked && !("tied" in row.dataset));
      }
      const shown = rows.filter((row) => !row.hidden).length;
      count.textContent = shown === rows.length ? "" : `${shown} of ${rows.length} rows`;
      equimetric.announce(`${shown} of ${rows.length} rows`);
    };
    words.addEventListener("input", apply);
    tied?.addEventListener("change", apply);
    words.form.addEventListener("submit", (event) => event.preventDefault());
    words.form.hidden = false;
  };

  /** Write the verdicts against one row into the table. */
  const judge = (table, verdicts, chosen) => {
    document.querySelectorAll("#leaderboard .baseline-name").forEach((name) => (name.textContent = chosen));
    for (const row of table.querySelectorAll("tbody tr")) {
      const found = verdicts.against[chosen][row.dataset.row];
      for (const cell of row.querySelectorAll("td.against")) {
        const judged = (verdicts.also[cell.dataset.metric] ?? verdicts.against)[chosen]?.[row.dataset.row];
        cell.textContent = judged ? equimetric.verdictWords(judged) : "–";
        cell.dataset.value = judged ? judged.difference : 0;
        cell.dataset.verdict = judged ? judged.verdict : "";
      }
      const [brief, effect] = ["brief", "effect"].map((name) => row.querySelector(`.${name}`));
      brief.textContent = found ? found.brief : "";
      brief.dataset.verdict = found ? found.verdict : "";
      effect.textContent = found ? found.size : "–";
      effect.title = found?.exact ?? "";
      effect.dataset.value = found ? found.effect : 0;
      row.classList.toggle("baseline-row", row.dataset.row === chosen);
    }
  };

  /** Let the reader choose the row that the others are judged against. */
  const makeBaseline = (table, verdicts) => {
    for (const choice of table.querySelectorAll('input[name="baseline"]')) {
      choice.disabled = false;
      choice.addEventListener("change", () => {
        judge(table, verdicts, choice.value);
        sortAgain(table);
        equimetric.announce(`verdicts are against ${choice.value}`);
      });
    }
    judge(table, verdicts, verdicts.baseline);
  };

  /** Fold the columns of lesser interest, and a button that shows them. */
  const foldColumns = (table) => {
    const button = document.getElementById("leaderboard-more");
    if (!button) {
      return;
    }
    const words = button.textContent;
    const fold = (folded) => {
      table.classList.toggle("folded", folded);
      button.setAttribute("aria-expanded", String(!folded));
      button.textContent = folded ? words : "Fewer columns";
      equimetric.showEdges();
    };
    button.addEventListener("click", () => fold(!table.classList.contains("folded")));
    fold(true);
  };

  /** Make the folders of runs links while the page lies where it was written; elsewhere they would lead nowhere. */
  const linkRuns = (table) => {
    const { runs, place } = document.body.dataset;
    if (!place || !decodeURIComponent(window.location.pathname).endsWith(`/${place}`)) {
      return;
    }
    for (const run of table.querySelectorAll("[data-run]")) {
      run.replaceChildren(equimetric.element("a", { href: runs + run.dataset.run }, [...run.childNodes]));
    }
  };

  equimetric.ready(() => {
    const table = document.getElementById("leaderboard-table");
    const verdicts = equimetric.data("leaderboard");
    if (!table) {
      return;
    }
    makeSortable(table);
    makeFilter(table);
    foldColumns(table);
    linkRuns(table);
    if (verdicts.baseline !== null) {
      makeBaseline(table, verdicts);
    }
    document.querySelectorAll("#leaderboard .interactive").forEach((note) => (note.hidden = false));
  });
}
