"use strict";
// Two methods class by class and query by query: counts, extremes, and a histogram of the differences.

{
  const { element, number } = equimetric;
  const LISTED = 8;
  const BINS = 20;

  /** The scores behind base64 of two bytes each. */
  const unpack = (text, steps) => {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    return Float64Array.from(new Uint16Array(bytes.buffer), (value) => value / steps);
  };

  /** Differences counted in bins, as the page's own figure has them. */
  const binDifferences = (differences) => {
    const largest = differences.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    if (largest === 0) {
      return [{ low: 0, high: 0, count: differences.length, side: "equal" }];
    }
    const power = 10 ** Math.floor(Math.log10(largest / BINS));
    const width = [1, 2, 5, 10].map((step) => step * power).find((step) => step >= largest / BINS);
    const counts = new Map();
    for (const value of differences) {
      if (value !== 0) {
        const bin = value > 0 ? Math.ceil(value / width) - 1 : Math.floor(value / width);
        counts.set(bin, (counts.get(bin) ?? 0) + 1);
      }
    }
    return [...counts].map(([bin, count]) => ({
      low: bin * width,
      high: (bin + 1) * width,
      count,
      side: bin >= 0 ? "A" : "B",
    }));
  };

  /** The indices with the largest values, and those with the smallest. */
  const extremes = (values, many) => {
    const order = [...values.keys()].sort((one, other) => values[other] - values[one] || one - other);
    const largest = order.slice(0, many).filter((index) => values[index] > 0);
    const smallest = order.slice(-many).reverse().filter((index) => values[index] < 0);
    return [largest, smallest];
  };

  const count = (values) => {
    const wins = values.filter((value) => value > 0).length;
    const losses = values.filter((value) => value < 0).length;
    return { wins, losses, equal: values.length - wins - losses };
  };

  /** What differences are in: percentages differ by points. */
  const unit = (data) => (data.scale === 100 ? ", points" : "");

  const fillTable = (container, data, classes, a, b) => {
    const shown = (value, sign = false) => number(data.scale * value, data.decimals, sign);
    const heading = element("tr", {}, [
      element("th", { scope: "col" }, "Class"),
      ...["Queries", "A", "B", `A − B${unit(data)}`].map((name) => element("th", { scope: "col", class: "number" }, name)),
    ]);
    const rows = classes.map((one) =>
      element("tr", {}, [
        element("th", { scope: "row" }, data.classes[one]),
        element("td", { class: "number" }, String(data.counts[one])),
        element("td", { class: "number" }, shown(a[one])),
        element("td", { class: "number" }, shown(b[one])),
        element("td", { class: "number" }, shown(a[one] - b[one], true)),
      ]),
    );
    const empty = element("tr", {}, element("td", { colspan: 5 }, "none"));
    container.replaceChildren(element("thead", {}, heading), element("tbody", {}, rows.length ? rows : [empty]));
  };

  /** What a method retrieves for a query: a letter and its neighbours. */
  const strip = (queries, letter, method, index) => {
    const { row } = queries.shown[index];
    const found = queries.neighbours[method]?.[index];
    // Names in place of pictures where the page has no bytes left for them.
    const pictured = (found ?? []).every((one) => queries.images[one]);
    const neighbours = (found ?? []).map((one) => ({
      source: pictured ? queries.images[one] : undefined,
      name: queries.names[queries.labels[one]],
      right: queries.labels[one] === queries.labels[row],
    }));
    const shown = neighbours.length ? equimetric.neighbourList(neighbours) : element("span", { class: "empty" }, "not stored");
    return element("div", { class: pictured ? "retrieval" : "retrieval named" }, [element("span", { class: "letter" }, letter), shown]);
  };

  /** Each query with its scores, and what both methods retrieve. */
  const fillQueries = (container, data, indices, methods, scores, inAll) => {
    const shown = (value) => number(data.scale * value, data.decimals);
    const items = indices.map((one) => {
      const { query, row } = data.queries.shown[one];
      const name = data.queries.names[data.queries.labels[row]];
      const [a, b] = scores.map((values) => shown(values[query]));
      return element("li", {}, [
        element("div", { class: "query" }, [
          equimetric.picture(data.queries.images[row], name, "query"),
          ...(data.queries.images[row] ? [element("span", {}, name)] : []),
        ]),
        element("div", {}, [strip(data.queries, `A ${a}`, methods[0], one), strip(data.queries, `B ${b}`, methods[1], one)]),
      ]);
    });
    const none = inAll ? `none of the ${data.queries.shown.length} queries shown; ${inAll.toLocaleString("en")} in all` : "none";
    container.replaceChildren(...(items.length ? items : [element("li", { class: "empty" }, none)]));
  };

  const compareQueries = (data, first, second) => {
    const { scores, shown } = data.queries;
    const words = document.getElementById("compare-query-words");
    if (!(first in scores && second in scores)) {
      words.textContent = "Scores of single queries are not stored for both methods.";
      return;
    }
    const [a, b] = [unpack(scores[first], data.steps), unpack(scores[second], data.steps)];
    const { wins, losses, equal } = count([...a].map((value, index) => value - b[index]));
    words.textContent = `Of ${a.length.toLocaleString("en")} test queries, ${wins.toLocaleString("en")} score higher with A, ${losses.toLocaleString("en")} with B, ${equal.toLocaleString("en")} alike.`;
    const wanted = document.getElementById("compare-query-wins");
    if (wanted) {
      const [better, worse] = extremes(shown.map(({ query }) => a[query] - b[query]), LISTED);
      fillQueries(wanted, data, better, [first, second], [a, b], wins);
      fillQueries(document.getElementById("compare-query-losses"), data, worse, [first, second], [a, b], losses);
    }
  };

  /** The caption and the description of the histogram name the methods that are chosen. */
  const describeFigure = (data, first, second) => {
    const figure = document.getElementById("figure-compare");
    const caption = figure?.querySelector("figcaption");
    if (caption) {
      caption.textContent = `A = ${first}, B = ${second}: ${data.caption}`;
      figure.querySelector(".canvas").setAttribute("aria-label", `${data.description}: ${first} (A) less ${second} (B).`);
    }
  };

  const compare = async (data, first, second) => {
    const [a, b] = [unpack(data.scores[first], data.steps), unpack(data.scores[second], data.steps)];
    const differences = [...a].map((value, index) => Math.round(data.steps * (value - b[index])) / data.steps);
    const { wins, losses, equal } = count(differences);
    const verdict = equimetric.data("leaderboard")?.against?.[second]?.[first];
    const judged = verdict ? ` Over all queries, A against B: ${equimetric.verdictWords(verdict)}.` : "";
    const words =
      `A = ${first}, B = ${second}. Of ${a.length} test classes, A scores higher on ${wins}, B on ${losses}, ` +
      `both alike on ${equal}.${judged}`;
    document.getElementById("compare-words").textContent = words;
    const [better, worse] = extremes(differences, LISTED);
    fillTable(document.getElementById("compare-wins"), data, better, a, b);
    fillTable(document.getElementById("compare-losses"), data, worse, a, b);
    if (data.queries) {
      compareQueries(data, first, second);
    }
    describeFigure(data, first, second);
    const view = await equimetric.view("compare");
    const values = binDifferences(differences.map((value) => data.scale * value));
    await view?.data("differences", values).runAsync();
  };

  equimetric.ready(() => {
    const data = equimetric.data("compare");
    if (!data) {
      return;
    }
    const [first, second] = ["compare-first", "compare-second"].map((name) => document.getElementById(name));
    let chosen = [first.value, second.value];
    const update = async ({ target }) => {
      // A method beside itself says nothing: the two change places.
      if (first.value === second.value) {
        const [other, place] = target === first ? [second, 0] : [first, 1];
        other.value = chosen[place];
      }
      chosen = [first.value, second.value];
      await compare(data, first.value, second.value);
      equimetric.announce(`${first.value} compared with ${second.value}`);
    };
    first.form.hidden = false;
    first.addEventListener("change", update);
    second.addEventListener("change", update);
    compare(data, first.value, second.value);
  });
}
