"use strict";
// Figures: Vega-Lite specifications drawn by the interpreter build, which needs no eval.

{
  const OPTIONS = { ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: { disableDefaultStyle: true } };

  /** Draw a specification into an element; returns the promise of its Vega view. */
  const draw = async (container, spec) => {
    const drawn = await window.vegaEmbed(container, spec, OPTIONS);
    // The label of the container describes the figure.
    container.querySelector("svg")?.setAttribute("aria-hidden", "true");
    return drawn.view;
  };

  const views = new Map();

  /** The view of a figure of the page by its name, drawn now if it was not yet. */
  const view = (name) => {
    const figure = document.getElementById(`figure-${name}`);
    if (!figure) {
      return null;
    }
    if (!views.has(name)) {
      const spec = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
      views.set(name, draw(figure.querySelector(".canvas"), spec));
    }
    return views.get(name);
  };

  const nameOf = (figure) => figure.id.slice("figure-".length);
  const isShown = (figure) => figure.querySelector(".canvas").clientWidth > 0;

  /** Draw figures as they come close to the window, and the others while nothing else is to do. */
  const drawAll = () => {
    const waiting = new Set(document.querySelectorAll("figure.chart"));
    const take = (figure) => {
      if (waiting.has(figure) && isShown(figure)) {
        waiting.delete(figure);
        observer.unobserve(figure);
        view(nameOf(figure));
      }
    };
    const observer = new IntersectionObserver(
      (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => take(entry.target)),
      { rootMargin: "400px" },
    );
    waiting.forEach((figure) => observer.observe(figure));
    const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 50));
    const drawNext = () => {
      const next = [...waiting].find(isShown);
      if (next) {
        take(next);
        idle(drawNext);
      }
    };
    idle(drawNext);
    window.addEventListener("beforeprint", () => [...waiting].forEach(take));
  };

  equimetric.draw = draw;
  equimetric.view = view;
  equimetric.ready(drawAll);
}
