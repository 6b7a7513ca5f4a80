"use strict";
// A query's neighbours as a list of pictures, framed right or wrong; class names where the page has no room for pictures.

{
  const { element } = equimetric;

  /** An image with its class name in words; its name alone where there is no image. */
  equimetric.picture = (source, name, words) =>
    source
      ? element("img", { src: source, alt: `${words}: ${name}`, title: name })
      : element("span", { class: "badge", title: words }, name);

  /** The list of neighbours, nearest first: each with its picture, its class name, and whether it is right. */
  equimetric.neighbourList = (neighbours) =>
    element(
      "ol",
      {},
      neighbours.map(({ source, name, right }, index) =>
        element("li", { class: `${right ? "right" : "wrong"}${source ? "" : " worded"}` }, [
          equimetric.picture(source, name, `neighbour ${index + 1}, ${right ? "same class" : "another class"}`),
          element("span", { class: "mark", "aria-hidden": "true" }, right ? "\u2713" : "\u2717"),
          ...(right || !source ? [] : [element("span", { class: "caption", "aria-hidden": "true" }, name)]),
        ]),
      ),
    );
}
