// One card for one image: the picture, its labels as bars, and the labels that often occur with them.
import { drawHeat } from "./saliency.js";

const SHOWN_LABELS = 8;
const HOVER_DELAY = 120;

export const percent = (share) => {
  const value = 100 * share;
  if (value > 0 && value < 1) return "<1 %";
  return value > 99 && value < 100 ? ">99 %" : `${Math.round(value)} %`;
};

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

export class Card {
  // fetchMap(file, label) -> promise of a map; onRemove(card); isPresent(label of an answer) -> boolean;
  // isUnsure(label of an answer) -> whether a person should decide, or null
  constructor(file, options) {
    this.file = file;
    this.options = options;
    this.answer = null;
    this.rows = new Map();
    this.maps = new Map();
    this.pinned = null;
    this.showsAll = false;
    this.url = URL.createObjectURL(file);
    this.build();
  }

  build() {
    const id = `card-${++Card.count}`;
    this.image = element("img", { src: this.url, alt: this.file.name });
    this.image.onload = () => this.image.classList.toggle("tiny", this.image.naturalWidth < 160);
    this.image.onerror = () => { this.image.alt = `${this.file.name} (this browser cannot show it)`; };
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.caption = element("figcaption");
    const stage = element("span", { className: "stage" }, this.image, this.canvas);
    this.title = element("h2", { id, textContent: this.file.name, title: this.file.name });
    const remove = element("button", {
      type: "button", className: "remove", textContent: "×", "aria-label": `Remove ${this.file.name}`,
    });
    remove.onclick = () => this.options.onRemove(this);
    this.body = element("div", {}, element("div", { className: "waiting" }));
    this.root = element("article", { className: "card", "aria-labelledby": id, "aria-busy": "true" },
      element("div", { className: "picture" }, element("figure", { className: "frame" }, stage, this.caption)),
      element("div", { className: "findings" },
        element("div", { className: "card-head" }, this.title, remove), this.body));
  }

  fail(message) {
    this.root.removeAttribute("aria-busy");
    this.body.replaceChildren(element("p", { className: "problem", textContent: message }));
  }

  show(answer) {
    this.answer = answer;
    this.root.removeAttribute("aria-busy");
    this.verdict = element("p", { className: "verdict" });
    this.warning = element("p", {
      className: "unfamiliar", hidden: !answer.unfamiliar,
      textContent: "This picture is unlike the training images: its labels may be wrong.",
    });
    this.left = element("p", { className: "left" });
    this.list = element("ul", { className: "labels" });
    this.cooccurring = element("section", { className: "cooccurring" });
    this.more = element("button", { type: "button", className: "more" });
    this.more.onclick = () => { this.showsAll = !this.showsAll; this.update(); };
    this.order = [...answer.labels].sort((a, b) => b.probability - a.probability);
    for (const label of this.order) this.list.append(this.makeRow(label));
    this.body.replaceChildren(this.verdict, this.warning, this.left, this.list, this.more, this.cooccurring);
    this.update();
  }

  makeRow(label) {
    const parts = {
      check: element("span", { className: "check", "aria-hidden": "true" }),
      fill: element("i", { className: "fill" }),
      tick: element("i", { className: "tick" }),
    };
    const bar = element("span", { className: "bar", "aria-hidden": "true" },
      element("i", { className: "rail" }), parts.fill);
    const range = element("span", { className: "range" });
    parts.fill.style.width = `${100 * label.probability}%`;
    if (label.low !== null) {
      const interval = element("i", { className: "interval" });
      interval.style.left = `${100 * label.low}%`;
      interval.style.width = `${100 * (label.high - label.low)}%`;
      bar.append(interval);
      range.textContent = `${percent(label.low).replace(" %", "")} to ${percent(label.high).replace(" %", "")}`;
    }
    bar.append(parts.tick);
    const row = element("button", { type: "button", className: "row", "aria-pressed": "false" },
      element("span", { className: "name" }, parts.check, label.label), bar,
      element("span", { className: "figures" },
        element("span", { className: "percent", textContent: percent(label.probability) }), range));
    if (this.options.hasSaliency) this.listen(row, label);
    else row.removeAttribute("aria-pressed");
    const item = element("li", {}, row);
    this.rows.set(label.label, { label, row, item, ...parts });
    return item;
  }

  listen(row, label) {
    let timer = 0;
    row.onpointerenter = (event) => {
      if (event.pointerType === "mouse") timer = setTimeout(() => this.showHeat(label), HOVER_DELAY);
    };
    row.onpointerleave = () => { clearTimeout(timer); this.settle(); };
    row.onfocus = () => { if (row.matches(":focus-visible")) this.showHeat(label); };
    row.onblur = () => this.settle();
    row.onclick = () => {
      this.pinned = this.pinned === label ? null : label;
      for (const one of this.rows.values()) {
        one.row.setAttribute("aria-pressed", String(one.label === this.pinned));
      }
      this.settle();
    };
  }

  // Back to the pinned label's heat, or to none.
  settle() {
    if (this.pinned) this.showHeat(this.pinned);
    else this.hideHeat();
  }

  hideHeat() {
    this.wanted = null;
    this.canvas.classList.remove("shown");
    this.caption.textContent = "";
  }

  async showHeat(label) {
    const name = label.label;
    this.wanted = name;
    if (!this.maps.has(name)) {
      this.caption.textContent = `Computing the heat map of “${name}” …`;
      this.maps.set(name, this.options.fetchMap(this.file, name));
    }
    try {
      const map = await this.maps.get(name);
      if (this.wanted !== name) return;
      const isEmpty = !map.values.flat().some((value) => value > 0);
      this.caption.textContent = isEmpty
        ? `No evidence for “${name}” here` : `Bright: evidence for “${name}”`;
      drawHeat(this.canvas, map);
      this.canvas.classList.toggle("shown", !isEmpty);
      this.options.announce(isEmpty ? this.caption.textContent : `Heat map of ${name} shown`);
    } catch (error) {
      this.maps.delete(name);
      if (this.wanted === name) this.caption.textContent = error.message;
    }
  }

  // Decisions, after the threshold has moved.
  update() {
    if (!this.answer) return;
    const { isPresent, isUnsure, thresholdOf } = this.options;
    const present = this.order.filter(isPresent);
    const unsure = this.order.filter(isUnsure);
    this.left.hidden = !unsure.length;
    this.left.textContent = `For you to decide: ${unsure.map((label) => label.label).join(", ")}`;
    this.verdict.textContent = present.map((label) => label.label).join(", ") || "No label reaches its threshold";
    this.verdict.classList.toggle("none", !present.length);
    const shown = Math.max(SHOWN_LABELS, present.length);
    this.order.forEach((label, place) => {
      const { row, item, check, tick } = this.rows.get(label.label);
      const is = isPresent(label);
      row.classList.toggle("present", is);
      check.textContent = isUnsure(label) ? "?" : is ? "✓" : "";
      tick.style.left = `${100 * thresholdOf(label)}%`;
      item.hidden = !this.showsAll && place >= shown && !is && !isUnsure(label);
      const interval = label.low === null ? "" : `, between ${percent(label.low)} and ${percent(label.high)}`;
      const does = this.options.hasSaliency ? ". Shows its heat map" : "";
      const decision = `${is ? "present" : "absent"}${isUnsure(label) ? ", for you to decide" : ""}`;
      row.setAttribute("aria-label",
        `${label.label}: ${percent(label.probability)}${interval}, ${decision}${does}`);
    });
    this.more.hidden = this.order.length <= shown;
    this.more.textContent = this.showsAll ? "Show fewer" : `Show all ${this.order.length} labels`;
    this.more.setAttribute("aria-expanded", String(this.showsAll));
    this.showCooccurring(present);
  }

  showCooccurring(present) {
    const lines = present.map((label) => [label, this.options.cooccurringOf(label.label)])
      .filter(([, others]) => others.length);
    this.cooccurring.hidden = !lines.length;
    const names = new Set(present.map((label) => label.label));
    const items = lines.map(([label, others]) => {
      const item = element("li", {}, element("strong", { textContent: label.label }), " often with ");
      others.slice(0, 3).forEach((one, place) => {
        if (place) item.append(", ");
        const isHere = names.has(one.label);
        item.append(element("span", {
          className: isHere ? "here" : "missing",
          textContent: `${one.label} ${percent(one.share)}${isHere ? " (here too)" : ""}`,
        }));
      });
      return item;
    });
    this.cooccurring.replaceChildren(element("h3", { textContent: "Often occur together" }),
      element("ul", {}, ...items));
  }

  close() {
    URL.revokeObjectURL(this.url);
    this.root.remove();
  }
}
Card.count = 0;
