// The state of a job: what the newest checkpoint holds of each operator, and values of keys, asked of the job itself.
import { html, useEffect, useRef, useState } from "/pages/vendor/htm-preact-standalone.js";
import { get, useAnswer } from "/pages/api.js";
import { bytes, Data, number } from "/pages/parts.js";

const ROWS = 100;
const path = (job, rest = "") => `/v1/jobs/${encodeURIComponent(job)}/state${rest}`;
export function Stored({ job, role, newest }) {
  const [found, problem] = useAnswer(path(job), newest), [chosen, setChosen] = useState(null);
  if (!found) return html`<p class="dim" role="status">${problem || "Reading…"}</p>`;
  const rows = found.operators.flatMap((one) => (one.states.length ? one.states : [{ name: "", bytes: one.bytes }]).map((state) => ({ operator: one, state })));
  return html`<section class="card scroll"><table><caption>What the newest checkpoint holds</caption><thead><tr><th scope="col">Operator</th><th scope="col">uid</th><th scope="col">State</th><th scope="col" class="n">Bytes</th><th scope="col" class="n">Rows stored</th><th scope="col" class="n">Keys now</th>${role === "operator" && html`<th scope="col">Values</th>`}</tr></thead>
      <tbody>${rows.map(({ operator, state }) => html`<tr key=${`${operator.uid} ${state.name}`}><td>${operator.name}</td><td class="mono">${operator.uid}</td><td class="mono">${state.name || (operator.native ? `in files of ${operator.native}` : "")}</td><td class="n">${bytes(state.bytes)}</td><td class="n">${state["stored-rows"] == null ? "" : number(state["stored-rows"])}</td><td class="n">${state.keys == null ? html`<span class="dim">not counted</span>` : number(state.keys)}</td>
        ${role === "operator" && html`<td>${state.name && html`<button onClick=${() => setChosen({ uid: operator.uid, name: state.name })}>Look<span class="dim"> ${state.name}</span></button>`}</td>`}</tr>`)}</tbody></table></section>
    ${chosen && html`<${Values} key=${`${chosen.uid} ${chosen.name}`} job=${job} ...${chosen} />`}`;
}

function Values({ job, uid, name }) {
  const [found, setFound] = useState(null), [problem, setProblem] = useState(null), [key, setKey] = useState(""), [isolation, setIsolation] = useState("live");
  const asked = useRef(0);
  const ask = (event) => {
    event?.preventDefault();
    // An answer that comes behind that of a later question is another question's.
    const mine = ++asked.current, tell = (one, why) => { if (mine === asked.current) { setFound(one); setProblem(why); } };
    const parts = key ? key.split(",").map((one) => `&key=${encodeURIComponent(one.trim())}`).join("") : `&limit=${ROWS}`;
    get(path(job, `/${encodeURIComponent(uid)}/${encodeURIComponent(name)}?isolation=${isolation}${parts}`)).then((one) => tell(one, null), (error) => tell(null, error.message));
  };
  useEffect(ask, [isolation]);
  return html`<section class="card"><h2>${name} of ${uid}</h2>
    <form class="asked" onSubmit=${ask}><label>Key (parts with commas between; empty: the first ${ROWS} rows) <input value=${key} onInput=${(event) => setKey(event.target.value)} /></label>
      <label>As of <select value=${isolation} onChange=${(event) => setIsolation(event.target.value)}><option value="live">now</option><option value="checkpoint">the newest checkpoint</option></select></label>
      <button class="main" type="submit">Ask</button></form>
    ${problem && html`<p class="failed" role="status">${problem}</p>`}
    ${found && !found.rows && html`<pre tabindex="0" role="status">${found.found ? JSON.stringify(found.value, null, 2) : "nothing"}</pre>`}
    ${found?.rows && html`<${Data} of=${found} caption=${`${found.rows.length} rows${found.more ? ", and there are more" : ""}`} />`}</section>`;
}
