// Which key does what: the defaults, the person's own keys (in localStorage), and the table that changes them.
import { emit, keep } from "./api.js";
import { $, announce, el, fill } from "./dom.js";

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
  enlarge: ["Enlarge an image (Search, Review)", "e"],
  help: ["Help", "?"],
};

const STORED = "anneal.keys";
const MODIFIERS = new Set(["Shift", "Control", "Alt", "Meta", "AltGraph", "CapsLock", "Dead", "Process", "Unidentified"]);
const GLYPHS = { ArrowRight: "→", ArrowLeft: "←", ArrowUp: "↑", ArrowDown: "↓", Space: "space", Backspace: "⌫", "-": "−" };

let bound = load();
let capture = "";         // the action for which the table waits for a key

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
}

export function resetKeys() {
  keep.remove(STORED);
  bound = load();
  drawKeys();
  emit("keys");
}

const focusOn = (action) => $(`#keys [data-action="${action}"] .add`)?.focus();

function listen(action) {
  const dialog = $("#help"), listening = new AbortController();
  const on = (type, act, capturing = false) => dialog.addEventListener(type, act, { capture: capturing, signal: listening.signal });
  const finish = (text) => {
    listening.abort();
    capture = "";
    drawKeys();
    focusOn(action);
    announce(text);
  };
  const giveUp = () => finish("Nothing changed");
  on("keydown", (event) => {
    event.preventDefault();
    event.stopPropagation();
    const combo = comboOf(event);
    if (!combo || event.repeat) return;
    if (["Escape", "Tab", "Shift+Tab"].includes(combo)) return giveUp();
    bind(action, combo);
    finish(`${pretty(combo)} now means ${ACTIONS[action][0]}`);
  }, true);
  on("cancel", (event) => event.preventDefault());      // Escape ends the waiting; the dialog stays open
  on("pointerdown", giveUp, true);
  on("close", giveUp);
  capture = action;
  drawKeys();
  focusOn(action);
}

export function drawKeys() {
  fill($("#keys"), $("#keys caption"), ...Object.entries(ACTIONS).map(([action, [label]]) => el("tr", { data: { action } },
    el("th", { scope: "row" }, label),
    el("td", {}, ...bound[action].map((combo) => el("button", { type: "button", class: "key",
      "aria-label": `Remove key ${pretty(combo)} from ${label}`, title: "Remove this key", onclick: () => unbind(action, combo) },
      el("kbd", {}, pretty(combo)), " ×")),
    el("button", { type: "button", class: "quiet add", "aria-label": `${capture === action ? "Press" : "Add"} a key for ${label}`,
      onclick: () => listen(action) }, capture === action ? "Press a key…" : "Add key")))));
}
