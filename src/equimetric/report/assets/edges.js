"use strict";
// Which edges of a table hide more of it, so that the style sheet can show that it scrolls.

{
  const mark = (region) => {
    const rest = region.scrollWidth - region.clientWidth - region.scrollLeft;
    const edges = [...(region.scrollLeft > 1 ? ["left"] : []), ...(rest > 1 ? ["right"] : [])];
    region.dataset.more = edges.join(" ");
  };

  /** Mark all regions anew, after their content has changed. */
  equimetric.showEdges = () => document.querySelectorAll(".scroll").forEach(mark);

  equimetric.ready(() => {
    document.addEventListener("scroll", ({ target }) => target.classList?.contains("scroll") && mark(target), { capture: true, passive: true });
    window.addEventListener("resize", equimetric.showEdges);
    equimetric.showEdges();
  });
}
