// The job graph: tasks as boxes, coloured by who is busy and who waits, laid out from left to right.
import { html, useMemo } from "/pages/vendor/htm-preact-standalone.js";
import { Graph as Layout, layout } from "/pages/vendor/dagre.js";
import { number, share, watermark } from "/pages/parts.js";

const WIDTH = 232, HEIGHT = 112, APART = 120, MANY = 30;

// The ids of tasks that follow one another, each with nothing beside it: of many tasks, as such rows; else each by itself.
function rowsOf(tasks) {
  const readers = new Map(tasks.map((task) => [task.id, []])), found = [], placed = new Set();
  for (const task of tasks) for (const one of task.inputs) readers.get(one.task).push(task);
  const next = (id) => { const [one, ...more] = readers.get(id); return tasks.length > MANY && one && !more.length && one.inputs.length === 1 ? one.id : null; };
  const led = new Set(tasks.map((task) => next(task.id)));
  // All are looked at behind those that begin a row: a ring has none that does.
  for (const first of [...tasks.filter((task) => !led.has(task.id)), ...tasks]) {
    const row = [];
    for (let id = first.id; id != null && !placed.has(id); id = next(id)) { placed.add(id); row.push(id); }
    if (row.length) found.push(row);
  }
  return found;
}

// A row is laid out as one wide box: dagre takes time by the square of how many boxes follow one another.
function placed(tasks) {
  const graph = new Layout({ multigraph: true }), rows = rowsOf(tasks), begins = {}, nodes = {};
  graph.setGraph({ rankdir: "LR", nodesep: 28, ranksep: APART, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const row of rows) {
    for (const id of row) begins[id] = String(row[0]);
    graph.setNode(String(row[0]), { width: row.length * (WIDTH + APART) - APART, height: HEIGHT });
  }
  const edges = tasks.flatMap((task) => task.inputs.map((one, place) => ({ key: `${one.task}-${task.id}-${place}`, from: one.task, to: task.id, text: one.partitioner })));
  for (const edge of edges) if (begins[edge.from] !== begins[edge.to]) graph.setEdge(begins[edge.from], begins[edge.to], {}, edge.key);
  layout(graph);
  for (const row of rows) {
    const box = graph.node(String(row[0]));
    row.forEach((id, place) => { nodes[id] = { x: box.x - box.width / 2 + WIDTH / 2 + place * (WIDTH + APART), y: box.y, inRow: row.length > 1 }; });
  }
  // Where a line meets a box within a row, which dagre knows nothing of.
  const side = (node, towards) => ({ x: node.x + (towards.x < node.x ? -WIDTH : WIDTH) / 2, y: node.y });
  const points = ({ from, to, key }) => {
    const one = nodes[from], other = nodes[to], laid = graph.edge(begins[from], begins[to], key)?.points;
    if (!laid) return [side(one, other), { x: (one.x + other.x) / 2, y: one.y }, side(other, one)];
    return [one.inRow ? side(one, laid[1]) : laid[0], ...laid.slice(1, -1), other.inRow ? side(other, laid.at(-2)) : laid.at(-1)];
  };
  const size = graph.graph();
  return { width: size.width || WIDTH, height: size.height || HEIGHT, nodes, edges: edges.map((edge) => ({ ...edge, points: points(edge) })) };
}

const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

export function Graph({ tasks, selected, onSelect }) {
  const shape = JSON.stringify(tasks.map((task) => [task.id, task.inputs]));
  const at = useMemo(() => placed(tasks), [shape]);
  return html`<div class="graph" tabindex="0" role="region" aria-label="Job graph">
    <svg width=${at.width} height=${at.height} viewBox=${`0 0 ${at.width} ${at.height}`} role="group" aria-label="Tasks and their exchanges">
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><polygon points="0,0 8,4 0,8" fill="currentColor" /></marker></defs>
      ${at.edges.map((edge) => {
        const middle = edge.points[Math.floor(edge.points.length / 2)];
        return html`<g key=${edge.key} class="edge"><path d=${`M${edge.points.map((one) => `${one.x},${one.y}`).join("L")}`} marker-end="url(#arrow)" />
          <text class="small" x=${middle.x} y=${middle.y - 6} text-anchor="middle">${cut(edge.text, 16)}</text></g>`;
      })}
      ${tasks.map((task) => {
        const node = at.nodes[task.id], x = node.x - WIDTH / 2, y = node.y - HEIGHT / 2, inner = WIDTH - 20;
        const state = task.blocked > 0.5 ? "held" : task.busiest > 0.8 ? "hot" : "";
        const label = `${task.name}, parallelism ${task.parallelism}, busy ${share(task.busy)}, backpressured ${share(task.blocked)}`;
        return html`<g key=${task.id} class=${`node ${state} ${selected === task.id ? "sel" : ""}`} transform=${`translate(${x},${y})`} tabindex="0" role="button" aria-label=${label} aria-pressed=${selected === task.id}
            onClick=${() => onSelect(task.id)} onKeyDown=${(event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), onSelect(task.id))}>
          <title>${task.name}</title>
          <rect class="box" width=${WIDTH} height=${HEIGHT} rx="8" />
          <text x="10" y="20" font-weight="600">${cut(task.name, 25)}</text>
          <text class="small" x=${WIDTH - 10} y="38" text-anchor="end">× ${task.parallelism}</text>
          <text class="small" x="10" y="38">${task.inputs.length ? "in" : "reads"} ${number(task.rows_in_per_second)}/s</text>
          <text class="small" x="10" y="54">out ${number(task.rows_out_per_second)}/s${task.skew > 0.5 ? `  skew +${share(task.skew)}` : ""}</text>
          <text class="small" x="10" y="70">${[task.pending_records == null ? "" : `${number(task.pending_records)} behind`, task.watermark == null ? "" : `watermark ${watermark(task.watermark)}`].filter(Boolean).join(", ")}</text>
          <rect x="10" y="80" width=${inner} height="9" rx="2" fill="var(--idle)" />
          <rect x="10" y="80" width=${inner * task.busy} height="9" rx="2" fill="var(--busy)" />
          <rect x=${10 + inner * task.busy} y="80" width=${inner * Math.min(task.blocked, 1 - task.busy)} height="9" rx="2" fill="var(--blocked)" />
          <text class="small" x="10" y="103">busy ${share(task.busy)}, backpressured ${share(task.blocked)}</text>
        </g>`;
      })}
    </svg></div>`;
}
