// Zooms and pans both images together, by wheel, drag, pinch and keys.
import { deepest, detailed } from "./detail.js";

const FULL = 1, DEEPEST = 16, SWIPE = 60;
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** The direction of a swipe; "" if it was too short or not straight. */
export function swipeOf(dx, dy) {
  if (Math.abs(dx) >= SWIPE && Math.abs(dx) > 1.5 * Math.abs(dy)) return dx > 0 ? "right" : "left";
  if (-dy >= SWIPE && -dy > 1.5 * Math.abs(dx)) return "up";
  return "";
}

const middle = ([one, two]) => ({ x: (one.x + two.x) / 2, y: (one.y + two.y) / 2, apart: Math.hypot(one.x - two.x, one.y - two.y) });

export function zoomable(stage, onSwipe) {
  let scale = FULL, x = 0, y = 0;
  const fingers = new Map();
  let start = null;          // where a swipe began; null if this gesture cannot be one
  let limit = DEEPEST;       // a large source can be zoomed further
  const panes = () => [...stage.querySelectorAll(".pane")];
  const detail = detailed(panes);

  function apply(newScale, newX, newY) {
    const { clientWidth, clientHeight } = panes()[0];
    if (scale === FULL && newScale > FULL) deepest(panes, DEEPEST).then((most) => { limit = most; });
    scale = clamp(newScale, FULL, limit);
    const room = (size) => ((scale - 1) * size) / 2;       // an edge may move as far as the pane's edge
    x = clamp(newX, -room(clientWidth), room(clientWidth));
    y = clamp(newY, -room(clientHeight), room(clientHeight));
    stage.style.setProperty("--scale", scale);
    stage.style.setProperty("--x", `${x}px`);
    stage.style.setProperty("--y", `${y}px`);
    stage.classList.toggle("zoomed", scale > FULL);
    detail({ scale, x, y });
  }

  /** What is under this point of the window stays there. */
  function zoomAt(factor, point) {
    const boxes = panes().map((pane) => pane.getBoundingClientRect());
    const box = boxes.find((one) => point.x >= one.left && point.x <= one.right && point.y >= one.top && point.y <= one.bottom) ?? boxes[0];
    const px = point.x - (box.left + box.width / 2), py = point.y - (box.top + box.height / 2);
    const real = clamp(scale * factor, FULL, limit) / scale;
    apply(scale * factor, px - (px - x) * real, py - (py - y) * real);
  }

  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    const pixels = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
    zoomAt(Math.exp(-pixels * (event.ctrlKey ? 0.01 : 0.002)), event);      // ctrlKey: a pinch on a touchpad
  }, { passive: false });

  stage.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest("a, button")) return;
    try { stage.setPointerCapture(event.pointerId); } catch { /* the finger was lifted already */ }
    fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    const canSwipe = fingers.size === 1 && scale === FULL && event.pointerType !== "mouse";
    start = canSwipe ? { x: event.clientX, y: event.clientY } : null;
  });

  stage.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const old = fingers.size === 2 ? middle([...fingers.values()]) : null;
    fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (old) {
      const now = middle([...fingers.values()]);
      apply(scale, x + now.x - old.x, y + now.y - old.y);
      zoomAt(now.apart / (old.apart || 1), now);
    } else if (scale > FULL) {
      apply(scale, x + event.clientX - before.x, y + event.clientY - before.y);
    } else if (start) {
      stage.dataset.swipe = swipeOf(event.clientX - start.x, event.clientY - start.y);
    }
  });

  function lift(event) {
    if (!fingers.delete(event.pointerId)) return;
    const way = start && event.type === "pointerup" ? swipeOf(event.clientX - start.x, event.clientY - start.y) : "";
    start = null;
    stage.dataset.swipe = "";
    if (way) onSwipe(way, event);
  }
  stage.addEventListener("pointerup", lift);
  stage.addEventListener("pointercancel", lift);

  const reset = () => {
    if (scale !== FULL) apply(FULL, 0, 0);
    limit = DEEPEST;
  };
  stage.addEventListener("dblclick", reset);
  addEventListener("resize", () => { if (scale !== FULL) apply(scale, x, y); });

  const byKey = (factor) => {
    const box = panes()[0].getBoundingClientRect();
    zoomAt(factor, { x: box.left + box.width / 2, y: box.top + box.height / 2 });
  };
  const pan = (dx, dy) => apply(scale, x + dx * panes()[0].clientWidth / 8, y + dy * panes()[0].clientHeight / 8);
  return {
    reset,
    actions: { zoomIn: () => byKey(1.4), zoomOut: () => byKey(1 / 1.4), zoomReset: reset,
      panLeft: () => pan(1, 0), panRight: () => pan(-1, 0), panUp: () => pan(0, 1), panDown: () => pan(0, -1) },
  };
}
