// The label view: shows a pair, takes the verdict, shows the next pair in the same frame.
import { api, connection, imageUrl, on, store } from "./api.js";
import { Deck } from "./deck.js";
import { $, announce, askText, count, el, fill, notice, number, percent, setBar, setText } from "./dom.js";
import { keysOf, pretty } from "./keys.js";
import { idsOf, sheetKey, sheetWords, showSheet } from "./sheet.js";
import { change, poll, put, unsent, want } from "./outbox.js";
import { zoomable } from "./zoom.js";

const FEW = 2, AT_ONCE = 2, KEPT = 20;     // pairs: fewer than this ask for more, loaded at once, kept loaded for undo
const SWIPES = { right: "similar", left: "dissimilar", up: "unsure" };
const deck = new Deck();
const stage = $("#stage"), left = $("#label-left"), right = $("#label-right");
const zoom = zoomable(stage, (way, event) => answer(SWIPES[way], event));

let active = false, asked = false;         // asked: a list of questions has come
let shownAt = 0, paintedAt = 0, awayAt = null;
window.annealPaint = [];

// ---- images ----

/** decoding=sync: the first frame with the element shows its picture too. */
function newImage(id, alt) {
  const image = Object.assign(new Image(), { alt, draggable: false, decoding: "sync", src: imageUrl(id) });
  image.dataset.image = id;
  return image;
}

const imagesOf = (item) => (item.images ??= item.tiles
  ? idsOf(item).map((id, index) => newImage(id, index ? "Another image of this group" : "The image to compare with"))
  : [newImage(item.a, "Left image"), newImage(item.b, "Right image")]);

/** Loads the shown pair and the next ones, a few at a time, so that answers do not wait behind images. */
function pump() {
  document.body.dataset.ahead = deck.next.filter((pair) => pair.ready).length;
  const pairs = deck.shown ? [deck.shown, ...deck.next] : deck.next;
  let loading = pairs.filter((pair) => pair.loading).length;
  for (const pair of pairs) {
    if (loading >= AT_ONCE) return;
    if (pair.ready || pair.loading || pair.after > Date.now()) continue;
    loading += 1;
    load(pair);
  }
}

async function load(pair) {
  pair.loading = true;
  try {
    await Promise.all(imagesOf(pair).map((image) => image.decode()));
    pair.ready = true;
  } catch {
    const wait = Math.min(500 * 2 ** pair.tries, 5000);
    Object.assign(pair, { images: null, tries: pair.tries + 1, after: Date.now() + wait });
    setTimeout(pump, wait + 10);
  }
  pair.loading = false;
  if (pair === deck.shown) mount();
  else showNextIfNone();
  pump();
}

// ---- showing ----

/** An animation frame comes before the paint; a message sent in it comes after, when the pair can be seen. */
function afterPaint(then) {
  requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => { port1.close(); then(performance.now()); };
    port2.postMessage(null);
  });
}

function mount() {
  const pair = deck.shown;
  const isSheet = Boolean(pair?.tiles);
  if (isSheet !== !$("#sheet").hidden || isSheet) showSheet(isSheet && pair.ready ? pair : null);
  const [one, two] = pair && !isSheet ? imagesOf(pair) : [];
  if (left.firstChild !== (one ?? null)) fill(left, one);
  if (right.firstChild !== (two ?? null)) fill(right, two);
  stage.classList.toggle("loading", Boolean(pair) && !pair.ready);
  for (const button of document.querySelectorAll("#label [data-verdict]")) {
    button.setAttribute("aria-disabled", String(!pair?.ready));
    button.classList.toggle("was", pair?.undone === button.dataset.verdict);
  }
}

/** Shows the deck's pair; event: the key press or touch before it, to measure how long it took. */
function show(event) {
  const pair = deck.shown;
  zoom.reset();
  mount();
  setText($("#question"), questionWords(pair));
  document.body.dataset.pair = pair && !pair.tiles ? `${pair.a}-${pair.b}` : "";
  document.body.dataset.sheet = pair?.sheet ?? "";
  drawEmpty();
  if (pair) {
    shownAt = Date.now();
    paintedAt = performance.now();
    awayAt = active && !document.hidden ? null : paintedAt;
    afterPaint((now) => {
      if (deck.shown === pair && awayAt === null) paintedAt = now;
      if (event && window.annealPaint.push(now - event.timeStamp) > 1000) window.annealPaint.shift();
    });
  }
  pump();
}

function questionWords(item) {
  if (item?.tiles) return `${item.undone ? "Undone. " : ""}${sheetWords(item)}`;
  if (item?.undone) return undoneWords(item);
  return item?.again ? `Asked again, because ${item.again}: are these two similar?` : "Are these two similar?";
}

function showNextIfNone() {
  if (active && !deck.shown && deck.advance()) show();
  drawEmpty();
}

// ---- answering ----

function answer(verdict, event) {
  const pair = deck.shown;
  if (!pair?.ready || pair.tiles) return;
  give([pair], verdict, event, () => ({ verdict }));
}

/** The tiles of a sheet, as they are marked. Each is an answer, with its share of the time. */
function confirm(event) {
  const sheet = deck.shown;
  if (sheet?.ready && sheet.tiles) give(sheet.tiles, "sheet", event, ({ verdict, guess }) => ({ verdict, guess, sheet: sheet.sheet }));
}

/** Sends an answer for each of these pairs, which are what is shown, and shows what comes next. */
function give(pairs, said, event, aboutPair) {
  const looked = Math.max(0, Math.round(((event?.timeStamp || performance.now()) - paintedAt) / pairs.length));
  deck.answer(pairs.map((pair) => {
    const { a, b } = pair, about = aboutPair(pair);
    return put({ a, b, asked: shownAt, looked, ...about }, { pair: [a, b], verdict: about.verdict });
  }), said);
  deck.advance();
  show(event);
  const old = deck.past.at(-KEPT - 1)?.pair;
  if (old) Object.assign(old, { images: null, ready: false });
}

/** What was undone; "answer" stands for a verdict that this page does not know. */
const undoneWords = ({ undone }) => `Undone: your ${undone === "answer" ? undone : `“${undone}”`}. Are these two similar?`;

/** Asks about the tiles of the sheet one at a time. */
function singly() {
  deck.singly();
  deck.advance();
  show();
}

function undo(event) {
  const last = deck.undo();
  if (last) {
    const pairs = last.pair.tiles ?? [{ ...last.pair, verdict: last.verdict }];
    pairs.forEach(({ a, b, verdict }, index) => put({ undoes: last.keys[index] }, { pair: [a, b], verdict }));
    last.pair.undone = last.verdict;
    show(event);
    announce(questionWords(last.pair));
  } else {
    put({ undoes: null });       // an answer from before this page was opened: the server names the pair
    if (connection.kind !== "up") announce("It will be undone when the server is back");
  }
}

on("done", ({ entry: { event, adopted }, result }) => {
  if (result.error) {
    deck.forget(event.key);        // app.js shows what was not saved
  } else if (event.undoes === null && !adopted) {
    if (result.a === null || result.a === undefined) {
      if (deck.shown) setText($("#question"), "There is nothing to undo. Are these two similar?");
      return announce("There is nothing to undo");
    }
    deck.show({ a: result.a, b: result.b });
    deck.shown.undone = result.was ?? "answer";
    show();
    announce(undoneWords(deck.shown));
  }
});

on("questions", (questions) => {
  asked = true;
  deck.renew(questions, unsent());
  showNextIfNone();
  pump();
});

on("annotator", () => {
  deck.clear();
  asked = false;
  show();
  if (active) want();
});

// ---- time away does not count as time looked ----

function away() { awayAt ??= performance.now(); }
function returned() {
  if (awayAt === null || !active || document.hidden) return;
  paintedAt += performance.now() - awayAt;
  awayAt = null;
}

// ---- text around the images ----

/** What to say when there is no pair to show. */
export function emptyWords(state, { kind }, isAsked, loading) {
  const { machine, others } = state;
  if (kind !== "up") return ["Waiting for the server", "Labelling goes on as soon as it is back."];
  if (loading) return ["Loading the next images…", ""];
  if (!isAsked) return ["Fetching questions…", ""];
  if (others > 0) return ["No question for you right now", "The open pairs are on other screens. This page keeps looking."];
  if (machine.state === "learning") return ["The machine is learning from your answers", "New questions may follow."];
  if (machine.wanted || (machine.fresh > 0 && !machine.refusal && machine.state === "idle")) {
    return ["No question is left", "The machine is about to learn from your last answers. New questions may follow."];
  }
  if (machine.fresh > 0 && !machine.refusal) return ["No question is left", machine.text];
  const learnt = machine.fresh > 0 ? "" : "The machine has learnt from every answer.";
  return ["Everything is settled", `No question is left. ${learnt} What now?`.replace("  ", " ")];
}

function drawEmpty() {
  const { state } = store;
  const empty = $("#empty");
  empty.hidden = Boolean(deck.shown);
  if (deck.shown || !state) return;
  const [title, text] = emptyWords(state, connection, asked, deck.next.length > 0);
  setText($("#empty-title"), title);
  setText($("#empty-text"), text.trim());
  const bar = $("#empty-bar");
  bar.hidden = state.machine.state !== "learning" || deck.next.length > 0;
  setBar(bar, state.machine.done, state.machine.total);
}

function drawStatus() {
  const { state } = store;
  if (!state) return;
  const { standing, machine, share, aim, yours, advice } = state;
  const { tally } = unsent();
  const sum = (name) => Math.max(0, standing[name] + tally[name]);
  setText($("#criterion"), state.criterion ? `— ${state.criterion}` : "— what counts as similar is not written down yet");
  $("#criterion").title = state.criterion;
  const waiting = standing.waiting ? `, ${number(standing.waiting)} asked again` : "";
  setText($("#tally"), count(sum("answers"), "answer") + waiting);
  $("#tally").dataset.answers = sum("answers");
  const parts = ["similar", "dissimilar", "unsure"].map((name) => `${number(sum(name))} ${name}`);
  setText($("#breakdown"), [...parts, `${number(standing.implied)} implied`].join(" · "));
  const aimed = aim ? `(aim ${Math.round(aim[0] * 100)}–${percent(aim[1])})` : "";
  setText($("#share"), share === null ? "" : `lately ${percent(share)} similar ${aimed}`);
  drawMeter(share, aim);
  $("#sheets").hidden = state.sheets === null;
  $("#sheets input").checked = Boolean(state.sheets);
  setText($("#pace"), yours?.per_minute ? `${number(Math.round(yours.per_minute))} a minute` : "");
  setText($("#round"), `round ${standing.rounds}`);
  const busy = machine.state === "learning";
  setText($("#machine"), machine.text);
  $("#machine").title = machine.text;
  $("#machine").dataset.state = machine.state;
  const bar = $("#machine-bar");
  bar.classList.toggle("still", !busy);
  if (busy) setBar(bar, machine.done, machine.total); else setBar(bar, machine.fresh, machine.needed || 1);
  $("#contradicting").hidden = !standing.contradictions;      // a link without text must not be there
  setText($("#contradicting"), count(standing.contradictions, "contradiction"));
  $("#stop").hidden = !advice;
  $("#stop").classList.toggle("now", Boolean(advice?.stop));
  setText($("#stop"), advice?.text ?? "");
  $("#stop").title = advice?.text ?? "";
}

function drawMeter(share, aim) {
  const meter = $("#meter"), [low, high] = aim ?? [0, 0];
  meter.hidden = share === null;
  $(".aim", meter).style.left = `${low * 100}%`;
  $(".aim", meter).style.width = `${(high - low) * 100}%`;
  $(".now", meter).style.left = `${(share ?? 0) * 100}%`;
}

function drawKeyHints() {
  const buttons = [...document.querySelectorAll("#label [data-verdict]"), $("#undo")];
  for (const button of buttons) {
    const keys = keysOf(button.dataset.verdict ?? "undo");
    setText($("kbd", button), keys.length ? pretty(keys[0]) : "");
    button.setAttribute("aria-keyshortcuts", keys.map((key) => key.replace("Ctrl", "Control")).join(" "));
  }
}

async function editCriterion() {
  const text = await askText({ title: "What counts as similar?", label: "Two images are similar if they show the …",
    value: store.state.criterion });
  if (text === null) return;
  try {
    store.state.criterion = (await change("/api/criterion", { method: "PUT", json: { text } })).criterion;
    drawStatus();
  } catch (error) { notice(error.message); }
}

async function switchSheets(event) {
  const before = store.state.sheets;
  store.state.sheets = event.target.checked;           // what is drawn meanwhile must not switch it back
  try {
    store.state.sheets = (await change("/api/sheets", { method: "PUT", json: { on: store.state.sheets } })).on;
    if (!store.state.sheets && deck.shown?.tiles) singly();
    want();
  } catch (error) {
    store.state.sheets = before;
    notice(error.message);
  }
  drawStatus();
}

/** Offers other bands for display, if the files have more than three. */
async function offerBands() {
  let reading;
  try { reading = await api("/api/reading"); } catch { return; }
  $("#reading").hidden = !reading.choices.length;
  $("#bands").title = reading.told ? `The archive is read with ${reading.told}` : "";
  const options = [{ bands: "", text: "as read" }, ...reading.choices];
  fill($("#bands"), ...options.map(({ bands, text }) => el("option", { value: bands }, text)));
}

function showBands(event) {
  store.bands = event.target.value;
  zoom.reset();
  const pairs = [deck.shown, ...deck.next, ...deck.past.map(({ pair }) => pair)];
  for (const pair of pairs) if (pair) Object.assign(pair, { images: null, ready: false });
  if (deck.shown) mount();
  pump();
}

/** Enter confirms a sheet; other keys mark its tiles. */
function onSheetKey(event) {
  const control = event.target.closest?.("button, a, input, select, textarea, dialog, summary");
  if (!active || !deck.shown?.tiles || (control && !control.matches(".tile"))) return;
  if (event.key === "Enter" && !event.repeat) confirm(event);
  else if (!sheetKey(event)) return;
  event.preventDefault();
  event.stopPropagation();
}

// ---- the view ----

export const title = () => "Label";

export const actions = {
  similar: (event) => answer("similar", event),
  dissimilar: (event) => answer("dissimilar", event),
  unsure: (event) => answer("unsure", event),
  undo,
  ...zoom.actions,
};

export function start() {
  for (const button of document.querySelectorAll("#label [data-verdict]")) {
    button.addEventListener("click", (event) => answer(button.dataset.verdict, event));
  }
  $("#undo").addEventListener("click", undo);
  $("#confirm").addEventListener("click", confirm);
  $("#singly").addEventListener("click", singly);
  addEventListener("keydown", onSheetKey, { capture: true });      // before app.js gives the key another meaning
  $("#edit-criterion").addEventListener("click", editCriterion);
  $("#bands").addEventListener("change", showBands);
  $("#sheets input").addEventListener("change", switchSheets);
  offerBands();
  document.addEventListener("visibilitychange", () => (document.hidden ? away() : returned()));
  let round = store.state?.standing.rounds;
  on("state", (state) => {
    drawStatus();
    drawEmpty();
    if (active && state.standing.rounds !== round) want();      // the pairs loaded ahead are of the old round
    round = state.standing.rounds;
  });
  on("outbox", drawStatus);
  on("connection", drawEmpty);
  on("keys", drawKeyHints);
  setInterval(() => {
    if (!active || document.hidden || connection.kind !== "up") return;
    if (deck.next.length < FEW) want();
    if (!deck.shown) poll().catch(() => {});     // app.js polls too, and shows a lost connection
  }, 1000);
  mount();
  drawKeyHints();
  drawStatus();
}

export function enter() {
  active = true;
  returned();
  want();
  showNextIfNone();
}

export function leave() {
  active = false;
  away();
}
