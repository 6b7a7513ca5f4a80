"use strict";
// What the other scripts of the page build on. Text from data becomes text nodes and attributes, never HTML.

const equimetric = {};

{
  /** The values that a section put into the page under a name; null where it has none. */
  equimetric.data = (name) => {
    const block = document.getElementById(`data-${name}`);
    return block ? JSON.parse(block.textContent) : null;
  };

  /** A new element with attributes and children; SVG elements where `space` is "svg". */
  equimetric.element = (tag, attributes = {}, children = [], space = "html") => {
    const made = space === "svg" ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined && value !== false) {
        made.setAttribute(name, value === true ? "" : String(value));
      }
    }
    made.append(...[children].flat());
    return made;
  };

  /** Run when the whole page has been read; a fault of one part leaves the others working. */
  equimetric.ready = (start) => {
    document.addEventListener("DOMContentLoaded", start, { once: true });
  };

  /** Tell readers of the screen what has changed. */
  equimetric.announce = (words) => {
    const container = document.getElementById("announcements");
    if (container) {
      container.textContent = words;
    }
  };

  /** A verdict of the leaderboard with the ends of its interval. */
  equimetric.verdictWords = ({ brief, ends }) => brief + ends;

  /** A number with a true minus sign, as the tables write it. */
  equimetric.number = (value, decimals, sign = false) => {
    const text = Math.abs(value).toFixed(decimals);
    const zero = Number(text) === 0;
    if (value < 0 && !zero) {
      return `−${text}`;
    }
    return sign && !zero ? `+${text}` : text;
  };
}
