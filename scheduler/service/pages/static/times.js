// Moments in the time zone of the reader. They are sent in UTC, and stay so without scripts.
const times = (() => {
  const two = (n) => String(n).padStart(2, "0");
  const day = (d) => `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
  const clock = (d) => `${two(d.getHours())}:${two(d.getMinutes())}`;
  // "16:40", "Tue 16:40" within a week, "2026-12-03 16:40" beyond
  const short = (d) => {
    const noon = (x) => new Date(x.getFullYear(), x.getMonth(), x.getDate(), 12);
    const days = Math.round((noon(d) - noon(new Date())) / 864e5);
    if (days === 0) return clock(d);
    const near = days > 0 && days < 7;
    return `${near ? d.toLocaleDateString("en", { weekday: "short" }) : day(d)} ${clock(d)}`;
  };
  const dress = (root) => {
    for (const one of root.querySelectorAll("time[datetime]")) {
      const at = new Date(one.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      one.title = `${one.dateTime.replace("T", " ").replace("Z", "")} UTC`;
      one.textContent = "short" in one.dataset ? short(at) : `${day(at)} ${clock(at)}:${two(at.getSeconds())}`;
    }
    for (const one of root.querySelectorAll("text[data-at]")) one.textContent = short(new Date(one.dataset.at));
  };
  // The title says where a job stands: "Starts 16:40 - resnet50".
  const title = () => {
    const part = document.querySelector("[data-job]");
    if (!part) return;
    const { state, at, name } = part.dataset;
    document.title = `${state}${at ? ` ${short(new Date(at))}` : ""} - ${name} – Pellucid`;
  };
  const all = (root) => {
    dress(root);
    title();
  };
  all(document);
  const zone = document.getElementById("zone");
  if (zone) zone.textContent = `times are those of ${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
  document.body.addEventListener("htmx:load", (event) => all(event.target));
  return { clock, short };
})();
