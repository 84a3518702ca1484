// A grid of all images. Only the visible rows are in the document, so it works for 100 000 images and more.
import { api, thumbUrl } from "./api.js";
import { el } from "./dom.js";

const CELL = 150, GAP = 8, OVERSCAN = 2, PAGE = 200;
const names = new Map(), pages = new Map();

export const nameOf = (id) => names.get(id) ?? `Image ${id}`;
export const learnName = (id, name) => names.set(id, name);

/** Fetches the page of names that holds this id, once. */
export function wantName(id) {
  const page = Math.floor(id / PAGE);
  if (!pages.has(page)) {
    pages.set(page, api(`/api/names?offset=${page * PAGE}&limit=${PAGE}`).then((data) => {
      data.names.forEach((name, index) => names.set(page * PAGE + index, name));
    }).catch(() => pages.delete(page)));       // tried again when it is next in view
  }
  return pages.get(page);
}

export function makeGrid(box, open) {
  const sheet = el("div", { class: "sheet", role: "presentation" });
  const cells = new Map();
  let total = 0, columns = 0, rowHeight = 1, active = 0, drawnAt = 0, timer = 0, top = 0;
  let gaps = [];          // for each retired image, how many others come before it
  box.append(sheet);

  /** The id at a place: retired images have none. */
  function idAt(at) {
    let low = 0, high = gaps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (gaps[middle] <= at) low = middle + 1; else high = middle;
    }
    return at + low;
  }

  function makeCell(at) {
    const id = idAt(at);
    const image = el("img", { alt: nameOf(id), decoding: "async", draggable: "false" });
    const choose = () => { active = at; open(id); };
    const button = el("button", { type: "button", class: "thumb", data: { image: id, at }, title: nameOf(id), onclick: choose }, image);
    const cell = el("div", { class: "cell", role: "listitem", "aria-setsize": total, "aria-posinset": at + 1 }, button);
    return { id, cell, button, image };
  }

  function place(at, { cell, button }) {
    const side = rowHeight - GAP;
    cell.style.width = cell.style.height = `${side}px`;
    cell.style.transform = `translate(${(at % columns) * rowHeight}px, ${Math.floor(at / columns) * rowHeight}px)`;
    button.tabIndex = at === active ? 0 : -1;     // Tab stops once; arrow keys move within
  }

  function layOut() {
    const width = box.clientWidth;
    if (!width) return false;                     // hidden
    const before = columns && { columns, first: Math.floor(top / rowHeight) * columns, height: rowHeight };
    columns = Math.max(2, Math.floor((width + GAP) / (CELL + GAP)));
    rowHeight = (width + GAP) / columns;
    sheet.style.height = `${Math.ceil(total / columns) * rowHeight}px`;
    // Keep the same images in view when the window changes (and put the scroll back after being hidden).
    const same = before && before.columns === columns && before.height === rowHeight;
    box.scrollTop = before && !same ? Math.floor(before.first / columns) * rowHeight : top;
    draw();
    return true;
  }

  function draw() {
    if (!columns || !box.clientWidth) return;
    top = box.scrollTop;
    const first = Math.max(0, Math.floor(top / rowHeight) - OVERSCAN) * columns;
    const last = Math.min(total, (Math.ceil((top + box.clientHeight) / rowHeight) + OVERSCAN) * columns);
    for (const [at, made] of cells) {
      if ((at >= first && at < last) || made.button === document.activeElement) continue;
      made.image.removeAttribute("src");          // stops the download
      made.cell.remove();
      cells.delete(at);
    }
    for (let at = first; at < last; at += 1) {
      if (!cells.has(at)) {
        const made = makeCell(at);
        cells.set(at, made);
        sheet.append(made.cell);
      }
    }
    for (const [at, made] of cells) place(at, made);
    if (!cells.has(active) && cells.has(first)) cells.get(first).button.tabIndex = 0;
    // While somebody scrolls fast, fetch nothing until they slow down.
    clearTimeout(timer);
    const fast = Math.abs(top - drawnAt) > box.clientHeight;
    drawnAt = top;
    timer = setTimeout(fetchVisible, fast ? 120 : 0);
  }

  function fetchVisible() {
    for (const { id, image } of cells.values()) if (!image.hasAttribute("src")) image.src = thumbUrl(id);
    const wanted = new Set([...cells.values()].map(({ id }) => Math.floor(id / PAGE) * PAGE));
    for (const id of wanted) wantName(id).then(writeNames);
  }

  function writeNames() {
    for (const { id, button, image } of cells.values()) [image.alt, button.title] = [nameOf(id), nameOf(id)];
  }

  function go(at) {
    active = Math.max(0, Math.min(total - 1, at));
    const y = Math.floor(active / columns) * rowHeight;
    if (y < box.scrollTop) box.scrollTop = y;
    else if (y + rowHeight > box.scrollTop + box.clientHeight) box.scrollTop = y + rowHeight - box.clientHeight;
    draw();
    cells.get(active)?.button.focus({ preventScroll: true });
  }

  box.addEventListener("keydown", (event) => {
    const focused = event.target.closest("[data-image]");
    if (!focused || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = Number(focused.dataset.at), page = Math.max(1, Math.floor(box.clientHeight / rowHeight)) * columns;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + columns, ArrowUp: at - columns,
      PageDown: at + page, PageUp: at - page, Home: 0, End: total - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    if (to >= 0 || event.key !== "ArrowUp") go(to);
  });
  let frame = 0;
  box.addEventListener("scroll", () => { frame ||= requestAnimationFrame(() => { frame = 0; draw(); }); }, { passive: true });
  new ResizeObserver(layOut).observe(box);

  return {
    /** Shows n images; those whose ids are retired, in order, are not among them. */
    setImages(n, retired) {
      total = n;
      gaps = retired.map((id, index) => id - index);
      pages.clear();
      for (const { cell } of cells.values()) cell.remove();
      cells.clear();
      layOut();
    },
    focus() { if (layOut() && total) go(active); },
  };
}
