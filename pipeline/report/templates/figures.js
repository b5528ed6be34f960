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
  const mean = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;

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
  const resultsShown = () => all("input[name=results]:checked", form).map((box) => D.results[box.value]);
  const oracles = D.results.filter((result) => result.oracle);
  const dash = (result) => (result.oracle ? ["dash", "dot", "longdash"][oracles.indexOf(result) % 3] : "solid");
  const stroke = (result) => ({ color: `--s${result.colour}`, width: result.colour ? 1.8 : 4, dash: dash(result) });
  const seconds = (title, low, high) => ({
    type: "log", title: { text: title }, range: [Math.log10(low), Math.log10(Math.max(high, low * 10) * 1.2)],
    tickvals: D.ticks.map(([v]) => v), ticktext: D.ticks.map(([, text]) => text),
  });
  const last = (results) => [...results].sort((a, b) => (b.colour > 0) - (a.colour > 0)); // ours on top
  const most = (data) => data.reduce((top, { x }) => x.reduce((m, v) => Math.max(m, v), top), 10);
  const legend = { traceorder: "reversed" };

  const average = (rows, results) => {
    const found = results
      .map((result) => ({ result, jct: mean(rows.filter((i) => known(result, i)).map((i) => result.jct[i])) }))
      .filter(({ jct }) => !Number.isNaN(jct))
      .sort((a, b) => b.jct - a.jct);
    const top = Math.max(1, ...found.map(({ jct }) => jct));
    return {
      data: [{
        type: "bar", orientation: "h", y: found.map(({ result }) => result.name), x: found.map(({ jct }) => jct),
        text: found.map(({ jct }) => duration(jct)), textposition: "outside",
        marker: {
          color: found.map(({ result }) => (result.oracle ? "rgba(0,0,0,0)" : `--s${result.colour}`)),
          line: { color: found.map(({ result }) => `--s${result.colour}`), width: 2 },
        },
        hovertemplate: "%{y}: average JCT %{text}",
      }],
      layout: { xaxis: { range: [0, top], visible: false } },
    };
  };
  const curves = (rows, results, column, at, template) =>
    last(results).map((result) => {
      const values = rows.filter((i) => known(result, i)).map((i) => result[column][i]).sort((a, b) => a - b);
      const points = values.length ? at(values) : [];
      return {
        type: "scatter", mode: "lines", name: result.name, line: stroke(result),
        x: points.map(([v]) => Math.max(v, 1)), y: points.map(([, share]) => share),
        customdata: points.map(([v]) => duration(v)), hovertemplate: `%{name}: ${template}`,
      };
    });
  const jct = (rows, results) => {
    const at = (values) => Array.from({ length: 101 }, (_, k) => [values[Math.min(values.length - 1, Math.floor((k / 100) * values.length))], k / 100]);
    const data = curves(rows, results, "jct", at, "%{y:.0%} ended within %{customdata}");
    return { data, layout: { xaxis: seconds("from submission to end", 1, most(data)), yaxis: { tickformat: ".0%", range: [0, 1.02] }, legend } };
  };
  const tail = (rows, results) => {
    const at = (values) => Array.from({ length: 121 }, (_, k) => {
      const share = values.length ** (-k / 120);
      return [values[Math.min(values.length - 1, Math.floor((1 - share) * values.length))], share];
    });
    const data = curves(rows, results, "wait", at, "%{y:.2~%} wait longer than %{customdata}");
    return { data, layout: { xaxis: seconds("waits longer than", 1, most(data)), yaxis: { type: "log", tickformat: ".1~%", dtick: 1 }, legend } };
  };
  const groups = (rows, results) => {
    const keys = [
      ...D.vcs.slice(0, 18).map((name, k) => [name, (i) => D.vc[i] === k]),
      ...D.sizes.map(([name, low, high]) => [name, (i) => low <= D.gpus[i] && D.gpus[i] <= high]),
    ].map(([name, has]) => [name, rows.filter(has)]).filter(([, of]) => of.length).reverse();
    const data = last(results).map((result) => {
      const found = keys.map(([, of]) => mean(of.filter((i) => known(result, i)).map((i) => result.wait[i])));
      return {
        type: "scatter", mode: "markers", name: result.name, y: keys.map(([name]) => name),
        x: found.map((v) => Math.max(v, 1)), customdata: found.map((v, k) => [duration(v), keys[k][1].length]),
        marker: { color: `--s${result.colour}`, size: result.colour ? 9 : 13, symbol: ["circle", "square", "triangle-up", "diamond", "cross", "star", "circle-open", "x"][result.colour] },
        hovertemplate: `%{y}, %{name}: %{customdata[0]} (%{customdata[1]} jobs)`,
      };
    });
    return { data, layout: { height: 110 + 24 * keys.length, xaxis: seconds("average wait", 1, most(data)), yaxis: { type: "category" }, legend } };
  };
  const jobs = (rows) => {
    const result = D.results[browse.under.value];
    const shown = rows.filter((i) => known(result, i));
    const x = shown.map((i) => new Date((D.first + D.at[i]) * 1000).toISOString());
    return {
      data: [{
        type: "scatter", mode: "markers", x, y: shown.map((i) => Math.max(result.wait[i], 1)),
        customdata: shown.map((i) => [i, D.id[i], duration(result.wait[i]), D.gpus[i], D.vcs[D.vc[i]]]),
        marker: { color: `--s${result.colour}`, size: shown.map((i) => (i === chosen ? 15 : 6)), opacity: shown.map((i) => (i === chosen ? 1 : 0.55)) },
        hovertemplate: "job %{customdata[1]}: waited %{customdata[2]}<br>%{customdata[3]} GPUs, %{customdata[4]}",
      }],
      layout: { yaxis: { ...seconds("waited", 0.8, shown.reduce((top, i) => Math.max(top, result.wait[i]), 10)) }, xaxis: { type: "date", title: { text: "submitted (UTC)" } } },
    };
  };
  const drawings = { average, jct, tail, groups, jobs };

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
    draw(["jobs"]);
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

  const draw = (which = Object.keys(drawings)) => {
    const rows = rowsShown();
    const results = resultsShown();
    form.querySelector("output").textContent = `${rows.length.toLocaleString("en")} of ${D.id.length.toLocaleString("en")} jobs`;
    for (const name of which) {
      const box = document.querySelector(`[data-figure=${name}]`);
      if (!box) continue;
      const plot = box.querySelector(".plot");
      box.hidden = plot.hidden = false;
      box.classList.add("drawn");
      drawChart(box, drawings[name](rows, results));
      if (name === "jobs" && !plot.dataset.clicks) {
        plot.dataset.clicks = "yes";
        plot.addEventListener("chosen", ({ detail }) => show(detail[0]));
      }
    }
    if (which.length > 1) list(rows);
  };
  if (form) {
    form.hidden = document.getElementById("jobs-one-by-one").hidden = false;
    form.addEventListener("change", () => draw());
    for (const one of [form, browse]) one.addEventListener("submit", (event) => event.preventDefault());
    browse.under.addEventListener("change", () => draw());
    browse.previous.addEventListener("click", () => step(-1));
    browse.next.addEventListener("click", () => step(1));
    draw();
  }
}
