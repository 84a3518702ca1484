// What can be done with search results: select, copy their paths, download them, and show them on a map.
import { api } from "./api.js";
import { $, announce, count, el, notice, setText } from "./dom.js";
import { enlargeOne } from "./large.js";
import { drawMap } from "./map.js";

const selected = new Set();
let mapped = "";

const shown = () => [...$("#results").children].filter((item) => !item.hidden).map((item) => Number(item.dataset.image));
/** The ticked ones, or all that are shown if none is ticked. */
const chosen = () => { const all = shown(), some = all.filter((id) => selected.has(id)); return some.length ? some : all; };

export function tick(id, name) {
  const box = el("input", { type: "checkbox", "aria-label": `Select ${name}`, onchange: () => {
    if (box.checked) selected.add(id); else selected.delete(id);
    draw();
  } });
  box.checked = selected.has(id);
  return el("label", { class: "tick" }, box);
}

/** Other results are drawn now. */
export function fresh() {
  const there = new Set([...$("#results").children].map((item) => Number(item.dataset.image)));
  for (const id of [...selected]) if (!there.has(id)) selected.delete(id);
  mapped = "";
}

export function draw() {
  const all = shown(), some = all.filter((id) => selected.has(id)), ids = chosen();
  setText($("#selected-count"), some.length ? `${count(some.length, "image")} selected` : "None selected: all that are shown");
  setText($("#select-all"), some.length === all.length && all.length ? "Select none" : "Select all shown");
  for (const kind of ["csv", "geojson"]) $(`#hits-${kind}`).href = `/api/listing.${kind}?ids=${ids.join()}`;
  drawHits(all);
}

async function drawHits(ids) {
  const wanted = ids.join();
  if (wanted === mapped || !ids.length) return;
  mapped = wanted;
  const { images } = await api(`/api/map?ids=${wanted}`, { timeout: 120000 }).catch(() => ({ images: [] }));
  if (wanted !== mapped) return;
  $("#hits-map").hidden = $("#hits-geojson").hidden = !images.length;
  drawMap($("#hits-map .box"), images, enlargeOne, "Map of the results");
}

function selectAll() {
  const all = shown(), every = all.every((id) => selected.has(id));
  for (const id of all) if (every) selected.delete(id); else selected.add(id);
  for (const item of $("#results").children) $(".tick input", item).checked = selected.has(Number(item.dataset.image));
  draw();
}

async function copyPaths() {
  try {
    const paths = await api(`/api/paths?ids=${chosen().join()}`);
    await navigator.clipboard.writeText(paths.join("\n"));
    announce(`${count(paths.length, "path")} copied`);
    setText($("#selected-count"), `${count(paths.length, "path")} copied`);
  } catch (error) {
    notice(error.status === undefined ? "This browser does not let the page copy. Download the CSV instead." : error.message);
  }
}

export function start() {
  $("#select-all").addEventListener("click", selectAll);
  $("#copy-paths").addEventListener("click", copyPaths);
}
