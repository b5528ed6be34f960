// The link that is shared, as this browser reaches the service, and a button that copies it.
(() => {
  const link = document.querySelector("[data-link]");
  const copy = document.querySelector("[data-copy]");
  if (!link) return;
  link.value = new URL(new URL(link.value).pathname, location.href).href;
  if (!navigator.clipboard) return; // selected and copied by hand
  copy.hidden = false;
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(link.value);
    document.getElementById("copied").textContent = "Copied.";
  });
})();

// A notification when the job of this page starts or ends, for readers who asked for it here. It
// comes from this page: the page has to stay open, though not in sight.
(() => {
  const body = document.body;
  const part = () => document.querySelector("[data-job]");
  const key = (job) => `watch:${job}`;
  const watched = (job) => localStorage.getItem(key(job)) !== null && Notification.permission === "granted";
  const RUNS = ["starting", "running"];
  const WAITS = ["submitted", "queued", "profiling", "held"];
  const kind = (phase) => (RUNS.includes(phase) ? "runs" : WAITS.includes(phase) ? "waits" : "over");

  let was = null;
  const look = () => {
    const shown = part();
    if (!shown) return;
    const { job, name, phase } = shown.dataset;
    if (was?.job === job && was.kind !== kind(phase) && kind(phase) !== "waits" && watched(job)) {
      const said = kind(phase) === "runs" ? "has started" : `is over: ${phase}`;
      const told = new Notification(`${name} ${said}`, { tag: key(job), icon: document.querySelector("link[rel=icon]").href });
      told.onclick = () => focus();
    }
    was = { job, kind: kind(phase) };
    if (was.kind === "over") localStorage.removeItem(key(job));
    const button = shown.querySelector("[data-watch]");
    if (!button) return;
    button.hidden = false;
    button.dataset.text ??= button.textContent;
    button.setAttribute("aria-pressed", watched(job));
    button.textContent = watched(job) ? "A notification will come: do not send it" : button.dataset.text;
    if (Notification.permission === "denied") {
      button.disabled = true;
      button.textContent = "Notifications are blocked in this browser";
    }
  };
  if (!("Notification" in window) || !isSecureContext) return; // the button stays hidden
  body.addEventListener("click", async (event) => {
    if (!event.target.matches("[data-watch]")) return;
    const { job } = part().dataset;
    if (watched(job)) localStorage.removeItem(key(job));
    else if ((await Notification.requestPermission()) === "granted") localStorage.setItem(key(job), "");
    look();
  });
  body.addEventListener("htmx:load", look);
  look();
})();
