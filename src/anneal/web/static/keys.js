// Which key does what: the defaults, the person's own keys (in localStorage), and the table that changes them.
import { emit, keep } from "./api.js";
import { $, el, fill, setText } from "./dom.js";

export const ACTIONS = {
  similar: ["Similar", "ArrowRight", "a", "y"],
  dissimilar: ["Dissimilar", "ArrowLeft", "x", "n"],
  unsure: ["Unsure", "Space", "u"],
  undo: ["Undo", "Backspace", "Ctrl+z"],
  zoomIn: ["Zoom in", "+", "="],
  zoomOut: ["Zoom out", "-"],
  zoomReset: ["Whole images", "0"],
  panLeft: ["Move left", "Shift+ArrowLeft"],
  panRight: ["Move right", "Shift+ArrowRight"],
  panUp: ["Move up", "Shift+ArrowUp"],
  panDown: ["Move down", "Shift+ArrowDown"],
  next: ["Next answer (Review)", "ArrowDown", "j"],
  previous: ["Previous answer (Review)", "ArrowUp", "k"],
  withdraw: ["Withdraw an answer (Review)", "Delete"],
  enlarge: ["Enlarge an image (Search, Review)", "e"],
  help: ["Help", "?"],
};

const STORED = "anneal.keys";
const MODIFIERS = new Set(["Shift", "Control", "Alt", "Meta", "AltGraph", "CapsLock", "Dead", "Process", "Unidentified"]);
const GLYPHS = { ArrowRight: "→", ArrowLeft: "←", ArrowUp: "↑", ArrowDown: "↓", Space: "space", Backspace: "⌫", "-": "−" };

let bound = load();
let capture = "";         // the action for which the table waits for a key
let asking = null;        // { action, combo, text }: the key does something else, and the person is asked

function load() {
  let saved = {};
  try { saved = JSON.parse(keep.get(STORED)) ?? {}; } catch { /* unreadable: defaults */ }
  return Object.fromEntries(Object.entries(ACTIONS).map(([action, [, ...keys]]) =>
    [action, Array.isArray(saved[action]) ? saved[action].filter((key) => typeof key === "string") : keys]));
}

/** A key press as text: "a", "Space", "Shift+ArrowLeft", "Ctrl+z"; "" for a modifier alone. */
export function comboOf(event) {
  let { key } = event;
  if (!key || MODIFIERS.has(key)) return "";
  if (key === " ") key = "Space";
  const latin = /^Key([A-Z])$/.exec(event.code ?? "");
  if (key.length === 1) key = latin && key > "~" ? latin[1].toLowerCase() : key.toLowerCase();   // e.g. Cyrillic layouts
  const control = event.ctrlKey || event.metaKey;
  // "?" and "+" are typed with Shift, so Shift counts only with named keys and other modifiers.
  const shift = event.shiftKey && (key.length > 1 || control || event.altKey);
  return [control && "Ctrl", event.altKey && "Alt", shift && "Shift", key].filter(Boolean).join("+");
}

export function actionOf(event) {
  const combo = comboOf(event);
  return combo && Object.keys(bound).find((action) => bound[action].includes(combo));
}

export const pretty = (combo) =>
  combo.split(/\+(?=.)/).map((part) => GLYPHS[part] ?? (part.length === 1 ? part.toUpperCase() : part)).join(" ");

export const keysOf = (action) => bound[action];

function change(next) {
  bound = next;
  keep.set(STORED, JSON.stringify(bound));
  drawKeys();
  emit("keys");
}

function bind(action, combo) {
  const next = Object.fromEntries(Object.entries(bound).map(([name, keys]) => [name, keys.filter((key) => key !== combo)]));
  next[action].push(combo);          // a key does one thing: it is removed elsewhere
  change(next);
}

function unbind(action, combo) {
  change({ ...bound, [action]: bound[action].filter((key) => key !== combo) });
  focusOn(action);
  say(`${pretty(combo)} no longer means ${ACTIONS[action][0]}`);
}

export function resetKeys() {
  keep.remove(STORED);
  asking = null;
  bound = load();
  drawKeys();
  emit("keys");
  say("All keys are the defaults again");
}

const focusOn = (action, button = ".add") => $(`#keys [data-action="${action}"] ${button}`)?.focus();
const say = (text) => setText($("#keys-status"), text);

function listen(action) {
  const dialog = $("#help"), listening = new AbortController();
  const on = (type, act, capturing = false) => dialog.addEventListener(type, act, { capture: capturing, signal: listening.signal });
  const finish = (text, button) => {
    listening.abort();
    capture = "";
    drawKeys();
    focusOn(action, button);
    say(text);
  };
  const giveUp = () => finish("Nothing changed");
  on("keydown", (event) => {
    event.preventDefault();
    event.stopPropagation();
    const combo = comboOf(event);
    if (!combo || event.repeat) return;
    if (["Escape", "Tab", "Shift+Tab"].includes(combo)) return giveUp();
    const owner = Object.keys(bound).find((name) => bound[name].includes(combo));
    if (owner && owner !== action) {
      const text = `${pretty(combo)} means ${ACTIONS[owner][0]} now.`;
      asking = { action, combo, text };
      return finish(text, ".no");
    }
    if (!owner) bind(action, combo);
    finish(`${pretty(combo)} means ${ACTIONS[action][0]}`);
  }, true);
  on("cancel", (event) => event.preventDefault());      // Escape ends the waiting; the dialog stays open
  on("pointerdown", giveUp, true);
  on("close", giveUp);
  [capture, asking] = [action, null];
  drawKeys();
  focusOn(action);
}

/** The key does something else: the person says whether it is to do this instead. */
function question(action) {
  const { combo, text } = asking;
  const answer = (said, then) => () => { asking = null; then(); drawKeys(); focusOn(action); say(said); };
  return el("span", { class: "asking", role: "group", "aria-label": `Use ${pretty(combo)} for ${ACTIONS[action][0]}?` }, text,
    el("button", { type: "button", class: "no", onclick: answer("Nothing changed", () => {}) }, "Leave it"),
    el("button", { type: "button", onclick: answer(`${pretty(combo)} means ${ACTIONS[action][0]}`, () => bind(action, combo)) },
      "Use ", el("kbd", {}, pretty(combo)), " here instead"));
}

/** Opened anew: nothing is asked, and nothing was said. */
export function openKeys() {
  asking = null;
  say("");
  drawKeys();
}

function drawKeys() {
  fill($("#keys"), $("#keys caption"), ...Object.entries(ACTIONS).map(([action, [label]]) => el("tr", { data: { action } },
    el("th", { scope: "row" }, label),
    el("td", {}, ...bound[action].map((combo) => el("span", { class: "key" }, el("kbd", {}, pretty(combo)),
      el("button", { type: "button", class: "quiet", title: "Remove this key", "aria-label": `Remove key ${pretty(combo)} from ${label}`,
        onclick: () => unbind(action, combo) }, "×"))),
    asking?.action === action ? question(action)
      : el("button", { type: "button", class: "quiet add", "aria-label": `${capture === action ? "Press" : "Add"} a key for ${label}`,
        onclick: () => listen(action) }, capture === action ? "Press a key…" : "Add key")))));
}
