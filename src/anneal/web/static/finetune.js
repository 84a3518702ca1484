// The button that asks the machine to fine-tune the network, and stops it.
import { api, on } from "./api.js";
import { $, notice, setText } from "./dom.js";

let told = null, watching = false, asking = 0;

const isBusy = () => Boolean(told) && told.state !== "idle";

function draw() {
  const button = $("#finetune"), why = isBusy() ? "" : told.refusal;
  setText(button, isBusy() ? "Stop fine-tuning" : "Fine-tune the network");
  button.setAttribute("aria-disabled", String(Boolean(why) || told.state === "stopping"));
  const words = { wanted: "The machine is about to begin.", stopping: "The machine is stopping…" };
  setText($("#finetune-status"), isBusy() ? words[told.state] ?? told.machine.text : why || told.text);
  const bar = $("#finetune-bar"), running = told.state === "running" && told.machine.state === "learning";
  bar.hidden = !running;
  if (running) Object.assign(bar, { value: told.machine.done, max: Math.max(told.machine.total, 1) });
}

async function look() {
  const mine = ++asking;
  try {
    const fresh = await api("/api/finetune");
    if (mine !== asking) return;
    told = fresh;
    draw();
  } catch { /* the banner says so */ }
}

async function press() {
  if (!told || $("#finetune").getAttribute("aria-disabled") === "true") return;
  try {
    await api("/api/finetune", { method: isBusy() ? "DELETE" : "POST" });
  } catch (error) { notice(error.message); }
  await look();
}

export function start() {
  $("#finetune").addEventListener("click", press);
  on("state", () => { if (watching) look(); });
}

export function watch(is) {
  watching = is;
  if (is) look();
}
