// The last rows of a stream: nobody looks at it until somebody asks, and then for some seconds.
import { html, useState } from "/pages/vendor/htm-preact-standalone.js";
import { get } from "/pages/api.js";
import { Data, number } from "/pages/parts.js";

const ROWS = 50, SECONDS = 5;

export function Rows({ job, tasks, role }) {
  const streams = tasks.flatMap((task) => task.operators.map((one) => ({ ...one, task: task.name })));
  const [uid, setUid] = useState(streams[0]?.uid ?? ""), [side, setSide] = useState(""), [found, setFound] = useState(null), [problem, setProblem] = useState(null), [looking, setLooking] = useState(false);
  if (role !== "operator") return html`<p>Rows are data: they need the operator's token.</p>`;
  const look = async (event) => {
    event.preventDefault();
    setLooking(true);
    try {
      setFound(await get(`/v1/jobs/${encodeURIComponent(job)}/tail/${encodeURIComponent(uid)}?rows=${ROWS}&seconds=${SECONDS}&side=${encodeURIComponent(side)}`));
      setProblem(null);
    } catch (error) { setProblem(error.message); }
    setLooking(false);
  };
  return html`<section class="card"><h2>The last rows of a stream</h2>
    <form class="asked" onSubmit=${look}><label>What comes out of <select value=${uid} onChange=${(event) => setUid(event.target.value)}>${streams.map((one) => html`<option key=${one.uid} value=${one.uid}>${one.name}</option>`)}</select></label>
      <label>Side output (empty: its results) <input value=${side} onInput=${(event) => setSide(event.target.value)} /></label>
      <button class="main" type="submit" disabled=${looking}>Look</button></form>
    <p class="dim" role="status">${looking ? `Looking until ${ROWS} rows have come, for ${SECONDS} seconds at the most…` : ""}</p>
    ${problem && html`<p class="failed" role="alert">${problem}</p>`}
    ${found && (found.rows.length ? html`<${Data} of=${found} caption=${`The last ${found.rows.length} of ${number(found.seen)} rows that came`} />` : html`<p>No row came within ${SECONDS} seconds.</p>`)}</section>`;
}
