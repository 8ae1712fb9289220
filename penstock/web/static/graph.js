// The job graph: tasks as boxes, coloured by who is busy and who waits, laid out from left to right.
import { html, useLayoutEffect, useMemo, useState } from "/pages/vendor/htm-preact-standalone.js";
import { UPGRADED } from "/pages/api.js";
import { number, share, watermark } from "/pages/parts.js";

const WIDTH = 232, HEIGHT = 112, APART = 120, MARGIN = 8, MANY = 30, INNER = WIDTH - 20;

// The ids of tasks that follow one another, each with nothing beside it, as rows.
function rowsOf(tasks) {
  const readers = new Map(tasks.map((task) => [task.id, []])), found = [], placed = new Set();
  for (const task of tasks) for (const one of task.inputs) readers.get(one.task).push(task);
  const next = (id) => { const [one, ...more] = readers.get(id); return one && !more.length && one.inputs.length === 1 ? one.id : null; };
  const led = new Set(tasks.map((task) => next(task.id)));
  // All are looked at behind those that begin a row: a ring has none that does.
  for (const first of [...tasks.filter((task) => !led.has(task.id)), ...tasks]) {
    const row = [];
    for (let id = first.id; id != null && !placed.has(id); id = next(id)) { placed.add(id); row.push(id); }
    if (row.length) found.push(row);
  }
  // Of few tasks, each is laid out by itself.
  return found.length > 1 && tasks.length <= MANY ? tasks.map((task) => [task.id]) : found;
}

// Where rows, and lines between them, are: each row is one wide box, as dagre takes time by the square of how many boxes follow one
// another. One row is where it is.
function laidOut(rows, edges, dagre) {
  const width = (row) => row.length * (WIDTH + APART) - APART;
  if (rows.length === 1) {
    const [row] = rows, size = { width: width(row) + 2 * MARGIN, height: HEIGHT + 2 * MARGIN };
    return { ...size, box: () => ({ x: size.width / 2, y: size.height / 2, width: width(row) }), line: () => undefined };
  }
  const graph = new dagre.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: 28, ranksep: APART, marginx: MARGIN, marginy: MARGIN });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const row of rows) graph.setNode(String(row[0]), { width: width(row), height: HEIGHT });
  for (const { begin, end, key } of edges) if (begin !== end) graph.setEdge(begin, end, {}, key);
  dagre.layout(graph);
  const size = graph.graph();
  return { width: size.width || WIDTH, height: size.height || HEIGHT, box: (row) => graph.node(String(row[0])), line: ({ begin, end, key }) => graph.edge(begin, end, key)?.points };
}

function placed(tasks, rows, dagre) {
  const begins = Object.fromEntries(rows.flatMap((row) => row.map((id) => [id, String(row[0])]))), nodes = {};
  const edges = tasks.flatMap((task) => task.inputs.map((one, place) => ({ key: `${one.task}-${task.id}-${place}`, from: one.task, to: task.id, begin: begins[one.task], end: begins[task.id], text: one.partitioner })));
  const at = laidOut(rows, edges, dagre);
  for (const row of rows) {
    const box = at.box(row);
    row.forEach((id, place) => { nodes[id] = { x: box.x - box.width / 2 + WIDTH / 2 + place * (WIDTH + APART), y: box.y, inRow: row.length > 1 }; });
  }
  // Where a line meets a box within a row, which dagre knows nothing of.
  const side = (node, towards) => ({ x: node.x + (towards.x < node.x ? -WIDTH : WIDTH) / 2, y: node.y });
  const points = (edge) => {
    const one = nodes[edge.from], other = nodes[edge.to], laid = at.line(edge);
    if (!laid) return [side(one, other), { x: (one.x + other.x) / 2, y: one.y }, side(other, one)];
    return [one.inRow ? side(one, laid[1]) : laid[0], ...laid.slice(1, -1), other.inRow ? side(other, laid.at(-2)) : laid.at(-1)];
  };
  const drawn = (edge) => { const line = points(edge); return { key: edge.key, text: edge.text, middle: line[Math.floor(line.length / 2)], path: `M${line.map((one) => `${one.x},${one.y}`).join("L")}` }; };
  return { width: at.width, height: at.height, nodes, edges: edges.map(drawn) };
}

// Where all of it is, once it is known, and else why not: dagre is loaded for the first graph that is more than a row.
function usePlaces(tasks) {
  const shape = JSON.stringify(tasks.map((task) => [task.id, task.inputs])), rows = useMemo(() => rowsOf(tasks), [shape]);
  const [dagre, setDagre] = useState(null), [problem, setProblem] = useState(null), isReady = rows.length < 2 || dagre !== null;
  useLayoutEffect(() => { if (!isReady) import("/pages/vendor/dagre.js").then(setDagre, () => setProblem(UPGRADED)); }, [isReady]);
  return [useMemo(() => (isReady ? placed(tasks, rows, dagre) : null), [shape, isReady]), problem];
}

const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

// A task's name as far as it is no wider than its box; how wide letters are depends on the font.
let pen;
function fitted(name) {
  pen ||= Object.assign(document.createElement("canvas").getContext("2d"), { font: `600 13px ${getComputedStyle(document.body).fontFamily}` });
  let length = Math.min(name.length, 40);
  while (length > 1 && pen.measureText(cut(name, length)).width > INNER) length--;
  return cut(name, length);
}

const STEP = 256; // pixels: what is in sight is looked at again each time that the graph has been scrolled so far

// All tasks are boxes that keyboards and screen readers reach; what stands in a box, and over a line, is drawn of those in sight.
export function Graph({ tasks, selected, onSelect }) {
  const [at, problem] = usePlaces(tasks), [[left, top], setScrolled] = useState([0, 0]);
  if (!at) return html`<p class="dim" role="status">${problem || "Reading…"}</p>`;
  const look = ({ currentTarget: { scrollLeft, scrollTop } }) => {
    const now = [Math.floor(scrollLeft / STEP) * STEP, Math.floor(scrollTop / STEP) * STEP];
    setScrolled((before) => (String(before) === String(now) ? before : now));
  };
  // No more of the window than style.css lets the graph have.
  const isSeen = ({ x, y }) => Math.abs(x - left - innerWidth / 2) < innerWidth / 2 + WIDTH + STEP && Math.abs(y - top - 0.35 * innerHeight) < 0.35 * innerHeight + HEIGHT + STEP;
  return html`<div class="graph" tabindex="0" role="region" aria-label="Job graph" onScroll=${look}>
    <svg width=${at.width} height=${at.height} viewBox=${`0 0 ${at.width} ${at.height}`} role="group" aria-label="Tasks and their exchanges">
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><polygon points="0,0 8,4 0,8" fill="currentColor" /></marker></defs>
      ${at.edges.map((edge) => html`<path key=${edge.key} class="edge" d=${edge.path} marker-end="url(#arrow)" />`)}
      ${at.edges.filter((edge) => isSeen(edge.middle)).map((edge) => html`<text key=${edge.key} class="small" x=${edge.middle.x} y=${edge.middle.y - 6} text-anchor="middle">${cut(edge.text, 16)}</text>`)}
      ${tasks.map((task) => {
        const node = at.nodes[task.id];
        const state = task.blocked > 0.5 ? "held" : task.busiest > 0.8 ? "hot" : "";
        const label = `${task.name}, parallelism ${task.parallelism}, busy ${share(task.busy)}, backpressured ${share(task.blocked)}`;
        return html`<g key=${task.id} class=${`node ${state} ${selected === task.id ? "sel" : ""}`} transform=${`translate(${node.x - WIDTH / 2},${node.y - HEIGHT / 2})`} tabindex="0" role="button" aria-label=${label} aria-pressed=${selected === task.id}
            onClick=${() => onSelect(task.id)} onKeyDown=${(event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), onSelect(task.id))}>
          <rect class="box" width=${WIDTH} height=${HEIGHT} rx="8" />${isSeen(node) && inBox(task)}</g>`;
      })}
    </svg></div>`;
}

function inBox(task) {
  return html`<title>${task.name}</title>
    <text x="10" y="20" font-weight="600">${fitted(task.name)}</text>
    <text class="small" x=${WIDTH - 10} y="38" text-anchor="end">× ${task.parallelism}</text>
    <text class="small" x="10" y="38">${task.inputs.length ? "in" : "reads"} ${number(task.rows_in_per_second)}/s${task.pending_records == null ? "" : `, ${number(task.pending_records)} behind`}</text>
    <text class="small" x="10" y="54">out ${number(task.rows_out_per_second)}/s${task.skew > 0.5 ? `  skew +${share(task.skew)}` : ""}</text>
    <text class="small" x="10" y="70">${task.watermark == null ? "" : `watermark ${watermark(task.watermark)}`}</text>
    <rect x="10" y="80" width=${INNER} height="9" rx="2" fill="var(--idle)" />
    <rect x="10" y="80" width=${INNER * task.busy} height="9" rx="2" fill="var(--busy)" />
    <rect x=${10 + INNER * task.busy} y="80" width=${INNER * Math.min(task.blocked, 1 - task.busy)} height="9" rx="2" fill="var(--blocked)" />
    <text class="small" x="10" y="103">busy ${share(task.busy)}, backpressured ${share(task.blocked)}</text>`;
}
