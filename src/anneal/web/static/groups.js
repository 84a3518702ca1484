// The groups view: a row of examples for each group, its name, merge, split off, and its predicted members.
import { api, store, thumbUrl } from "./api.js";
import { $, announce, count, el, fill, notice, number, percent, setText } from "./dom.js";
import { enlargeAmong, enlargeOne } from "./large.js";
import { colourOf, drawMap } from "./map.js";

const PAGE = 20;
let turn = 0, loaded = 0, titles = [], timer = 0;

const least = () => Number($("#least").value) / 100;

// ---- one group ----

function thumb({ id, name, score }, inside) {
  const text = score === undefined ? name : `${name}, ${percent(score)} sure`;
  return el("li", {}, el("button", { type: "button", class: "thumb", title: text, data: { image: id, name }, onclick: (event) => enlargeAmong(event.currentTarget) },
    el("img", { src: thumbUrl(id), alt: text, loading: "lazy", decoding: "async" })), inside ?? (score === undefined ? null : el("span", { class: "muted" }, percent(score))));
}

const strip = (images, label) => el("ul", { class: "strip", "aria-label": label }, ...images.map((image) => thumb(image)));

function counts({ size, predicted, groups }) {
  const split = groups.length > 1 ? ` in ${groups.length} groups of this name` : "";
  return `${number(size)} settled${split}, ${number(predicted)} predicted`;
}

function groupRow(group) {
  const { number: id, name, title, place, examples, surest } = group;
  const swatch = el("i", { class: "swatch", "aria-hidden": "true" });
  swatch.style.background = colourOf(place);
  const input = el("input", { type: "text", maxlength: 200, value: name, placeholder: title, autocomplete: "off", "aria-label": `Name of ${title}`,
    onchange: () => rename(group, input) });
  const box = el("div", { class: "members" });
  const members = el("details", { ontoggle: () => { if (members.open) openMembers(group, box); } }, el("summary", {}, "Members: merge, split off"), box);
  return el("li", { class: "group", data: { group: id } },
    el("div", { class: "bar" }, swatch, input, el("p", { class: "muted" }, counts(group))),
    strip(examples, `Settled in ${title}`),
    surest.length ? el("p", { class: "muted" }, "Predicted, the surest first") : null,
    surest.length ? strip(surest, `Predicted in ${title}`) : null,
    members);
}

async function rename(group, input) {
  try {
    await api("/api/groups/name", { method: "PUT", json: { images: group.groups, name: input.value, annotator: store.annotator } });
    announce(input.value.trim() ? `Named ${input.value.trim()}` : "The name was taken away");
    await reload(`[data-group="${group.number}"] input`);
  } catch (error) {
    notice(error.message);
  }
}

// ---- merge and split ----

async function openMembers(group, box) {
  try {
    const { settled, predicted } = await api(`/api/groups/${group.number}?least=${least()}`);
    const chosen = new Set();
    const splitButton = el("button", { type: "button", disabled: true, onclick: () => planSplit(group, [...chosen], box) }, "Split off the ticked images");
    const tick = ({ id, name }) => el("label", { class: "check" }, el("input", { type: "checkbox", "aria-label": `Tick ${name}`, onchange: (event) => {
      if (event.target.checked) chosen.add(id); else chosen.delete(id);
      splitButton.disabled = !chosen.size;
    } }));
    const others = titles.filter((one) => one.number !== group.number);
    const select = el("select", { "aria-label": `Group to merge ${group.title} with` }, ...others.map((one) => el("option", { value: one.number }, one.title)));
    const mergeButton = el("button", { type: "button", onclick: () => merge(group, Number(select.value)) }, "Merge");
    fill(box,
      others.length ? el("p", { class: "bar" }, "Merge with ", select, mergeButton) : null,
      el("ul", { class: "strip all", "aria-label": `All settled in ${group.title}` }, ...settled.map((image) => thumb(image, tick(image)))),
      el("p", { class: "bar" }, splitButton), el("p", { class: "plan", role: "status" }),
      predicted.length ? el("p", { class: "muted" }, `${count(predicted.length, "predicted image")}, the surest first`) : null,
      predicted.length ? el("ul", { class: "strip all", "aria-label": `All predicted in ${group.title}` }, ...predicted.map((image) => thumb(image))) : null);
  } catch (error) {
    notice(error.message);
  }
}

async function merge(group, other) {
  try {
    const done = await api("/api/groups/merge", { method: "POST", json: { one: group.number, other, annotator: store.annotator } });
    announce("Merged by a similar answer");
    if (done.contradictions) notice("The answers contradict each other now: look at Review.");
    await reload(`[data-group="${Math.min(group.number, other)}"] input`);
  } catch (error) {
    notice(error.message);
  }
}

const parts = (sizes) => (sizes.length === 1 ? `a group of ${sizes[0]}` : `${sizes.length} groups of ${sizes.join(", ")}`);

async function planSplit(group, images, box) {
  const send = (plan) => api("/api/groups/split", { method: "POST", json: { images, plan, annotator: store.annotator } });
  const line = $(".plan", box);
  try {
    const { withdrawn, leaving, staying } = await send(true);
    const text = `${count(withdrawn, "answer is", "answers are")} withdrawn. What leaves becomes ${parts(leaving)}; what stays is ${parts(staying)}. `;
    const yes = el("button", { type: "button", class: "main", onclick: async () => {
      try {
        await send(false);
        announce("Split off");
        await reload("h1");
      } catch (error) {
        notice(error.message);
      }
    } }, "Do it");
    fill(line, text, yes, el("button", { type: "button", onclick: () => fill(line) }, "Cancel"));
    yes.focus();
  } catch (error) {
    fill(line, error.message);
  }
}

// ---- the list ----

async function load(offset) {
  const mine = ++turn, list = $("#group-list");
  list.setAttribute("aria-busy", "true");
  try {
    const page = await api(`/api/groups?${new URLSearchParams({ least: least(), offset, limit: PAGE })}`, { timeout: 120000 });
    if (mine !== turn) return;
    titles = page.titles;
    const rows = page.groups.map(groupRow);
    if (offset) list.append(...rows); else fill(list, ...rows);
    loaded = offset + rows.length;
    $("#more-groups").hidden = loaded >= page.total;
    const rest = page.images - page.settled - page.predicted;
    const words = `${count(page.total, "group")}: ${count(page.settled, "image")} settled by answers, ${number(page.predicted)} predicted, ${number(rest)} left out`;
    setText($("#groups-status"), page.total ? words : "There are no groups yet. Answer questions until two images are similar.");
    $("#groups-map").hidden = $("#groups-geojson").hidden = !page.located;
    for (const kind of ["csv", "geojson"]) $(`#groups-${kind}`).href = `/api/listing.${kind}?least=${least()}`;
    if ($("#groups-map").open) loadMap();
  } catch (error) {
    if (mine === turn) setText($("#groups-status"), error.message);
  } finally {
    if (mine === turn) list.removeAttribute("aria-busy");
  }
}

async function reload(focused) {
  await load(0);
  if (focused) $(`#groups ${focused}`)?.focus();
}

async function loadMap() {
  const { images, total } = await api(`/api/map?least=${least()}`, { timeout: 120000 }).catch((error) => { notice(error.message); return { images: [], total: 0 }; });
  drawMap($("#groups-map .box"), images, enlargeOne, "Map of the groups");
  setText($("#groups-map .muted"), `${number(images.length)} of ${count(total, "image")} with coordinates, each in the colour of its group`);
}

function drawLeast() {
  const text = percent(least());
  setText($("#least-value"), text);
  $("#least").setAttribute("aria-valuetext", text);
}

// ---- the view ----

export const title = () => "Groups";

export function start() {
  $("#least").addEventListener("input", () => {
    drawLeast();
    clearTimeout(timer);
    timer = setTimeout(() => load(0), 250);
  });
  $("#more-groups").addEventListener("click", () => load(loaded));
  $("#groups-map").addEventListener("toggle", () => { if ($("#groups-map").open) loadMap(); });
  drawLeast();
}

export function enter() {
  load(0);
}

export function leave() {
  turn += 1;                    // replies on their way are not wanted
}
