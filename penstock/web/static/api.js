// How the pages talk to the server: JSON, events, and the token that a link may bring along.
import { useLayoutEffect, useRef, useState } from "/pages/vendor/htm-preact-standalone.js";

const HEADERS = { "X-Penstock-Request": "1" };
const PATIENCE = 30000; // ms: what is asked for takes less, and a connection that was cut says nothing
const AGAIN = 500; // ms: so long after it was lost, the server is tried again
const EMPTY = 200; // ms: so long a page waits for all that it shows, to be drawn once
// A library has another address in another version, at which the server has nothing any more.
export const UPGRADED = "The server does not answer, or has been upgraded: load this page again.";

// What begin.js has asked for, once: undefined where it has not, or where the answer has not come or told of a problem.
export function begun(path) {
  const found = window.begun.get(path)?.found;
  if (found !== undefined) window.begun.delete(path);
  return found;
}

// Until all of that has come, and no longer than a page may stay empty.
export const allBegun = () => Promise.race([Promise.allSettled([...window.begun.values()].map((one) => one.read)), new Promise((done) => setTimeout(done, EMPTY))]);

export async function get(path) {
  const one = window.begun.get(path);
  window.begun.delete(path);
  await one?.read;
  if (one?.found !== undefined) return one.found;
  const answer = await (one?.answer ?? fetch(path, { headers: HEADERS, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) }));
  if (!answer.ok) throw await problem(answer);
  return (answer.headers.get("content-type") || "").includes("json") ? answer.json() : answer.text();
}

// What a path answers, and why it does not; asked again with each of `again`. Nothing more is asked while an answer is awaited,
// so that questions do not gather behind one that takes long. An empty path asks nothing. What begin.js has got is there at once.
export function useAnswer(path, again) {
  const [first] = useState(() => ({ path, again, found: path ? begun(path) : undefined }));
  const [told, setTold] = useState(first.found === undefined ? {} : first), asked = useRef(null), gone = useRef(false);
  useLayoutEffect(() => () => { gone.current = true; }, []);
  useLayoutEffect(() => {
    if (!path || asked.current === path || (told === first && path === first.path && again === first.again)) return;
    asked.current = path;
    const tell = (news) => {
      if (gone.current || asked.current !== path) return;
      asked.current = null;
      setTold((before) => ({ path, found: before.path === path ? before.found : null, ...news }));
    };
    get(path).then((found) => tell({ found, problem: null }), (error) => tell({ problem: error.message }));
  }, [path, again]);
  return told.path === path ? [told.found, told.problem] : [null, null];
}

export async function send(method, path, body, headers = {}) {
  const answer = await fetch(path, {
    method,
    headers: { ...HEADERS, "Content-Type": "application/json", ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (!answer.ok) throw await problem(answer);
  return answer.json();
}

async function problem(answer) {
  let text = `the server answers ${answer.status}`;
  try { text = (await answer.json()).errors[0]; } catch { /* it was no JSON */ }
  return Object.assign(new Error(text), { status: answer.status });
}

export function login(token) {
  window.begun.clear(); // What was asked for before is the answer to nobody.
  return send("POST", "/v1/session", {}, { Authorization: `Bearer ${token}` });
}

// The token stands behind #, which no server sees, and is taken out of the address at once.
export async function loginFromAddress() {
  const found = /#token=([\w-]+)/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", "/#/");
  await login(found[1]);
}

// Calls `onNews` with each event and `onState` with true or false; opens again by itself, whatever happened. Listens while the
// page is seen: a browser has six connections to a server, and pages that nobody sees leave them to the others.
export function listen(onNews, onState) {
  let source = null, timer = null, heard = Date.now();
  const hear = () => { heard = Date.now(); onState(true); };
  const open = () => {
    source = new EventSource("/v1/events");
    source.addEventListener("alive", hear);
    source.addEventListener("jobs", (event) => { hear(); onNews(JSON.parse(event.data)); });
    source.onerror = () => { onState(false); again(); };
  };
  const close = () => { source?.close(); clearTimeout(timer); };
  const again = () => { close(); timer = setTimeout(open, AGAIN); };
  const watch = setInterval(() => { if (!document.hidden && Date.now() - heard > 25000) { heard = Date.now(); onState(false); again(); } }, 5000);
  const look = () => { close(); if (!document.hidden) { heard = Date.now(); open(); } };
  document.addEventListener("visibilitychange", look);
  look();
  return () => { close(); clearInterval(watch); document.removeEventListener("visibilitychange", look); };
}
