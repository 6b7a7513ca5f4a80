"use strict";
// Works every control of a page as a reader may, and reads what it says; used by page_walk.py.

globalThis.pageWalk = (() => {
  const NAMED = ["aria-label", "aria-valuetext", "title", "alt", "placeholder"];
  const CONTROLS = "button, input, select, textarea, summary, [contenteditable], [role=application]";
  let faults, worked, most, wrong;

  const settle = () => new Promise((done) => setTimeout(done));

  /** At most `most` of some things, the first and the last among them. */
  const sample = (things) => {
    const places = Math.min(most, things.length);
    return [...new Set([...Array(places).keys()].map((k) => things[Math.round((k * (things.length - 1)) / Math.max(1, places - 1))]))];
  };

  /** Lines that a reader sees, hears or points at in a part of the page, and that are wrong in themselves. */
  const check = (part, doing) => {
    const named = NAMED.flatMap((name) => [...part.querySelectorAll(`[${name}]`)].map((one) => one.getAttribute(name)));
    for (const line of [...part.innerText.split("\n"), ...named]) {
      if (wrong.test(line) && !faults.has(line)) {
        faults.set(line, `${doing}: ${line.slice(0, 200)}`);
      }
    }
  };

  const partOf = (control) => control.closest("section, header") ?? document.body;

  /** A control in words. */
  const describe = (control) => {
    const name = control.id || control.name || control.getAttribute("aria-label") || control.textContent.trim().slice(0, 40);
    return `${partOf(control).id || "page"}, ${control.localName} ${name}`;
  };

  const fire = (control, ...types) => types.forEach((type) => control.dispatchEvent(new Event(type, { bubbles: true })));

  /** Set a control to some values one after the other, then back. */
  const choose = async (control, values) => {
    const before = control.value;
    const part = partOf(control);
    for (const value of [...values, before]) {
      control.value = value;
      fire(control, "input", "change");
      await settle();
      check(part, `${describe(control)} = ${value}`);
    }
  };

  const click = async (control, times = 1) => {
    const part = partOf(control);
    for (let k = 0; k < times; k++) {
      control.click();
      await settle();
      check(part, `${describe(control)} clicked`);
    }
  };

  const share = (control, part) => String(Math.round(Number(control.min || 0) + part * (Number(control.max) - Number(control.min || 0))));

  /** How each kind of control is worked. */
  const ways = {
    button: (control) => click(control, control.id === "theme" ? 3 : 2),
    checkbox: (control) => click(control, 2),
    radio: (control) => click(control),
    range: (control) => choose(control, [0, 0.25, 0.5, 0.75, 1].map((part) => share(control, part))),
    search: (control) => choose(control, ["a", "1", "no such name", ""]),
    select: (control) => choose(control, sample([...control.options].filter((one) => !one.disabled).map((one) => one.value))),
    summary: (control) => click(control, 2),
    application: async (control) => {
      for (const key of ["ArrowRight", "ArrowDown", "ArrowLeft"]) {
        control.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
        check(partOf(control), `${describe(control)}, ${key}`);
      }
      for (const dot of sample([...control.querySelectorAll("circle")])) {
        dot.dispatchEvent(new PointerEvent("pointerenter"));
        check(partOf(control), `${describe(control)}, a dot`);
      }
    },
  };

  const kindOf = (control) => {
    const { localName } = control;
    return control.getAttribute("role") ?? (localName === "input" ? control.type : localName);
  };

  /** What tells a control from the others of its kind, also when it was built anew. */
  const keyOf = (control) => control.id || control;

  /** Whether a control is among those of its kind that are worked: there is a radio button and a fold for every row. */
  const isSampled = (control, kind) => {
    const alike = [...partOf(control).querySelectorAll(CONTROLS)].filter((one) => kindOf(one) === kind);
    return !["radio", "summary"].includes(kind) || sample(alike).includes(control);
  };

  /** Work the controls that are there, and those that appear. */
  const workAll = async () => {
    const done = new Set();
    const isWaiting = (control) => !control.disabled && !control.closest("[hidden]") && !done.has(keyOf(control));
    for (;;) {
      // The explorer unpacks its classes before it lets readers look for one.
      await Promise.all((equimetric.explorer?.panels ?? []).map((panel) => panel.ready));
      const control = [...document.querySelectorAll(CONTROLS)].find(isWaiting);
      if (!control) {
        return;
      }
      done.add(keyOf(control));
      const kind = kindOf(control);
      if (!(kind in ways)) {
        faults.set(kind, `${describe(control)}: this test does not know how to work a ${kind}`);
      } else if (isSampled(control, kind)) {
        await ways[kind](control);
        worked[kind] = (worked[kind] ?? 0) + 1;
      }
    }
  };

  /** Point at marks of every figure, and read what appears. */
  const pointAtMarks = async () => {
    for (const figure of document.querySelectorAll("figure.chart")) {
      const marks = [...figure.querySelectorAll("svg .mark-symbol path, svg .mark-rect path, svg .mark-rule line, svg .mark-line path")];
      for (const mark of sample(marks.filter((one) => one.__data__?.tooltip))) {
        const box = mark.getBoundingClientRect();
        const at = { clientX: box.x + box.width / 2, clientY: box.y + box.height / 2, bubbles: true };
        mark.dispatchEvent(new PointerEvent("pointermove", at));
        mark.dispatchEvent(new MouseEvent("mousemove", at));
        await settle();
        const tooltip = document.getElementById("vg-tooltip-element");
        if (tooltip?.classList.contains("visible")) {
          check(tooltip, `tooltip of ${figure.id}`);
          worked.tooltip = (worked.tooltip ?? 0) + 1;
        }
        mark.dispatchEvent(new PointerEvent("pointerout", at));
        mark.dispatchEvent(new MouseEvent("mouseout", at));
      }
    }
  };

  /** Everything that was wrong in itself while all controls were worked, and how many were. */
  const work = async (given) => {
    [faults, worked, most, wrong] = [new Map(), {}, given.most, new RegExp(given.wrong)];
    document.querySelectorAll("details").forEach((one) => (one.open = true));
    await settle();
    equimetric.drawWaiting?.();
    const names = [...document.querySelectorAll("figure.chart")].map((figure) => figure.id.slice("figure-".length));
    await Promise.all(names.map((name) => equimetric.view(name)));
    check(document.body, "opened");
    await workAll();
    document.querySelectorAll("details").forEach((one) => (one.open = true));
    await pointAtMarks();
    fire(window, "beforeprint");
    check(document.body, "printed");
    fire(window, "afterprint");
    await settle();
    check(document.body, "at the end");
    const lost = [...document.querySelectorAll('a[href^="#"]')].map((link) => link.getAttribute("href").slice(1)).filter((id) => !document.getElementById(id));
    lost.forEach((id) => faults.set(`#${id}`, `a link to #${id}, which is not there`));
    return { faults: [...faults.values()], worked, figures: names.length };
  };

  const text = (one) => (one?.textContent ?? "").replace(/\s+/g, " ").trim();

  const metricOf = (heading) => text(heading).replace(/ %$/, "");

  const readRow = (row, headings) => ({
    name: row.dataset.row,
    kind: row.parentElement.className,
    tied: row.querySelector(".primary strong") !== null,
    kept: "tied" in row.dataset,
    cells: row.cells.length,
    score: text(row.querySelector(".primary")),
    group: text(row.querySelector(".effect + td")),
    runs: text(row.querySelector(".runs summary")) || text(row.cells[headings.indexOf("Runs")]),
    values: Object.fromEntries(headings.map((heading, place) => [heading, row.cells[place].dataset.value])),
  });

  /** The worst classes of a method: name, score, images. */
  const readFaults = ({ names, methods }) =>
    Object.fromEntries(Object.entries(methods).map(([method, { faults: found }]) =>
      [method, (found?.classes ?? []).map((one) => [names[one.query], one.mean, one.images])]));

  const readFigure = (figure) => JSON.parse(figure.querySelector('script[type="application/json"]').textContent);

  /** What the page states, as data. */
  const read = () => {
    const table = document.getElementById("leaderboard-table");
    const headings = [...(table?.tHead.rows[0].cells ?? [])].map(metricOf);
    const named = (selector, name, value) => Object.fromEntries([...document.querySelectorAll(selector)].map((one) => [name(one), value(one)]));
    return {
      answer: text(document.querySelector("#answer .answer")),
      metric: metricOf(table?.querySelector("th.primary")),
      headings: headings.length,
      rows: [...(table?.querySelectorAll("tbody tr") ?? [])].map((row) => readRow(row, headings)),
      figures: named("figure.chart", (figure) => figure.id.slice("figure-".length), readFigure),
      sections: named("section", (section) => section.id, text),
      leaderboard: equimetric.data("leaderboard"),
      compare: equimetric.data("compare"),
      faults: readFaults(equimetric.data("faults") ?? { methods: {} }),
    };
  };

  /** What is said of a pair of methods below "Compare two". */
  const readPair = async ([a, b]) => {
    const [first, second] = ["compare-first", "compare-second"].map((id) => document.getElementById(id));
    [first.value, second.value] = [a, b];
    fire(second, "change");
    await settle();
    return text(document.getElementById("compare-words"));
  };

  /** The verdict that the leaderboard shows of a method against another; null without one. */
  const readVerdict = ([a, b]) => {
    const table = document.getElementById("leaderboard-table");
    const choice = [...table.querySelectorAll('input[name="baseline"]')].find((one) => one.value === b);
    choice?.click();
    const row = [...table.querySelectorAll("tbody tr")].find((one) => one.dataset.row === a);
    const verdict = text(row.querySelector(".against"));
    return !choice || verdict === "–" ? null : verdict;
  };

  /** The table of calibration ranges and certificates. */
  const readCertificates = () => {
    const rows = [...document.querySelectorAll("#explorer table")].at(-1)?.querySelectorAll("tbody tr") ?? [];
    return Object.fromEntries(Object.keys(equimetric.data("explorer")?.methods ?? {}).map((name, place) => {
      const [, , opis, , , far, frr] = [...rows[place].cells].map(text);
      return [name, { opis, far, frr }];
    }));
  };

  /** What the explorer shows of a method, at its certified threshold where it has one. */
  const readThresholds = async (name) => {
    const [panel] = equimetric.explorer.panels, jump = document.getElementById("explorer-certified");
    const select = document.getElementById("explorer-method-A");
    if (select) {
      select.value = name;
      fire(select, "change");
    }
    if (!jump.hidden) {
      jump.click();
    }
    await panel.ready;
    const rates = ["far", "frr"].map((key) => text(panel.root.querySelector(`[data-value="${key}"]`)));
    return {
      opis: /OPIS ([\d.]+)/.exec(text(panel.root.querySelector(".fan-keys")))[1],
      exact: !jump.hidden && jump.textContent === "Go to the certified threshold",
      rates: rates.map((rate) => /^(.+) % \(([\d,]+) of ([\d,]+)\)$/.exec(rate).slice(1).map((one) => one.replaceAll(",", ""))),
    };
  };

  return { work, read, readPair, readVerdict, readCertificates, readThresholds };
})();
