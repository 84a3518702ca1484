// A plain map of footprints, drawn without tiles or network: longitude to the right, latitude up, a grid.
const WIDEST = 900, MARGIN = 44, LEAST = 1e-4, APART = 90, NS = "http://www.w3.org/2000/svg";
export const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8a6d00", "#5b4bb5"];
export const colourOf = (group) => (group < 0 ? "#888888" : COLOURS[group % COLOURS.length]);

function shape(tag, attributes, text) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/** Round numbers from low to high, so far apart that their labels fit. */
function ticks(low, high, pixels) {
  const span = Math.max(high - low, LEAST), most = Math.max(pixels / APART, 1);
  const power = 10 ** Math.floor(Math.log10(span / most));
  const step = [1, 2, 5, 10, 20].map((factor) => factor * power).find((one) => span / one <= most);
  const first = Math.ceil(low / step), last = Math.floor(high / step);
  return Array.from({ length: Math.max(last - first + 1, 0) }, (_, i) => Number(((first + i) * step).toPrecision(10)));
}

const degrees = (value, [plus, minus]) => `${Math.abs(value)}°${value < 0 ? minus : plus}`;

/** Draws images, each { id, name, corners, group }, into a box; a click on one calls `open(id)`. */
export function drawMap(box, images, open, title) {
  const width = Math.min(document.documentElement.clientWidth, WIDEST), height = Math.round(width * 0.55);    // so that labels can be read
  const points = images.flatMap(({ corners }) => corners);
  if (!points.length) return box.replaceChildren();
  const bound = (pick, column) => points.reduce((best, point) => pick(best, point[column]), points[0][column]);
  const [left, right, low, high] = [bound(Math.min, 0), bound(Math.max, 0), bound(Math.min, 1), bound(Math.max, 1)];
  const squeeze = Math.max(Math.cos(((low + high) / 2) * (Math.PI / 180)), 0.05);    // a degree of longitude is shorter
  const scale = Math.min((width - 2 * MARGIN) / Math.max((right - left) * squeeze, LEAST), (height - 2 * MARGIN) / Math.max(high - low, LEAST));
  const [across, up] = [(right - left) * squeeze * scale, (high - low) * scale];
  const x = (lon) => (width - across) / 2 + (lon - left) * squeeze * scale, y = (lat) => (height + up) / 2 - (lat - low) * scale;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title, class: "map" });
  for (const lon of ticks(left, right, across)) {
    svg.append(shape("path", { d: `M${x(lon)} 0V${height - 20}`, class: "grid-line" }),
      shape("text", { x: x(lon), y: height - 6, "text-anchor": "middle" }, degrees(lon, "EW")));
  }
  for (const lat of ticks(low, high, up)) {
    svg.append(shape("path", { d: `M20 ${y(lat)}H${width}`, class: "grid-line" }),
      shape("text", { x: 2, y: y(lat) - 3 }, degrees(lat, "NS")));
  }
  for (const { id, name, corners, group } of images) {
    const colour = colourOf(group), at = corners.map(([lon, lat]) => `${x(lon).toFixed(1)},${y(lat).toFixed(1)}`).join(" ");
    const area = shape("polygon", { points: at, fill: colour, stroke: colour, "fill-opacity": 0.4 });
    area.append(shape("title", {}, name));
    area.addEventListener("click", () => open(id, name));
    svg.append(area);
  }
  box.replaceChildren(svg);
}
