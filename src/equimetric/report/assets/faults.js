"use strict";
// Galleries of what a method retrieves wrongly, and the map of test images.

{
  const { element } = equimetric;
  const COLOURS = [1, 2, 3, 4, 5, 6].map((number) => `var(--series-${number})`);
  const SIDE = 1000;
  const svg = (tag, attributes, children = []) => element(tag, attributes, children, "svg");

  /** An image of the page with its class name; its name alone where the page has no room for it. */
  const picture = (values, row, words) => equimetric.picture(values.images[row], values.names[row] ?? "", words);

  /** A query with its neighbours. */
  const retrieval = (values, found, words) => [
    element("p", { class: "query-name" }, words),
    element("div", { class: "retrieval" }, [
      ...(values.images[found.query] ? [element("div", { class: "query" }, picture(values, found.query, "query"))] : []),
      equimetric.neighbourList(found.neighbours.map(([row, right]) => ({ source: values.images[row], name: values.names[row], right }))),
    ]),
  ];

  /** Two images side by side with words. */
  const pair = (values, rows, words) => element("li", { class: "fault-pair" }, [
    ...rows.filter((row) => values.images[row]).map((row) => picture(values, row, "image")),
    element("span", { class: "fault-words" }, [
      element("span", {}, [...new Set(rows.map((row) => values.names[row]))].join(" and ")),
      element("span", { class: "unit" }, `, ${words}`),
    ]),
  ]);

  const card = (title, children) => element("article", {}, [element("h3", {}, title), ...children]);
  const score = (value) => (100 * value).toFixed(1);

  const galleries = (values, faults) => [
    card(`Worst queries, by ${faults.score}`, faults.queries.flatMap((found) => retrieval(values, found, `${values.names[found.query]}: ${score(found.score)} %`))),
    card("Worst classes, each with its worst query", faults.classes.flatMap((found) => retrieval(values, found, `${values.names[found.query]}: ${score(found.mean)} % over ${found.images} images`))),
    card("Classes taken for one another", [element("ul", { class: "faults" }, faults.confused.map((found) => pair(values, found.images, `${found.times} nearest neighbours`)))]),
    card("Hubs: among the nearest 10 of many queries", [element("ul", { class: "faults" }, faults.hubs.map((hub) => pair(values, [hub.image], `of ${hub.times} queries, ${hub.wrong} of another class`)))]),
    card("Closest pairs of different classes", [element("ul", { class: "faults" }, faults.duplicates.map((found) => pair(values, found.images, `distance ${found.distance.toFixed(4)}`)))]),
  ].filter((one) => one.querySelector("li, .retrieval"));

  const chooser = (id, label, names, onchange) => {
    const select = element("select", { id }, names.map((name) => element("option", { value: name }, name)));
    select.addEventListener("change", () => onchange(select.value));
    return element("p", { class: "controls chooser" }, [element("label", { for: id }, label), select]);
  };

  /** The galleries of one method at a time. */
  const showFaults = (values, app) => {
    const names = Object.keys(values.methods).filter((name) => values.methods[name].faults);
    const container = element("div", { class: "galleries" });
    const show = (name) => container.replaceChildren(...galleries(values, values.methods[name].faults));
    if (names.length) {
      app.append(chooser("faults-method", "Method", names, show), container);
      show(names[0]);
    }
  };

  /** The map of one method at a time. */
  const showMap = (values, app) => {
    const names = Object.keys(values.methods).filter((name) => values.methods[name].map);
    if (!names.length) {
      document.getElementById("map-title").hidden = true;
      return;
    }
    const drawing = svg("svg", { class: "map", tabindex: "0", role: "application", "aria-label": "Map of test images; arrow keys go from image to image" });
    const side = element("div", { class: "map-side", "aria-live": "polite" });
    let dots = [], chosen = -1, shownName = names[0];

    const choose = (index) => {
      const { rows } = values.methods[shownName].map;
      chosen = (index + rows.length) % rows.length;
      const row = rows[chosen], own = values.names[row];
      dots.forEach((dot, i) => {
        const same = values.names[rows[i]] === own;
        dot.setAttribute("r", i === chosen ? 15 : same ? 11 : 6);
        dot.setAttribute("opacity", same ? 1 : 0.28);
        dot.classList.toggle("chosen", i === chosen);
      });
      drawing.append(dots[chosen]);
      side.replaceChildren(picture(values, row, "test image"), element("span", {}, own));
    };
    const show = (name) => {
      shownName = name;
      const { rows, places } = values.methods[name].map;
      const classes = [...new Set(rows.map((row) => values.names[row]))];
      dots = rows.map((row, i) => svg("circle", { cx: places[i][0], cy: SIDE - places[i][1], r: 8, fill: COLOURS[classes.indexOf(values.names[row]) % COLOURS.length] }));
      dots.forEach((dot, i) => dot.addEventListener("pointerenter", () => choose(i)));
      const across = places.map(([x]) => x), down = places.map(([, y]) => SIDE - y);
      const left = Math.min(...across) - 25, top = Math.min(...down) - 25;
      drawing.setAttribute("viewBox", `${left} ${top} ${Math.max(...across) - left + 25} ${Math.max(...down) - top + 25}`);
      drawing.replaceChildren(...dots);
      side.replaceChildren(element("span", { class: "unit" }, `${rows.length} images of ${classes.length} classes. Point at one.`));
      chosen = -1;
    };
    drawing.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        choose(chosen + step);
      }
    });
    app.append(chooser("map-method", "Method", names, show), element("div", { class: "map-frame" }, [drawing, side]));
    show(names[0]);
  };

  equimetric.ready(() => {
    const values = equimetric.data("faults");
    if (values) {
      showFaults(values, document.getElementById("faults-app"));
      showMap(values, document.getElementById("map-app"));
    }
  });
}
