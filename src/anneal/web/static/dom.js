// Makes and fills elements, and shows messages. Text goes in as text, never as markup.

export const $ = (selector, root = document) => root.querySelector(selector);

const present = (child) => child !== null && child !== undefined && child !== false;

/** el("button", { class: "quiet", data: { id: 3 }, onclick: f }, "text", child) */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (!present(value)) continue;
    if (name === "data") Object.assign(node.dataset, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter(present));
  return node;
}

export const fill = (node, ...children) => node.replaceChildren(...children.filter(present));

/** Writes only changed text, so that nothing is laid out or read aloud twice. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const grouped = new Intl.NumberFormat("en");
export const number = (n) => grouped.format(n);
export const count = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;
export const percent = (share) => `${Math.round(share * 100)}\u00a0%`;
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** <progress> without a value is "busy, length unknown". */
export function setBar(bar, done, total) {
  if (total > 0) { bar.max = total; bar.value = Math.min(done || 0, total); } else bar.removeAttribute("value");
}

export function table(caption, heads, rows) {
  return el("table", {}, el("caption", {}, caption),
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...rows.map(([first, ...rest]) =>
      el("tr", {}, el("th", { scope: "row" }, first), ...rest.map((cell) => el("td", {}, cell))))));
}

/** A message that stays until it is dismissed. */
export function notice(text) {
  const shown = [...$("#notice").children].find((note) => note.firstChild.textContent === text);
  if (shown) return;
  const note = el("p", {}, el("span", {}, text),
    el("button", { type: "button", class: "quiet", onclick: () => note.remove() }, "Dismiss"));
  $("#notice").append(note);
}

export const announce = (text) => setText($("#announce"), text);

/** Asks for one line of text; null if that was cancelled. */
export function askText({ title, label, value }) {
  const dialog = $("#prompt"), input = $("#prompt-input");
  setText($("#prompt-title"), title);
  setText($("#prompt-label"), label);
  input.value = value;
  dialog.returnValue = "";
  dialog.showModal();
  input.select();
  return new Promise((resolve) => dialog.addEventListener("close",
    () => resolve(dialog.returnValue === "save" ? input.value.trim() : null), { once: true }));
}
