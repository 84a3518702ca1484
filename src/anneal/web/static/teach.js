// "Teach this": a pair from the search view becomes an ordinary answer, and can be taken back.
import { emit, on, store } from "./api.js";
import { pairId } from "./deck.js";
import { $, announce, el } from "./dom.js";
import { put } from "./outbox.js";

const taught = new Map();      // annotator and pair → { key, verdict } of the answer that stands

const nameOf = (a, b) => `${store.annotator}/${pairId(a, b)}`;

function send(a, b, verdict) {
  const before = taught.get(nameOf(a, b));
  const pair = { pair: [a, b] };
  if (before?.verdict === verdict) {
    put({ undoes: before.key }, { ...pair, verdict });
    taught.delete(nameOf(a, b));
    announce(`Taken back: ${verdict}`);
  } else {
    const key = put({ a, b, verdict, asked: Date.now() }, { ...pair, verdict });
    taught.set(nameOf(a, b), { key, verdict });
    announce(`Answered: ${verdict}`);
  }
  emit("taught");
}

/** A button that answers this pair with the verdict, and once more takes the answer back. */
export function button(a, b, verdict, name) {
  const done = taught.get(nameOf(a, b))?.verdict === verdict;
  const text = done ? `Taught: ${verdict}` : "Teach this";
  return el("button", { type: "button", class: "teach", data: { teach: b }, "aria-pressed": String(done),
    "aria-label": done ? `${text}, ${name}. Take it back` : `Teach that ${name} is ${verdict}`,
    title: done ? "Take this answer back" : `Answer “${verdict}” for the query and this image`,
    onclick: () => {
      send(a, b, verdict);
      $(`[data-teach="${b}"]`)?.focus();        // the pressed one was drawn anew
    } }, text);
}

on("done", ({ entry: { event }, result }) => {
  if (!result.error) return;
  for (const [name, { key }] of taught) if (key === event.key) taught.delete(name);
  emit("taught");
});
