// Starts the page: header, views, dialogs, keys, and polling the server's state.
import { connection, on, setAnnotator, store, keep } from "./api.js";
import { $, askText, count, el, fill, setText, sleep } from "./dom.js";
import { actionOf, openKeys, resetKeys } from "./keys.js";
import * as large from "./large.js";
import { discard, heartbeat, openOutbox, setAsideEntries, tryAgain, unsentCount } from "./outbox.js";
import * as label from "./label.js";
import * as learn from "./learn.js";
import * as search from "./search.js";
import * as groups from "./groups.js";
import * as review from "./review.js";
import * as progress from "./progress.js";

const views = { label, search, groups, review, progress };
const REPEATING = /^(zoom|pan)/;
let current = "";

// ---- routes ----

function route() {
  const [, name = "", rest = ""] = /^#?([a-z]*)\/?(.*)$/.exec(location.hash) ?? [];
  const next = Object.hasOwn(views, name) ? name : "label";
  const moved = next !== current;
  if (moved && current) views[current].leave();
  for (const view of Object.keys(views)) {
    $(`#${view}`).hidden = view !== next;
    const tab = $(`header [data-view=${view}]`);
    if (view === next) tab.setAttribute("aria-current", "page"); else tab.removeAttribute("aria-current");
  }
  const first = !current;
  current = next;
  views[next].enter(rest);
  if (moved && !first) $(`#${next}`).focus({ preventScroll: true });    // so that keys go to the view, not to its tab
  drawTitle();
}

function drawTitle() {
  document.title = [views[current].title(), store.state.campaign, "anneal"].join(" · ");
}

// ---- header and banner ----

const THEMES = { auto: "light", light: "dark", dark: "auto" };
const GLYPHS = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" };

function drawTheme() {
  const theme = document.documentElement.dataset.theme ?? "auto";
  setText($("#theme"), GLYPHS[theme]);
  $("#theme").setAttribute("aria-label", `Theme: ${theme}`);
  $("#theme").title = `Theme: ${theme}`;
}

function nextTheme() {
  const root = document.documentElement, theme = THEMES[root.dataset.theme ?? "auto"];
  if (theme === "auto") { delete root.dataset.theme; keep.remove("anneal.theme"); }
  else { root.dataset.theme = theme; keep.set("anneal.theme", theme); }
  drawTheme();
}

function drawAnnotator() {
  setText($("#annotator"), store.annotator);
  $("#annotator").setAttribute("aria-label", `Answering as ${store.annotator}. Change`);
}

async function changeAnnotator() {
  const name = await askText({ title: "Who is answering?", label: "Your name", value: store.annotator });
  if (name && name !== store.annotator) setAnnotator(name);
}

function drawHeader(state) {
  setText($("#campaign"), state.campaign);
  const badge = $("#review-count"), { contradictions } = state.standing;
  badge.hidden = !contradictions;
  setText(badge, String(contradictions));
  badge.setAttribute("aria-label", count(contradictions, "contradiction"));
}

function drawBanner() {
  const banner = $("#banner"), waiting = unsentCount();
  // Emptied, not hidden: screen readers read a live region only if it was there before.
  if (connection.kind === "up") return banner.replaceChildren();
  const words = {
    down: connection.text || "No connection to the server.",
    token: "This server needs a token. Open the address with ?token=… that anneal label printed.",
    refused: connection.text,
  }[connection.kind];
  // The count changes with every answer, so it is not read aloud (aria-live=off).
  if (!banner.firstChild) fill(banner, el("span"), " ", el("span", { "aria-live": "off" }));
  const [said, counted] = banner.children;
  setText(said, words);
  const until = connection.kind === "down" ? "and will be sent again" : "until then";
  setText(counted, waiting ? `${count(waiting, "answer is", "answers are")} kept in this browser ${until}.` : "");
}

// ---- what the server did not take ----

let downloaded = false;

function drawAside() {
  const entries = setAsideEntries();
  $("#aside").hidden = !entries.length;
  if (!entries.length) downloaded = false;
  const reasons = [...new Set(entries.map((entry) => entry.error))];
  setText($("#aside-text"), `${count(entries.length, "answer was", "answers were")} not saved: ${reasons.join(" ")}`);
  $("#aside-discard").hidden = !downloaded;
}

/** Answers as anneal import reads them; of an undo or a correction the event as it was sent. */
function downloadAside() {
  const lines = setAsideEntries().map(({ event, annotator, error }) => JSON.stringify({ ...event, annotator, error }));
  const address = URL.createObjectURL(new Blob(lines.map((line) => `${line}\n`), { type: "application/jsonl" }));
  el("a", { href: address, download: "not-saved.jsonl" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
  downloaded = true;
  drawAside();
}

// ---- keys ----

const isTyping = (target) => Boolean(target.closest?.("input, textarea, select, [contenteditable]"));

/** Space and Enter belong to a focused button, Enter to a link. */
function isNative({ key, target }) {
  return (key === " " && target.closest?.("button, summary")) || (key === "Enter" && target.closest?.("button, summary, a"));
}

/** The image that has the focus, or the first of the answer that has it, or the one under the pointer. */
function enlargeAtHand() {
  const focused = document.activeElement;
  const at = focused?.closest("[data-image]") ?? focused?.closest("[data-id]")?.querySelector("[data-image]")
    ?? [...document.querySelectorAll("[data-image]:hover")].at(-1);
  if (at) large.enlargeAmong(at);
}

function onKey(event) {
  if (event.defaultPrevented || event.isComposing || $("dialog[open]") || isTyping(event.target) || isNative(event)) return;
  const action = actionOf(event);
  const act = { help: openHelp, ...(current === "label" ? {} : { enlarge: enlargeAtHand }), ...views[current]?.actions }[action];
  if (!act) return;
  event.preventDefault();
  if (!event.repeat || REPEATING.test(action)) act(event);
}

function openHelp() {
  openKeys();
  $("#help").showModal();
  $("#help").scrollTop = 0;
}

// ---- start ----

/** A press on the backdrop has the dialog as its target but lies outside its box. */
function isBeside({ clientX: x, clientY: y }, dialog) {
  const box = dialog.getBoundingClientRect();
  return x < box.left || x > box.right || y < box.top || y > box.bottom;
}

function listen() {
  $("#theme").addEventListener("click", nextTheme);
  $("#annotator").addEventListener("click", changeAnnotator);
  $("#help-button").addEventListener("click", openHelp);
  $("#reset-keys").addEventListener("click", resetKeys);
  large.start();
  $(".skip").addEventListener("click", (event) => { event.preventDefault(); $(`#${current || "label"}`).focus(); });
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => { if (event.target.closest("[data-close]")) dialog.close(); });
    dialog.addEventListener("mousedown", (event) => { if (event.target === dialog && isBeside(event, dialog)) dialog.close(); });
  }
  // A clicked button in the header or the label view does not take the focus: the space bar is an answer there.
  for (const place of [$("header"), $("#label"), $("#aside")]) {
    place.addEventListener("mousedown", (event) => { if (event.target.closest("button")) event.preventDefault(); });
  }
  on("annotator", () => { drawAnnotator(); heartbeat(); });
  on("state", drawHeader);
  on("connection", drawBanner);
  on("outbox", () => { drawBanner(); drawAside(); });
  $("#aside-again").addEventListener("click", tryAgain);
  $("#aside-download").addEventListener("click", downloadAside);
  $("#aside-discard").addEventListener("click", discard);
  addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) heartbeat(); });
}

async function main() {
  drawTheme();
  drawAnnotator();
  listen();
  await openOutbox();
  for (await heartbeat(); !store.state; await heartbeat()) await sleep(1000);
  $("#wait").remove();
  for (const view of Object.values(views)) view.start();
  learn.start();
  drawBanner();
  drawAside();
  addEventListener("hashchange", route);
  route();
  for (;;) {
    await sleep(document.hidden ? 10000 : 2000);
    await heartbeat();
  }
}

main();
