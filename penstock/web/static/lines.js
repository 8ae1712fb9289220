// Rows of which all are in the page and most change with each reading: each is a copy of an empty one, changed where what a cell shows
// has changed.
import { html, useLayoutEffect, useRef } from "/pages/vendor/htm-preact-standalone.js";
import { barStyle, barText } from "/pages/parts.js";

const made = (name, attributes = {}) => { const node = document.createElement(name); for (const [one, value] of Object.entries(attributes)) node.setAttribute(one, value); return node; };

// What is in a cell, and how it comes to show what its column says of a row, `text`.
const TEXT = { make: () => document.createTextNode(""), put: (node, text) => { node.nodeValue = text; } };
const BAR = { make: () => made("span", { class: "bar", role: "img" }), put: (node, text, { busy, blocked }) => {
  node.setAttribute("aria-label", text); node.title = text;
  for (const [name, value] of Object.entries(barStyle(busy, blocked))) node.style.setProperty(name, value);
} };
export const timeBar = { name: "Time", show: ({ busy, blocked }) => barText(busy, blocked), as: BAR };
export const linkTo = (href) => ({ make: () => made("a"), put: (node, text, row) => { node.textContent = text; node.href = href(row); } });

function emptyRow(columns) {
  const row = made("tr");
  for (const { n, as = TEXT } of columns) row.appendChild(made("td", n ? { class: "n" } : {})).append(as.make());
  return row;
}

function Lines({ rows, columns, isMarked }) {
  const body = useRef(null), lines = useRef([]), empty = useRef(null);
  useLayoutEffect(() => {
    empty.current ??= emptyRow(columns);
    const kept = lines.current;
    while (kept.length < rows.length) {
      const row = empty.current.cloneNode(true);
      kept.push({ row, nodes: Array.from(row.cells, (cell) => cell.firstChild), shown: [] });
    }
    for (const { row } of kept.splice(rows.length)) row.remove();
    rows.forEach((one, place) => {
      const { row, nodes, shown } = kept[place];
      columns.forEach(({ show, as = TEXT }, at) => {
        const text = show(one);
        if (shown[at] !== text) as.put(nodes[at], shown[at] = text, one);
      });
      row.className = isMarked(one) ? "sel" : "";
    });
    body.current.append(...kept.slice(body.current.rows.length).map(({ row }) => row));
  });
  return html`<tbody ref=${body}></tbody>`;
}

// A table of such rows. `show` of a column gives the text of a row; `as` is what is in its cells where they are not plain text.
export const LinesTable = ({ caption, columns, rows, isMarked }) => html`<table><caption>${caption}</caption>
  <thead><tr>${columns.map((one) => html`<th key=${one.name} scope="col" class=${one.n ? "n" : ""}>${one.name}</th>`)}</tr></thead>
  <${Lines} rows=${rows} columns=${columns} isMarked=${isMarked} /></table>`;
