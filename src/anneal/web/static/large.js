// The dialog that shows an image large: one of several, with the one before and the one after.
import { imageUrl } from "./api.js";
import { $, setText } from "./dom.js";

let pictures = [], at = 0;

const isHere = (element) => element.getClientRects().length > 0;

/** list: [{ source, name }] */
export function enlarge(list, first = 0) {
  pictures = list;
  show(first);
  if (!$("#large").open) $("#large").showModal();
}

export const enlargeOne = (id, name) => enlarge([{ source: imageUrl(id), name }]);

/** Shows the image of this element, one of its list: all that are visible there come before and after it. */
export function enlargeAmong(element) {
  const others = [...element.closest("ul, .pair, [role=list]").querySelectorAll("[data-image]")].filter(isHere)
    .sort((one, two) => (one.dataset.at ?? 0) - (two.dataset.at ?? 0));      // at: the grid makes its cells in any order
  enlarge(others.map(({ dataset, title }) => ({ source: imageUrl(dataset.image), name: dataset.name ?? title })), others.indexOf(element));
}

function show(place) {
  at = Math.max(0, Math.min(pictures.length - 1, place));
  const { source, name } = pictures[at];
  Object.assign($("#large img"), { src: source, alt: name });
  setText($("#large-name"), name);
  setText($("#large-place"), pictures.length > 1 ? `${at + 1} of ${pictures.length}` : "");
  for (const [button, end] of [["previous", 0], ["next", pictures.length - 1]]) {
    $(`#large-${button}`).hidden = pictures.length < 2;
    $(`#large-${button}`).setAttribute("aria-disabled", String(at === end));
  }
}

export function start() {
  $("#large-previous").addEventListener("click", () => show(at - 1));
  $("#large-next").addEventListener("click", () => show(at + 1));
  $("#large").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    show(at + step);
  });
}
