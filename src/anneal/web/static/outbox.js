// The outbox: answers, undos and corrections wait here (and in localStorage) until the server has confirmed them.
// One loop sends them *and* asks for questions. So a list of questions includes the effect of everything that was
// confirmed before it, and what is still pending here is exactly what it does not include.
import { accept, api, ApiError, connectionLost, emit, keep, setConnection, store, who } from "./api.js";
import { pairId } from "./deck.js";

const SPACE = "anneal.out/", ASIDE = "anneal.refused/", BATCH = 50, AHEAD = 3, FIRST_DELAY = 500, LAST_DELAY = 5000;
const TRIES = 3;           // of one event that the server fails on
const pending = [];        // in the order of sending
const aside = new Map();   // key → event that the server does not take, with the reason
let lastSlot = 0, unsaved = false;
let running = false, wanted = false, failing = false, delay = FIRST_DELAY, batchSize = BATCH;
let posting = 0, posts = 0;      // requests that change the state: on their way, and so far
let hurryUp = () => {};

/** 32 random hexadecimal digits. (crypto.randomUUID is missing where the page is served over plain http.) */
const newKey = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

// ---- the id of this tab: a duplicated tab copies sessionStorage, so an id needs a lock ----

const lockName = (holder) => `anneal/${holder}`;

/** True if this tab now holds that id, until it is closed. */
function hold(holder) {
  if (!navigator.locks) return Promise.resolve(true);
  return new Promise((resolve) => {
    navigator.locks.request(lockName(holder), { ifAvailable: true }, (lock) => {
      resolve(Boolean(lock));
      return lock ? new Promise(() => {}) : undefined;
    }).catch(() => resolve(true));
  });
}

async function claimHolder() {
  let holder = null;
  try { holder = sessionStorage.getItem("anneal.holder"); } catch { /* blocked */ }
  for (let tries = 0; holder && tries < 4; tries += 1) {         // after a reload the old page may still hold it
    if (await hold(holder)) return holder;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  holder = newKey();
  await hold(holder);
  try { sessionStorage.setItem("anneal.holder", holder); } catch { /* blocked */ }
  return holder;
}

// ---- what is stored: one item per event, so that tabs do not overwrite each other ----

function stored(space = SPACE) {
  let slots = [];
  try { slots = Object.keys(localStorage).filter((slot) => slot.startsWith(space)).sort(); } catch { /* blocked */ }
  return slots.flatMap((slot) => {
    try { return [{ ...JSON.parse(keep.get(slot)), slot, holder: slot.slice(space.length).split("/")[0] }]; }
    catch { return []; }
  }).filter((entry) => entry.event?.key);
}

export async function openOutbox() {
  store.holder = await claimHolder();
  pending.push(...stored().filter((entry) => entry.holder === store.holder));
  for (const entry of stored(ASIDE)) aside.set(entry.event.key, entry);
  adopt();
  setInterval(adopt, 15000);
  addEventListener("online", () => hurryUp());
  addEventListener("beforeunload", (event) => { if (unsaved && pending.length + aside.size) event.preventDefault(); });
}

/** Takes over the unsent events of closed tabs. */
function adopt() {
  const known = new Set(pending.map((entry) => entry.slot));
  const left = stored().filter((entry) => entry.holder !== store.holder && !known.has(entry.slot));
  for (const holder of new Set(left.map((entry) => entry.holder))) {
    if (navigator.locks) hold(holder).then((held) => held && take(holder));
    // Without locks it is not known which tabs are open. Sending twice is harmless: wait, so that they can send.
    else take(holder, Date.now() - 30000);
  }
}

function take(holder, before = Infinity) {
  const known = new Set(pending.map((entry) => entry.slot));
  const entries = stored().filter((entry) => entry.holder === holder && !known.has(entry.slot) && entry.put < before);
  pending.push(...entries.map((entry) => ({ ...entry, adopted: true })));
  if (entries.length) wake();
}

// ---- putting in ----

/** note: what the page needs to know about the event ({ pair: [a, b], verdict }); it is not sent. */
export function put(event, note = {}) {
  const entry = { ...note, event: { key: newKey(), ...event }, annotator: store.annotator,
    campaign: store.state.id, put: Date.now() };
  enqueue(entry);
  emit("outbox");
  wake();
  return entry.event.key;
}

function enqueue(entry) {
  lastSlot = Math.max(lastSlot + 1, Date.now());
  const slot = `${SPACE}${store.holder}/${lastSlot}`;
  if (!keep.set(slot, JSON.stringify(entry))) unsaved = true;
  pending.push({ ...entry, slot });
}

const ours = () => pending.filter((entry) => entry.campaign === store.state?.id);
export const unsentCount = () => ours().length;

/** What the unconfirmed events will change: pairs closed, pairs reopened, counts. A pair whose answer was set aside
    is not shown again. */
export function unsent() {
  const closed = new Set(setAsideEntries().filter(({ pair }) => pair).map(({ pair }) => pairId(...pair)));
  const reopened = new Set();
  const tally = { answers: 0, similar: 0, dissimilar: 0, unsure: 0 };
  for (const { event, pair, verdict } of ours()) {
    if (!pair) continue;
    const undone = "undoes" in event, id = pairId(...pair);
    (undone ? reopened : closed).add(id);
    (undone ? closed : reopened).delete(id);
    tally.answers += undone ? -1 : 1;
    tally[verdict] += undone ? -1 : 1;
  }
  return { closed, reopened, tally };
}

/** Corrections on their way: answer id → verdict. */
export const corrections = () =>
  new Map(ours().filter(({ event }) => "of" in event).map(({ event }) => [event.of, event.verdict]));

// ---- sending ----

/** Asks for a new list of questions, after everything that is pending. */
export function want() {
  wanted = true;
  wake();
}

/** In a task of its own: a key press does not wait for it, and a loop that is ending has ended by then. */
const wake = () => setTimeout(flush, 0);

async function flush() {
  if (running || !store.state) return;
  running = true;
  try { while (await step()); } finally { running = false; }
}

function nextBatch() {
  const [first, ...rest] = ours();
  if (!first) return [];
  const end = rest.findIndex((entry) => entry.annotator !== first.annotator);
  return [first, ...rest.slice(0, end < 0 ? undefined : end)].slice(0, batchSize);
}

/** A server that cannot tell its state may still take answers. */
function pass(error) {
  if (!(error.status >= 500)) throw error;
}

/** One request. False: nothing is left to do. */
async function step() {
  let batch = [];
  try {
    if (failing) await poll().catch(pass);       // the server may serve another campaign now
    batch = nextBatch();
    if (!batch.length && !wanted) {
      batchSize = BATCH;
      if (failing) recovered();
      return false;
    }
    await (batch.length ? send(batch) : ask());
    recovered();
  } catch (error) {
    if (batch.length && (error.status === 400 || error.status === 422)) refuse(batch, error);
    else {
      if (batch.length && error.status === 500) failedOn(batch, error);
      await retryLater(error);
    }
  }
  return true;
}

function recovered() {
  [failing, delay] = [false, FIRST_DELAY];
  setConnection("up");
}

async function retryLater(error) {
  failing = true;
  connectionLost(error);
  await new Promise((resolve) => {
    const timer = setTimeout(resolve, delay);
    hurryUp = () => { clearTimeout(timer); resolve(); };
  });
  delay = Math.min(delay * 2, LAST_DELAY);
}

/** A request that changes the state. A state that was asked for before it, or meanwhile, is dropped. */
export async function change(path, options) {
  posts += 1;
  posting += 1;
  try { return await api(path, options); } finally { posting -= 1; }
}

async function send(batch) {
  const { annotator } = batch[0];
  const mine = posts + 1;
  const reply = await change("/api/answers", { method: "POST",
    json: { campaign: batch[0].campaign, annotator, holder: store.holder, n: AHEAD, events: batch.map((entry) => entry.event) } });
  const named = new Map(reply.done.map((result) => [result.key, result]));
  const done = batch.filter((entry) => named.has(entry.event.key));
  if (!done.length) throw new ApiError(0, "The server did not confirm any answer.");
  for (const entry of done) {
    const result = named.get(entry.event.key);
    if (result.error) setAside(entry, result.error); else drop(entry);
    emit("done", { entry, result });
  }
  emit("outbox");
  if (reply.problem) {                     // the answers are saved, but there is no question
    wanted = true;
    throw new ApiError(503, reply.problem);
  }
  if (posts === mine) accept(reply.state);
  if (annotator === store.annotator) { wanted = false; emit("questions", reply.questions); } else wanted = true;
}

async function ask() {
  const { annotator } = store;
  const { questions } = await api(`/api/questions?${who({ n: AHEAD })}`);
  if (annotator !== store.annotator) return;     // still wanted, for the other person
  wanted = false;
  emit("questions", questions);
}

function drop(entry) {
  pending.splice(pending.indexOf(entry), 1);
  keep.remove(entry.slot);
}

// ---- events that the server does not take: kept apart, shown, and sent again only if the person says so ----

/** The server cannot read an event of this batch: find out which one, and set it aside. */
function refuse(batch, error) {
  if (batch.length > 1) { batchSize = 1; return; }
  const [entry] = batch;
  setAside(entry, error.message);
  emit("outbox");
  emit("done", { entry, result: { key: entry.event.key, error: error.message } });
}

/** The server fails on an event of this batch. The fault may pass, so one that is alone is tried a few times. */
function failedOn(batch, error) {
  if (batch.length > 1) { batchSize = 1; return; }
  batch[0].tries = (batch[0].tries ?? 0) + 1;
  if (batch[0].tries >= TRIES) refuse(batch, error);
}

function setAside(entry, error) {
  const { event, annotator, campaign, put: at, pair, verdict } = entry;
  const kept = { event, annotator, campaign, put: at, pair, verdict, error };
  aside.set(event.key, kept);
  if (!keep.set(ASIDE + event.key, JSON.stringify(kept))) unsaved = true;
  drop(entry);
}

/** What was set aside in this campaign, oldest first. */
export const setAsideEntries = () =>
  [...aside.values()].filter((entry) => entry.campaign === store.state?.id).sort((one, two) => one.put - two.put);

export function tryAgain() {
  for (const { error, ...entry } of setAsideEntries()) {
    enqueue(entry);
    forget(entry);
  }
  emit("outbox");
  wake();
}

/** Drops what was set aside; the page lets the person save it first. */
export function discard() {
  setAsideEntries().forEach(forget);
  emit("outbox");
}

function forget({ event }) {
  aside.delete(event.key);
  keep.remove(ASIDE + event.key);
}

/** Fetches the state; not while a change is on its way, whose reply is newer. */
export async function poll() {
  if (posting) return;
  const before = posts;
  const state = await api(`/api/state?${who()}`);
  if (posts === before) accept(state);
}

/** Polls, and notes whether the server is there. */
export async function heartbeat() {
  try {
    await poll();
    if (!failing) setConnection("up");
    hurryUp();
    if (pending.length) wake();
  } catch (error) {
    if (!failing) connectionLost(error);
  }
}
