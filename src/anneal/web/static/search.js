// The search view: all images, or the nearest to a query (an image of the archive, or a file), refined by + and −.
import { api, imageUrl, on, store, thumbUrl } from "./api.js";
import { $, count, el, fill, notice, number, setText, sleep } from "./dom.js";
import { learnName, makeGrid, nameOf, wantName } from "./grid.js";
import * as hits from "./hits.js";
import { enlarge, enlargeAmong } from "./large.js";
import * as teach from "./teach.js";

const LARGEST = 32 * 1024 * 1024, STEP = 60, POLL = 300;
let active = false, turn = 0, typing = 0, k = STEP, cutoff = null, modelCutoff = null;
let query = null;         // { image: id } or { upload: qid, name }, with plus and minus: arrays of ids
let answered = null;      // the query whose results are drawn
let drawn = null;         // the version of the archive that the grid shows
const grid = makeGrid($("#grid"), (id) => { location.hash = `#search/${id}`; });

// ---- the query is in the address: #search/12?plus=3,4&minus=5 or #search/q-QID?name=harbour.tif ----

export function parse(rest) {
  const [target, search = ""] = rest.split("?");
  const params = new URLSearchParams(search);
  const ids = (name) => (params.get(name) ?? "").split(",").filter((id) => /^\d+$/.test(id)).map(Number);
  const refined = { plus: ids("plus"), minus: ids("minus") };
  if (/^\d+$/.test(target)) return { image: Number(target), ...refined };
  if (target.startsWith("q-")) return { upload: target.slice(2), name: params.get("name") ?? "", ...refined };
  return null;
}

function address({ image, upload, name, plus = [], minus = [] }) {
  const parts = [name && `name=${encodeURIComponent(name)}`, plus.length && `plus=${plus.join()}`, minus.length && `minus=${minus.join()}`]
    .filter(Boolean);
  return `#search/${upload ? `q-${upload}` : image}${parts.length ? `?${parts.join("&")}` : ""}`;
}

const sameTarget = (one, two) => one && two && one.image === two.image && one.upload === two.upload;
const queryImage = ({ image, upload }) => (upload ? `/api/queries/${encodeURIComponent(upload)}/image` : imageUrl(image));
const queryName = ({ image, upload, name }) => (upload ? name || "Your image" : nameOf(image));

// ---- asking ----

const say = (text) => setText($("#search-status"), text);

/** All images, drawn anew when the archive has changed. */
async function drawGrid() {
  const { images, archive } = store.state;
  if (archive.version === drawn) return;
  const before = drawn;
  drawn = archive.version;
  try {
    const some = archive.removed + archive.changed + archive.duplicate + archive.near;
    grid.setImages(images, some ? await api("/api/retired") : []);
    if (!query) say(count(images, "image"));
  } catch (error) {
    drawn = before;                                      // tried again with the next state
    if (error.status > 0) notice(error.message);
  }
}

/** Images with a text in their names, in place of the grid. */
async function findByName() {
  const text = $("#find").value.trim();
  if (query) { if (text) location.hash = "#search"; return; }      // enter() comes back here
  const mine = ++turn;
  $("#found").hidden = !text;
  $("#grid").hidden = Boolean(text);
  if (!text) return showAll();
  try {
    const { total, results } = await api(`/api/find?${new URLSearchParams({ name: text })}`);
    if (mine !== turn) return;
    for (const { id, name } of results) learnName(id, name);
    fill($("#found"), ...results.map(foundItem));
    const shown = total > results.length ? `, the first ${number(results.length)} shown` : "";
    say(total ? `${count(total, "image")} with “${text}” in the name${shown}` : `No image has “${text}” in its name or folder`);
  } catch (error) {
    if (mine === turn) notice(error.message);
  }
}

function foundItem({ id, name }) {
  return el("li", { data: { image: id, name } },
    el("button", { type: "button", class: "thumb", title: name, onclick: () => { location.hash = `#search/${id}`; } },
      el("img", { src: thumbUrl(id), alt: name, loading: "lazy", decoding: "async" })),
    el("p", { class: "name", title: name }, name));
}

function showAll() {
  say(count(store.state.images, "image"));
  $("#results").replaceChildren();
  answered = null;
}

async function find() {
  const mine = ++turn, asking = query;
  const current = () => mine === turn;
  const results = $("#results");
  results.setAttribute("aria-busy", "true");
  if (!sameTarget(asking, answered)) results.replaceChildren();
  drawQuery();
  try {
    if (asking.upload) await encoded(asking.upload, current);
    if (!current()) return;
    if (asking.upload) $("#query-image").src = queryImage(asking);
    say("Searching…");
    const target = asking.upload ? { query: asking.upload } : { image: asking.image };
    const params = new URLSearchParams({ ...target, plus: asking.plus, minus: asking.minus, k });
    const data = await api(`/api/search?${params}`, { timeout: 60000 });
    if (!current()) return;
    answered = asking;
    drawResults(data);
    say(data.round === null ? "By the model before training" : `By the model of round ${data.round}`);
  } catch (error) {
    if (!current()) return;
    say("");
    setText($("#shown-count"), "");
    setText($("#results-note"), "");
    notice(error.status === 404 && asking.upload ? "That image is no longer here. Drop it again." : error.message);
  } finally {
    if (current()) results.removeAttribute("aria-busy");
  }
}

/** Waits until the machine has encoded an uploaded image. */
async function encoded(id, current) {
  for (let failures = 0; current();) {
    let reply = null;
    try {
      reply = await api(`/api/queries/${encodeURIComponent(id)}`);
    } catch (error) {
      failures += 1;
      if ((error.status > 0 && error.status < 500) || failures > 20) throw error;
    }
    if (reply?.state === "ready") return;
    if (reply?.state === "failed") throw new Error(reply.text || "The machine could not read this image.");
    say(`The machine is encoding your image. ${reply?.text ?? ""}`.trim());
    await sleep(POLL);
  }
}

async function upload(file) {
  if (!file) return;
  if (file.size > LARGEST) return notice(`${file.name} is larger than 32 MB. Choose a smaller image, or a part of it.`);
  say("Sending your image…");
  try {
    const type = file.type || "application/octet-stream";
    const { id } = await api("/api/queries", { method: "POST", body: file, type, timeout: 120000 });
    if (!active) return;                               // another view is open now
    if (query?.upload === id) find(); else location.hash = address({ upload: id, name: file.name });
  } catch (error) {
    say("");
    notice(error.message);
  }
}

function refine(id, into) {
  const out = into === "plus" ? "minus" : "plus";
  const without = (list) => list.filter((one) => one !== id);
  const had = query[into].includes(id);
  query = { ...query, [out]: without(query[out]), [into]: had ? without(query[into]) : [...query[into], id] };
  history.replaceState(null, "", address(query));      // "back" skips refinements
  find();
}

// ---- drawing ----

function drawQuery() {
  const image = $("#query-image");
  if (query.upload && !sameTarget(query, answered)) image.removeAttribute("src");      // there is none before it is encoded
  else image.src = queryImage(query);
  const chips = [...query.plus.map((id) => [id, "plus", "+", "More like"]), ...query.minus.map((id) => [id, "minus", "−", "Less like"])];
  $("#refined").hidden = !chips.length;
  const remove = (id, into) => {
    refine(id, into);
    ($("#chips button") ?? $("#search")).focus();      // the pressed button is gone
  };
  const draw = () => {
    setText($("#query-name"), queryName(query));
    fill($("#chips"), ...chips.map(([id, into, sign, words]) => el("li", { class: "chip", data: { into } },
      el("img", { src: thumbUrl(id), alt: "" }), el("b", { role: "img", "aria-label": words }, sign), el("span", { title: nameOf(id) }, nameOf(id)),
      query.upload ? null : teach.button(query.image, id, into === "plus" ? "similar" : "dissimilar", nameOf(id)),
      el("button", { type: "button", class: "quiet", "aria-label": `Remove ${nameOf(id)}`, onclick: () => remove(id, into) }, "×"))));
    setText($("#teaching"), query.upload ? "They refine this search only. Your image is not in the archive, so nothing can be taught with it."
      : "They refine this search only: nothing is learnt from them. “Teach this” sends the pair, the query and this image, as an answer.");
  };
  draw();
  const mine = turn, ids = [query.image, ...chips.map(([id]) => id)].filter((id) => id !== undefined);
  const unnamed = ids.filter((id) => nameOf(id) === `Image ${id}`);
  if (unnamed.length) Promise.all(unnamed.map(wantName)).then(() => { if (mine === turn && query) draw(); });
}

function refineButton(id, into, sign, text) {
  return el("button", { type: "button", data: { refine: into }, "aria-pressed": String(query[into].includes(id)),
    "aria-label": `${text} ${nameOf(id)}`, title: text, onclick: () => refine(id, into) }, sign);
}

function resultItem({ id, name, score }) {
  return el("li", { data: { image: id, name, score } },
    hits.tick(id, name),
    el("button", { type: "button", class: "thumb", title: name, onclick: () => { location.hash = `#search/${id}`; } },
      el("img", { src: thumbUrl(id), alt: name, decoding: "async" })),
    el("div", { class: "caption" }, el("span", { class: "score" }, score.toFixed(3)),
      refineButton(id, "plus", "+", "More like"), refineButton(id, "minus", "−", "Less like"),
      el("button", { type: "button", class: "quiet", title: "Enlarge", "aria-label": `Enlarge ${name}`,
        onclick: (event) => enlargeAmong(event.target.closest("li")) }, "⤢")),
    el("p", { class: "name", title: name }, name));
}

function drawResults(data) {
  // The pressed button is about to be replaced: move the focus to the new one.
  const focused = document.activeElement?.closest?.("#results [data-refine]");
  const again = focused && `#results [data-image="${focused.closest("li").dataset.image}"] [data-refine="${focused.dataset.refine}"]`;
  for (const { id, name } of data.results) learnName(id, name);
  fill($("#results"), ...data.results.map(resultItem));
  if (again) ($(again) ?? $("#search")).focus();
  hits.fresh();
  modelCutoff = data.threshold;
  const lowest = Math.min(0, ...data.results.map((result) => result.score));
  const highest = Math.max(1, ...data.results.map((result) => result.score));
  const slider = $("#cutoff");
  slider.min = lowest < 0 ? Math.floor(lowest) : 0;
  slider.max = Math.ceil(highest);
  slider.value = cutoff ?? slider.min;
  const mark = $("#cutoff-mark");
  mark.hidden = $("#use-cutoff").hidden = modelCutoff === null;
  if (!mark.hidden) {
    mark.style.left = `${((modelCutoff - slider.min) / (slider.max - slider.min)) * 100}%`;
    setText($("#use-cutoff"), `Use the model’s threshold, ${modelCutoff.toFixed(2)}`);
  }
  $("#more-results").hidden = data.results.length < k;
  drawCutoff();
}

/** How many results the model takes for similar, or why nothing is shown. */
export function noteWords(scores, threshold, lowest) {
  if (!scores.length) return "There is no other image to find.";
  const best = Math.max(...scores).toFixed(2);
  if (lowest !== null && !scores.some((score) => score >= lowest)) {
    return `Nothing is shown: no result has a score of ${lowest.toFixed(2)} or more, and the best has ${best}. Lower the slider to see more.`;
  }
  if (threshold === null) return "The model has no threshold yet, so it cannot say which of these are similar. It has one after the first round.";
  const above = scores.filter((score) => score >= threshold).length;
  if (above) return `${number(above)} of ${number(scores.length)} have a score above the model’s threshold, ${threshold.toFixed(2)}: it takes these for similar.`;
  return `No result is above the model’s threshold, ${threshold.toFixed(2)}: it takes none of these for similar. The best has ${best}.`;
}

function drawCutoff() {
  const items = [...$("#results").children];
  for (const item of items) item.hidden = cutoff !== null && Number(item.dataset.score) < cutoff;
  setText($("#cutoff-value"), cutoff === null ? "any" : cutoff.toFixed(2));
  $("#cutoff").setAttribute("aria-valuetext", cutoff === null ? "any" : cutoff.toFixed(2));
  hits.draw();
  setText($("#results-note"), noteWords(items.map((item) => Number(item.dataset.score)), modelCutoff, cutoff));
  setText($("#shown-count"), `${number(items.filter((item) => !item.hidden).length)} of ${number(items.length)} shown`);
}

function setCutoff(value) {
  const { min } = $("#cutoff");
  cutoff = value <= Number(min) ? null : value;
  $("#cutoff").value = cutoff ?? min;
  drawCutoff();
}

// ---- the view ----

export const title = () => (query ? `Search: ${queryName(query)}` : "Search");

export function start() {
  const view = $("#search"), input = $("#drop input");
  input.addEventListener("change", () => { upload(input.files[0]); input.value = ""; });
  const carriesFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  // Without this, a file dropped elsewhere makes the browser leave the page.
  for (const type of ["dragover", "drop"]) addEventListener(type, (event) => { if (carriesFile(event)) event.preventDefault(); });
  view.addEventListener("dragover", (event) => view.classList.toggle("dropping", carriesFile(event)));
  view.addEventListener("dragleave", (event) => { if (!view.contains(event.relatedTarget)) view.classList.remove("dropping"); });
  view.addEventListener("drop", (event) => { view.classList.remove("dropping"); upload(event.dataTransfer?.files[0]); });
  $("#find").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(findByName, 250); });
  hits.start();
  $("#cutoff").addEventListener("input", (event) => setCutoff(Number(event.target.value)));
  $("#use-cutoff").addEventListener("click", () => setCutoff(modelCutoff));
  $("#more-results").addEventListener("click", () => { k += STEP; find(); });
  $("#query-large").addEventListener("click", () => enlarge([{ source: queryImage(query), name: queryName(query) }]));
  on("state", () => { if (active) drawGrid(); });
  on("taught", () => { if (active && query) drawQuery(); });
}

export function enter(rest) {
  const within = active, next = parse(rest);
  const fresh = !sameTarget(next, query);
  active = true;
  query = next;
  turn += 1;                    // replies on their way are for another query
  const named = !query && $("#find").value.trim();
  $("#grid").hidden = Boolean(query || named);
  $("#found").hidden = !named;
  $("#nearest").hidden = !query;
  setText($("#search-title"), query ? "Nearest images" : "All images");
  if (fresh) [k, cutoff] = [STEP, null];
  if (fresh) $("#search").scrollTop = 0;
  drawGrid();
  if (query) find(); else if (named) findByName(); else showAll();
  // What had the focus is hidden now: move the focus to what replaced it.
  if (within && fresh) { if (query) $("#search").focus({ preventScroll: true }); else if (named) $("#find").focus(); else grid.focus(); }
}

export function leave() {
  active = false;
  turn += 1;
}
