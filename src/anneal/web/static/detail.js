// Shows the visible part of a zoomed image at full detail: read from the source, laid over the picture.
import { aboutUrl, api, regionUrl } from "./api.js";

const PAUSE = 150, WIDEST = 2048;      // milliseconds without a move before a part is fetched; pixels of a part
const facts = new Map();               // what the server said of each image

/** What is known of an image; null if its file is gone. */
function factsOf(id) {
  if (!facts.has(id)) facts.set(id, api(aboutUrl(id)).catch(() => { facts.delete(id); return null; }));
  return facts.get(id);
}

/** The part of a picture that a pane shows, as shares of the picture: {x, y, w, h}; null if there is none. The picture
    fills the pane as far as it fits, then it is scaled about the middle of the pane and moved. */
export function visible(pane, picture, view) {
  const fits = Math.min(pane.width / picture.width, pane.height / picture.height);
  const size = { x: picture.width * fits * view.scale, y: picture.height * fits * view.scale };
  const left = (pane.width - size.x) / 2 + view.x, top = (pane.height - size.y) / 2 + view.y;
  const x = Math.max(0, -left) / size.x, y = Math.max(0, -top) / size.y;
  const w = Math.min(1, (pane.width - left) / size.x) - x, h = Math.min(1, (pane.height - top) / size.y) - y;
  return w > 0 && h > 0 ? { x, y, w, h } : null;
}

/** The pixels of the source to fetch for such a part: {x, y, w, h, width}. */
export function regionOf(part, source, shownWidth) {
  const x = Math.floor(part.x * source.width), y = Math.floor(part.y * source.height);
  const w = Math.min(source.width - x, Math.ceil(part.w * source.width) + 1);
  const h = Math.min(source.height - y, Math.ceil(part.h * source.height) + 1);
  return { x, y, w, h, width: Math.max(1, Math.min(WIDEST, Math.max(w, h), Math.ceil(shownWidth * Math.max(1, h / w)))) };
}

async function sharpen(pane, view, current) {
  const picture = pane.querySelector("img[data-image]");
  if (!picture?.naturalWidth) return;
  const id = picture.dataset.image, source = await factsOf(id);
  const box = { width: pane.clientWidth, height: pane.clientHeight };
  const natural = { width: picture.naturalWidth, height: picture.naturalHeight };
  if (!current() || !source || source.width <= natural.width) return;
  const part = visible(box, natural, view);
  if (!part) return;
  const fits = Math.min(box.width / natural.width, box.height / natural.height);
  const shown = { w: natural.width * fits, h: natural.height * fits };
  if (shown.w * view.scale * devicePixelRatio <= natural.width) return;     // the picture is fine enough
  const region = regionOf(part, source, part.w * shown.w * view.scale * devicePixelRatio);
  const finer = Object.assign(new Image(), { alt: "", draggable: false, className: "detail", src: regionUrl(id, region) });
  finer.setAttribute("aria-hidden", "true");
  try { await finer.decode(); } catch { return; }
  if (!current() || !pane.contains(picture)) return;
  const left = (box.width - shown.w) / 2 + (region.x / source.width) * shown.w;
  const top = (box.height - shown.h) / 2 + (region.y / source.height) * shown.h;
  Object.assign(finer.style, { left: `${left}px`, top: `${top}px`,
    width: `${(region.w / source.width) * shown.w}px`, height: `${(region.h / source.height) * shown.h}px`,
    transformOrigin: `${box.width / 2 - left}px ${box.height / 2 - top}px` });
  for (const old of pane.querySelectorAll(".detail")) old.remove();
  pane.append(finer);
}

/** Returns what to call when the view of the stage changes: {scale, x, y}. */
export function detailed(panes) {
  let timer = 0, turn = 0;
  return (view) => {
    const mine = ++turn;
    clearTimeout(timer);
    if (view.scale <= 1) {
      for (const pane of panes()) for (const old of pane.querySelectorAll(".detail")) old.remove();
      return;
    }
    timer = setTimeout(() => { for (const pane of panes()) sharpen(pane, view, () => mine === turn); }, PAUSE);
  };
}

/** How far it is worth to zoom into these images: until a pixel of the source is four on the screen. */
export async function deepest(panes, least) {
  const every = await Promise.all(panes().map(async (pane) => {
    const picture = pane.querySelector("img[data-image]"), source = picture && await factsOf(picture.dataset.image);
    return source ? (4 * source.width) / Math.max(1, pane.clientWidth) : 0;
  }));
  return Math.max(least, ...every);
}
