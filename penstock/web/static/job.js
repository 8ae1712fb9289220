// One job: what it does, why it is not faster, and the buttons that change it.
import { html, useEffect, useState } from "/pages/vendor/htm-preact-standalone.js";
import { get, send, useAnswer } from "/pages/api.js";
import { Charts, Watermarks } from "/pages/charts.js";
import { Graph } from "/pages/graph.js";
import { LinesTable, linkTo, timeBar } from "/pages/lines.js";
import { Latency, Parts, Rescales } from "/pages/times.js";
import { Rows } from "/pages/rows.js";
import { Stored } from "/pages/state.js";
import { Ask, Bar, bytes, Facts, Legend, LongTable, number, share, span, State, time, watermark } from "/pages/parts.js";

const TABS = [["", "Graph"], ["metrics", "Charts"], ["checkpoints", "Checkpoints"], ["state", "State"], ["rows", "Rows"], ["latency", "Latency"], ["rescales", "Rescales"], ["exceptions", "Exceptions"], ["timeline", "Timeline"], ["logs", "Logs"], ["configuration", "Configuration"]];
const MANY_TASKS = 20;
const path = (job, rest = "") => `/v1/jobs/${encodeURIComponent(job)}${rest}`;
const ended = (status) => ["finished", "failed", "cancelled"].includes(status);

const ACTIONS = (job) => [
  { kind: "checkpoint", name: "Checkpoint", text: "A checkpoint is taken now; the job keeps running.", confirm: "Take a checkpoint", call: () => send("POST", path(job, "/checkpoints"), {}) },
  { kind: "savepoint", name: "Savepoint", text: "A savepoint is taken now; the job keeps running.", confirm: "Take a savepoint", fields: [FOLDER], call: (given) => send("POST", path(job, "/savepoints"), folder(given, "target-directory")) },
  { kind: "rescale", name: "Rescale", text: "The job stands still for some seconds and resumes, from a checkpoint taken now, at another parallelism.", confirm: "Rescale", fields: [{ name: "parallelism", label: "Parallelism", type: "number", min: 1, required: true }, { name: "operator", label: "Operator, by name or uid; empty: all", type: "text" }], call: (given) => send("PATCH", `${path(job, "/rescaling")}?parallelism=${encodeURIComponent(given.parallelism)}${given.operator ? `&operator=${encodeURIComponent(given.operator)}` : ""}`) },
  { kind: "stop", name: "Stop", text: "A savepoint is taken, and the job ends behind it; it can be started again from there.", confirm: "Stop the job", danger: true, fields: [FOLDER], call: (given) => send("POST", path(job, "/stop"), folder(given, "targetDirectory")) },
  { kind: "drain", name: "Drain", text: "The sources end as if their input had: windows fire, and the job ends with a savepoint. To resume from it would give results of windows twice.", confirm: "Drain the job", danger: true, fields: [FOLDER], call: (given) => send("POST", path(job, "/stop"), { ...folder(given, "targetDirectory"), drain: true }) },
  { kind: "cancel", name: "Cancel", text: "The job ends now, without a savepoint.", confirm: "Cancel the job", danger: true, call: () => send("PATCH", `${path(job)}?mode=cancel`) },
];
const FOLDER = { name: "folder", label: "Folder for the savepoint (empty: the configured one)", placeholder: "s3://bucket/savepoints" };
const folder = (given, member) => (given.folder ? { [member]: given.folder } : {});

export function Job({ id, tab, rest, tick, role, say }) {
  const [view, problem] = useAnswer(path(id, "/view"), tick), [asking, setAsking] = useState(null);
  if (!view) return html`<p class="dim" role="status">${problem || "Reading…"}</p>`;
  const info = view.info, over = ended(view.status);

  const act = async (action, given) => {
    setAsking(null);
    if (!given) return;
    try {
      const trigger = (await action.call(given))["request-id"];
      say(`${action.name}: begun…`);
      if (trigger) follow(info.id, trigger, action.name, say);
    } catch (error) { say(`${action.name}: ${error.message}`, true); }
  };
  return html`
    <div class="head"><h1>${info.name}</h1><${State} of=${view.status} /><span class="dim">since ${time(info.since_ms)} UTC</span>
      <span class="mono dim">${info.id}</span>
      <div class="buttons" role="group" aria-label="Actions">
        ${ACTIONS(info.id).map((one) => html`<button key=${one.kind} class=${one.danger ? "danger" : ""} disabled=${over || role !== "operator"} onClick=${() => setAsking(one)}>${one.name}</button>`)}
      </div></div>
    ${asking && html`<${Ask} key=${asking.kind} title=${`${asking.name}: ${info.name}`} text=${asking.text} fields=${asking.fields} confirm=${asking.confirm} danger=${asking.danger} onDone=${(given) => act(asking, given)} />`}
    ${!view.answers && !over && html`<p class="outage" role="status">Its job manager does not answer; figures are those of ${time(view.seen_ms)}.</p>`}
    ${info.status === "cancelled" && info.checkpoints?.latest_url && html`<p class="dim">It has left <span class="mono">${info.checkpoints.latest_url}</span>: <code>penstock run --resume</code> begins from it.</p>`}
    ${info.error && html`<section class="card"><h2>Why it failed</h2><pre tabindex="0">${info.error}</pre></section>`}
    ${!over && html`<section class=${`card why ${view.why.kind}`} aria-label="Who is slow, and why"><p>${view.why.sentence}</p></section>`}
    <nav class="tabs" aria-label="Views of the job">${TABS.map(([name, title]) => html`<a key=${name} href=${`#/jobs/${encodeURIComponent(info.id)}/${name}`} aria-current=${(tab || "") === name ? "page" : undefined}>${title}</a>`)}</nav>
    ${tab === "metrics" ? html`<${Charts} job=${info.id} tasks=${view.tasks} tick=${tick} />`
      : tab === "checkpoints" ? html`<${Checkpoints} info=${info} tasks=${view.tasks} />${info.checkpoints && html`<${Parts} job=${info.id} tasks=${view.tasks} history=${info.checkpoints.history} />`}`
      : tab === "state" ? html`<${Stored} job=${info.id} role=${role} newest=${info.checkpoints?.latest} />`
      : tab === "rows" ? html`<${Rows} job=${info.id} tasks=${view.tasks} role=${role} />`
      : tab === "latency" ? html`<${Latency} job=${info.id} tick=${tick} />`
      : tab === "rescales" ? html`<${Rescales} job=${info.id} tick=${tick} />`
      : tab === "exceptions" ? html`<${Exceptions} entries=${view.exceptions} />`
      : tab === "timeline" ? html`<${Timeline} view=${view} />`
      : tab === "logs" ? html`<${Logs} job=${info.id} tasks=${view.tasks} tick=${tick} />`
      : tab === "configuration" ? html`<${Configuration} info=${info} over=${over} />`
      : html`<${Overview} view=${view} selected=${Number(rest) || null} tick=${tick} role=${role} />`}`;
}

async function follow(job, trigger, name, say) {
  for (;;) {
    await new Promise((done) => setTimeout(done, 700));
    try {
      const found = await get(path(job, `/operations/${trigger}`));
      if (!found.done) continue;
      if (found.error) say(`${name}: ${found.error}`, true);
      else say(`${name}: done. ${found.kind === "rescale" ? (found.result ? `It stood still for ${found.result.toFixed(1)} s.` : "It ran so already.") : typeof found.result === "string" ? found.result : ""}`);
      return;
    } catch (error) { if (error.status) { say(`${name}: ${error.message}`, true); return; } }
  }
}

function Overview({ view, selected, tick, role }) {
  const select = (task) => { location.hash = `#/jobs/${encodeURIComponent(view.info.id)}//${task === selected ? "" : task}`; };
  return html`<section class="card"><${Graph} tasks=${view.tasks} selected=${selected} onSelect=${select} /><${Legend} /></section>
    ${selected && html`<${Task} job=${view.info.id} task=${selected} tasks=${view.tasks} tick=${tick} role=${role} />`}
    <section class="card"><${Tasks} job=${view.info.id} tasks=${view.tasks} selected=${selected} /></section>`;
}

// Below the page of one task, many others are folded, and made when they are asked for.
function Tasks({ job, tasks, selected }) {
  const [isOpen, setOpen] = useState(false), isFolded = selected && tasks.length > MANY_TASKS;
  const table = () => html`<div class="scroll tasks" style=${{ containIntrinsicHeight: `auto ${35 * tasks.length + 75}px` }}><${LinesTable} caption="Tasks" columns=${taskColumns(job)} rows=${tasks} isMarked=${(task) => task.id === selected} /></div>`;
  return isFolded ? html`<details open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}><summary>All ${tasks.length} tasks</summary>${isOpen && table()}</details>` : table();
}

const taskColumns = (job) => [
  { name: "Task", show: (task) => task.name, as: linkTo((task) => `#/jobs/${encodeURIComponent(job)}//${task.id}`) }, { name: "Subtasks", n: true, show: (task) => String(task.parallelism) },
  { name: "In/s", n: true, show: (task) => number(task.rows_in_per_second) }, { name: "Out/s", n: true, show: (task) => number(task.rows_out_per_second) },
  { name: "In", n: true, show: (task) => number(task.rows_in) }, { name: "Out", n: true, show: (task) => number(task.rows_out) }, { name: "Late", n: true, show: (task) => (task.late_rows ? number(task.late_rows) : "") },
  timeBar, { name: "Skew", n: true, show: (task) => (task.parallelism > 1 ? `+${share(task.skew)}` : "") }, { name: "Watermark (UTC)", show: (task) => (task.watermark == null ? "" : watermark(task.watermark)) },
  { name: "Behind the clock", n: true, show: (task) => (task.watermark_lag_ms == null ? "" : span(task.watermark_lag_ms)) }, { name: "Left to read", show: (task) => left(task) },
];
const left = (task) => (task.pending_records != null ? `${number(task.pending_records)} records` : task.splits_left ? `${task.splits_left} splits` : "");

function Task({ job, task, tasks, tick, role }) {
  const [found, problem] = useAnswer(path(job, `/tasks/${task}`), tick), [looking, setLooking] = useState(null);
  useEffect(() => setLooking(null), [job, task]);
  if (!found) return html`<p class="dim">${problem || "Reading…"}</p>`;
  const all = found.subtasks, columns = [
    { name: "Subtask", n: true, show: (row) => all.subtask[row] }, { name: "Status", show: (row) => html`<${State} of=${all.status[row]} />` },
    { name: "Channels", show: (row) => html`<button onClick=${() => setLooking({ subtask: all.subtask[row], kind: "channels" })}>Channels<span class="dim"> ${all.subtask[row]}</span></button>` },
    ...(role === "operator" ? [{ name: "Look", show: (row) => html`<button onClick=${() => setLooking({ subtask: all.subtask[row], kind: "flame" })}>Flame graph<span class="dim"> ${all.subtask[row]}</span></button> <button onClick=${() => setLooking({ subtask: all.subtask[row], kind: "stack" })}>Stack<span class="dim"> ${all.subtask[row]}</span></button>` }] : []),
    { name: "In/s", n: true, show: (row) => number(all.rows_in_per_second[row]) }, { name: "Out/s", n: true, show: (row) => number(all.rows_out_per_second[row]) },
    { name: "Time", show: (row) => html`<${Bar} busy=${all.busy[row]} blocked=${all.blocked[row]} />` },
    { name: "Watermark (UTC)", show: (row) => (all.watermark[row] == null ? "" : watermark(all.watermark[row])) },
    { name: "Queued", n: true, show: (row) => all.queued[row] }, { name: "Buffered", n: true, show: (row) => bytes(all.buffered_bytes[row]) },
    { name: "Alignment", n: true, show: (row) => span(all.alignment_ms[row]) }, { name: "Capture", n: true, show: (row) => span(all.sync_ms[row]) }, { name: "pid", n: true, show: (row) => all.pid[row] ?? "" },
  ];
  return html`<section class="card"><h2>${found.name}</h2>
    ${role === "operator" && html`<p><button onClick=${() => setLooking({ subtask: null, kind: "flame" })}>Flame graph of all subtasks</button></p>`}
    ${found.metrics.length > 0 && html`<div class="scroll"><table><caption>Metrics of its functions</caption><thead><tr><th scope="col">Operator</th><th scope="col">Metric</th><th scope="col">Kind</th><th scope="col" class="n">Value</th><th scope="col">Spread</th></tr></thead>
      <tbody>${found.metrics.map((one) => html`<tr key=${one.operator + one.name}><td>${one.operator}</td><td class="mono">${one.name}</td><td>${one.kind}</td><td class="n">${number(one.value)}</td><td>${one.quantiles.map(([at, value]) => `p${at * 100}: ${number(value)}`).join(", ")}</td></tr>`)}</tbody></table></div>`}
    ${looking?.kind === "channels" && html`<${Channels} job=${job} task=${task} tasks=${tasks} subtask=${looking.subtask} tick=${tick} />`}
    ${looking && looking.kind !== "channels" && html`<${Look} key=${`${looking.kind}-${looking.subtask}`} job=${job} task=${task} ...${looking} />`}
    <${LongTable} caption=${`${all.subtask.length} subtasks`} columns=${columns} rows=${[...all.subtask.keys()]} rowKey=${(row) => all.subtask[row]} />
    <${Watermarks} key=${task} job=${job} task=${task} tick=${tick} /></section>`;
}

// Asked for while it is shown and no longer: a wide task has millions of channels.
function Channels({ job, task, tasks, subtask, tick }) {
  const [found, problem] = useAnswer(path(job, `/tasks/${task}/${subtask}/channels`), tick);
  if (!found) return html`<p role="status">${problem || "Looking…"}</p>`;
  const names = Object.fromEntries(tasks.map((one) => [one.id, one.name]));
  return html`<${LongTable} caption=${`${found.channels.length} channels behind subtask ${subtask}`} rows=${found.channels} rowKey=${(one) => `${one.task} ${one.subtask}`} columns=${[
    { name: "To", show: (one) => (one.task == null ? "the client" : `${names[one.task]} ${one.subtask}`) }, { name: "Rows", n: true, show: (one) => number(one.rows) }, { name: "Bytes sent", n: true, show: (one) => bytes(one.bytes_sent) }, { name: "Messages sent", n: true, show: (one) => number(one.messages_sent) },
    { name: "Rows waiting", n: true, show: (one) => number(one.buffered_rows) }, { name: "Bytes waiting", n: true, show: (one) => bytes(one.buffered_bytes) }, { name: "Under way", n: true, show: (one) => one.messages_under_way }, { name: "Credit left", n: true, show: (one) => one.credits }, { name: "Full", show: (one) => (one.full ? "full" : "") }]} />`;
}

function Look({ job, task, subtask, kind }) {
  const [found, setFound] = useState(null), [problem, setProblem] = useState(null);
  const where = subtask == null ? `/tasks/${task}` : `/tasks/${task}/${subtask}`;
  useEffect(() => { get(path(job, `${where}/${kind}${kind === "flame" ? "?seconds=3" : ""}`)).then(setFound, (error) => setProblem(error.message)); }, []);
  if (!found) return html`<p role="status">${problem || (kind === "flame" ? "Looking for three seconds…" : "Looking…")}</p>`;
  return kind === "flame" ? html`<h2>Flame graph of ${subtask == null ? "all subtasks" : `subtask ${subtask}`}</h2><${Flame} root=${found} />` : html`<h2>Stack of subtask ${subtask}</h2><pre tabindex="0">${found}</pre>`;
}

function Flame({ root }) {
  const [top, setTop] = useState(root);
  const boxes = []; let deepest = 0;
  const walk = (node, depth, left, width) => {
    if (width < 0.002) return;
    boxes.push({ node, depth, left, width }); deepest = Math.max(deepest, depth);
    let at = left;
    for (const child of node.children) { const part = (width * child.value) / node.value; walk(child, depth + 1, at, part); at += part; }
  };
  walk(top, 0, 0, 1);
  return html`<p class="dim">Width is the share of samples; choose a call to see what it calls.${top !== root && html` <button onClick=${() => setTop(root)}>All</button>`}</p>
    <div class="flame" style=${{ height: `${(deepest + 1) * 21}px` }}>${boxes.map((one, place) => html`<button key=${place} title=${`${one.node.name}: ${share(one.node.value / root.value)}`} onClick=${() => setTop(one.node)}
      style=${{ left: `${one.left * 100}%`, width: `${one.width * 100}%`, top: `${one.depth * 21}px`, background: `hsl(${30 - (one.depth * 7) % 26} 90% ${68 - (one.depth * 5) % 16}%)` }}>${one.node.name}</button>`)}</div>`;
}

function Checkpoints({ info, tasks }) {
  const all = info.checkpoints;
  if (!all) return html`<p>The job has no storage for checkpoints.</p>`;
  const settings = Object.fromEntries(info.settings);
  return html`<section class="card"><${Facts} of=${[
      ["Completed", all.completed], ["Failed", all.failed], ["Under way", all.in_progress], ["Last took", all.last_duration_ms == null ? "–" : span(all.last_duration_ms)],
      ["State", bytes(all.last_bytes)], ["Written for it", bytes(all.last_bytes_written)], ["Interval", settings["checkpoints.interval_ms"] === "0" ? "on request" : span(Number(settings["checkpoints.interval_ms"]))], ["Mode", settings["checkpoints.mode"]],
    ]} />${all.latest_url && html`<p class="mono">newest: ${all.latest_url}</p>`}${all.restored_url && html`<p class="mono">began with: ${all.restored_url}</p>`}</section>
    <section class="card scroll"><table><caption>The last ones, the newest first</caption><thead><tr><th scope="col" class="n">Number</th><th scope="col">Kind</th><th scope="col">Outcome</th><th scope="col">Triggered (UTC)</th><th scope="col" class="n">Took</th><th scope="col" class="n">Subtasks</th><th scope="col" class="n">Bytes</th><th scope="col" class="n">Written</th><th scope="col">Where, or why not</th></tr></thead>
      <tbody>${all.history.slice().reverse().map((one) => html`<tr key=${`${one.checkpoint}-${one.triggered_ms}`}><td class="n">${one.checkpoint}</td><td>${one.kind}</td><td><${State} of=${one.status} /></td><td>${time(one.triggered_ms)}</td><td class="n">${span(one.duration_ms)}</td><td class="n">${one.acknowledged} of ${one.subtasks}</td><td class="n">${bytes(one.bytes)}</td><td class="n">${bytes(one.bytes_written)}</td><td class="mono">${one.message || one.url || ""}</td></tr>`)}</tbody></table></section>
    <section class="card scroll"><table><caption>The last one in each task: the longest of its subtasks</caption><thead><tr><th scope="col">Task</th><th scope="col" class="n">Alignment: barriers apart</th><th scope="col" class="n">Capture: data waited</th></tr></thead>
      <tbody>${tasks.map((task) => html`<tr key=${task.id}><td>${task.name}</td><td class="n">${span(task.alignment_ms)}</td><td class="n">${span(task.sync_ms)}</td></tr>`)}</tbody></table></section>`;
}

function Exceptions({ entries }) {
  if (!entries.length) return html`<p>Nothing has failed.</p>`;
  return html`${entries.map((one, place) => html`<section class="card" key=${place}><h2>${time(one.timestamp)} UTC</h2><pre tabindex="0">${one.stacktrace}</pre></section>`)}`;
}

function Timeline({ view }) {
  const checkpoints = (view.info.checkpoints?.history ?? []).map((one) => ({ at: one.triggered_ms, what: `${one.kind} ${one.checkpoint}`, state: one.status, more: `${span(one.duration_ms)}, ${bytes(one.bytes)}${one.message ? `: ${one.message}` : ""}` }));
  const restarts = view.info.restart_history.map((one) => ({ at: one.at_ms, what: one.kind === "rescale" ? one.cause || "rescale" : one.kind, state: one.kind === "rescale" ? "completed" : "restarting", more: `${one.subtasks} subtasks${one.restore_ms == null ? ", not running yet" : `, running again after ${span(one.restore_ms)}`}${one.kind === "rescale" && !one.last_cause ? "" : `: ${(one.last_cause || one.cause).split("\n")[0]}`}` }));
  const scaled = (view.info.autoscaler?.history ?? []).map((one) => ({ at: one.at_ms, what: `autoscaler: ${one.outcome}`, state: one.outcome === "rescaled" ? "completed" : one.outcome === "refused" ? "failed" : "created", more: [...one.reasons, one.message].filter(Boolean).join("; ") }));
  const asked = view.operations.map((one) => ({ at: one.at_ms, what: `asked: ${one.kind}`, state: !one.done ? "deploying" : one.error ? "failed" : "completed", more: one.error || "" }));
  const all = [{ at: view.began_ms, what: "began", state: "created", more: "" }, ...checkpoints, ...restarts, ...scaled, ...asked, { at: view.info.since_ms, what: view.status, state: view.status, more: "" }].sort((a, b) => b.at - a.at);
  return html`${view.info.autoscaler && html`<p class="dim">Autoscaler${view.info.autoscaler.is_dry_run ? " (dry run)" : ""}: ${view.info.autoscaler.state}</p>`}<section class="card"><ol class="timeline">${all.map((one, place) => html`<li key=${place}><span class="dim">${time(one.at)}</span><span><strong>${one.what}</strong> <${State} of=${one.state} /> <span class="dim">${one.more}</span></span></li>`)}</ol></section>`;
}

function Logs({ job, tasks, tick }) {
  const [found, problem] = useAnswer(path(job, "/logs"), tick), [only, setOnly] = useState("");
  if (!found) return html`<p class="dim" role="status">${problem || "Reading…"}</p>`;
  const names = Object.fromEntries(tasks.map((task) => [task.id, task.name]));
  const shown = found.lines.filter((one) => `${one.operator || names[one.task]} ${one.level} ${one.text}`.toLowerCase().includes(only.toLowerCase())).reverse();
  return html`<section class="card"><label>Only lines with <input value=${only} onInput=${(event) => setOnly(event.target.value)} placeholder="operator, level or text" /></label>
    <p class="dim">${problem || `${shown.length} lines, the newest first: what functions printed and logged`}</p>
    <div class="virtual scroll" tabindex="0" role="region" aria-label="Logs"><table><tbody>${shown.slice(0, 500).map((one) => html`<tr key=${`${one.task}-${one.subtask}-${one.number}`}><td class="dim mono">${time(one.at_ms).slice(11)}</td><td class=${one.level === "ERROR" || one.level === "CRITICAL" ? "failed" : one.level === "WARNING" ? "restarting" : "dim"}>${one.level}</td><td class="dim">${one.operator || names[one.task] || ""} ${one.task ? one.subtask : ""}</td><td class="mono">${one.text}</td></tr>`)}</tbody></table></div></section>`;
}

function Configuration({ info, over }) {
  const [plan, problem] = useAnswer(over ? "" : path(info.id, "/explain"), info.since_ms);
  return html`<section class="card"><${Facts} of=${[["Parallelism", info.parallelism], ["Key groups", info.max_parallelism], ["Attempt", info.attempt], ["Restarts", info.restarts], ["Manager", `pid ${info.manager_pid}`], ["Standbys", info.standby_pids.length]]} /></section>
    <section class="card scroll"><table><caption>Settings; what may be a secret is left out</caption><thead><tr><th scope="col">Name</th><th scope="col">Value</th></tr></thead><tbody>${info.settings.map(([name, value]) => html`<tr key=${name}><td class="mono">${name}</td><td class="mono">${value}</td></tr>`)}</tbody></table></section>
    ${!over && html`<section class="card"><h2>Plan</h2><pre tabindex="0">${plan || problem || "Reading…"}</pre></section>`}`;
}
