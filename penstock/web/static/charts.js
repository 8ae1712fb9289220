// Charts of the last minutes: rates, shares and watermarks of all tasks together.
import { html, useState } from "/pages/vendor/htm-preact-standalone.js";
import { useAnswer } from "/pages/api.js";
import { number, time } from "/pages/parts.js";

const COLOURS = ["#2f7ed8", "#d8622f", "#2f9e62", "#9a4fc4", "#c29a1f", "#2fa9b5", "#c2417f", "#7a7f87"];
const WIDE = 1000, HIGH = 100; // lines are drawn in a field of this size, which the browser stretches to its place
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600]; // seconds from one time at the axis to the next
const MOST_TIMES = 4, MOST_VALUES = 5; // at the axes

// Civil time (s) as the tables have it, and not as the browser's own time zone would.
const clock = (at) => time(at * 1000).slice(11);

// From where to where values go, zero with them, and what stands at their axis: multiples of 1, 2 or 5 times a power of ten,
// no closer than their unit can tell apart.
function valueAxis(lines, closest) {
  let low = 0, high = 0;
  for (const one of lines) for (const value of one.values) { if (value < low) low = value; else if (value > high) high = value; }
  const least = Math.max((high - low || 1) / MOST_VALUES, closest), ten = 10 ** Math.floor(Math.log10(least)), step = ten * [1, 2, 5, 10].find((by) => by * ten >= least);
  const first = Math.floor(low / step), last = Math.max(first + 1, Math.ceil(high / step));
  return { low: first * step, high: last * step, ticks: Array.from({ length: last - first + 1 }, (_, at) => (first + at) * step) };
}

function timeAxis(times) {
  const low = times[0], high = times.at(-1), step = STEPS.find((one) => (high - low) / one <= MOST_TIMES) ?? STEPS.at(-1), first = Math.ceil(low / step);
  return { low, high, ticks: Array.from({ length: Math.floor(high / step) - first + 1 }, (_, at) => (first + at) * step) };
}

// Where a value is between the ends of its axis, from 0 to 1.
const along = (axis, value) => (value - axis.low) / (axis.high - axis.low || 1);

// A path through all values that are known; one that stands alone is a dot.
function path(values, across, up) {
  let drawn = "", isDown = false;
  values.forEach((value, at) => {
    if (value != null) drawn += `${isDown ? "L" : "M"}${across[at]},${up(value)}${isDown ? "" : "h0"}`;
    isDown = value != null;
  });
  return drawn;
}

// All that is between two lines.
function area(upper, lower, across, up) {
  const point = (values) => (at) => `${across[at]},${up(values[at])}`, known = [...across.keys()].filter((at) => upper[at] != null && lower[at] != null);
  return known.length ? `M${[...known.map(point(upper)), ...known.reverse().map(point(lower))].join("L")}Z` : "";
}

// Of the lines, the places of two may be given that all else is between. What lines show now, or where somebody points, stands below, and
// each can be left out there.
function Chart({ title, lines, times, unit, band, closest = 0.1 }) {
  const [at, setAt] = useState(null), [out, setOut] = useState([]);
  const shown = lines.filter((one) => !out.includes(one.key)), values = valueAxis(shown, closest), ages = timeAxis(times);
  const across = times.map((one) => Math.round(WIDE * along(ages, one))), up = (value) => (HIGH * (1 - along(values, value))).toFixed(1);
  const point = ({ currentTarget, clientX }) => {
    const { left, width } = currentTarget.getBoundingClientRect(), x = (WIDE * (clientX - left)) / width;
    setAt(across.reduce((best, one, place) => (Math.abs(one - x) < Math.abs(across[best] - x) ? place : best), 0));
  };
  const isBand = band && band.every((one) => shown.includes(lines[one]));
  const last = times.length - 1, place = Math.min(at ?? last, last), told = (one, place) => `${one.values[place] == null ? "–" : unit(one.values[place])}`;
  const toggle = (key) => setOut(out.includes(key) ? out.filter((one) => one !== key) : [...out, key]);
  const colour = (one) => (one.faint ? "var(--dim)" : COLOURS[lines.indexOf(one) % COLOURS.length]);
  return html`<figure class="card"><h2>${title}</h2>
    <div class="plot" role="img" aria-label=${`${title}; now ${lines.map((one) => `${one.name}: ${told(one, last)}`).join("; ")}`} onPointerMove=${point} onPointerLeave=${() => setAt(null)}>
      <svg viewBox=${`0 0 ${WIDE} ${HIGH}`} preserveAspectRatio="none" aria-hidden="true">
        <path class="grid" d=${values.ticks.map((one) => `M0,${up(one)}H${WIDE}`).join("") + ages.ticks.map((one) => `M${WIDE * along(ages, one)},0V${HIGH}`).join("")} />
        ${isBand && html`<path class="band" d=${area(lines[band[0]].values, lines[band[1]].values, across, up)} />`}
        ${shown.map((one) => html`<path key=${one.key} class="line" d=${path(one.values, across, up)} stroke=${colour(one)} stroke-width=${one.faint ? 0.6 : 1.6} />`)}
        ${at != null && html`<path class="at" d=${`M${across[place]},0V${HIGH}`} />`}
      </svg>
      ${values.ticks.map((one) => html`<span key=${one} class="value" style=${{ top: `${up(one)}%` }}>${unit(one)}</span>`)}
      ${ages.ticks.map((one) => html`<span key=${one} class="time" style=${{ left: `${100 * along(ages, one)}%` }}>${clock(one)}</span>`)}
    </div>
    <figcaption class="lines"><span class="dim">${clock(times[place])} UTC</span>${lines.map((one) => html`<button key=${one.key} aria-pressed=${!out.includes(one.key)} onClick=${() => toggle(one.key)}><i style=${{ background: colour(one) }}></i>${one.name} <strong>${told(one, place)}</strong></button>`)}</figcaption></figure>`;
}

export function Charts({ job, tasks, tick }) {
  const [found, problem] = useAnswer(`/v1/jobs/${encodeURIComponent(job)}/charts?busiest=${COLOURS.length}`, tick);
  if (!found) return html`<p class="dim" role="status">${problem || "Reading…"}</p>`;
  // Of the tasks with most to say, so that charts can be read.
  const shown = tasks.filter((task) => found[task.id]);
  if (!shown.length) return html`<p class="dim">There are charts of what the console has seen running.</p>`;
  const times = found[shown[0].id].at_ms.map((ms) => ms / 1000);
  const lines = (member, by = 1) => shown.map((task) => ({ key: task.id, name: task.name.slice(0, 30), values: found[task.id][member].map((value) => (value == null ? null : value * by)) }));
  const rate = (value) => `${number(value)}/s`, percent = (value) => `${Math.round(value)} %`, lag = (value) => `${number(value)} s`;
  const behind = shown.map((task) => ({ key: task.id, name: task.name.slice(0, 30), values: found[task.id].watermark.map((value, at) => (value == null ? null : (found[task.id].at_ms[at] - value) / 1000)) }));
  return html`${tasks.length > shown.length && html`<p class="dim">The ${shown.length} busiest of ${tasks.length} tasks.</p>`}
    <div class="charts">
      <${Chart} title="Rows in" lines=${lines("rows_in")} times=${times} unit=${rate} />
      <${Chart} title="Rows out" lines=${lines("rows_out")} times=${times} unit=${rate} />
      <${Chart} title="Busy" lines=${lines("busy", 100)} times=${times} unit=${percent} closest=${1} />
      <${Chart} title="Backpressured" lines=${lines("blocked", 100)} times=${times} unit=${percent} closest=${1} />
      ${behind.some((one) => one.values.some((value) => value != null)) && html`<${Chart} title="Watermark behind the clock" lines=${behind} times=${times} unit=${lag} />`}
    </div>`;
}

// How far each subtask of a task is behind the clock; of many, the slowest and the fastest, and what all are between.
export function Watermarks({ job, task, tick }) {
  const [found] = useAnswer(`/v1/jobs/${encodeURIComponent(job)}/tasks/${task}/watermarks`, tick);
  if (!found || !found.lowest.some((mark) => mark != null)) return null;
  const behind = (name, marks, faint) => ({ key: name, name, faint, values: marks.map((mark, at) => (mark == null ? null : (found.at_ms[at] - mark) / 1000)) });
  const drawn = found.subtasks.map((one) => behind(`subtask ${one.subtask}`, one.watermark)), all = drawn.length + found.left_out;
  const lines = found.left_out ? [...drawn, behind("furthest behind", found.lowest, true), behind("median", found.median, true), behind("least behind", found.highest, true)] : drawn;
  return html`<${Chart} title="Watermarks of its subtasks, behind the clock" lines=${lines} times=${found.at_ms.map((ms) => ms / 1000)} unit=${(value) => `${number(value)} s`} band=${found.left_out ? [drawn.length, drawn.length + 2] : null} />
    ${found.left_out > 0 && html`<p class="dim">Lines of the ${drawn.length} subtasks that are slowest and fastest now; all ${all} are within the grey, and ${found.left_out} have no line.</p>`}`;
}
