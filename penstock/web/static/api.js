// How the pages talk to the server: JSON, events, and the token that a link may bring along.

const HEADERS = { "X-Penstock-Request": "1" };

export async function get(path) {
  const answer = await fetch(path, { headers: HEADERS, cache: "no-store" });
  if (!answer.ok) throw await problem(answer);
  return (answer.headers.get("content-type") || "").includes("json") ? answer.json() : answer.text();
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
  return send("POST", "/v1/session", {}, { Authorization: `Bearer ${token}` });
}

// The token stands behind #, which no server sees, and is taken out of the address at once.
export async function loginFromAddress() {
  const found = /#token=([\w-]+)/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", "/#/");
  await login(found[1]);
}

// Calls `onNews` with each event and `onState` with true or false; opens again by itself, whatever happened.
export function listen(onNews, onState) {
  let source = null, timer = null, heard = Date.now();
  const open = () => {
    source = new EventSource("/v1/events");
    source.addEventListener("jobs", (event) => { heard = Date.now(); onState(true); onNews(JSON.parse(event.data)); });
    source.onerror = () => { onState(false); again(); };
  };
  const again = () => { source.close(); clearTimeout(timer); timer = setTimeout(open, 1500); };
  const watch = setInterval(() => { if (Date.now() - heard > 25000) { heard = Date.now(); onState(false); again(); } }, 5000);
  open();
  return () => { source.close(); clearTimeout(timer); clearInterval(watch); };
}
