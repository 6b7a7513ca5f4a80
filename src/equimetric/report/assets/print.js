"use strict";
// Printing: what is folded is opened, and figures are drawn for the width of a sheet; afterwards all is as it was.

{
  const root = document.documentElement;
  let opened = [];

  /** Figures follow the width of their containers when the window says that its size has changed. */
  const redraw = () => window.dispatchEvent(new Event("resize"));

  const prepare = () => {
    // The folders of runs would take more room than the table they stand in.
    opened = [...document.querySelectorAll("details:not([open], .runs)")];
    opened.forEach((one) => (one.open = true));
    root.classList.add("printing");
    equimetric.drawWaiting?.();
    redraw();
  };

  const restore = () => {
    opened.forEach((one) => (one.open = false));
    opened = [];
    root.classList.remove("printing");
    redraw();
  };

  equimetric.ready(() => {
    window.addEventListener("beforeprint", prepare);
    window.addEventListener("afterprint", restore);
  });
}
