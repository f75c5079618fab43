// The page: takes images, sends each to the service, and updates cards, threshold and download.
import { Card, percent } from "./cards.js";

const MAX_CONCURRENT = 4;
const MAX_ATTEMPTS = 8;

const find = (id) => document.getElementById(id);
const cards = [];
const waiting = [];
let model = null;
let token = null;
let threshold = null; // null: each label's own
let numSending = 0;

class Refusal extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

async function call(path, options = {}) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  for (let attempt = 1; ; attempt += 1) {
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch {
      throw new Refusal(0, "The service cannot be reached.");
    }
    if ((response.status === 429 || response.status === 503) && attempt < MAX_ATTEMPTS) {
      const seconds = Number(response.headers.get("Retry-After")) || 1;
      await new Promise((resolve) => { setTimeout(resolve, 1000 * seconds * (0.75 + Math.random() / 2)); });
      continue;
    }
    const body = await response.json().catch(() => null);
    if (response.status === 401) askForToken(token !== null);
    if (!response.ok) throw new Refusal(response.status, body?.error?.message ?? `Status ${response.status}`);
    return body;
  }
}

function predict(file, query = "") {
  const form = new FormData();
  form.append("images", file, file.name);
  return call(`v1/predict${query}`, { method: "POST", body: form }).then((body) => body.images[0]);
}

async function fetchMap(file, label) {
  const image = await predict(file, `?saliency_label=${encodeURIComponent(label)}`);
  return image.labels.find((one) => one.label === label).saliency;
}

const thresholdOf = (label) => (threshold === null ? label.threshold : threshold);
const isPresent = (label) => (threshold === null ? label.present : label.probability >= threshold);
// The service decides at each label's own threshold; null where it leaves no decision to a person.
const isUnsure = (label) => (threshold === null ? label.unsure : null);

function announce(text) { find("status").textContent = text; }

async function start() {
  try {
    model = await call("v1/labels");
  } catch (error) {
    find("model").textContent = error.status === 401 ? "" : error.message;
    return;
  }
  find("token-form").hidden = true;
  const megabytes = Math.floor(model.max_body_bytes / 2 ** 20);
  find("model").textContent =
    `Model “${model.name}”: ${model.labels.length} labels, images resized to ${model.image_size} pixels`;
  find("limits").textContent = `Up to ${megabytes} MiB each. Sent to this service and not stored.`;
  find("guarantee").hidden = !model.guarantee;
  find("guarantee").textContent = model.guarantee ? `${model.guarantee.sentence} A threshold of your own has none.` : "";
  const leaves = model.unsure_above !== null;
  find("abstains").hidden = !leaves;
  find("abstains").textContent = leaves
    ? `Decisions that are wrong with a probability above ${percent(model.unsure_above)} are left to you: “?”.` : "";
  find("interval-key").hidden = !model.has_probability_intervals;
  find("saliency-key").hidden = !model.has_saliency;
  for (const card of cards) if (!card.answer) queue(card);
}

function askForToken(wasWrong) {
  token = null;
  find("token-form").hidden = false;
  find("token-error").textContent = wasWrong ? "That was not the right token." : "";
  find("token").focus();
}

function addFiles(files) {
  if (!model) return;
  const cooccurring = new Map(model.labels.map((label) => [label.label, label.cooccurring_labels]));
  const images = [...files].filter((file) => !file.type || file.type.startsWith("image/"));
  if (!images.length) announce("No image among these files");
  for (const file of images) {
    const card = new Card(file, {
      fetchMap, announce, isPresent, isUnsure, thresholdOf,
      hasSaliency: model.has_saliency,
      cooccurringOf: (label) => cooccurring.get(label) ?? [],
      onRemove: remove,
    });
    cards.push(card);
    find("results").append(card.root);
    if (file.size > model.max_body_bytes - 4096) {
      card.fail(`Larger than the ${Math.floor(model.max_body_bytes / 2 ** 20)} MiB that the service accepts.`);
    } else {
      queue(card);
    }
  }
  arrange();
}

function queue(card) {
  if (!waiting.includes(card)) waiting.push(card);
  while (numSending < MAX_CONCURRENT && waiting.length) send(waiting.shift());
}

async function send(card) {
  numSending += 1;
  try {
    card.show(await predict(card.file));
    const warning = card.answer.unfamiliar ? `. ${card.warning.textContent}` : "";
    const left = card.left.hidden ? "" : `. ${card.left.textContent}`;
    announce(`${card.file.name}: ${card.verdict.textContent}${warning}${left}`);
  } catch (error) {
    if (error.status !== 401) {
      card.fail(error.message);
      announce(`${card.file.name}: ${error.message}`);
    }
  }
  numSending -= 1;
  arrange();
  if (waiting.length && numSending < MAX_CONCURRENT) send(waiting.shift());
}

function remove(card) {
  const place = cards.indexOf(card);
  cards.splice(place, 1);
  if (waiting.includes(card)) waiting.splice(waiting.indexOf(card), 1);
  card.close();
  arrange();
  // Focus stays near where it was, not at the top of the page.
  const next = cards[Math.min(place, cards.length - 1)];
  (next ? next.root.querySelector(".remove") : find("files")).focus();
  announce(`${card.file.name} removed`);
}

function arrange() {
  find("drop").classList.toggle("compact", cards.length > 0);
  find("controls").hidden = !cards.length;
  find("download").disabled = !cards.some((card) => card.answer);
}

function moveThreshold(value) {
  threshold = value;
  find("threshold-value").textContent = value === null ? "own" : percent(value);
  find("threshold").setAttribute("aria-valuetext", value === null ? "each label's own" : percent(value));
  find("threshold").classList.toggle("own", value === null);
  find("own").disabled = value === null;
  let numPresent = 0;
  for (const card of cards) {
    card.update();
    if (card.answer) numPresent += card.answer.labels.filter(isPresent).length;
  }
  const at = value === null ? "With each label's own threshold" : `At ${percent(value)}`;
  announce(`${at}: ${numPresent} labels in ${cards.length} images`);
}

function download() {
  const images = cards.filter((card) => card.answer).map((card) => ({
    ...card.answer,
    labels: card.answer.labels.map((label) => ({ ...label, present: isPresent(label), unsure: isUnsure(label) })),
  }));
  const content = JSON.stringify({ model: model.name, common_threshold: threshold, images }, null, 2);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type: "application/json" }));
  link.download = `${model.name}-labels.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  announce(`JSON of ${images.length} images saved`);
}

find("files").onchange = (event) => { addFiles(event.target.files); event.target.value = ""; };
find("threshold").oninput = (event) => moveThreshold(Number(event.target.value) / 100);
find("own").onclick = () => { moveThreshold(null); find("threshold").focus(); };
find("download").onclick = download;
find("clear").onclick = () => {
  waiting.length = 0;
  for (const card of cards.splice(0)) card.close();
  arrange();
  find("files").focus();
  announce("All images removed");
};
find("token-form").onsubmit = (event) => {
  event.preventDefault();
  token = find("token").value.trim();
  start();
};

let depth = 0; // dragenter and dragleave also come for the elements inside
addEventListener("dragenter", (event) => { event.preventDefault(); depth += 1; find("drop").classList.add("over"); });
addEventListener("dragleave", () => { if (!--depth) find("drop").classList.remove("over"); });
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  depth = 0;
  find("drop").classList.remove("over");
  addFiles(event.dataTransfer.files);
});
addEventListener("paste", (event) => { if (event.clipboardData.files.length) addFiles(event.clipboardData.files); });

moveThreshold(null);
announce("");
start();
