// The console: which page is shown, what the server last said, and whether it can be reached.
import { html, render, useEffect, useLayoutEffect, useRef, useState } from "/pages/vendor/htm-preact-standalone.js";
import { allBegun, begun, get, listen, login, loginFromAddress, useAnswer } from "/pages/api.js";
import { Job } from "/pages/job.js";
import { Bar, bytes, number, span, State, time } from "/pages/parts.js";

const plain = (part) => { try { return decodeURIComponent(part); } catch { return part; } };
const place = () => location.hash.replace(/^#\/?/, "").split("/").map(plain);

function App() {
  const [news, setNews] = useState(() => begun("/v1/overview-of-jobs") ?? null), [tick, setTick] = useState(0), [live, setLive] = useState(null), [role, setRole] = useState(() => begun("/v1/session")?.role ?? null), [where, setWhere] = useState(place()), [toast, setToast] = useState(null);
  const [page, id, tab, rest] = where;
  const say = (text, bad = false) => { setToast({ text, bad }); };
  useEffect(() => { const moved = () => setWhere(place()); addEventListener("hashchange", moved); return () => removeEventListener("hashchange", moved); }, []);
  // Who cannot be told who they are may read, as far as the server lets them; they ask again when it is back.
  const ask = () => get("/v1/session").then((found) => setRole(found.role), () => setRole((before) => before ?? "viewer"));
  useLayoutEffect(() => { if (!role) loginFromAddress().catch((error) => say(error.message, true)).finally(ask); }, []);
  const allowed = role && role !== "nobody", heard = useRef(false);
  useLayoutEffect(() => { if (allowed && !page && !news) get("/v1/overview-of-jobs").then((found) => setNews((now) => now ?? found), () => {}); }, [allowed]);
  // What is shown when the first news come has just been asked for.
  useEffect(() => (allowed ? listen((found) => { setNews(found); if (heard.current) setTick((now) => now + 1); heard.current = true; }, (on) => { setLive(on); if (!on) ask(); }) : undefined), [allowed]);
  useEffect(() => { if (!toast || toast.bad) return undefined; const timer = setTimeout(() => setToast(null), 12000); return () => clearTimeout(timer); }, [toast]);
  const name = page === "jobs" && id ? news?.jobs.find((one) => one.id === id)?.name : null;
  useEffect(() => { document.title = name ? `${name} – Penstock` : "Penstock"; }, [name]);
  return html`
    <header class="top"><a class="brand" href="#/">Penstock</a>
      <nav aria-label="Main"><a href="#/" aria-current=${!page ? "page" : undefined}>Jobs</a><a href="#/nodes" aria-current=${page === "nodes" ? "page" : undefined}>Nodes</a></nav>
      <span class="dim" role="status">${live === true ? "live" : live === false ? "no connection" : ""}${role === "viewer" ? ", read only" : ""}</span></header>
    ${live === false && html`<div class="outage" role="alert">The server cannot be reached; trying again. What is shown may be old. Jobs run without it.</div>`}
    ${news?.problem && html`<div class="outage" role="alert">The cluster does not answer: ${news.problem}</div>`}
    <main>${!role ? html`<p class="dim" role="status">Reading…</p>` : role === "nobody" ? html`<${Login} onDone=${ask} />`
      : page === "jobs" && id ? html`<${Job} key=${id} id=${id} tab=${tab} rest=${rest} tick=${tick} role=${role} say=${say} />`
      : page === "nodes" ? html`<${Nodes} tick=${tick} />` : html`<${Jobs} news=${news} />`}</main>
    ${toast && html`<div class=${`toast ${toast.bad ? "bad" : ""}`} role=${toast.bad ? "alert" : "status"}>${toast.text} <button onClick=${() => setToast(null)} aria-label="Close this message">Close</button></div>`}`;
}

function Jobs({ news }) {
  if (!news) return html`<p class="dim" role="status">Reading…</p>`;
  if (!news.jobs.length) return html`<div class="card"><h1>No jobs</h1><p>Start one with <span class="mono">penstock run --detached module:flow</span>.</p></div>`;
  return html`<div class="card scroll"><table><caption><h1>Jobs</h1></caption><thead><tr><th scope="col">Name</th><th scope="col">Status</th><th scope="col">Since (UTC)</th><th scope="col" class="n">For</th><th scope="col" class="n">Parallelism</th><th scope="col" class="n">Rows/s</th><th scope="col">Busiest task</th><th scope="col" class="n">Checkpoints</th><th scope="col" class="n">Restarts</th></tr></thead>
    <tbody>${news.jobs.map((one) => html`<tr key=${one.id}><td><a href=${`#/jobs/${encodeURIComponent(one.id)}/`}>${one.name}</a><br /><span class="mono dim">${one.id}</span></td><td><${State} of=${one.status} /></td><td>${time(one.since_ms)}</td><td class="n">${span(Date.now() - one.since_ms)}</td><td class="n">${one.parallelism}</td><td class="n">${number(one.rows_per_second)}</td><td><${Bar} busy=${one.busiest} blocked=${0} /></td><td class="n">${one.checkpoints}</td><td class="n">${one.restarts}</td></tr>`)}</tbody></table></div>`;
}

function Nodes({ tick }) {
  const [found, problem] = useAnswer("/v1/nodes", tick);
  if (!found) return html`<p class="dim" role="status">${problem || "Reading…"}</p>`;
  return html`<div class="card scroll"><table><caption><h1>Nodes</h1></caption><thead><tr><th scope="col">Address</th><th scope="col">Id</th><th scope="col">State</th><th scope="col" class="n">CPUs</th><th scope="col" class="n">Free</th><th scope="col" class="n">Memory</th></tr></thead>
    <tbody>${found.nodes.map((one) => html`<tr key=${one.id}><td>${one.address}${one.head ? " (head)" : ""}</td><td class="mono">${one.id.slice(0, 12)}</td><td><${State} of=${one.alive ? "running" : "failed"} /></td><td class="n">${number(one.cpus)}</td><td class="n">${number(one.free_cpus)}</td><td class="n">${bytes(one.memory)}</td></tr>`)}</tbody></table></div>`;
}

function Login({ onDone }) {
  const [token, setToken] = useState(""), [problem, setProblem] = useState("");
  const enter = async (event) => { event.preventDefault(); try { await login(token); onDone(); } catch (error) { setProblem(error.message); } };
  return html`<form class="card" onSubmit=${enter}><h1>Token</h1><p>This server asks for a token. It is in the file that <span class="mono">penstock console</span> names.</p>
    <label>Token <input type="password" autocomplete="off" value=${token} onInput=${(event) => setToken(event.target.value)} required /></label>
    ${problem && html`<p class="failed" role="alert">${problem}</p>`}<div class="row"><button class="main" type="submit">Enter</button></div></form>`;
}

allBegun().then(() => render(html`<${App} />`, document.getElementById("app")));
