// How long things took: latency markers by operator, rescales, and the parts of a checkpoint.
import { html, useState } from "/pages/vendor/htm-preact-standalone.js";
import { useAnswer } from "/pages/api.js";
import { bytes, LongTable, number, span, State, time } from "/pages/parts.js";

const path = (job, rest) => `/jobs/${encodeURIComponent(job)}${rest}`;
const lasted = (ms) => (ms == null || ms < 0 ? "–" : span(ms));

const Waiting = ({ problem }) => html`<p class="dim" role="status">${problem || "Reading…"}</p>`;

export function Latency({ job, tick }) {
  const [found, problem] = useAnswer(`/v1${path(job, "/latency")}`, tick);
  if (!found) return html`<${Waiting} problem=${problem} />`;
  if (!found.operators.length) return html`<p>No latency marker has come: start the job with <span class="mono">-Dmetrics.latency.interval=1s</span>.</p>`;
  return html`<section class="card scroll"><table><caption>For how long rows queue from a source to an operator, by its latency markers</caption><thead><tr><th scope="col">Operator</th><th scope="col">Source</th><th scope="col" class="n">Markers</th><th scope="col" class="n">Median</th><th scope="col" class="n">95 %</th><th scope="col" class="n">99 %</th><th scope="col" class="n">Longest</th></tr></thead>
    <tbody>${found.operators.map((one) => html`<tr key=${`${one.task} ${one.operator} ${one.source}`}><td>${one.operator}</td><td class="mono">${one.source}</td><td class="n">${number(one.count)}</td><td class="n">${lasted(one.median)}</td><td class="n">${lasted(one.p95)}</td><td class="n">${lasted(one.p99)}</td><td class="n">${lasted(one.max)}</td></tr>`)}</tbody></table></section>`;
}

export function Rescales({ job, tick }) {
  const [found, problem] = useAnswer(path(job, "/rescales/history"), tick);
  if (!found) return html`<${Waiting} problem=${problem} />`;
  if (!found.length) return html`<p>The job has not been rescaled.</p>`;
  return html`<section class="card scroll"><table><caption>Rescales, the newest first</caption><thead><tr><th scope="col" class="n">Number</th><th scope="col">Outcome</th><th scope="col">Began (UTC)</th><th scope="col" class="n">Took</th><th scope="col">Why it ended</th><th scope="col">Parallelism since</th></tr></thead>
    <tbody>${found.map((one) => html`<tr key=${one.rescaleUuid}><td class="n">${one.rescaleAttemptId}</td><td><${State} of=${(one.terminalState || "under way").toLowerCase()} /></td><td>${time(one.startTimestampInMillis)}</td><td class="n">${one.endTimestampInMillis == null ? "–" : span(one.endTimestampInMillis - one.startTimestampInMillis)}</td><td class="mono">${one.terminatedReason || ""}</td><td>${Object.values(one.vertices).map((task) => `${task.jobVertexName}: ${task.postRescaleParallelism}`).join(", ")}</td></tr>`)}</tbody></table></section>`;
}

export function Parts({ job, tasks, history }) {
  const [chosen, setChosen] = useState(""), [task, setTask] = useState(String(tasks[0]?.id ?? ""));
  const [found, problem] = useAnswer(chosen && path(job, `/checkpoints/details/${chosen}/subtasks/${task}`), task);
  return html`<section class="card"><h2>What each subtask did</h2>
    <form class="asked"><label>Checkpoint <select value=${chosen} onChange=${(event) => setChosen(event.target.value)}><option value="">choose one</option>${history.slice().reverse().map((one) => html`<option key=${one.checkpoint} value=${one.checkpoint}>${one.kind} ${one.checkpoint}</option>`)}</select></label>
      <label>Task <select value=${task} onChange=${(event) => setTask(event.target.value)}>${tasks.map((one) => html`<option key=${one.id} value=${one.id}>${one.name}</option>`)}</select></label></form>
    ${chosen && !found && html`<${Waiting} problem=${problem} />`}
    ${chosen && found && html`<${LongTable} caption=${`${found.num_acknowledged_subtasks} of ${found.num_subtasks} subtasks acknowledged`} rows=${found.subtasks} rowKey=${(one) => one.index} columns=${[
      { name: "Subtask", n: true, show: (one) => one.index }, { name: "Outcome", show: (one) => html`<${State} of=${one.status === "completed" ? "completed" : "created"} />` }, { name: "Acknowledged after", n: true, show: (one) => lasted(one.end_to_end_duration) },
      { name: "Alignment", n: true, show: (one) => lasted(one.alignment?.duration) }, { name: "Data waited", n: true, show: (one) => lasted(one.checkpoint?.sync) }, { name: "Files took", n: true, show: (one) => lasted(one.checkpoint?.async) },
      { name: "State", n: true, show: (one) => (one.state_size == null ? "–" : bytes(one.state_size)) }, { name: "Written", n: true, show: (one) => (one.checkpointed_size == null ? "–" : bytes(one.checkpointed_size)) }]} />`}</section>`;
}
