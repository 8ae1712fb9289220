// Charts of the last minutes: rates, shares and watermarks of all tasks together.
import { html, useLayoutEffect, useRef, useState } from "/pages/vendor/htm-preact-standalone.js";
import { UPGRADED, useAnswer } from "/pages/api.js";
import { number, time } from "/pages/parts.js";

const COLOURS = ["#2f7ed8", "#d8622f", "#2f9e62", "#9a4fc4", "#c29a1f", "#2fa9b5", "#c2417f", "#7a7f87"];

// Civil time (s) as the tables have it, and not as the browser's own time zone would.
const clock = (at) => time(at * 1000).slice(11);

const UPLOT = "/pages/vendor/uplot.js";

// uplot is no module, and most pages have no charts: it is loaded for the first of them, if begin.js has not begun to.
let loading = null;
const load = () => (loading ??= window.begun.get(UPLOT)?.read ?? new Promise((done, fail) => {
  document.head.append(Object.assign(document.createElement("script"), { src: UPLOT, onload: done, onerror: fail }));
}));

function useUplot() {
  const [isThere, setThere] = useState(Boolean(window.uPlot)), [problem, setProblem] = useState(null);
  useLayoutEffect(() => { if (!isThere) load().then(() => setThere(true), () => { loading = null; setProblem(UPGRADED); }); }, []);
  return [isThere, problem];
}

// Of the lines, the places of two may be given that all else is between: the upper, the lower.
function Chart({ title, lines, times, unit, band }) {
  const place = useRef(null), chart = useRef(null), [isThere, problem] = useUplot();
  const key = lines.map((one) => one.name).join();
  useLayoutEffect(() => {
    if (!isThere) return undefined;
    const style = getComputedStyle(document.documentElement);
    const dim = style.getPropertyValue("--dim").trim(), line = style.getPropertyValue("--line").trim();
    const axis = { stroke: dim, grid: { stroke: line }, ticks: { stroke: line } };
    const options = {
      width: place.current.clientWidth || 400, height: 200, cursor: { drag: { x: false, y: false } },
      series: [{ label: "UTC", value: (_, at) => (at == null ? "–" : clock(at)) }, ...lines.map((one, at) => ({ label: one.name, stroke: one.faint ? dim : COLOURS[at % COLOURS.length], width: one.faint ? 0.6 : 1.6, value: (_, value) => (value == null ? "–" : unit(value)) }))],
      bands: band && [{ series: band.map((place) => place + 1), fill: line }],
      axes: [{ ...axis, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 68, values: (_, ticks) => ticks.map(unit) }],
    };
    chart.current = new window.uPlot(options, [times, ...lines.map((one) => one.values)], place.current);
    const resize = new ResizeObserver(() => chart.current.setSize({ width: place.current.clientWidth, height: 200 }));
    resize.observe(place.current);
    return () => { resize.disconnect(); chart.current.destroy(); };
  }, [key, isThere]);
  useLayoutEffect(() => { chart.current?.setData([times, ...lines.map((one) => one.values)]); });
  const last = lines.map((one) => `${one.name}: ${one.values.length ? unit(one.values[one.values.length - 1] ?? 0) : "–"}`).join("; ");
  return html`<figure class="card" role="img" aria-label=${`${title}; now ${last}`}><h2>${title}</h2><div class="plot" ref=${place}>${!isThere && (problem || "Reading…")}</div></figure>`;
}

export function Charts({ job, tasks, tick }) {
  const [found, problem] = useAnswer(`/v1/jobs/${encodeURIComponent(job)}/charts?busiest=${COLOURS.length}`, tick);
  if (!found) return html`<p class="dim" role="status">${problem || "Reading…"}</p>`;
  // Of the tasks with most to say, so that charts can be read.
  const shown = tasks.filter((task) => found[task.id]);
  if (!shown.length) return html`<p class="dim">There are charts of what the console has seen running.</p>`;
  const times = found[shown[0].id].at_ms.map((ms) => ms / 1000);
  const lines = (member, by = 1) => shown.map((task) => ({ name: task.name.slice(0, 30), values: found[task.id][member].map((value) => (value == null ? null : value * by)) }));
  const rate = (value) => `${number(value)}/s`, percent = (value) => `${Math.round(value)} %`, lag = (value) => `${number(value)} s`;
  const behind = shown.map((task) => ({ name: task.name.slice(0, 30), values: found[task.id].watermark.map((value, at) => (value == null ? null : (found[task.id].at_ms[at] - value) / 1000)) }));
  return html`${tasks.length > shown.length && html`<p class="dim">The ${shown.length} busiest of ${tasks.length} tasks.</p>`}
    <div class="charts">
      <${Chart} title="Rows in" lines=${lines("rows_in")} times=${times} unit=${rate} />
      <${Chart} title="Rows out" lines=${lines("rows_out")} times=${times} unit=${rate} />
      <${Chart} title="Busy" lines=${lines("busy", 100)} times=${times} unit=${percent} />
      <${Chart} title="Backpressured" lines=${lines("blocked", 100)} times=${times} unit=${percent} />
      ${behind.some((one) => one.values.some((value) => value != null)) && html`<${Chart} title="Watermark behind the clock" lines=${behind} times=${times} unit=${lag} />`}
    </div>`;
}

// How far each subtask of a task is behind the clock; of many, the slowest and the fastest, and what all are between.
export function Watermarks({ job, task, tick }) {
  const [found] = useAnswer(`/v1/jobs/${encodeURIComponent(job)}/tasks/${task}/watermarks`, tick);
  if (!found || !found.lowest.some((mark) => mark != null)) return null;
  const behind = (name, marks, faint) => ({ name, faint, values: marks.map((mark, at) => (mark == null ? null : (found.at_ms[at] - mark) / 1000)) });
  const drawn = found.subtasks.map((one) => behind(`subtask ${one.subtask}`, one.watermark)), all = drawn.length + found.left_out;
  const lines = found.left_out ? [...drawn, behind("furthest behind", found.lowest, true), behind("median", found.median, true), behind("least behind", found.highest, true)] : drawn;
  return html`<${Chart} title="Watermarks of its subtasks, behind the clock" lines=${lines} times=${found.at_ms.map((ms) => ms / 1000)} unit=${(value) => `${number(value)} s`} band=${found.left_out ? [drawn.length, drawn.length + 2] : null} />
    ${found.left_out > 0 && html`<p class="dim">Lines of the ${drawn.length} subtasks that are slowest and fastest now; all ${all} are within the grey, and ${found.left_out} have no line.</p>`}`;
}
