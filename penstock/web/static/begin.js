// What the page of this address shows first is asked for while the scripts that draw it are still on their way, and with it a library
// that not every page needs. The answers are read as they come; api.js takes them over, each once. Where a link brings a token,
// nobody is known before it has been shown.
window.begun = new Map();
(() => {
  const KEPT = 5000, PATIENCE = 30000; // ms: an answer that nobody has taken by then would be old; and as in api.js
  const begin = (path, answer, read) => {
    const one = { answer, found: undefined };
    one.read = answer.then(read).then((found) => { one.found = found; });
    one.read.catch(() => {}); // who takes it is told
    window.begun.set(path, one);
  };
  const ask = (path) => begin(path, fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) }), (answer) => (answer.ok ? answer.json() : undefined));
  const load = (path) => {
    const script = Object.assign(document.createElement("script"), { src: path });
    begin(path, new Promise((done, fail) => { script.onload = done; script.onerror = fail; }), () => true);
    document.head.append(script);
  };
  if (location.hash.startsWith("#token=")) return;
  const [page, id, tab, rest] = location.hash.replace(/^#\/?/, "").split("/");
  const job = `/v1/jobs/${id}`;
  ask("/v1/session");
  if (!page) ask("/v1/overview-of-jobs");
  if (page === "jobs" && id) {
    ask(`${job}/view`);
    // The chart of a task stands below its rows, which do not wait for it.
    if (!tab && Number(rest)) { ask(`${job}/tasks/${rest}`); ask(`${job}/tasks/${rest}/watermarks`); }
    if (tab === "metrics") { ask(`${job}/charts?busiest=8`); load("/pages/vendor/uplot.js"); }
  }
  setTimeout(() => window.begun.clear(), KEPT);
})();
