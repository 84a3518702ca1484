// The first run: how far the images are read and encoded. The labelling page takes this one's place when all is done.
import { api } from "./api.js";
import { $, el, number, setBar, setText, sleep } from "./dom.js";

const POLL = 500;
const STEPS = { reading: "Reading the images", encoding: "Encoding them", comparing: "Looking for duplicates" };
const rows = {};      // of each step

function start() {
  for (const [step, text] of Object.entries(STEPS)) {
    rows[step] = { bar: el("progress", { "aria-label": text, max: 1, value: 0 }), text: el("span", { class: "muted" }) };
    $("#steps").append(el("li", { data: { step } }, el("span", {}, text), rows[step].bar, rows[step].text));
  }
}

function draw({ archive, campaign, steps, error }) {
  setText($("#making-title"), error ? "There is no campaign yet" : `Reading ${archive} into ${campaign}…`);
  setText($("#making-error"), error ?? "");
  setText($("#making-text"), error ? "Give the command again when this is mended." : $("#making-text").textContent);
  $("#steps").hidden = Boolean(error);
  for (const { step, done, total } of steps) {
    if (!rows[step]) continue;
    setBar(rows[step].bar, done, total);
    setText(rows[step].text, `${number(done)} of ${number(total)}`);
  }
  const told = new Set(steps.map(({ step }) => step));
  const next = steps.every(({ done, total }) => done >= total) && Object.keys(STEPS).find((step) => !told.has(step));
  if (next) rows[next].bar.removeAttribute("value");        // busy: its first images are not done yet
}

async function main() {
  for (;;) {
    try {
      const told = await api("/api/making");
      draw(told);
      if (told.error) return;                               // the server ends now
    } catch (error) {
      if (error.status === 404) return location.reload();   // the campaign is served
      setText($("#making-title"), error.status ? error.message : "No connection to anneal: start it again, and this goes on.");
    }
    await sleep(POLL);
  }
}

start();
main();
