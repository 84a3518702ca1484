// A line chart of shares from 0 to 1, with an optional band around the line and an optional band to aim at.
import { percent } from "./dom.js";

const SPACE = "http://www.w3.org/2000/svg";
const HEIGHT = 240, LEFT = 48, RIGHT = 64, TOP = 14, BOTTOM = 44;

function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Round numbers from 0 to at least high, about `wanted` of them. */
export function ticks(high, wanted, whole = false) {
  const rough = Math.max(high, whole ? 1 : 1e-9) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max([1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) * power, whole ? 1 : 0);
  return Array.from({ length: Math.ceil(high / step - 1e-9) + 1 }, (_, index) => Number((index * step).toPrecision(12)));
}

/** Where the vertical axis begins: the last of 0, 0.2, 0.6, 0.8 that is below all points and bands. */
const floorOf = (line) => {
  const least = Math.min(...line.map((point) => point.low ?? point.y));
  return [0.8, 0.6, 0.2, 0].find((start) => start <= least) ?? 0;
};

/** points: [{ x, y, low?, high?, name }]; aim: [low, high] or null; fromData: the vertical axis begins where they do. */
export function lineChart({ width, title, xLabel, points, aim = null, whole = false, fromData = false }) {
  const line = [...points].sort((one, two) => one.x - two.x);
  const xTicks = ticks(Math.max(...line.map((point) => point.x), 1), Math.max(2, Math.min(8, width / 90)), whole);
  const end = xTicks.at(-1);
  const x = (value) => LEFT + (value / end) * (width - LEFT - RIGHT);
  const floor = fromData ? floorOf(line) : 0;
  const y = (share) => TOP + ((1 - share) / (1 - floor)) * (HEIGHT - TOP - BOTTOM);
  const path = (list, up) => list.map((point, index) => `${index ? "L" : "M"}${x(point.x).toFixed(1)} ${y(up(point)).toFixed(1)}`).join("");
  const first = line[0], last = line.at(-1);
  const chart = svg("svg", { class: "chart", width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img",
    "aria-label": `${title}: from ${percent(first.y)} to ${percent(last.y)} over ${line.length} points` });
  if (aim) {
    chart.append(svg("rect", { class: "aim", x: LEFT, width: width - LEFT - RIGHT, y: y(aim[1]), height: y(aim[0]) - y(aim[1]) }),
      svg("text", { class: "small", x: width - RIGHT + 6, y: y((aim[0] + aim[1]) / 2) + 4 }, "aim"));
  }
  for (const share of [0, 1, 2, 3, 4].map((step) => floor + (step * (1 - floor)) / 4)) {
    chart.append(svg("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: y(share), y2: y(share) }),
      svg("text", { class: "small", x: LEFT - 8, y: y(share) + 4, "text-anchor": "end" }, percent(share)));
  }
  for (const tick of xTicks) {
    chart.append(svg("text", { class: "small", x: x(tick), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, String(tick)));
  }
  chart.append(svg("text", { class: "small", x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, xLabel));
  const banded = line.filter((point) => typeof point.low === "number" && typeof point.high === "number");
  if (banded.length > 1) {
    const down = path([...banded].reverse(), (point) => point.low).replace("M", "L");
    chart.append(svg("path", { class: "band", d: `${path(banded, (point) => point.high)}${down}Z` }));
  }
  for (const point of banded) {
    chart.append(svg("line", { class: "whisker", x1: x(point.x), x2: x(point.x), y1: y(point.low), y2: y(point.high) }));
  }
  chart.append(svg("path", { class: "curve", d: path(line, (point) => point.y) }));
  for (const point of line) {
    chart.append(svg("circle", { class: "dot", cx: x(point.x), cy: y(point.y), r: 3.5 },
      svg("title", {}, `${point.name}: ${percent(point.y)}`)));
  }
  chart.append(svg("text", { class: "value", x: x(last.x) + 8, y: Math.max(y(last.y) - 8, 14) }, percent(last.y)));
  return chart;
}
