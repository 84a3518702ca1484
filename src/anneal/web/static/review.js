// The review view: contradictions, then all answers; every verdict can be changed here, also by the keys of the label view.
import { api, imageUrl, on, store } from "./api.js";
import { $, count, el, fill, notice, number, setText } from "./dom.js";
import { enlargeAmong } from "./large.js";
import { corrections, put } from "./outbox.js";

const PAGE = 50;
const VERDICTS = [["similar", "Similar"], ["dissimilar", "Dissimilar"], ["unsure", "Unsure"], ["none", "Withdraw"]];
const when = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const OPPOSITE = { similar: "dissimilar", dissimilar: "similar" };
const past = [];              // { key, id, before, verdict } of corrections made here, oldest first
const undone = new Map();     // key → the correction, until the server has taken it back
let active = false, turn = 0, contradictionTurn = 0, loaded = 0, contradictions = 0, typing = 0;

// ---- one answer ----

function thumb(id, name) {
  return el("button", { type: "button", class: "thumb", title: name, data: { image: id, name }, onclick: (event) => enlargeAmong(event.currentTarget) },
    el("img", { src: imageUrl(id), alt: name, loading: "lazy", decoding: "async" }));
}

/** The verdict that the model disagrees with, if it has an opinion. */
const doubted = ({ verdict, doubt }) => (doubt ? (doubt > 0 ? verdict : OPPOSITE[verdict]) : undefined);

function words(row, now) {
  const { annotator, answered, looked, score } = row;
  const date = new Date(answered * 1000);
  return [annotator, " · ", el("time", { datetime: date.toISOString() }, when.format(date)),
    looked !== null && ` · looked ${(looked / 1000).toFixed(1)} s`, score !== null && ` · similarity ${score.toFixed(2)}`,
    el("strong", { hidden: now !== doubted(row), data: { doubted: doubted(row) ?? "" } }, " · the model disagrees")];
}

/** kind: "answer" in the list, "claim" on a contradiction's card. */
function answerRow(row, kind, tag) {
  const now = corrections().get(row.id) ?? row.verdict;
  return el(tag, { class: kind, tabindex: -1, data: { id: row.id } },
    el("div", { class: "pair" }, thumb(row.a, row.names[0]), thumb(row.b, row.names[1])),
    el("div", { class: "about" },
      el("p", { class: "name", title: row.names.join("  ·  ") }, row.names[0], el("br"), row.names[1]),
      el("p", { class: "muted" }, ...words(row, now))),
    el("div", { class: "choice", role: "group", "aria-label": `Verdict for ${row.names.join(" and ")}` },
      ...VERDICTS.map(([verdict, text]) => el("button", { type: "button", data: { verdict }, "aria-pressed": String(verdict === now),
        onclick: () => correct(row.id, verdict) }, text))));
}

const press = (id, verdict) => {
  for (const row of document.querySelectorAll(`#review [data-id="${id}"]`)) {
    for (const button of row.querySelectorAll("[data-verdict]")) {
      button.setAttribute("aria-pressed", String(button.dataset.verdict === verdict));
    }
    $("[data-doubted]", row).hidden = $("[data-doubted]", row).dataset.doubted !== verdict;
  }
};

function correct(id, verdict) {
  const before = $(`#review [data-id="${id}"] [aria-pressed="true"]`)?.dataset.verdict;
  if (before === verdict) return;
  past.push({ key: put({ of: id, verdict }), id, before, verdict });
  press(id, verdict);
}

/** Takes the last correction of this visit back. */
function undo() {
  const last = past.pop();
  if (!last) return setText($("#review-status"), "Nothing was changed here that could be undone.");
  undone.set(last.key, last);
  put({ undoes: last.key });
  press(last.id, last.before);
  setText($("#review-status"), `Undone: ${last.verdict === "none" ? "withdrawn" : last.verdict}. It is ${last.before} again.`);
  $(`#review [data-id="${last.id}"]`)?.focus();
}

on("done", ({ entry: { event }, result }) => {
  const back = undone.get(event.undoes);
  if (!active || !("of" in event || back)) return;
  undone.delete(event.undoes);
  if (result.error) reload();                        // app.js shows what was not saved
  else if (back) press(back.id, back.before);
  else if (!corrections().has(event.of)) press(event.of, result.verdict ?? event.verdict);
  loadContradictions();
});

// ---- by keyboard ----

const rowAtHand = () => document.activeElement?.closest("#review [data-id]");

function go(step) {
  const rows = [...document.querySelectorAll("#review [data-id]")];
  const at = rows.indexOf(rowAtHand());
  const to = rows[at < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, at + step))];
  to?.focus({ preventScroll: true });
  to?.scrollIntoView({ block: "nearest" });
}

const say = (verdict) => () => { const row = rowAtHand(); if (row) correct(Number(row.dataset.id), verdict); };

export const actions = {
  next: () => go(1),
  previous: () => go(-1),
  similar: say("similar"),
  dissimilar: say("dissimilar"),
  unsure: say("unsure"),
  withdraw: say("none"),
  undo,
};

// ---- contradictions ----

async function loadContradictions() {
  const mine = ++contradictionTurn;
  const sets = await api("/api/contradictions").catch(() => null);       // the banner tells of a lost connection
  if (!sets || mine !== contradictionTurn) return;
  const box = $("#contradictions"), inside = box.contains(document.activeElement);
  const focused = document.activeElement;
  const id = inside && focused.closest("[data-id]")?.dataset.id;
  const again = id && `#cards [data-id="${id}"]${focused.dataset.verdict ? ` [data-verdict="${focused.dataset.verdict}"]` : ""}`;
  fill($("#cards"), ...sets.map(({ answers }, index) =>
    el("article", { class: "contradiction", "aria-label": `Contradiction ${index + 1}` },
      ...answers.map((row) => answerRow(row, "claim", "div")))));
  box.hidden = !sets.length;
  if (inside) ((again && $(again)) || (sets.length ? $("h2", box) : $("#review"))).focus();
}

// ---- the list ----

function filters() {
  const { verdict, annotator, pair, doubtful } = $("#filters").elements;
  return { verdict: verdict.value, annotator: annotator.value, pair: pair.value.trim(), doubtful: doubtful.checked };
}

const fetchPage = (chosen, offset) => api(`/api/answers?${new URLSearchParams({ ...chosen, offset, limit: PAGE })}`);

async function load(offset) {
  const mine = ++turn;
  const list = $("#answers");
  list.setAttribute("aria-busy", "true");
  try {
    const page = await fetchPage(filters(), offset);
    if (mine !== turn) return;
    // New answers move the pages on, so a row may come twice.
    const known = new Set(offset ? [...list.children].map((row) => row.dataset.id) : []);
    const rows = page.answers.filter((row) => !known.has(String(row.id))).map((row) => answerRow(row, "answer", "li"));
    if (offset) list.append(...rows); else fill(list, ...rows);
    loaded = offset + page.answers.length;
    $("#more-answers").hidden = !page.answers.length || loaded >= page.total;
    const shown = `${count(page.total, "answer")}, ${number(list.children.length)} shown`;
    setText($("#review-status"), page.total ? shown : "No answers of this kind.");
    drawAnnotators(page.annotators);
    if (offset) rows[0]?.querySelector("button").focus();
  } catch (error) {
    if (mine === turn) setText($("#review-status"), error.message);
  } finally {
    if (mine === turn) list.removeAttribute("aria-busy");
  }
}

const reload = () => load(0);

function drawAnnotators(names) {
  const select = $("#filters").elements.annotator, chosen = select.value;
  const known = [...select.options].slice(1).map((option) => option.value);
  if (known.join("\n") === names.join("\n")) return;
  fill(select, select.options[0], ...names.map((name) => el("option", { value: name }, name)));
  select.value = names.includes(chosen) ? chosen : "";
}

async function askAgain() {
  const button = $("#again");
  button.disabled = true;
  try {
    const ids = [], { annotator } = filters();
    for (let more = true; more;) {
      const page = await fetchPage({ verdict: "unsure", annotator }, ids.length);
      ids.push(...page.answers.map((row) => row.id));
      more = page.answers.length > 0 && ids.length < page.total;
    }
    const asked = ids.length ? (await api("/api/again", { method: "POST", json: { annotator: store.annotator, ids } })).asked : 0;
    if (ids.length) await reload();
    setText($("#review-status"), asked ? `${count(asked, "pair")} will be asked again.` : "There are no unsure answers.");
  } catch (error) {
    notice(error.message);
  } finally {
    button.disabled = false;
  }
}

// ---- the view ----

export const title = () => "Review";

export function start() {
  const form = $("#filters");
  form.addEventListener("submit", (event) => { event.preventDefault(); reload(); });
  form.addEventListener("input", (event) => {
    clearTimeout(typing);
    typing = setTimeout(reload, event.target.name === "pair" ? 250 : 0);
  });
  $("#more-answers").addEventListener("click", () => load(loaded));
  $("#again").addEventListener("click", askAgain);
  on("state", ({ standing }) => {
    if (active && standing.contradictions !== contradictions) loadContradictions();
    contradictions = standing.contradictions;
  });
}

export function enter() {
  active = true;
  reload();
  loadContradictions();
}

export function leave() {
  active = false;
  past.length = 0;
}
