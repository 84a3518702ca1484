// A sheet in the label view: tiles on which the machine's guess is marked, and a person changes what is wrong. A tile
// is a pair; where all pairs have one image, the prototype of a group, that one is shown once, large.
import { $, announce, el, fill, setText } from "./dom.js";

const DIGITS = "1234567890";
const WORDS = { similar: "similar", dissimilar: "not similar", unsure: "unsure" };
const root = $("#sheet"), tiles = $("#tiles");
let shown = null;

/** The ids of the images that it needs: the prototype and the examples, if it has them, then those of the tiles. */
export const idsOf = ({ prototype, examples, tiles: some }) =>
  [...(examples ? [prototype, ...examples] : []), ...some.flatMap(({ shows }) => shows)];

/** What it asks for, in words. */
export const sheetWords = ({ examples }) =>
  examples ? "Mark those that are not similar to the large one" : "Similar (=) or not (≠)? Change the guesses that are wrong";

/** Shows a sheet whose images are loaded; null hides it. */
export function showSheet(item) {
  shown = item;
  root.hidden = !item;
  $("#label").classList.toggle("on-sheet", Boolean(item));
  if (!item) return;
  root.classList.toggle("of-pairs", !item.examples);
  const others = [...item.images];
  const [prototype, ...examples] = others.splice(0, item.examples ? 1 + item.examples.length : 0);
  fill($("#prototype"), prototype);
  fill($("#examples"), ...examples);
  fill(tiles, ...item.tiles.map((tile, index) => tileOf(others.splice(0, tile.shows.length), index)));
  tiles.setAttribute("aria-label", sheetWords(item));
  arrange();
  drawMarks();
  tiles.firstChild.focus({ preventScroll: true });
}

/** As many columns as make the tiles largest: all of them are in view, or an exception would be overlooked. */
function arrange() {
  if (!shown) return;
  const n = shown.tiles.length, abreast = shown.tiles[0].shows.length, side = (columns) =>
    Math.min(tiles.clientWidth / columns / abreast, tiles.clientHeight / Math.ceil(n / columns));
  const choices = shown.tiles.map((_, index) => index + 1);
  tiles.style.setProperty("--columns", choices.reduce((best, columns) => (side(columns) > side(best) ? columns : best)));
}

addEventListener("resize", arrange);

function tileOf(images, index) {
  for (const image of images) image.alt = "";
  const key = el("kbd", { "aria-hidden": "true" }, DIGITS[index] ?? "");
  return el("button", { type: "button", class: "tile", onclick: () => mark(index) }, ...images, key);
}

/** Marks a tile as not similar, or as this; marked so already, as similar. */
function mark(index, verdict = "dissimilar") {
  const tile = shown.tiles[index];
  tile.verdict = tile.verdict === verdict ? "similar" : verdict;
  drawMarks();
  announce(`Image ${index + 1}: ${WORDS[tile.verdict]}`);
}

function drawMarks() {
  [...tiles.children].forEach((button, index) => {
    const { verdict } = shown.tiles[index];
    button.dataset.mark = verdict;
    button.setAttribute("aria-pressed", String(verdict !== "similar"));
    button.setAttribute("aria-label", `Image ${index + 1}: ${WORDS[verdict]}`);
  });
  const similar = shown.tiles.filter(({ verdict }) => verdict === "similar").length;
  const marked = shown.tiles.length - similar;
  const others = shown.examples ? "marked" : "not";
  setText($("#confirm-words"), marked ? `${similar} similar, ${marked} ${others}` : `All ${similar} are similar`);
}

/** Keys on a sheet: digits mark, arrows move, Space marks, u is unsure. True if the key was used. */
export function sheetKey(event) {
  if (!shown || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return false;
  const buttons = [...tiles.children], at = buttons.indexOf(document.activeElement);
  const digit = event.key.length === 1 ? DIGITS.indexOf(event.key) : -1;
  const columns = getComputedStyle(tiles).gridTemplateColumns.split(" ").length;
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
  if (digit >= 0 && digit < buttons.length) mark(digit);
  else if (event.key in steps) buttons[Math.min(Math.max(at + steps[event.key], 0), buttons.length - 1)].focus();
  else if (event.key === " " && at >= 0) mark(at);
  else if (event.key === "u" && at >= 0) mark(at, "unsure");
  else return false;
  return true;
}
