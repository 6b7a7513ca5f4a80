"use strict";
// The threshold explorer: what one threshold does to all pairs and to every class, two methods side by side.

{
  const { element } = equimetric;
  const SHARE_STEPS = 65535;
  const WIDTH = 560, HEIGHT = 320;
  const MARGIN = { left: 48, right: 12, top: 26, bottom: 54 };
  const NAMED = 5, MATCHES = 5;
  const svg = (tag, attributes, children = []) => element(tag, attributes, children, "svg");

  /** The bytes behind base64. */
  const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

  /** Shares behind whole numbers of two bytes. */
  const unpackShares = (text) => {
    const raw = new DataView(bytes(text).buffer);
    return Float64Array.from({ length: raw.byteLength / 2 }, (_, i) => raw.getUint16(2 * i, true) / SHARE_STEPS);
  };

  /** Counts behind compressed planes of bytes. */
  const unpackCounts = async (text) => {
    const stream = new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
    const planes = new Uint8Array(await new Response(stream).arrayBuffer());
    const length = planes.length / 4;
    const counts = new Uint32Array(length);
    for (let i = 0; i < length; i++) {
      counts[i] = planes[i] + planes[length + i] * 256 + planes[2 * length + i] * 65536 + planes[3 * length + i] * 16777216;
    }
    return counts;
  };

  /** Accepted counts (T × G) from their differences along the thresholds. */
  const accumulate = (differences, columns) => {
    for (let i = 0; i < differences.length; i++) {
      if (i % columns) {
        differences[i] += differences[i - 1];
      }
    }
    return differences;
  };

  const harmonic = (far, frr) => {
    const sum = 2 - far - frr;
    return sum > 0 ? (2 * (1 - far) * (1 - frr)) / sum : 0;
  };

  /** The index of the entry nearest to a value. */
  const nearest = (values, value) => {
    let best = 0;
    for (let i = 1; i < values.length; i++) {
      if (Math.abs(values[i] - value) < Math.abs(values[best] - value)) {
        best = i;
      }
    }
    return best;
  };

  /** A share in percent, with three significant figures. */
  const inPercent = (share) => (share === 0 ? "0" : (100 * share).toPrecision(3));
  const percent = (share) => `${inPercent(share)} %`;
  const showThreshold = (method, index) => equimetric.number((method.scored ? -1 : 1) * method.thresholds[index], 4);

  /** The places of the names that hold some words in small letters, the same name first. */
  const findNames = (names, words) => {
    const small = names.map((name) => name.toLowerCase());
    const found = [...small.keys()].filter((place) => small[place].includes(words));
    return found.sort((one, other) => (small[other] === words) - (small[one] === words) || one - other);
  };

  /** The rates of one class that is shipped with its counts. */
  const ratesOf = (one, index) => {
    const far = one.negative[index] / one.negatives;
    const frr = 1 - one.positive[index] / one.positives;
    return { far, frr, utility: harmonic(far, frr) };
  };

  /** A path through points. */
  const line = (x, y, values) => values.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)},${y(value).toFixed(1)}`).join("");
  const band = (x, y, low, high) => {
    const back = high.map((value, i) => `L${x(i).toFixed(1)},${y(value).toFixed(1)}`).reverse().join("");
    return `${line(x, y, low)}${back}Z`;
  };

  /** One of the two methods: its figure, its values at the threshold, its classes. */
  class Panel {
    constructor(values, side, name) {
      this.values = values;
      this.side = side;
      this.index = 0;
      this.root = element("article", { class: "threshold-panel" });
      this.choose(name);
    }

    get method() {
      return this.values.methods[this.name];
    }

    /** The methods that come with all their classes. */
    get complete() {
      return Object.keys(this.values.classes);
    }

    choose(name) {
      this.name = name;
      this.lookedUp = [];
      this.classTable = null;
      const { method } = this;
      this.far = method.negative.map((count) => count / method.negatives);
      this.quantiles = Object.fromEntries(Object.entries(method.quantiles).map(([key, text]) => [key, unpackShares(text)]));
      this.unpackClasses();
    }

    /** All classes of the method, where the page has them. */
    async unpackClasses() {
      const packed = this.values.classes[this.name];
      this.ready = Promise.resolve();
      if (!packed || typeof DecompressionStream === "undefined") {
        return;
      }
      const name = this.name;
      const work = async () => {
        const [positives, negatives, positive, negative] = await Promise.all(
          [packed.positives, packed.negatives, packed.positive, packed.negative].map(unpackCounts),
        );
        if (name === this.name) {
          const columns = packed.kept.length;
          this.classTable = { names: packed.names, kept: packed.kept, columns, positives, negatives,
            positive: accumulate(positive, columns), negative: accumulate(negative, columns) };
          this.fillClassList();
          this.move(this.index);
        }
      };
      this.ready = work();
    }

    quantile(kind, percentile, index) {
      const { levels, thresholds } = this.method;
      return this.quantiles[kind][Math.round((percentile / 100) * (levels - 1)) * thresholds.length + index];
    }

    row(kind, percentile) {
      return this.method.thresholds.map((_, index) => this.quantile(kind, percentile, index));
    }

    /** Build everything that does not move with the slider. */
    build() {
      const { method } = this;
      const select = element("select", { id: `explorer-method-${this.side}` },
        Object.keys(this.values.methods).map((name) => element("option", { value: name, selected: name === this.name }, name)));
      select.addEventListener("change", () => {
        this.choose(select.value);
        this.build();
        this.onchange();
      });
      this.table = element("tbody");
      this.worst = element("tbody");
      this.search = element("input", { type: "search", id: `explorer-class-${this.side}`, list: `explorer-classes-${this.side}`, placeholder: "name of a class" });
      this.list = element("datalist", { id: `explorer-classes-${this.side}` });
      this.search.addEventListener("input", () => this.lookUpClass(this.search.value));
      this.figure = element("div");
      this.found = element("span", { role: "status" });
      this.root.replaceChildren(
        ...(select.options.length < 2 ? [] : [element("p", { class: "controls chooser" }, [element("label", { for: select.id }, `Method ${this.side}`), select])]),
        this.figure,
        element("div", { class: "fan-keys" }, [
          this.groupKey("best"),
          this.groupKey("worst"),
          element("div", { class: "fan-key fan-mean" }, `mean of ${method.classes} classes, shaded ± one standard deviation; OPIS ${(1e3 * method.opis).toFixed(2)} ×10⁻³ is its mean square in the calibration range`),
        ]),
        element("table", { class: "threshold-values" }, [element("caption", {}, "At this threshold"), this.table]),
        element("p", { class: "controls", hidden: true, id: `explorer-search-${this.side}` }, [element("label", { for: this.search.id }, "Look up a class"), this.search, this.list, this.found]),
        element("p", { class: "notes", hidden: !this.complete.length || this.complete.includes(this.name) }, `All classes are in the page for ${this.complete.join(" and ")} only.`),
        element("div", { class: "scroll", role: "region", "aria-label": select.options.length < 2 ? "Classes" : `Classes of method ${this.side}`, tabindex: "0" }, element("table", { class: "threshold-classes" }, [
          element("caption", {}, `The ${method.worst.length} classes of lowest mean utility over the calibration range, lowest first; values at this threshold`),
          element("thead", {}, element("tr", {}, ["Class", "FAR %", "FRR %", "Utility"].map((title, i) => element("th", { scope: "col", class: i ? "number" : null }, title)))),
          this.worst,
        ])),
      );
      this.cells = {};
      for (const [key, title] of [["threshold", method.scored ? "Score threshold" : "Distance threshold"], ["far", "FAR, all pairs"], ["frr", "FRR, all pairs"],
        ["classFar", "FAR of classes: median, worst 10 %"], ["classFrr", "FRR of classes: median, worst 10 %"], ["utility", "Utility of classes: mean ± deviation"]]) {
        this.cells[key] = element("td", { class: "number", "data-value": key });
        this.table.append(element("tr", {}, [element("th", { scope: "row" }, title), this.cells[key]]));
      }
      this.rows = method.worst.map((one) => this.classRow(one));
      this.worst.append(...this.rows.map((row) => row.root));
      this.fillClassList();
      this.redraw();
    }

    /** The figure at the width that it has, so that its words keep their size. */
    redraw() {
      const width = Math.max(240, this.figure.clientWidth || WIDTH);
      this.width = width;
      this.figure.replaceChildren(this.draw());
      this.move(this.index);
    }

    /** What a line of the figure is the mean of: some names, and the others behind a click. */
    groupKey(kind) {
      const { classes, named } = this.method.groups[kind];
      const [first, rest, unnamed] = [named.slice(0, NAMED), named.slice(NAMED), classes - named.length];
      const others = element("details", {}, [
        element("summary", {}, `and ${classes - first.length} more`),
        `${rest.join(", ")}${unnamed ? ` and ${unnamed} others` : ""}`,
      ]);
      return element("div", { class: `fan-key fan-${kind}` }, [`${kind} 10 %: ${first.join(", ")}`, ...(rest.length ? [" ", others] : [])]);
    }

    classRow(one) {
      const cells = [0, 1, 2].map(() => element("td", { class: "number" }));
      return { one, cells, root: element("tr", {}, [element("th", { scope: "row" }, one.name), ...cells]) };
    }

    fillClassList() {
      if (this.classTable && this.list) {
        const box = document.getElementById(`explorer-search-${this.side}`);
        box?.removeAttribute("hidden");
        this.list.replaceChildren(...this.classTable.names.slice(0, 500).map((name) => element("option", { value: name })));
      }
    }

    /** Show the classes whose names hold the words, above the worst. */
    lookUpClass(words) {
      this.lookedUp.forEach((row) => row.root.remove());
      const wanted = words.trim().toLowerCase();
      const matches = wanted && this.classTable ? findNames(this.classTable.names, wanted) : [];
      const { length } = matches;
      this.found.textContent = wanted && !length ? "no such class" : length > MATCHES ? `${MATCHES} of ${length} classes shown` : "";
      this.lookedUp = matches.slice(0, MATCHES).map((classIndex) => this.classRow({ name: this.classTable.names[classIndex], classIndex }));
      this.lookedUp.forEach((row) => row.root.classList.add("picked"));
      this.worst.prepend(...this.lookedUp.map((row) => row.root));
      this.move(this.index);
    }

    /** The rates of any class at the nearest threshold that the page has for it. */
    classRates(classIndex, index) {
      const { classTable } = this;
      const column = classIndex * classTable.columns + nearest(classTable.kept, index);
      const far = classTable.negative[column] / classTable.negatives[classIndex];
      const frr = 1 - classTable.positive[column] / classTable.positives[classIndex];
      return { far, frr, utility: harmonic(far, frr) };
    }

    x(index) {
      const { thresholds } = this.method;
      const first = thresholds[0], last = thresholds[thresholds.length - 1];
      const share = (thresholds[index] - first) / (last - first);
      return MARGIN.left + (this.method.scored ? 1 - share : share) * (this.width - MARGIN.left - MARGIN.right);
    }

    y(value) {
      return MARGIN.top + (1 - value) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    }

    /** The fan of utility curves. */
    draw() {
      const { method } = this;
      const x = (index) => this.x(index), y = (value) => this.y(value);
      const last = method.thresholds.length - 1;
      const [from, to] = [method.calibration[0], method.calibration[1] - 1].map(x);
      const label = `Utility of the classes of ${this.name} against the threshold. The values at the chosen threshold are in the table below.`;
      const shaded = method.mean.map((mean, i) => [Math.max(0, mean - method.deviation[i]), Math.min(1, mean + method.deviation[i])]);
      const drawing = svg("svg", { viewBox: `0 0 ${this.width} ${HEIGHT}`, width: this.width, height: HEIGHT, role: "img", "aria-label": label, class: "fan" }, [
        svg("rect", { class: "fan-range", x: Math.min(from, to), y: MARGIN.top, width: Math.abs(to - from), height: HEIGHT - MARGIN.top - MARGIN.bottom }),
        svg("g", { class: "fan-density" }, this.densityCells()),
        svg("path", { class: "fan-whole", d: band(x, y, this.row("utility", 0), this.row("utility", 100)) }),
        svg("path", { class: "fan-middle", d: band(x, y, this.row("utility", 10), this.row("utility", 90)) }),
        svg("path", { class: "fan-shade", d: band(x, y, shaded.map((pair) => pair[0]), shaded.map((pair) => pair[1])) }),
        svg("path", { class: "fan-line fan-mean", d: line(x, y, method.mean) }),
        svg("path", { class: "fan-line fan-best", d: line(x, y, method.groups.best.mean) }),
        svg("path", { class: "fan-line fan-worst", d: line(x, y, method.groups.worst.mean) }),
        ...this.axes(last),
      ]);
      if (method.certified) {
        const at = this.atThreshold(method.certified.threshold);
        if (at !== null) {
          drawing.append(
            svg("line", { class: "fan-certified", x1: at, x2: at, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }),
            // Above the grid and the curves, which would strike it through.
            svg("text", { class: "fan-words", x: Math.min(Math.max(at, MARGIN.left + 60), this.width - 90), y: 14, "text-anchor": "middle" }, `certified: target FAR ${+(100 * method.certified.target_far).toPrecision(3)} %`),
          );
        }
      }
      this.marker = svg("line", { class: "fan-marker", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom });
      drawing.append(this.marker);
      return drawing;
    }

    /** Where a threshold lies in the drawing; null outside of it. */
    atThreshold(threshold) {
      const { thresholds, scored } = this.method;
      const share = (threshold - thresholds[0]) / (thresholds[thresholds.length - 1] - thresholds[0]);
      return share < 0 || share > 1 ? null : MARGIN.left + (scored ? 1 - share : share) * (this.width - MARGIN.left - MARGIN.right);
    }

    /** Cells that are darker where more curves pass. */
    densityCells() {
      const { bins, shade } = this.method.density;
      const shades = bytes(shade);
      const cells = [];
      for (let index = 0; index + 1 < this.method.thresholds.length; index++) {
        const left = Math.min(this.x(index), this.x(index + 1)), width = Math.abs(this.x(index + 1) - this.x(index)) + 0.3;
        for (let bin = 0; bin < bins; bin++) {
          const value = shades[index * bins + bin];
          if (value > 0) {
            cells.push(svg("rect", { x: left.toFixed(1), y: this.y((bin + 1) / bins).toFixed(1), width: width.toFixed(1),
              height: (this.y(0) - this.y(1 / bins) + 0.3).toFixed(1), opacity: (value / 255 * 0.55).toFixed(2) }));
          }
        }
      }
      return cells;
    }

    axes(last) {
      const parts = [];
      for (let i = 0; i <= 4; i++) {
        const y = this.y(i / 4);
        parts.push(svg("line", { class: "fan-grid", x1: MARGIN.left, x2: this.width - MARGIN.right, y1: y, y2: y }),
          svg("text", { x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, (i / 4).toFixed(2)));
        const { thresholds, scored } = this.method;
        const value = thresholds[0] + ((scored ? 4 - i : i) / 4) * (thresholds[last] - thresholds[0]);
        parts.push(svg("text", { x: MARGIN.left + (i / 4) * (this.width - MARGIN.left - MARGIN.right), y: HEIGHT - MARGIN.bottom + 16, "text-anchor": i === 0 ? "start" : i === 4 ? "end" : "middle" },
          equimetric.number((scored ? -1 : 1) * value, 2)));
      }
      const words = this.method.scored ? "threshold of the score" : "distance threshold (unit vectors: 0 to 2)";
      const middle = (MARGIN.left + this.width) / 2, centre = (MARGIN.top + HEIGHT - MARGIN.bottom) / 2;
      parts.push(svg("text", { x: middle, y: HEIGHT - 20, "text-anchor": "middle" }, words),
        svg("text", { x: middle, y: HEIGHT - 5, "text-anchor": "middle" }, "grey: calibration range"),
        svg("text", { x: 12, y: centre, "text-anchor": "middle", transform: `rotate(-90 12 ${centre})` }, "utility of a class"));
      return parts;
    }

    /** Everything that the slider moves. */
    move(index) {
      this.index = index;
      const { method, cells } = this;
      if (!cells) {
        return;
      }
      const at = this.x(index);
      this.marker.setAttribute("x1", at);
      this.marker.setAttribute("x2", at);
      cells.threshold.textContent = showThreshold(method, index);
      cells.far.textContent = `${percent(this.far[index])} (${method.negative[index].toLocaleString("en")} of ${method.negatives.toLocaleString("en")})`;
      cells.frr.textContent = `${percent(1 - method.positive[index] / method.positives)} (${(method.positives - method.positive[index]).toLocaleString("en")} of ${method.positives.toLocaleString("en")})`;
      cells.classFar.textContent = `${percent(this.quantile("far", 50, index))}, ${percent(this.quantile("far", 90, index))}`;
      cells.classFrr.textContent = `${percent(this.quantile("frr", 50, index))}, ${percent(this.quantile("frr", 90, index))}`;
      cells.utility.textContent = `${method.mean[index].toFixed(3)} ± ${method.deviation[index].toFixed(3)}`;
      for (const row of [...this.rows, ...this.lookedUp]) {
        const rates = row.one.classIndex === undefined ? ratesOf(row.one, index) : this.classRates(row.one.classIndex, index);
        row.cells[0].textContent = inPercent(rates.far);
        row.cells[1].textContent = inPercent(rates.frr);
        row.cells[2].textContent = rates.utility.toFixed(3);
      }
    }
  }

  const SAME_THRESHOLD = "nearest step to the same threshold";

  /** Why a threshold of one method says nothing of another; "" where it does. */
  const whyNotSame = (first, second, index) => {
    if (first.scored !== second.scored || first.cohort !== second.cohort) {
      return "B is on another scale";
    }
    const value = first.thresholds[index], ends = [second.thresholds[0], second.thresholds.at(-1)];
    return value < ends[0] || value > ends[1] ? "B has none" : "";
  };

  /** Two panels and the slider that moves both. */
  const start = () => {
    const values = equimetric.data("explorer");
    const app = document.getElementById("explorer-app");
    if (!values || !app) {
      return;
    }
    const shown = values.shown.length > 1 ? values.shown : [values.shown[0]];
    const panels = shown.map((name, i) => new Panel(values, "AB"[i], name));
    const slider = element("input", { type: "range", id: "explorer-threshold", min: 0, step: 1 });
    const link = element("select", { id: "explorer-link" }, [
      element("option", { value: "far" }, "nearest step to the same false accept rate"),
      element("option", { value: "threshold" }, SAME_THRESHOLD),
    ]);
    // What was asked for, also while it cannot be shown.
    let linked = link.value;
    const jump = element("button", { type: "button", id: "explorer-certified" });

    const update = () => {
      const [first, second] = panels;
      const index = Number(slider.value);
      first.move(index);
      if (second) {
        const reason = whyNotSame(first.method, second.method, index);
        const [, option] = link.options;
        option.disabled = reason !== "";
        option.textContent = reason ? `${SAME_THRESHOLD} (${reason})` : SAME_THRESHOLD;
        link.value = reason ? "far" : linked;
        const same = link.value === "far" ? nearest(second.far, first.far[index]) : nearest(second.method.thresholds, first.method.thresholds[index]);
        second.move(same);
      }
      const { method } = first;
      slider.setAttribute("aria-valuetext", `${method.scored ? "score" : "distance"} ${showThreshold(method, index)}, false accept rate ${percent(first.far[index])}`);
    };
    const reset = () => {
      const { method } = panels[0];
      slider.max = method.thresholds.length - 1;
      slider.value = Math.round((method.calibration[0] + method.calibration[1] - 1) / 2);
      jump.hidden = !method.certified;
      // Runs of older versions have no counts at the certified threshold itself.
      const exact = method.thresholds.includes(method.certified?.threshold);
      jump.textContent = exact ? "Go to the certified threshold" : "Go to the nearest step to the certified threshold";
      update();
    };
    panels.forEach((panel, i) => {
      panel.onchange = i ? update : reset;
      panel.build();
    });
    slider.addEventListener("input", update);
    link.addEventListener("change", () => {
      linked = link.value;
      update();
    });
    jump.addEventListener("click", () => {
      slider.value = nearest(panels[0].method.thresholds, panels[0].method.certified.threshold);
      update();
    });
    app.append(
      element("p", { class: "controls threshold-controls" }, [
        element("label", { for: slider.id }, panels.length > 1 ? "Threshold of A" : "Threshold"), slider, jump,
        ...(panels.length > 1 ? [element("span", { class: "together" }, [element("label", { for: link.id }, "B is shown"), link])] : []),
      ]),
      element("div", { class: "threshold-panels" }, panels.map((panel) => panel.root)),
    );
    app.hidden = false;
    panels.forEach((panel) => panel.redraw());
    window.addEventListener("resize", () => panels.filter((panel) => panel.width !== Math.max(240, panel.figure.clientWidth)).forEach((panel) => panel.redraw()));
    reset();
    equimetric.explorer = { panels, slider, update, link };
  };

  equimetric.ready(start);
}
