// A small readable rendering of /openapi.json.
import { api } from "./api.js";
import { $, el, fill, setText, table } from "./dom.js";

/** A schema as the shape of its JSON; references are followed to a limited depth. */
function shape(schema, root, indent = "", depth = 0) {
  if (!schema || depth > 8) return "…";
  const inner = (part, pad = indent) => shape(part, root, pad, depth + 1);
  if (schema.$ref) return inner(schema.$ref.slice(2).split("/").reduce((at, part) => at?.[part], root));
  const options = schema.anyOf ?? schema.oneOf ?? schema.allOf;
  if (options) return options.map((one) => inner(one)).join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `[${inner(schema.items ?? {})}, …]`;
  if (schema.properties) {
    const pad = `${indent}  `;
    const lines = Object.entries(schema.properties).map(([name, part]) => `${pad}${JSON.stringify(name)}: ${inner(part, pad)}`);
    return `{\n${lines.join(",\n")}\n${indent}}`;
  }
  return schema.type ?? "any";
}

function contents(content, root) {
  return Object.entries(content ?? {}).flatMap(([type, { schema }]) =>
    [el("p", { class: "muted" }, type), schema && Object.keys(schema).length > 0 && el("pre", { tabindex: "0" }, shape(schema, root))]);
}

function operation(method, path, about, root) {
  const parameters = about.parameters ?? [];
  return el("details", { class: "operation" },
    el("summary", {}, el("code", {}, `${method.toUpperCase()} ${path}`), " ", el("span", { class: "muted" }, about.summary ?? "")),
    about.description && el("p", { class: "prose" }, about.description),
    parameters.length > 0 && el("div", { class: "wide" }, table("Parameters", ["Name", "In", "Type", "Needed", ""], parameters.map((one) =>
      [one.name, one.in, shape(one.schema, root), one.required ? "yes" : "no", one.description ?? ""]))),
    about.requestBody && el("h3", {}, "Body"), ...contents(about.requestBody?.content, root),
    ...Object.entries(about.responses ?? {}).flatMap(([status, response]) =>
      [el("h3", {}, `${status} ${response.description ?? ""}`), ...contents(response.content, root)]));
}

try {
  const root = await api("/openapi.json");
  document.title = `${root.info.title} · HTTP API`;
  setText($("#docs-title"), `${root.info.title} ${root.info.version}`);
  setText($("#docs-text"), root.info.description ?? "");
  fill($("#paths"), ...Object.entries(root.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, about]) => operation(method, path, about, root))));
} catch (error) {
  setText($("#docs-text"), error.message);
}
