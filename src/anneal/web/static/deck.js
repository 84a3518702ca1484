// The pairs before and after the one that is shown. No DOM and no network (those are in label.js and outbox.js).

/** The same for (a, b) and (b, a). */
export const pairId = (a, b) => (a < b ? `${a}-${b}` : `${b}-${a}`);

const newPair = ({ a, b, again = false }) => ({ id: pairId(a, b), a, b, again, images: null, ready: false, loading: false,
  after: 0, tries: 0, back: false });

export class Deck {
  shown = null;
  next = [];
  past = [];       // { key, verdict, pair } of this tab's answers that stand, oldest first

  /** Takes the server's list of what comes next, corrected by events that are not sent yet. The pair that is
      shown stays. */
  renew(questions, { closed, reopened }) {
    const known = new Map(this.next.map((pair) => [pair.id, pair]));
    const listed = questions.map((question) => known.get(pairId(question.a, question.b)) ?? newPair(question));
    const still = new Set(listed.map((pair) => pair.id));
    // Pairs that an undo moved back come first; the server may not know yet that they are open.
    const back = this.next.filter((pair) => pair.back && (still.has(pair.id) || reopened.has(pair.id)));
    const taken = new Set(closed);
    if (this.shown) taken.add(this.shown.id);
    this.next = [...back, ...listed].filter((pair) => !taken.has(pair.id) && taken.add(pair.id));
  }

  /** The shown pair was answered. */
  answer(key, verdict) {
    this.past.push({ key, verdict, pair: this.shown });
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

  /** The server did not take this answer, so there is nothing to undo. */
  forget(key) {
    this.past = this.past.filter((one) => one.key !== key);
  }

  clear() {
    [this.shown, this.next, this.past] = [null, [], []];
  }
}
