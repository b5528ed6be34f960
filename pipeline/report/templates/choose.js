// Tells of any job that a reader chooses: by its id, in the schedule, or in the address (#job=ID).
const source = document.getElementById("each-job");
const chooser = document.getElementById("choose");
if (source && chooser) {
  const T = JSON.parse(source.textContent);
  const S = T.schedule;
  const panel = document.getElementById("any");
  const part = (name) => panel.querySelector(`[data-part=${name}]`);
  const called = (ref) => (typeof ref === "number" ? D.id[ref] : ref);
  const placed = (where) => (value) => `${(100 * where(value)).toFixed(2)}%`;
  const cells = (first, ...others) => [make("th", first, { scope: "row" }), ...others.map((text) => make("td", text, { className: "num" }))];
  const bar = (css, left, width, colour = "") => make("span", "", { className: css, style: `left:${left};width:${width};${colour}` });

  // the schedule: a row per GPU, 1600 steps of time, as the report draws it
  const boxes = ([, from, to, , , ...rows], { since, until, low, high }, end = to) => {
    if (end <= since || from >= until) return "";
    const x = (at) => Math.round(((Math.min(Math.max(at, since), until) - since) * 1600) / (until - since));
    const wide = Math.max(x(end) - x(from), 1);
    return rows.map((top, k) => (k % 2 || top < low || top >= high ? "" : `M${x(from)} ${top - low}h${wide}v${rows[k + 1]}h-${wide}z`)).join("");
  };
  const standOut = (i, held, span) => {
    const drawn = (which) => S.spells.filter(([job]) => which(job)).map((spell) => boxes(spell, span)).join("");
    return { holds: drawn((job) => held.includes(job)), own: drawn((job) => job === i) };
  };
  const closeup = (i, spells, held) => {
    const [since, until] = [spells[0][0], spells.at(-1)[1]];
    const [, top, bottom] = S.bands.find(([vc]) => vc === D.vcs[D.vc[i]]) ?? ["", 0, 1];
    const room = Math.max(until - since, 4) / 4;
    const span = { since: since - room, until: until + 2 * room, low: Math.round(top * S.rows), high: Math.round(bottom * S.rows) };
    const layers = {
      alone: S.spells.filter((spell) => !spell[4]).map((spell) => boxes(spell, span)).join(""),
      pair: S.spells.filter((spell) => spell[3]).map((spell) => boxes(spell, span, spell[3])).join(""),
      probe: S.spells.filter((spell) => spell[4]).map((spell) => boxes(spell, span)).join(""),
      ...standOut(i, held, span),
    };
    const lanes = part("held").querySelector(".lanes");
    const paths = Object.entries(layers).map(([css, d]) => `<path class="g-${css}" d="${d}"/>`).join("");
    lanes.innerHTML = `<svg viewBox="0 0 1600 ${span.high - span.low}" preserveAspectRatio="none" aria-hidden="true">${paths}</svg>`;
    const at = placed((time) => (time - span.since) / (span.until - span.since));
    for (const [time, text] of [[since, "it waits"], [until, "it starts"]]) {
      const mark = bar("mark", at(time), "auto");
      mark.append(make("b", text));
      lanes.append(mark);
    }
    const times = part("held").querySelectorAll(".times span");
    [since, until].forEach((time, k) => {
      times[k].style.left = at(time);
      times[k].textContent = new Date((D.first + time) * 1000).toISOString().slice(5, 16).replace("T", " ");
    });
  };

  const waterfall = (steps) => {
    const totals = [];
    steps.forEach(([, adds], k) => totals.push(k && k < steps.length - 1 ? totals[k - 1] + adds : adds));
    const [low, high] = [Math.min(...totals), Math.max(...totals)];
    const room = high - low || 1;
    const at = (value) => (100 * (value - low + 0.06 * room)) / (1.12 * room);
    return steps.map(([text, adds, words], k) => {
      const whole = k === 0 || k === steps.length - 1;
      const [from, to] = whole ? [at(totals[k]) - 0.4, at(totals[k]) + 0.4] : [at(totals[k - 1]), at(totals[k])];
      const row = make("tr", "", { className: whole ? "total" : adds > 0 ? "longer" : "shorter" });
      const plot = make("td", "", { className: "plot", ariaHidden: "true" });
      const track = make("span", "", { className: "track" });
      track.append(bar("step", `${Math.max(Math.min(from, to), 0)}%`, `${Math.abs(to - from)}%`));
      plot.append(track);
      row.append(make("th", T.texts[text], { scope: "row" }), plot, make("td", words, { className: "num" }));
      return row;
    });
  };
  const lives = (i) => {
    const shown = T.beside.map((k) => D.results[k]).filter((result) => result.jct[i] !== null);
    const longest = Math.max(1, ...shown.map((result) => result.jct[i]));
    return shown.map((result) => {
      const [waited, whole] = [result.wait[i], result.jct[i]];
      const row = make("tr", "");
      const plot = make("td", "", { className: "bar", ariaHidden: "true" });
      plot.append(bar("waited", "", `${(100 * waited) / longest}%`), bar("ran", "", `${(100 * (whole - waited)) / longest}%`, `background:var(--s${result.colour})`));
      const words = make("td", "waited ");
      words.append(make("strong", duration(waited)), ` of ${duration(whole)} from submission to end`);
      row.append(make("th", result.name, { scope: "row" }), plot, words);
      return row;
    });
  };
  const fill = (i) => {
    const [spells, why, [holders, more], steps, pair, predicted, ran, started] = T.jobs[i] ?? [[], "", [[], 0], [], null, null, null, ""];
    const gpus = `${D.gpus[i]} GPU${D.gpus[i] > 1 ? "s" : ""}`;
    panel.querySelector("summary").textContent = `Job ${D.id[i]}`;
    panel.querySelector("caption").textContent = `Job ${D.id[i]}, ${gpus} in ${D.vcs[D.vc[i]]}, under each policy (hatched: waiting)`;
    panel.querySelector(".lives tbody").replaceChildren(...lives(i));
    const held = part("held");
    held.hidden = !spells.length;
    held.querySelector("p").textContent = why && `It waited: ${why}.`;
    held.querySelector(".gantt").hidden = !S || !spells.length;
    if (S && spells.length) closeup(i, spells, holders.map(([job]) => job));
    held.querySelector("table").hidden = !holders.length;
    held.querySelector("tbody").replaceChildren(...holders.map(([job, of]) => {
      const row = make("tr", "");
      const known = (typeof job === "number" && T.jobs[job]) || [];
      row.append(...cells(called(job), of, duration(known[5]), duration(known[6])));
      return row;
    }));
    held.querySelector(".note").textContent = more ? `and ${more} other job${more > 1 ? "s" : ""}.` : "";
    part("started").hidden = !started;
    part("started").querySelector("p").textContent = started;
    const lines = T.tried[i];
    const tried = part("tried");
    tried.hidden = !spells.length;
    tried.querySelector("ul").replaceChildren(...(lines ?? []).map((line) => make("li", line)));
    tried.querySelector("p").hidden = Boolean(lines);
    tried.querySelector("p span").textContent = D.id[i];
    const terms = part("terms");
    terms.hidden = !steps.length;
    terms.querySelector("h4").textContent = `Why it was predicted to run ${steps.at(-1)?.[2]}, when submitted (it ran ${duration(ran)})`;
    terms.querySelector("tbody").replaceChildren(...waterfall(steps));
    const shared = part("pair");
    shared.hidden = !pair;
    if (pair) {
      shared.querySelector("h4").textContent = `Why it shared GPUs with job ${called(pair[0])}`;
      shared.querySelector("p").textContent = pair[1];
      shared.querySelector("div").replaceChildren(...(pair[2] === null ? [] : [document.getElementById(`path-${pair[2]}`).content.cloneNode(true)]));
    }
  };

  // choosing
  const lanes = document.querySelector("[data-choose]");
  let chosen = null;
  const choose = (i, moves = true) => {
    chosen = i;
    chooser.job.value = D.id[i];
    history.replaceState(null, "", `#job=${encodeURIComponent(D.id[i])}`);
    if (S && lanes) {
      const whole = { since: 0, until: S.until, low: 0, high: S.rows };
      const holders = (T.jobs[i]?.[2][0] ?? []).map(([job]) => job);
      for (const [css, d] of Object.entries(standOut(i, holders, whole))) {
        const path = lanes.querySelector(`.g-${css}`) ?? document.createElementNS("http://www.w3.org/2000/svg", "path");
        path.setAttribute("class", `g-${css}`);
        path.setAttribute("d", d);
        lanes.querySelector("svg").append(path);
      }
    }
    const fixed = document.getElementById(D.explained[D.id[i]])?.closest("details.sample");
    panel.hidden = Boolean(fixed);
    if (!fixed) fill(i);
    (fixed ?? panel).open = true;
    if (moves) (fixed ?? panel).scrollIntoView({ block: "nearest" });
  };
  const addressed = () => {
    if (!location.hash.startsWith("#job=")) return;
    let id = location.hash.slice(5);
    try { id = decodeURIComponent(id); } catch { /* as it stands */ }
    const i = D.id.indexOf(id);
    if (i >= 0) choose(i);
  };
  const like = (text) => D.id.map((_, i) => i).filter((i) => T.jobs[i] && D.id[i].includes(text));
  chooser.hidden = false;
  chooser.job.addEventListener("input", () => {
    chooser.querySelector("datalist").replaceChildren(...like(chooser.job.value).slice(0, 20).map((i) => make("option", "", { value: D.id[i] })));
  });
  chooser.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = chooser.job.value.trim();
    const exact = D.id.indexOf(text);
    const found = exact >= 0 ? [exact] : text ? like(text) : [];
    chooser.querySelector("output").textContent = found.length === 1 ? "" : found.length ? `${found.length} jobs are called like that; the first is shown.` : text && D.id.some((id) => id.includes(text)) ? "Jobs are called like that; of those, a whole name alone is found." : "No job is called that.";
    if (found.length) choose(found[0]);
  });
  if (S && lanes) {
    const covers = (row) => ([, , , , , ...rows]) => rows.some((top, k) => k % 2 === 0 && top <= row && row < top + rows[k + 1]);
    const there = (time, row) => S.spells.filter((spell) => typeof spell[0] === "number" && spell[1] <= time && time < spell[2] && covers(row)(spell));
    const under = (event) => {
      const { left, top, width, height } = lanes.getBoundingClientRect();
      return there(((event.clientX - left) / width) * S.until, Math.floor(((event.clientY - top) / height) * S.rows)).map(([job]) => job);
    };
    let here = null;
    Object.assign(lanes, { tabIndex: 0, role: "application", ariaLabel: "Jobs in the schedule: arrow keys choose one" });
    lanes.parentElement.removeAttribute("role");
    lanes.parentElement.removeAttribute("aria-label");
    lanes.addEventListener("mousemove", (event) => { lanes.title = under(event).map(called).join(" and "); });
    lanes.addEventListener("click", (event) => {
      const found = under(event); // again: the other of two
      if (found.length) choose(found[(found.indexOf(chosen) + 1) % found.length], false);
    });
    lanes.addEventListener("keydown", (event) => {
      const [later, down] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
      if ((!later && !down) || !S.spells.length) return;
      event.preventDefault();
      if (here?.[0] !== chosen) here = S.spells.find(([job, , , , probes]) => job === chosen && !probes) ?? S.spells[0];
      const [job, from, , , , row] = here;
      let next = null;
      if (later) {
        const others = S.spells.filter((spell) => typeof spell[0] === "number" && later * (spell[1] - from) > 0 && covers(row)(spell));
        next = others.sort((a, b) => later * (a[1] - b[1]))[0];
      }
      for (let at = row + down; down && !next && at >= 0 && at < S.rows; at += down) next = there(from, at).find((spell) => spell[0] !== job);
      if (!next) return;
      here = next;
      choose(next[0], false);
    });
    const first = Object.keys(D.explained)[0];
    chosen = D.id.indexOf(first);
  }
  addEventListener("hashchange", addressed);
  addressed();
}
