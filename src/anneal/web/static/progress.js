// The progress view: how good each model is, by which answers, and who gave them.
import { api, on, store } from "./api.js";
import { lineChart } from "./chart.js";
import { $, count, el, fill, notice, number, percent, setText, table } from "./dom.js";
import * as finetune from "./finetune.js";
import { change } from "./outbox.js";

const AXES = { answers: "answers", bits: "bits of information", minutes: "minutes of work" };
let active = false, data = null, text = "", rounds = null, turn = 0;

const roundName = (round) => (round < 0 ? "before training" : `round ${round}`);
const known = (value) => typeof value === "number";
const share = (value) => (known(value) ? percent(value) : "–");
const plain = (value) => (known(value) ? number(value) : "–");
const fixed = (value, digits) => (known(value) ? value.toFixed(digits) : "–");
const points = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value * 100).toFixed(1)}`;
const range = (low, high) => (known(low) && known(high) ? `${percent(low)} to ${percent(high)}` : "–");

function pointsOf(models, axis, [value, low, high]) {
  return models.filter((model) => known(model[value]) && known(model[axis]))
    .map((model) => ({ x: model[axis], y: model[value], low: model[low], high: model[high], name: roundName(model.round) }));
}

function figure(title, note, points, more) {
  const width = Math.max(280, $("#charts").clientWidth - 40);      // less the figure's own padding
  return el("figure", {}, el("figcaption", {}, el("h2", {}, title), el("p", { class: "muted" }, note)),
    points.length ? lineChart({ width, title, points, ...more }) : el("p", { class: "nothing" }, "Nothing to draw yet."));
}

function drawCharts() {
  if (!data || !$("#charts").clientWidth) return;
  const axis = $("#axis").value, xLabel = AXES[axis], whole = axis === "answers";
  fill($("#charts"),
    figure("Estimated P@5", "Share of the five nearest images that are similar, with its 95 % band. What is known less than to within 20 points is left out.",
      pointsOf(data.models, axis, ["p5", "low", "high"]), { xLabel, whole, fromData: true }),
    figure("Share of similar answers", data.aim
      ? `Per round. Questions are chosen so that it stays between ${percent(data.aim[0])} and ${percent(data.aim[1])}.` : "Per round.",
      data.shares.filter((one) => known(one.similar)).map((one) => ({ x: one.round, y: one.similar, name: roundName(one.round) })),
      { xLabel: "round", aim: data.aim, whole: true }));
}

function draw() {
  const { models, heldout, advice, people, agreement } = data;
  setText($("#advice"), advice ? advice.text : "There is no advice: it needs held-out questions, and this campaign has none.");
  $("#advice").classList.toggle("stop", Boolean(advice?.stop));
  setText($("#gain"), advice?.gain ? `Forecast for the next 50 answers: ${points(advice.gain.value)} `
    + `points of P@5 (${points(advice.gain.low)} to ${points(advice.gain.high)}, 95 %).` : "");
  $("#stop-form").hidden = !advice;
  if (advice && document.activeElement !== $("#stop-below")) $("#stop-below").value = advice.below;
  setText($("#refusal"), data.refusal);
  $("#refusal").hidden = !data.refusal;
  setText($("#basis"), heldout > 0
    ? `The estimates come from ${count(heldout, "held-out answer")}: their pairs are drawn at random, and the machine never `
      + "learns from them. With fewer answers the band is wider."
    : "There is no estimate yet. It comes from held-out questions, drawn at random, and none has been answered.");
  drawCharts();
  fill($("#numbers"), table("Models", ["Model", "Answers given", "Bits", "Minutes", "P@5", "95 % band"],
    models.map((model) => [roundName(model.round), plain(model.answers), plain(model.bits), plain(model.minutes), share(model.p5),
      range(model.low, model.high)])),
  table("Share of similar answers", ["Round", "Chosen pairs that stand", "Similar"],
    data.shares.map((one) => [roundName(one.round), number(one.answers), share(one.similar)])));
  fill($("#people"), people.length > 0 && table("People", ["Who", "Answers", "A minute", "Unsure"],
    people.map((person) => [person.annotator, number(person.answers), fixed(person.per_minute, 1), number(person.unsure)])));
  fill($("#agreement"), agreement.length > 0 && table("Agreement", ["One", "Other", "Pairs both answered", "Agree", "Cohen’s κ"],
    agreement.map((two) => [two.one, two.other, number(two.pairs), share(two.agreement), fixed(two.kappa, 2)])));
}

/** How many images there are, what became of the others, and whether the machine is looking for new ones. */
function drawArchive({ images, archive, machine }) {
  setText($("#archive-count"), `${count(images, "image")} can be asked about and found.`);
  const lines = archive.lines.join("\n");
  if ($("#archive-lines").dataset.lines !== lines) {
    $("#archive-lines").dataset.lines = lines;
    fill($("#archive-lines"), ...archive.lines.map((line) => el("li", {}, line)));
  }
  $("#update").disabled = archive.wanted;
  setText($("#update-status"), archive.wanted ? machine.text : "");
}

async function update() {
  $("#update").disabled = true;
  try {
    store.state.archive = await change("/api/update", { method: "POST" });
    drawArchive(store.state);
  } catch (error) {
    $("#update").disabled = false;
    notice(error.message);
  }
}

async function setStop(event) {
  event.preventDefault();
  try {
    await change("/api/stop", { method: "PUT", json: { below: Number($("#stop-below").value) } });
    $("#stop-below").blur();
    await load();
  } catch (error) { notice(error.message); }
}

async function load() {
  const mine = ++turn;
  try {
    const fresh = await api("/api/progress");
    if (mine !== turn || JSON.stringify(fresh) === text) return;     // drawn already
    [data, text] = [fresh, JSON.stringify(fresh)];
    draw();
  } catch (error) {
    if (mine === turn && !data) setText($("#advice"), error.message);
  }
}

export const title = () => "Progress";

export function start() {
  $("#axis").addEventListener("change", drawCharts);
  $("#update").addEventListener("click", update);
  finetune.start();
  $("#stop-form").addEventListener("submit", setStop);
  on("state", drawArchive);
  drawArchive(store.state);
  let width = 0;
  new ResizeObserver(([{ contentRect }]) => {
    if (Math.round(contentRect.width) !== width) { width = Math.round(contentRect.width); drawCharts(); }
  }).observe($("#charts"));
  on("state", ({ standing }) => {
    if (active && standing.rounds !== rounds) load();
    rounds = standing.rounds;
  });
  setInterval(() => { if (active && !document.hidden) load(); }, 10000);
}

export function enter() {
  active = true;
  load();
  finetune.watch(true);
}

export function leave() {
  active = false;
  finetune.watch(false);
}
