// The buttons that ask the machine to learn now.
import { on, store } from "./api.js";
import { $, notice, setText } from "./dom.js";
import { change } from "./outbox.js";

const buttons = () => document.querySelectorAll("button.learn");

function draw({ machine }) {
  const busy = machine.state === "learning" || machine.wanted;
  const why = busy ? machine.text : machine.refusal;
  for (const button of buttons()) {
    button.setAttribute("aria-disabled", String(Boolean(why)));
    button.title = why || "Do not wait until the round is over";
  }
  setText($("#learn-status"), why);
}

async function learn() {
  const { machine } = store.state;
  if (machine.refusal || machine.wanted || machine.state === "learning") return;
  try {
    store.state.machine = await change("/api/learn", { method: "POST" });
    draw(store.state);
  } catch (error) { notice(error.message); }
}

export function start() {
  for (const button of buttons()) button.addEventListener("click", learn);
  on("state", draw);
  draw(store.state);
}
