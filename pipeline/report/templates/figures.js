// Draws a page's figures from its per-job columns: filtered, hovered, clicked. Sorts its tables.
const all = (where, root = document) => [...root.querySelectorAll(where)];
const make = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text }, more);
const duration = (s) => {
  if (s === null || s === undefined || Number.isNaN(s)) return "–";
  if (s < 120) return `${s < 10 ? +s.toPrecision(3) : Math.round(s)} s`;
  if (s < 600) return `${Math.floor(s / 60)} min${Math.round(s) % 60 ? ` ${Math.round(s) % 60} s` : ""}`;
  const minutes = Math.round(s / 60);
  if (minutes < 60) return `${minutes} min`;
  const [big, small, of, names] = minutes < 1440 ? [minutes, 1, 60, ["h", "min"]] : [Math.round(minutes / 60), 1, 24, ["d", "h"]];
  return `${Math.floor(big / of)} ${names[0]}${big % of ? ` ${(big % of) * small} ${names[1]}` : ""}`;
};
const D = JSON.parse(document.getElementById("columns").textContent);
{
  // tables
  const order = (a, b) => (a === "" || b === "" ? 0 : a - b || String(a).localeCompare(String(b)));
  const sorted = (table, column, sign) => {
    const value = (row) => {
      const { dataset, textContent } = row.cells[column];
      const raw = dataset.value ?? textContent.trim();
      return raw === "" || Number.isNaN(Number(raw)) ? raw : Number(raw);
    };
    const missing = (row) => value(row) === "";
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => missing(a) - missing(b) || sign * order(value(a), value(b)));
    table.tBodies[0].append(...rows);
  };
  for (const table of all("table.sorts")) {
    all("thead th", table).forEach((head, column) => {
      const button = make("button", "", { type: "button" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        all("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        sorted(table, column, sign);
      });
    });
  }

  // what is shown
  const form = document.querySelector("form.filter fieldset")?.form;
  const browse = document.querySelector("#jobs-one-by-one form");
  const panel = document.getElementById("job");
  let chosen = null;
  let listed = [];
  const known = (result, i) => result.wait[i] !== null && result.jct[i] !== null;
  const rowsShown = () => {
    const size = form.size.value === "" ? [null, 0, Infinity] : D.sizes[form.size.value];
    return D.id.map((_, i) => i).filter((i) =>
      (form.vc.value === "" || D.vc[i] === Number(form.vc.value)) && size[1] <= D.gpus[i] && D.gpus[i] <= size[2]);
  };
  const SPECS = JSON.parse(document.getElementById("figures")?.textContent ?? "{}");
  const views = {};
  const last = [...D.results].sort((a, b) => (b.colour > 0) - (a.colour > 0)); // ours on top
  const size = (i) => D.sizes.findIndex(([, low, high]) => low <= D.gpus[i] && D.gpus[i] <= high);
  const rowOf = (result, i) => ({
    i, id: D.id[i], name: result.name, vc: D.vc[i], in_vc: D.vcs[D.vc[i]], gpus: D.gpus[i], at: (D.first + D.at[i]) * 1000,
    wait: result.wait[i], jct: result.jct[i], of_vc: D.vc[i] < 18 ? D.vcs[D.vc[i]] : null, of_size: D.sizes[size(i)]?.[0], size: size(i),
  });
  const everyRow = () => last.flatMap((result) => D.id.map((_, i) => i).filter((i) => known(result, i)).map((i) => rowOf(result, i)));

  // one job
  const show = (i) => {
    chosen = i;
    const table = make("table", "");
    table.append(make("caption", "The same job under each policy; shorter is better"));
    table.innerHTML += '<thead><tr><th scope="col">policy</th><th scope="col" class="num">waited</th><th scope="col" class="num">JCT</th></tr></thead><tbody></tbody>';
    for (const result of D.results) {
      const row = table.tBodies[0].insertRow();
      row.append(make("th", result.name, { scope: "row" }), ...[result.wait[i], result.jct[i]].map((v) => make("td", duration(v), { className: "num" })));
    }
    const when = new Date((D.first + D.at[i]) * 1000).toISOString().slice(0, 16).replace("T", " ");
    panel.replaceChildren(make("h4", `Job ${D.id[i]}`), make("p", `${D.gpus[i]} GPU${D.gpus[i] > 1 ? "s" : ""} in ${D.vcs[D.vc[i]]}, submitted ${when} UTC.`), table);
    if (document.getElementById("each-job")) panel.append(make("a", "Why it waited", { href: `#job=${encodeURIComponent(D.id[i])}` }));
    views.jobs?.signal("chosen", i).run();
  };
  const list = (rows) => {
    const result = D.results[browse.under.value];
    listed = rows.filter((i) => known(result, i)).sort((a, b) => result.wait[b] - result.wait[a]);
    const body = document.querySelector("#longest tbody");
    body.replaceChildren(...listed.slice(0, 10).map((i) => {
      const row = make("tr", "");
      const name = make("th", "", { scope: "row" });
      name.dataset.value = D.id[i];
      name.append(make("button", D.id[i], { type: "button", onclick: () => show(i) }));
      row.append(name);
      for (const [text, value, css] of [[D.vcs[D.vc[i]], D.vcs[D.vc[i]], ""], [D.gpus[i], D.gpus[i], "num"], [duration(result.wait[i]), result.wait[i], "num"], [duration(result.jct[i]), result.jct[i], "num"]]) {
        const made = make("td", text, { className: css });
        made.dataset.value = value;
        row.append(made);
      }
      return row;
    }));
  };
  const step = (by) => {
    if (listed.length) show(listed[(listed.indexOf(chosen) + by + listed.length) % listed.length]);
  };

  const draw = () => {
    const rows = rowsShown();
    const [, low, high] = D.sizes[form.size.value] ?? ["", 0, 1e9];
    const shown = all("input[name=results]:checked", form).map((box) => D.results[box.value].name);
    const asked = { vc: form.vc.value === "" ? -1 : Number(form.vc.value), low, high, shown, under: D.results[browse.under.value].name, chosen: chosen ?? -1 };
    form.querySelector("output").textContent = `${rows.length.toLocaleString("en")} of ${D.id.length.toLocaleString("en")} jobs`;
    for (const view of Object.values(views)) {
      for (const [name, value] of Object.entries(asked)) view.signal(name, value);
      view.run();
    }
    list(rows);
  };
  const start = () => {
    vega.expressionFunction("duration", duration);
    for (const [name, spec] of Object.entries(SPECS)) {
      const box = document.querySelector(`[data-figure=${name}]`);
      box.hidden = box.querySelector(".plot").hidden = false;
      box.classList.add("drawn");
      views[name] = drawChart(box, { ...spec, datasets: { jobs: everyRow() } });
    }
    views.jobs?.addEventListener("click", (_, item) => { if (item?.datum?.id) show(item.datum.i); });
  };
  if (form) {
    form.hidden = document.getElementById("jobs-one-by-one").hidden = false;
    form.addEventListener("change", () => draw());
    for (const one of [form, browse]) one.addEventListener("submit", (event) => event.preventDefault());
    browse.under.addEventListener("change", () => draw());
    browse.previous.addEventListener("click", () => step(-1));
    browse.next.addEventListener("click", () => step(1));
    start();
    draw();
  }
}
