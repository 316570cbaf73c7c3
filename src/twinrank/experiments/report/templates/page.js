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

// The rankings of a chosen query by two methods, side by side.
const explorer = document.getElementById("explorer");
if (explorer) {
  const data = JSON.parse(document.getElementById("query-data").textContent);
  const [first, second, list] = ["query-baseline", "query-method", "query-list"].map(
    id => document.getElementById(id));
  const element = (tag, text, attributes = {}) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const number = value => value === null ? "–" : Number(value.toPrecision(4)).toString().replace("-", "−");
  const fixed = (value, digits = 3) => value === null ? "–" : value.toFixed(digits).replace("-", "−");
  const signed = (value, digits = 3) => (value > 0 ? "+" : "") + fixed(value, digits);
  const gain = query => query.values[second.value] - query.values[first.value];
  const table = (caption, heads) => {
    const made = element("table"), top = element("tr");
    const title = element("caption");
    title.append(element("span", caption));
    top.append(...heads.map(head => element("th", head, { scope: "col" })));
    const head = element("thead"), body = element("tbody");
    head.append(top);
    made.append(title, head, body);
    return [made, body];
  };

  const ranking = (query, method, other, isBaseline) => {
    const [made, body] = table(
      `${data.methods[method]}: ${data.measure} ${fixed(query.values[method], 4)}`,
      ["Rank", "Document", "Label", "Score", isBaseline ? "Rank by method" : "Move"]);
    const order = query.documents.map((_, i) => i).sort(
      (a, b) => query.ranks[method][a] - query.ranks[method][b]);
    for (const i of order) {
      const rank = query.ranks[method][i], before = query.ranks[other][i];
      if (rank > Number(explorer.dataset.depth)) break;
      const row = element("tr", undefined, { "data-document": i }), label = query.labels[i];
      row.append(element("th", rank, { scope: "row" }));
      row.append(element("td", query.documents[i], { title: query.documents[i] }));
      row.append(element("td", number(label), label > 0 ? { class: "relevant" } : {}));
      row.append(element("td", fixed(query.scores[method][i])));
      const move = element("td"), step = before - rank;
      if (isBaseline) {
        move.textContent = before;
      } else if (step === 0) {
        move.textContent = "=";
        move.append(element("span", " no move", { class: "unseen" }));
      } else {
        const up = step > 0;
        move.className = up ? "moved-up" : "moved-down";
        move.append(element("span", `${up ? "▲" : "▼"} ${Math.abs(step)}`, { "aria-hidden": "true" }));
        move.append(element("span", `${up ? "up" : "down"} ${Math.abs(step)}`, { class: "unseen" }));
      }
      row.append(move);
      body.append(row);
    }
    const region = element("div", undefined, {
      class: "scroll", role: "region", tabindex: "0", "aria-label": `Ranking by ${data.methods[method]}` });
    region.append(made);
    return region;
  };

  const features = query => {
    const [a, b] = [Number(first.value), Number(second.value)], flipped = a > b;
    const rows = query.pairs[flipped ? `${b},${a}` : `${a},${b}`];
    const strength = data.attributed ? "Share of the difference" : "Correlation with the difference";
    const [made, body] = table("Features that go with the difference in this query",
      ["Feature", strength, "Correlation with the labels", "Mean if ranked higher", "Mean if ranked lower"]);
    for (const [feature, value, labels, up, down] of rows) {
      const row = element("tr");
      row.append(element("th", data.features[feature] ?? `feature ${feature + 1}`, { scope: "row" }));
      const sign = flipped && !data.attributed ? -1 : 1;
      for (const text of [signed(sign * value, 2), signed(labels, 2),
        number(flipped ? down : up), number(flipped ? up : down)]) row.append(element("td", text));
      body.append(row);
    }
    return rows.length ? made : element("p", "No feature goes with a difference in this query.");
  };

  const showQuery = () => {
    const query = data.queries[list.value];
    const [a, b] = [Number(first.value), Number(second.value)];
    document.getElementById("query-status").textContent =
      `Query ${query.id}, ${query.size.toLocaleString("en")} documents: ${data.measure} ` +
      `${fixed(query.values[a], 4)} with ${data.methods[a]}, ${fixed(query.values[b], 4)} with ` +
      `${data.methods[b]} (${signed(gain(query), 4)}).`;
    document.getElementById("query-sides").replaceChildren(
      ranking(query, a, b, true), ranking(query, b, a, false));
    document.getElementById("query-features").replaceChildren(features(query));
    document.getElementById("query-explained").textContent = data.attributed
      ? "The share says how much of the difference between the methods' scores (each with deviation 1) comes from the models' contributions of a feature."
      : "The difference is that of the methods' scores, each with deviation 1 within the query. A correlation shows which features go with it; it does not prove a cause.";
  };

  const showList = () => {
    const order = data.queries.map((_, i) => i).sort((i, j) => gain(data.queries[i]) - gain(data.queries[j]));
    list.replaceChildren(...order.map(i => {
      const query = data.queries[i];
      const values = [first, second].map(box => fixed(query.values[box.value]));
      return element("option", `${query.id}: ${signed(gain(query))} (${values.join(" → ")})`, { value: i });
    }));
    list.selectedIndex = 0;
    showQuery();
  };

  const choose = (changed, other) => {
    if (changed.value === other.value) other.value = changed.value === "0" ? "1" : "0";
    showList();
  };
  for (const box of [first, second]) {
    box.append(...data.methods.map((name, i) => element("option", name, { value: i })));
  }
  first.value = explorer.dataset.baseline;
  second.value = explorer.dataset.method;
  first.addEventListener("change", () => choose(first, second));
  second.addEventListener("change", () => choose(second, first));
  list.addEventListener("change", showQuery);
  const sides = document.getElementById("query-sides");
  sides.addEventListener("mouseover", event => {
    const row = event.target.closest("[data-document]");
    for (const each of sides.querySelectorAll("[data-document]")) {
      each.classList.toggle("same", row !== null && each.dataset.document === row.dataset.document);
    }
  });
  showList();
}
