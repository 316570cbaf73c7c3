"use strict";

// Headings sort their tables. Cells without a value come last in both orders.
function sortBy(heading) {
  const table = heading.closest("table"), body = table.tBodies[0];
  const column = heading.cellIndex, sign = { ascending: 1, descending: -1 };
  const other = { ascending: "descending", descending: "ascending" };
  const order = other[heading.getAttribute("aria-sort")] || heading.dataset.first;
  const key = row => heading.dataset.order === "text"
    ? row.cells[column].textContent
    : row.cells[column].dataset.value === "" ? NaN : Number(row.cells[column].dataset.value);
  const compare = (a, b) => typeof a === "string"
    ? a.localeCompare(b, "en", { numeric: true }) * sign[order]
    : Number.isNaN(a) || Number.isNaN(b) ? Number.isNaN(a) - Number.isNaN(b) : (a - b) * sign[order];
  const rows = Array.from(body.rows, row => [key(row), row]);
  rows.sort((a, b) => compare(a[0], b[0]));
  body.append(...rows.map(pair => pair[1]));
  for (const th of table.tHead.rows[0].cells) th.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", order);
  const status = document.getElementById("sorted");
  if (status) status.textContent = `Sorted by ${heading.textContent}, ${order}.`;
}
for (const button of document.querySelectorAll(".sortable thead button")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}

// A tooltip explains each value on hover and focus; arrow keys move between values.
const tip = document.getElementById("tip");
function show(cell) {
  tip.textContent = cell.dataset.tip.replaceAll("; ", "\n");
  tip.hidden = false;
  const at = cell.getBoundingClientRect(), size = tip.getBoundingClientRect();
  const left = Math.min(at.right - size.width, innerWidth - size.width - 8);
  const top = at.top - size.height - 4;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${top < 4 ? at.bottom + 4 : top}px`;
}
function hide() { tip.hidden = true; }
for (const table of document.querySelectorAll(".explained")) {
  const body = table.tBodies[0];
  for (const cell of body.querySelectorAll("td")) {
    cell.tabIndex = -1;
    if (!cell.title) continue;
    cell.dataset.tip = cell.title;
    cell.removeAttribute("title");
    cell.addEventListener("mouseenter", () => show(cell));
    cell.addEventListener("focus", () => show(cell));
    cell.addEventListener("mouseleave", hide);
    cell.addEventListener("blur", hide);
  }
  let current = body.querySelector("td");
  if (current) current.tabIndex = 0;
  body.addEventListener("focusin", event => {
    const cell = event.target.closest("td");
    if (!cell) return;
    current.tabIndex = -1;
    current = cell;
    current.tabIndex = 0;
  });
  body.addEventListener("keydown", event => {
    const cell = event.target.closest("td");
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!cell || !step) return;
    event.preventDefault();
    const row = body.rows[cell.parentNode.sectionRowIndex + step[0]];
    const next = row && row.cells[cell.cellIndex + step[1]];
    if (next && next.tagName === "TD") next.focus();
  });
}
addEventListener("keydown", event => { if (event.key === "Escape") hide(); });
addEventListener("scroll", () => {
  const cell = document.activeElement;
  if (!tip.hidden && cell.dataset.tip) show(cell); else hide();
}, { capture: true, passive: true });

// A legend button highlights its method in every plot; a second click resets it.
const chosen = new Set();
function highlight(preview) {
  const lit = preview === undefined ? chosen : new Set([...chosen, preview]);
  document.body.classList.toggle("alone", lit.size > 0);
  for (const line of document.querySelectorAll("[data-series]")) {
    line.classList.toggle("lit", lit.has(line.dataset.series));
  }
  for (const button of document.querySelectorAll("[data-method]")) {
    button.setAttribute("aria-pressed", chosen.has(button.dataset.method));
  }
}
for (const button of document.querySelectorAll("[data-method]")) {
  const method = button.dataset.method;
  button.addEventListener("click", () => {
    if (!chosen.delete(method)) chosen.add(method);
    highlight();
  });
  button.addEventListener("mouseenter", () => highlight(method));
  button.addEventListener("mouseleave", () => highlight());
}

// The selected baseline of the gains.
const baseline = document.getElementById("baseline");
if (baseline) {
  baseline.addEventListener("change", () => {
    for (const gains of document.querySelectorAll(".gains")) {
      gains.hidden = gains.dataset.baseline !== baseline.value;
    }
  });
}
