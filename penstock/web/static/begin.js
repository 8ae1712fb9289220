// What the page of this address shows first is asked for while the scripts that draw it are still on their way. The answers are read as
// they come; api.js takes them over, each once. Where a link brings a token, nobody is known before it has been shown.
window.begun = new Map();
(() => {
  const KEPT = 5000, PATIENCE = 30000; // ms: an answer that nobody has taken by then would be old; and as in api.js
  const ask = (path) => {
    const one = { answer: fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) }), found: undefined };
    one.read = one.answer.then((answer) => (answer.ok ? answer.json() : undefined)).then((found) => { one.found = found; });
    one.read.catch(() => {}); // who takes it is told
    window.begun.set(path, one);
  };
  if (location.hash.startsWith("#token=")) return;
  const [page, id, tab, rest] = location.hash.replace(/^#\/?/, "").split("/");
  const job = `/v1/jobs/${id}`;
  ask("/v1/session");
  if (!page) ask("/v1/overview-of-jobs");
  if (page === "jobs" && id) {
    ask(`${job}/view`);
    if (!tab && Number(rest)) { ask(`${job}/tasks/${rest}`); ask(`${job}/tasks/${rest}/watermarks`); }
    if (tab === "metrics") ask(`${job}/charts?busiest=8`);
  }
  setTimeout(() => window.begun.clear(), KEPT);
})();
