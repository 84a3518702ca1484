// The pairs and sheets before and after the one that is shown. No DOM and no network (those are in label.js and
// outbox.js). A sheet is many pairs, answered together. They may have one image in common, its prototype.

/** The same for (a, b) and (b, a). */
export const pairId = (a, b) => (a < b ? `${a}-${b}` : `${b}-${a}`);

const newPair = ({ a, b, again = "" }) => ({ id: pairId(a, b), a, b, again, images: null, ready: false, loading: false,
  after: 0, tries: 0, back: false });

const newSheet = (questions) => {
  const { sheet, prototype, examples } = questions[0];
  const tiles = questions.map(({ a, b, guess }) => ({ id: pairId(a, b), a, b, guess, verdict: guess,
    shows: [a, b].filter((image) => image !== prototype) }));
  return { id: sheet, sheet, prototype, examples, tiles, images: null, ready: false, loading: false, after: 0, tries: 0, back: false };
};

/** The questions as pairs and sheets, in order. The sheets that are ``split`` are pairs. */
function itemsOf(questions, split) {
  const bySheet = new Map();
  for (const question of questions) {
    const { a, b, again, sheet } = question;
    const single = !sheet || split.has(sheet);
    const id = single ? pairId(a, b) : sheet;
    bySheet.set(id, [...(bySheet.get(id) ?? []), single ? { a, b, again } : question]);
  }
  return [...bySheet.values()].map((some) => (some[0].sheet ? newSheet(some) : newPair(some[0])));
}

/** The ids of its pairs. */
export const pairsOf = (item) => item.tiles?.map((tile) => tile.id) ?? [item.id];

export class Deck {
  shown = null;
  next = [];
  split = new Set();       // sheets whose pairs are asked one by one
  past = [];       // { keys, verdict, pair } of this tab's answers that stand, oldest first

  /** Takes the server's list of what comes next, corrected by events that are not sent yet. The pair that is
      shown stays. */
  renew(questions, { closed, reopened }) {
    const known = new Map(this.next.map((pair) => [pair.id, pair]));
    const listed = itemsOf(questions, this.split).map((item) => known.get(item.id) ?? item);
    const still = new Set(listed.map((pair) => pair.id));
    // Pairs that an undo moved back come first; the server may not know yet that they are open.
    const isBack = (item) => item.back && (still.has(item.id) || pairsOf(item).some((id) => reopened.has(id)));
    const taken = new Set(closed);
    const take = (item) => [item.id, ...pairsOf(item)].forEach((id) => taken.add(id));
    if (this.shown) take(this.shown);
    const items = [...this.next.filter(isBack), ...listed];
    this.next = [];
    for (const item of items) {
      if (item.tiles) item.tiles = item.tiles.filter((tile) => !taken.has(tile.id));
      if (taken.has(item.id) || !pairsOf(item).length) continue;
      take(item);
      this.next.push(item);
    }
  }

  /** The shown pair or sheet was answered, with an event for each pair. */
  answer(keys, verdict) {
    this.past.push({ keys, verdict, pair: this.shown });
    this.shown.back = false;
    this.shown = null;
  }

  /** Shows the first pair whose images are loaded; null if there is none. */
  advance() {
    const index = this.next.findIndex((pair) => pair.ready);
    this.shown = index < 0 ? null : this.next.splice(index, 1)[0];
    return this.shown;
  }

  /** Takes the last answer back and shows its pair; undefined if this tab gave none. */
  undo() {
    const last = this.past.pop();
    if (last) this.show(last.pair);
    return last;
  }

  /** Shows this pair now; the one that was shown comes next. */
  show(question) {
    const id = pairId(question.a, question.b);
    if (this.shown?.id === id) return;
    const pair = question.id ? question : this.next.find((one) => one.id === id) ?? newPair(question);
    if (this.shown) {
      this.shown.back = true;
      this.next.unshift(this.shown);
    }
    this.next = this.next.filter((one) => one.id !== id);
    this.shown = pair;
  }

  /** The pairs of the sheet that is shown come next, one by one. */
  singly() {
    const { sheet, tiles } = this.shown;
    this.split.add(sheet);
    this.shown = null;
    this.next.unshift(...tiles.map(newPair));
  }

  /** The server did not take this answer, so there is nothing to undo. */
  forget(key) {
    this.past = this.past.filter((one) => !one.keys.includes(key));
  }

  clear() {
    [this.shown, this.next, this.past] = [null, [], []];
  }
}
