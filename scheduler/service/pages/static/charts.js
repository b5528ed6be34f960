// Draws charts as SVG, in the colours of the style sheet: every [data-chart] from the JSON in it,
// others by drawChart(box, {data, layout}). A chart's numbers also stand in a table beside it.
// A trace is a line, points, bars or a heat map; an axis linear, log, date or category.
(() => {
  const TEXT = 7.4; // width of a character, px
  const svg = (tag, more = {}, style = {}, parent = null, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(more)) made.setAttribute(name, value);
    for (const [name, value] of Object.entries(style)) made.style[name] = value;
    if (text) made.textContent = text;
    parent?.append(made);
    return made;
  };
  const colour = (name) => (name?.startsWith("--") ? `var(${name})` : name);
  const at = (value, i) => (Array.isArray(value) ? value[i] : value);
  const DASHES = { dot: "2 4", dash: "8 4", longdash: "14 5", dashdot: "8 4 2 4" };
  const SHAPES = {
    square: (r) => `M${-r} ${-r}H${r}V${r}H${-r}Z`,
    "triangle-up": (r) => `M0 ${-r}L${r} ${r}H${-r}Z`,
    diamond: (r) => `M0 ${-r}L${r} 0L0 ${r}L${-r} 0Z`,
    cross: (r) => `M${-r} 0H${r}M0 ${-r}V${r}`,
    x: (r) => `M${-r} ${-r}L${r} ${r}M${r} ${-r}L${-r} ${r}`,
    star: (r) => `M0 ${-r}L${r / 3} ${-r / 3}L${r} 0L${r / 3} ${r / 3}L0 ${r}L${-r / 3} ${r / 3}L${-r} 0L${-r / 3} ${-r / 3}Z`,
  };
  const round = (r) => `M${-r} 0A${r} ${r} 0 1 1 ${r} 0A${r} ${r} 0 1 1 ${-r} 0Z`;
  const OPEN = new Set(["cross", "x", "circle-open"]);

  // numbers and moments in words: ".0%", ".1~%", ".3g", ".0f"
  const format = (value, how) => {
    const [, places, trim, kind] = /^\.(\d)(~?)([%gf])$/.exec(how) ?? [];
    if (kind === "f") return value.toFixed(places);
    if (kind === "g") return String(+value.toPrecision(places));
    if (kind === "%") return `${trim ? +(value * 100).toPrecision(Math.max(1, places)) : (value * 100).toFixed(places)}%`;
    return String(value);
  };
  const short = (value) => {
    for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (Math.abs(value) >= size) return `${+(value / size).toPrecision(4)}${letter}`;
    return String(+value.toPrecision(4));
  };
  const moment = (ms) => new Date(ms).toISOString().slice(0, 16).replace("T", " ");
  const read = (axis, value) => (axis.type === "date" ? Date.parse(/Z$/.test(value) ? value : `${value.replace(" ", "T")}Z`) : value);

  // an axis: its ends, where a value stands on it (0 to 1), its ticks
  const axisOf = (given, values, zero) => {
    const axis = { ...given };
    if (axis.type === "category") {
      const names = [...new Set(values)];
      if (axis.autorange === "reversed") names.reverse();
      axis.place = (name) => (names.indexOf(name) + 0.5) / names.length;
      axis.band = 1 / names.length;
      const every = Math.ceil(names.length / (axis.nticks ?? names.length));
      axis.ticks = names.filter((_, i) => i % every === 0).map((name) => [name, name]);
      return axis;
    }
    const log = axis.type === "log";
    const known = values.map((v) => read(axis, v)).filter((v) => Number.isFinite(v) && (!log || v > 0));
    let low = Math.min(...known, ...(zero ? [0] : []));
    let high = Math.max(...known, ...(zero ? [0] : []));
    if (!known.length) [low, high] = log ? [1, 10] : [0, 1];
    if (axis.range) [low, high] = log ? axis.range.map((v) => 10 ** v) : axis.range;
    else if (log) {
      const room = low < high ? (high / low) ** 0.05 : 1.15;
      [low, high] = [low / room, high * room];
    }
    else {
      const room = (high - low) * 0.04 || (axis.type === "date" ? 432e5 : 0.5);
      [low, high] = [zero && low === 0 ? 0 : low - room, high + room];
    }
    const scale = log ? Math.log : (v) => v;
    axis.place = (v) => (scale(Math.max(read(axis, v), log ? low : -Infinity)) - scale(low)) / (scale(high) - scale(low) || 1);
    axis.ticks = marks(axis, low, high, log).filter(([v]) => axis.place(v) > -0.001 && axis.place(v) < 1.001);
    return axis;
  };
  const marks = (axis, low, high, log) => {
    const word = (v) => (axis.tickformat ? format(v, axis.tickformat) : short(v));
    if (axis.tickvals) return axis.tickvals.map((v, i) => [v, axis.ticktext[i]]);
    if (log) {
      const first = Math.ceil(Math.log10(low) - 1e-9);
      return Array.from({ length: Math.max(0, Math.floor(Math.log10(high) + 1e-9) - first + 1) }, (_, k) => [10 ** (first + k), word(10 ** (first + k))]);
    }
    const raw = (high - low) / 5;
    if (axis.type === "date") {
      const steps = [1, 5, 15, 60, 180, 360, 720, 1440, 2880, 10080, 20160, 40320, 161280].map((m) => m * 6e4);
      const step = steps.find((s) => s >= raw) ?? steps[steps.length - 1];
      const from = Math.ceil(low / step) * step;
      return Array.from({ length: Math.floor((high - from) / step) + 1 }, (_, k) => from + k * step)
        .map((v) => [new Date(v).toISOString(), step < 864e5 ? moment(v).slice(5) : moment(v).slice(0, 10)]);
    }
    const size = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * size).find((s) => s >= raw * 0.999);
    const from = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - from + 1 }, (_, k) => [(from + k) * step, word((from + k) * step)]);
  };

  // what is said of a point that is pointed at
  const said = (trace, i, x, y, axis) => {
    const when = axis.type === "date" ? "%{x}\n" : "";
    const template = trace.hovertemplate ?? `${when}${trace.name ? "%{name}: " : ""}%{y}`;
    const own = at(trace.customdata, i);
    const values = { name: trace.name, x: axis.type === "date" ? moment(read(axis, x)) : x, y, text: at(trace.text, i), customdata: own };
    return template.replace(/<br>/g, "\n").replace(/%\{(\w+)(?:\[(\d)\])?(?::([^}]+))?\}/g, (_, name, k, how) => {
      const value = k === undefined ? values[name] : own[k];
      return how && typeof value === "number" ? format(value, how) : typeof value === "number" && k === undefined ? short(value) : value;
    });
  };

  const draw = (box, given) => {
    const { data, layout } = given ?? JSON.parse(box.querySelector("script[type='application/json']").textContent);
    const plot = box.querySelector(".plot");
    plot.spec = given;
    plot.replaceChildren();
    const width = plot.clientWidth || 560;
    const named = data.filter((trace) => trace.showlegend !== false && trace.name && data.length > 1);
    if (named.length) plot.append(legend(layout.legend?.traceorder === "reversed" ? [...named].reverse() : named));
    const least = parseFloat(getComputedStyle(plot).minHeight) || 240;
    const height = Math.max(layout.height ?? 0, least - (plot.firstChild?.offsetHeight ?? 0));
    const root = svg("svg", { class: "drawing", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, {}, plot);
    const flat = data.some((trace) => trace.orientation === "h");
    const upright = data.some((trace) => trace.type === "bar" && !flat && trace.yaxis !== "y2");
    const stacked = layout.barmode === "stack";
    const main = data.filter((trace) => trace.yaxis !== "y2");
    const ends = (name) => main.flatMap((trace) => trace[name]);
    const sums = stacked ? main[0]?.x.map((_, i) => main.reduce((sum, trace) => sum + trace.y[i], 0)) ?? [] : [];
    const category = { ...(flat && { type: "category" }), ...layout.yaxis };
    const y = axisOf(category, [...ends("y"), ...sums], upright);
    const x = axisOf({ ...layout.xaxis }, ends("x"), flat);
    const over = layout.yaxis2 && axisOf(layout.yaxis2, [], true);
    const room = (axis) => (axis.visible === false || axis.showticklabels === false ? 4 : TEXT * Math.max(0, ...axis.ticks.map(([, text]) => String(text).length)));
    const left = Math.min(width * 0.42, (layout.yaxis?.title?.text ? 20 : 0) + (y.visible === false ? 4 : 10 + room(y)));
    const behind = main.flatMap((trace) => (trace.textposition === "outside" ? trace.text : [])).map((text) => String(text).length);
    const right = Math.max(left + width * 0.12, width - (behind.length ? 8 + TEXT * Math.max(...behind) : 14));
    const [top, bottom] = [10, height - (x.visible === false ? 8 : 24 + (layout.xaxis?.title?.text ? 18 : 0))];
    const px = (v) => left + (right - left) * x.place(v);
    const py = (v, axis = y) => bottom + (top - bottom) * axis.place(v);
    grid(root, { x, y, px, py, left, right, top, bottom, width, height }, layout);
    const points = [];
    const marksOf = svg("g", {}, {}, root);
    let before = null;
    const base = main[0]?.x?.map(() => 0) ?? [];
    for (const trace of data) {
      const tell = (i, cx, cy, reach) => trace.hoverinfo !== "skip" && points.push({ trace, i, cx, cy, reach, words: () => said(trace, i, trace.x[i] ?? "", trace.y[i], x) });
      if (trace.type === "heatmap") heat(marksOf, trace, { x, y, px, py, left, right, top, bottom }, points);
      else if (trace.type === "bar" && trace.orientation === "h") {
        trace.y.forEach((name, i) => {
          const [from, to] = [px(0), px(trace.x[i])].sort((a, b) => a - b);
          const tall = (bottom - top) * y.band * 0.72;
          const bar = svg("rect", { class: "point", x: from, y: py(name) - tall / 2, width: Math.max(1, to - from), height: tall }, {
            fill: colour(at(trace.marker.color, i)), stroke: colour(at(trace.marker.line?.color, i) ?? "none"), strokeWidth: trace.marker.line?.width ?? 0,
          }, marksOf);
          bar.point = { words: () => said(trace, i, trace.x[i], name, x) };
          if (trace.textposition === "outside") svg("text", { x: to + 6, y: py(name) + 4 }, {}, marksOf, trace.text[i]);
        });
      } else if (trace.type === "bar") {
        const axis = trace.yaxis === "y2" ? over : y;
        const places = trace.x.map(px);
        const gap = Math.min(...places.slice(1).map((v, i) => v - places[i]), right - left) * 0.82;
        trace.x.forEach((v, i) => {
          const wide = trace.width ? Math.abs(px(v + trace.width[i] / 2) - px(v - trace.width[i] / 2)) : Math.max(2, gap);
          const under = stacked && axis === y ? base[i] : 0;
          const [low, high] = [py(under, axis), py(under + trace.y[i], axis)];
          const bar = svg("rect", { class: "point", x: places[i] - wide / 2, y: high, width: wide, height: Math.max(0, low - high) }, { fill: colour(trace.marker.color) }, marksOf);
          if (trace.hoverinfo !== "skip") bar.point = { words: () => said(trace, i, v, trace.y[i], x) };
          if (stacked && axis === y) base[i] += trace.y[i];
        });
      } else {
        const spots = trace.x.map((v, i) => [px(v), py(trace.y[i]), i]).filter(([a, b]) => Number.isFinite(a) && Number.isFinite(b));
        if (trace.mode.includes("lines")) {
          const path = spots.map(([a, b], k) => (k === 0 ? `M${a} ${b}` : trace.line?.shape === "hv" ? `H${a}V${b}` : `L${a} ${b}`)).join("");
          if (trace.fill === "tonexty" && before) {
            const back = [...before].reverse().map(([a, b], k) => (k === 0 ? `L${a} ${b}` : `V${b}H${a}`)).join("");
            svg("path", { d: `${path}${back}Z` }, { fill: colour(trace.fillcolor) }, marksOf);
          } else if (trace.line?.width !== 0) {
            svg("path", { class: "series", d: path }, { fill: "none", stroke: colour(trace.line?.color ?? "--s0"), strokeWidth: trace.line?.width ?? 2, strokeDasharray: DASHES[trace.line?.dash] ?? "" }, marksOf);
          }
          before = spots;
        }
        if (trace.mode.includes("markers")) {
          const { marker = trace.line } = trace;
          for (const [a, b, i] of spots) {
            const r = (at(marker.size, i) ?? 6) / 2;
            const open = OPEN.has(marker.symbol);
            const dot = svg("path", { class: "point", transform: `translate(${a} ${b})`, d: (SHAPES[marker.symbol] ?? round)(r) }, {
              fill: open ? "none" : colour(marker.color), stroke: open ? colour(marker.color) : "none", strokeWidth: 2, opacity: at(marker.opacity, i) ?? 1,
            }, marksOf);
            dot.addEventListener("click", () => plot.dispatchEvent(new CustomEvent("chosen", { detail: at(trace.customdata, i) })));
          }
        }
        for (const [a, b, i] of spots) tell(i, a, b, 30);
      }
    }
    pointed(plot, root, points);
  };
  const legend = (named) => {
    const list = document.createElement("ul");
    list.className = "legend";
    for (const trace of named) {
      const item = document.createElement("li");
      const swatch = svg("svg", { viewBox: "0 0 28 14", width: 28, height: 14, "aria-hidden": "true" }, {}, item);
      const paint = colour(trace.line?.color ?? trace.marker?.color);
      if (trace.type === "bar") svg("rect", { x: 8, y: 1, width: 12, height: 12 }, { fill: paint }, swatch);
      else if (trace.mode.includes("lines")) svg("path", { d: "M1 7H27" }, { stroke: paint, strokeWidth: trace.line.width ?? 2, strokeDasharray: DASHES[trace.line.dash] ?? "" }, swatch);
      else {
        const open = OPEN.has(trace.marker.symbol);
        svg("path", { transform: "translate(14 7)", d: (SHAPES[trace.marker.symbol] ?? round)(5) }, { fill: open ? "none" : paint, stroke: open ? paint : "none", strokeWidth: 2 }, swatch);
      }
      item.append(trace.name);
      list.append(item);
    }
    return list;
  };
  const grid = (root, { x, y, px, py, left, right, top, bottom, width, height }, layout) => {
    const line = (more) => svg("line", more, { stroke: "var(--line)" }, root);
    if (x.visible !== false) {
      let free = -Infinity;
      for (const [v, text] of x.ticks) {
        const a = px(v);
        if (x.showgrid !== false && x.type !== "category") line({ x1: a, x2: a, y1: top, y2: bottom });
        const half = (TEXT * String(text).length) / 2;
        if (x.showticklabels === false || a - half < free) continue;
        free = a + half + 6;
        svg("text", { class: "xtick", x: Math.min(Math.max(a, half), width - half), y: bottom + 16, "text-anchor": "middle" }, {}, root, String(text));
      }
      if (layout.xaxis?.title?.text) svg("text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, {}, root, layout.xaxis.title.text);
    }
    const most = Math.floor((left - 10) / TEXT);
    for (const [v, text] of y.ticks) {
      const b = py(v);
      if (y.type !== "category") line({ x1: left, x2: right, y1: b, y2: b });
      const label = svg("text", { class: "ytick", x: left - 6, y: b + 4, "text-anchor": "end" }, {}, root, String(text).length > most ? `${String(text).slice(0, most - 1)}…` : String(text));
      if (String(text).length > most) svg("title", {}, {}, label, String(text));
    }
    if (layout.yaxis?.title?.text) svg("text", { transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, {}, root, layout.yaxis.title.text);
    if (x.zeroline) svg("line", { x1: px(0), x2: px(0), y1: top, y2: bottom }, { stroke: "var(--muted)" }, root);
  };
  const heat = (parent, trace, { x, y, px, py, left, right, top, bottom }, points) => {
    const [wide, tall] = [(right - left) * x.band, (bottom - top) * y.band];
    trace.y.forEach((row, r) => trace.x.forEach((column, c) => {
      const value = trace.z[r][c];
      if (value === null) return;
      const share = Math.round((100 * Math.abs(value)) / (trace.zmax || 1));
      const cell = svg("rect", { class: "point", x: px(column) - wide / 2, y: py(row) - tall / 2, width: wide + 0.5, height: tall + 0.5 }, { fill: `color-mix(in srgb, var(${value > 0 ? "--heat" : "--cold"}) ${share}%, var(--card))` }, parent);
      cell.point = { words: () => said({ ...trace, text: trace.text[r] }, c, column, row, x) };
    }));
  };
  const pointed = (plot, root, points) => {
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    plot.append(tip);
    root.addEventListener("pointerleave", () => { tip.hidden = true; });
    root.addEventListener("pointermove", (event) => {
      const box = root.getBoundingClientRect();
      const [a, b] = [event.clientX - box.left, event.clientY - box.top];
      const away = ({ cx, cy }) => (cx - a) ** 2 + (cy - b) ** 2;
      const near = points.reduce((best, one) => (away(one) < (best ? away(best) : one.reach ** 2) ? one : best), null);
      const found = event.target.point ?? near;
      tip.hidden = !found;
      if (!found) return;
      tip.textContent = found.words();
      const room = plot.getBoundingClientRect();
      const [x, y] = [event.clientX - room.left, event.clientY - room.top];
      tip.style.left = `${Math.max(0, Math.min(x + 12, room.width - tip.offsetWidth))}px`;
      tip.style.top = `${y + 14}px`;
    });
  };

  window.drawChart = draw; // for pages whose scripts make the spec themselves
  const all = (root) => root.querySelectorAll("[data-chart]").forEach((box) => draw(box));
  all(document);
  document.body.addEventListener("htmx:afterSettle", (event) => all(event.detail.target));
  document.addEventListener("toggle", () => dispatchEvent(new Event("resize")), true); // in a fold it had no width
  let later = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(later);
    later = requestAnimationFrame(() => {
      all(document);
      for (const plot of document.querySelectorAll("[data-figure] .plot")) if (plot.spec) draw(plot.parentElement, plot.spec);
    });
  });
})();
