"use strict";
// Light, dark, or as the system is set: a button that goes round the three.

{
  const NAMES = ["system", "light", "dark"];

  equimetric.ready(() => {
    const button = document.getElementById("theme");
    const show = (name) => {
      document.documentElement.dataset.theme = name;
      button.textContent = `Colours: ${name}`;
    };
    button.hidden = false;
    show("system");
    button.addEventListener("click", () => {
      const now = NAMES.indexOf(document.documentElement.dataset.theme);
      show(NAMES[(now + 1) % NAMES.length]);
    });
  });
}
