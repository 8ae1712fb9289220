// Small parts that several pages are made of: numbers, times, bars, dialogs, long tables.
import { html, useEffect, useRef, useState } from "/pages/vendor/htm-preact-standalone.js";

export const number = (value) => {
  if (value == null) return "–";
  const size = Math.abs(value);
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= limit) { const by = value / (unit === "k" ? 1e3 : limit); return by.toFixed(Math.abs(by) < 10 ? 2 : 1) + unit; }
  }
  return size >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
};
export const bytes = (value) => {
  for (const [limit, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) if (value >= limit) return `${(value / limit).toFixed(1)} ${unit}`;
  return `${(value || 0).toFixed(0)} B`;
};
export const share = (value) => `${Math.round((value || 0) * 100)} %`;
export const time = (ms) => (ms ? new Date(ms).toISOString().slice(0, 19).replace("T", " ") : "–");
export const span = (ms) => {
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s.toFixed(1)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
};
export const watermark = (value) => (value === "end" ? "end of input" : time(value));

export const State = ({ of: state }) => html`<span class=${`state ${state}`}>${state}</span>`;

// What a bar looks like, and says.
export const barStyle = (busy, blocked) => ({ "--busy-to": `${busy * 100}%`, "--blocked-to": `${(busy + blocked) * 100}%` });
export const barText = (busy, blocked) => `busy ${share(busy)}, backpressured ${share(blocked)}, idle ${share(Math.max(0, 1 - busy - blocked))}`;

export const Bar = ({ busy, blocked }) => {
  const text = barText(busy, blocked);
  return html`<span class="bar" role="img" aria-label=${text} title=${text} style=${barStyle(busy, blocked)}></span>`;
};

export const Legend = () => html`<div class="legend">
  <span><i style=${{ background: "var(--busy)" }}></i>busy</span>
  <span><i style=${{ background: "var(--blocked)" }}></i>backpressured: waits for those behind it</span>
  <span><i style=${{ background: "var(--idle)" }}></i>idle: waits for input</span></div>`;

export const Facts = ({ of: facts }) => html`<dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;

// A dialog that asks before anything is done; `fields` are asked for by name.
export function Ask({ title, text, fields = [], confirm, danger, onDone }) {
  const dialog = useRef(null);
  const [values, setValues] = useState(Object.fromEntries(fields.map((one) => [one.name, one.value ?? ""])));
  useEffect(() => { dialog.current.showModal(); }, []);
  const end = (answer) => { dialog.current.close(); onDone(answer); };
  return html`<dialog ref=${dialog} aria-labelledby="ask-title" onCancel=${(event) => { event.preventDefault(); end(null); }}>
    <form method="dialog" onSubmit=${(event) => { event.preventDefault(); end(values); }}>
      <h2 id="ask-title">${title}</h2><p>${text}</p>
      ${fields.map((one) => html`<label key=${one.name}>${one.label}
        <input name=${one.name} type=${one.type || "text"} min=${one.min} required=${one.required} placeholder=${one.placeholder} value=${values[one.name]}
          onInput=${(event) => setValues({ ...values, [one.name]: event.target.value })} /></label>`)}
      <div class="row"><button type="button" onClick=${() => end(null)}>Keep as it is</button>
        <button class=${danger ? "danger" : "main"} type="submit">${confirm}</button></div>
    </form></dialog>`;
}

const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));

// Rows of data as the server gives them, with the names and types of their columns.
export const Data = ({ of: found, caption }) => html`<div class="virtual scroll" tabindex="0" role="region" aria-label="Rows"><table><caption>${caption}</caption><thead><tr>${found.columns.map((one) => html`<th scope="col" key=${one.name}>${one.name} <span class="dim">${one.type}</span></th>`)}</tr></thead>
  <tbody>${found.rows.map((row, place) => html`<tr key=${place}>${found.columns.map((one) => html`<td key=${one.name} class="mono">${shown(row[one.name])}</td>`)}</tr>`)}</tbody></table></div>`;

const ROW = 33; // pixels, as style.css makes the rows of long tables
const AROUND = 6, FURTHER = 4; // rows above and below those in sight; and after so many that it was scrolled, others are drawn

// A table of any length: only the rows in sight are in the page.
export function LongTable({ caption, columns, rows, rowKey }) {
  const [begin, setBegin] = useState(0);
  // No more of the window than style.css lets it have.
  const first = Math.max(0, begin - AROUND), last = Math.min(rows.length, begin + FURTHER + Math.ceil((0.6 * innerHeight) / ROW) + AROUND);
  return html`<div class="virtual long scroll" tabindex="0" role="region" aria-label=${caption} onScroll=${(event) => setBegin(FURTHER * Math.floor(event.currentTarget.scrollTop / (FURTHER * ROW)))}>
    <table aria-rowcount=${rows.length}><caption>${caption}</caption>
      <thead><tr>${columns.map((one) => html`<th key=${one.name} scope="col" class=${one.n ? "n" : ""}>${one.name}</th>`)}</tr></thead>
      <tbody>
        ${first > 0 && html`<tr style=${{ height: `${first * ROW}px` }} aria-hidden="true"></tr>`}
        ${rows.slice(first, last).map((row) => html`<tr key=${rowKey(row)}>${columns.map((one) => html`<td key=${one.name} class=${one.n ? "n" : ""}>${one.show(row)}</td>`)}</tr>`)}
        ${last < rows.length && html`<tr style=${{ height: `${(rows.length - last) * ROW}px` }} aria-hidden="true"></tr>`}
      </tbody></table></div>`;
}
