// Search by a photo. Everything that comes from the server is put into the page as text, never as markup.

const $ = (id) => document.getElementById(id);
let key = sessionStorage.getItem("equimetric-key") ?? "";
let gallery = null;
let photo = null;
let latest = 0;

async function call(path, options = {}) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch {
    throw new Error("The service does not answer; is it running?");
  }
  if (response.status === 401) {
    $("key-form").hidden = false;
    $("key").focus();
  }
  if (!response.ok) {
    const problem = await response.json().catch(() => null);
    throw new Error(sentence(problem?.detail ?? `The service answers ${response.status}.`));
  }
  return response;
}

function sentence(text) {
  const ended = /[.!?]$/.test(text) ? text : `${text}.`;
  return ended.charAt(0).toUpperCase() + ended.slice(1);
}

function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

function say(text, kind = "", explanation = "") {
  $("verdict").textContent = text;
  $("verdict").className = kind;
  $("explanation").textContent = explanation;
}

const isDistance = () => gallery.rule.startsWith("distance");

async function describe() {
  try {
    gallery = await (await call("/gallery")).json();
  } catch (error) {
    $("about").textContent = error.message;
    return;
  }
  $("key-form").hidden = true;
  $("title").textContent = gallery.name;
  document.title = `${gallery.name} – Equimetric`;
  const side = isDistance() ? "a distance below" : "a score above";
  $("about").textContent =
    `${gallery.items.toLocaleString("en")} items. Accepted is ${side} ${gallery.threshold.toPrecision(4)}, ` +
    `certified for ${gallery.tasks.join(" and ")}.`;
  if (photo) search();
}

async function search() {
  const number = ++latest;
  if (!photo || !gallery) return;
  if (photo.size > gallery.limits.bytes) {
    $("neighbours").replaceChildren();
    say(`The photo has more than ${Math.round(gallery.limits.bytes / 1e6)} MB; choose a smaller one.`, "problem");
    return;
  }
  say("Searching …");
  $("answer").setAttribute("aria-busy", "true");
  const form = new FormData();
  form.append("image", photo);
  try {
    const count = Math.min(Number($("count").value), gallery.limits.neighbours);
    const answer = await (await call(`/search?k=${count}`, { method: "POST", body: form })).json();
    if (number === latest) show(answer);
  } catch (error) {
    if (number !== latest) return;
    $("neighbours").replaceChildren();
    say(error.message, "problem");
  } finally {
    $("answer").removeAttribute("aria-busy");
  }
}

function show(answer) {
  const accepted = answer.matches.filter((match) => match.accepted).length;
  const side = isDistance() ? "closer than" : "above";
  const threshold = answer.threshold.toPrecision(4);
  if (!answer.matches.length) {
    say("The gallery is empty", "unknown", "Add images with equimetric index, or by POST /gallery.");
  } else if (answer.name === null) {
    say("Unknown", "unknown", `Nothing in the gallery is ${side} the threshold ${threshold}, the mark on each line.`);
  } else {
    const shown = `${accepted} of the ${answer.matches.length} items below`;
    const verb = accepted === 1 ? "is" : "are";
    say(answer.name, "known", `${shown} ${verb} ${side} the threshold ${threshold}, the mark on each line.`);
  }
  const scores = answer.matches.map((match) => match.score).concat(answer.threshold);
  const least = Math.min(0, ...scores);
  const most = Math.max(...scores) * 1.08 || 1;
  const place = (score) => (100 * (score - least)) / (most - least);
  $("neighbours").replaceChildren(...answer.matches.map((match) => neighbour(match, answer.threshold, place)));
}

function neighbour(match, threshold, place) {
  const row = element("li", match.accepted ? "accepted" : "refused");
  const picture = element("img", "picture");
  picture.alt = "";
  const score = element("span", "score", match.score.toFixed(4));
  score.append(" ", element("span", "badge", match.accepted ? "accepted" : "not accepted"));
  row.append(picture, element("span", "name", match.name), score);
  row.append(element("span", "id", match.id === match.name ? "" : match.id), scale(match.score, threshold, place));
  if (gallery.thumbnails) loadPicture(picture, match.id);
  return row;
}

function scale(score, threshold, place) {
  const space = "http://www.w3.org/2000/svg";
  const drawn = document.createElementNS(space, "svg");
  drawn.setAttribute("class", "scale");
  drawn.setAttribute("role", "img");
  drawn.setAttribute("aria-label", `${score.toFixed(4)}, the threshold is ${threshold.toPrecision(4)}`);
  const draw = (name, kind, attributes) => {
    const part = document.createElementNS(space, name);
    part.setAttribute("class", kind);
    Object.entries(attributes).forEach(([key, value]) => part.setAttribute(key, value));
    drawn.append(part);
  };
  draw("rect", "track", { x: 0, y: 4, width: "100%", height: 6, rx: 3 });
  draw("rect", "bar", { x: 0, y: 4, width: `${place(score)}%`, height: 6, rx: 3 });
  draw("line", "mark", { x1: `${place(threshold)}%`, x2: `${place(threshold)}%`, y1: 0, y2: 14 });
  return drawn;
}

async function loadPicture(picture, id) {
  try {
    // A picture cannot send a key by itself.
    const content = await (await call(`/thumbnail?id=${encodeURIComponent(id)}`)).blob();
    picture.src = URL.createObjectURL(content);
    picture.onload = () => URL.revokeObjectURL(picture.src);
  } catch {
    picture.title = "its image is not on the server";
  }
}

function take(file) {
  if (!file) return;
  photo = file;
  const preview = $("preview");
  if (preview.src) URL.revokeObjectURL(preview.src);
  preview.src = URL.createObjectURL(file);
  preview.hidden = false;
  preview.onerror = () => { preview.hidden = true; };
  $("invitation").replaceChildren(element("strong", "", "Choose another"));
  $("answer").focus({ preventScroll: true });
  search().then(() => $("answer").scrollIntoView({ block: "nearest" }));
}

$("photo").addEventListener("change", (event) => take(event.target.files[0]));
$("count").addEventListener("change", search);
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.trim();
  sessionStorage.setItem("equimetric-key", key);
  describe();
});
document.addEventListener("dragover", (event) => { event.preventDefault(); $("drop").classList.add("over"); });
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("drop").classList.remove("over"); });
document.addEventListener("drop", (event) => {
  event.preventDefault();
  $("drop").classList.remove("over");
  take([...event.dataTransfer.files].find((file) => file.type.startsWith("image/")) ?? event.dataTransfer.files[0]);
});
document.addEventListener("paste", (event) => take([...event.clipboardData.files][0]));
describe();
