"use strict";
// The data of the page: findings in order, and the rows of the dataset's table for the corrected one.
const data = JSON.parse(document.getElementById("data").textContent);
const cards = Array.from(document.querySelectorAll(".finding"));
const storageKey = "kmcl-audit-" + data.digest;
let decisions = {};
let current = -1;

function load() {
  try {
    decisions = JSON.parse(localStorage.getItem(storageKey)) || {};
  } catch {
    decisions = {};
  }
}

function save() {
  try {
    localStorage.setItem(storageKey, JSON.stringify(decisions));
  } catch {
    // Without storage the decisions last until the page is closed.
  }
}

function show(index) {
  const decision = decisions[index] || "";
  cards[index].dataset.decision = decision;
  for (const button of cards[index].querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.value === decision));
  }
}

function count() {
  const values = Object.values(decisions);
  const accepted = values.filter((value) => value === "accept").length;
  const rejected = values.filter((value) => value === "reject").length;
  document.getElementById("progress").textContent =
    `${accepted} accepted, ${rejected} rejected, ${cards.length - accepted - rejected} open`;
}

function select(index, scroll = true) {
  if (index < 0 || index >= cards.length) return;
  if (current >= 0) cards[current].removeAttribute("aria-current");
  current = index;
  cards[index].setAttribute("aria-current", "true");
  if (scroll) cards[index].scrollIntoView({ block: "center", behavior: "instant" });
}

function decide(index, decision) {
  if (index < 0) return;
  if (decision) decisions[index] = decision;
  else delete decisions[index];
  save();
  show(index);
  count();
}

function cell(value) {
  const text = String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function toCsv(rows) {
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function decisionTable() {
  const place = data.columns.indexOf("decision");
  const rows = data.findings.map((finding, index) =>
    finding.cells.map((value, column) => (column === place ? decisions[index] || "" : value)));
  return toCsv([data.columns, ...rows]);
}

function correctedTable() {
  const rows = data.table.map((row) => row.slice());
  data.findings.forEach((finding, index) => {
    if (decisions[index] === "accept") {
      for (const row of finding.rows) rows[row + 1][finding.column] = finding.suggested;
    }
  });
  return toCsv(rows);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key.toLowerCase();
  const step = { j: 1, arrowdown: 1, k: -1, arrowup: -1 }[key];
  if (step) {
    event.preventDefault();
    select(Math.min(Math.max(current + step, 0), cards.length - 1));
  } else if (key === "a" || key === "r") {
    decide(current, key === "a" ? "accept" : "reject");
    select(current + 1);
  } else if (key === "u") {
    decide(current, "");
  }
});

cards.forEach((card, index) => {
  card.addEventListener("click", (event) => {
    select(index, false);
    const button = event.target.closest("button");
    if (button) decide(index, decisions[index] === button.value ? "" : button.value);
  });
});

document.getElementById("save-decisions").addEventListener("click", () => download("decisions.csv", decisionTable()));
const corrected = document.getElementById("save-table");
if (data.table) corrected.addEventListener("click", () => download("corrected.csv", correctedTable()));
else corrected.hidden = true;

load();
cards.forEach((_, index) => show(index));
count();
select(0, false);
