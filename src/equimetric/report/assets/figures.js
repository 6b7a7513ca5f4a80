"use strict";
// Figures: Vega-Lite specifications drawn by the interpreter build, which needs no eval.

{
  const OPTIONS = { ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: { disableDefaultStyle: true } };

  const LEGENDS = ["color", "shape", "strokeDash"];
  const LETTER = 6.6, SYMBOL = 38, AXIS = 90;

  /** Words in lines of at most `letters` characters. */
  const breakLines = (words, letters) =>
    words.split(" ").reduce((lines, word) => {
      const longer = `${lines.at(-1)} ${word}`;
      return longer.length <= letters ? [...lines.slice(0, -1), longer] : [...lines, word];
    }, [""]).map((line) => line.trim()).filter(Boolean);

  /** Give a legend as many columns as its names leave room for, and a title that fits. */
  const fitLegend = (channel, width) => {
    const { legend, scale } = channel;
    const names = Array.isArray(scale?.domain) ? scale.domain.filter((name) => typeof name === "string") : [];
    if (typeof legend?.title === "string") {
      legend.title = breakLines(legend.title, Math.floor((width - AXIS) / LETTER));
    }
    if (names.length && legend !== null) {
      const room = width - AXIS;
      const longest = LETTER * Math.max(...names.map((name) => name.length)) + SYMBOL;
      const columns = Math.max(1, Math.min(legend?.columns ?? names.length, Math.floor(room / longest)));
      channel.legend = { ...legend, columns, labelLimit: Math.max(80, room / columns - SYMBOL) };
    }
  };

  /** The same for all legends of a specification. */
  const fitLegends = (part, width) => {
    if (part && typeof part === "object") {
      LEGENDS.filter((name) => part.encoding?.[name]).forEach((name) => fitLegend(part.encoding[name], width));
      Object.entries(part).filter(([name]) => !["data", "datasets"].includes(name)).forEach(([, inner]) => fitLegends(inner, width));
    }
  };

  /** Draw a specification into an element; returns the promise of its Vega view. */
  const draw = async (container, spec) => {
    fitLegends(spec, container.clientWidth);
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
    equimetric.drawWaiting = () => [...waiting].forEach(take);
  };

  equimetric.draw = draw;
  equimetric.view = view;
  equimetric.ready(drawAll);
}
