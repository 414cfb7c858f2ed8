"use strict";
// What the page adds where scripts run: filters, sorting, copies. All words and numbers are there without it.
(() => {
  const form = document.getElementById("filters");
  const numbers = JSON.parse(document.getElementById("numbers").textContent);
  const lists = ["backends", "tokens", "modes"];
  const keys = { backends: "backend", tokens: "tokens", modes: "mode" };
  const ABSENT = "–";
  // What filters look at: a row says it itself, or of which case it is, or one of its cells does.
  for (const table of document.querySelectorAll("table")) {
    const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent);
    const told = ["backend", "tokens", "mode", "clock"].map((name) => [name, heads.indexOf(name)]).filter(([, place]) => place >= 0);
    for (const row of table.tBodies[0].rows) {
      const { tokens, mode } = numbers.cases[row.dataset.case] ?? {};
      for (const [name, place] of told) row.dataset[name] ??= row.cells[place].textContent;
      if (tokens) Object.assign(row.dataset, { tokens, mode });
    }
  }

  // ---- numbers as the program prints them: the digits that the spread supports ----
  const secondDigit = (value) => (Number.isFinite(value) && value ? 1 - Math.floor(Math.log10(Math.abs(value))) : 0);
  const decimals = (spread, value) =>
    spread > 0 ? Math.min(secondDigit(spread), 3) : Math.min(secondDigit(value) + 1, Math.abs(value) >= 0.01 ? 3 : 6);
  function three([value, low, high], least, unit) {
    const smallest = Math.min(...[value, low, high].filter(Boolean).map(Math.abs));
    const digits = Math.max(least, Number.isFinite(smallest) ? Math.max(decimals(high - low, value), secondDigit(smallest)) : 0);
    const fixed = (number) => (digits >= 0 ? number.toFixed(digits) : String(Math.round(number / 10 ** -digits) * 10 ** -digits));
    return `${fixed(value)}${unit} [${fixed(low)}–${fixed(high)}]`;
  }

  // ---- the state, in the form and in the address ----
  const checked = (name) => [...form.querySelectorAll(`input[name="${name}"]`)];
  function state() {
    const found = { clock: form.elements.clock.value, baseline: form.elements.baseline.value, view: form.elements.view.value };
    for (const name of lists) {
      const boxes = checked(name);
      found[name] = boxes.length ? boxes.filter((box) => box.checked).map((box) => box.value) : null;
      found[`every ${name}`] = !boxes.length || boxes.every((box) => box.checked);
    }
    found.valid = form.elements.valid.checked;
    return found;
  }
  function fragment(now) {
    const parts = [];
    for (const name of lists) {
      if (!now[`every ${name}`]) parts.push(`${name}=${now[name].map(encodeURIComponent).join(",")}`);
    }
    if (now.clock && now.clock !== numbers.clock) parts.push(`clock=${encodeURIComponent(now.clock)}`);
    if (now.baseline !== form.querySelector('[name="baseline"] option[selected]')?.value) parts.push(`baseline=${encodeURIComponent(now.baseline)}`);
    if (now.view !== "both") parts.push(`view=${now.view}`);
    if (now.valid) parts.push("valid=1");
    return parts.join("&");
  }
  function restore() {
    const text = location.hash.slice(1);
    if (!text.includes("=")) return false; // the name of a part of the page
    form.reset();
    for (const part of text.split("&")) {
      const [name, value = ""] = part.split("=");
      let values;
      try { values = value.split(",").map(decodeURIComponent); } catch { continue; }
      if (lists.includes(name)) for (const box of checked(name)) box.checked = values.includes(box.value);
      else if (name === "valid") form.elements.valid.checked = value === "1";
      else if (["clock", "baseline", "view"].includes(name)) {
        const select = form.elements[name];
        if ([...select.options].some((option) => option.value === values[0])) select.value = values[0];
      }
    }
    return true;
  }

  // ---- what the state changes ----
  function ratio(place, now, backend) {
    const found = numbers.cases[place]?.[now.clock];
    const mine = numbers.backends.indexOf(backend), base = numbers.backends.indexOf(now.baseline);
    const ahead = found?.pairs[`${base},${mine}`], turned = found?.pairs[`${mine},${base}`];
    if (ahead) return ahead;
    return turned ? [1 / turned[0], 1 / turned[2], 1 / turned[1]] : null;
  }
  function rewrite(now) {
    for (const table of document.querySelectorAll("table[data-live]")) {
      const head = (part) => table.querySelector(`th[data-part="${part}"]`);
      if (now.clock in numbers.heads) label(head("absolute"), numbers.heads[now.clock]);
      label(head("relative"), `speedup vs ${now.baseline}`);
      for (const row of table.tBodies[0].rows) {
        const backend = row.dataset.backend, found = numbers.cases[row.dataset.case]?.[now.clock];
        const time = found?.times[backend], best = found?.best.includes(numbers.backends.indexOf(backend));
        const base = time && backend === now.baseline, against = time && !base ? ratio(row.dataset.case, now, backend) : null;
        const [left, right] = ["absolute", "relative"].map((part) => row.querySelector(`[data-part="${part}"]`));
        // What stands for a time that was not taken: that the row was emulated, or nothing.
        row.dataset.untimed ??= numbers.cases[row.dataset.case]?.[numbers.clock]?.times[backend] ? ABSENT : left.textContent;
        write(left, time ? three(time, -Infinity, "") : row.dataset.untimed, time?.[0], best);
        write(right, base ? "baseline" : against ? three(against, 2, "x") : time ? ABSENT : row.dataset.untimed, base ? 1 : against?.[0], best && (base || against));
      }
    }
  }
  const label = (head, text) => { (head.querySelector("button") ?? head).textContent = text; };
  function write(cell, text, value, best) {
    cell.textContent = text;
    if (best) { const mark = document.createElement("strong"); mark.append(...cell.childNodes); cell.append(mark); }
    if (value === undefined || value === null) delete cell.dataset.v; else cell.dataset.v = value;
  }
  function hide(now) {
    const wanted = Object.fromEntries(lists.map((name) => [name, now[`every ${name}`] ? null : new Set(now[name])]));
    let left = 0, all = 0;
    for (const row of document.querySelectorAll("tbody > tr[data-tokens], tbody > tr[data-backend]")) {
      const data = row.dataset;
      const out = lists.some((name) => wanted[name] && keys[name] in data && !wanted[name].has(data[keys[name]]));
      const valid = !now.valid || !data.case || numbers.cases[data.case]?.[now.clock]?.times[data.backend] !== undefined;
      const other = (data.clock && now.clock && data.clock !== now.clock) || (data.baseline && data.baseline !== now.baseline);
      row.hidden = out || other || !valid;
      if (row.closest("table").dataset.live !== undefined) { all += 1; left += row.hidden ? 0 : 1; }
    }
    document.getElementById("shown").textContent = left === all ? `All ${all} rows` : `${left} of ${all} rows`;
  }
  let last = {};
  function apply(address = true) {
    const now = state();
    document.body.dataset.view = now.view;
    if (now.clock !== last.clock || now.baseline !== last.baseline) rewrite(now);
    hide(now);
    if (address) history.replaceState(null, "", `#${fragment(now)}`);
    last = now;
    document.dispatchEvent(new CustomEvent("filtered", { detail: now }));
  }
  if (form) {
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", () => apply());
    form.addEventListener("reset", () => setTimeout(apply));
    form.addEventListener("click", (event) => {
      const { all, none } = event.target.dataset;
      if (!all && !none) return;
      for (const box of checked(all ?? none)) box.checked = Boolean(all);
      apply();
    });
    addEventListener("hashchange", () => { if (restore()) apply(false); });
    last = { clock: numbers.clock, baseline: form.querySelector('[name="baseline"] option[selected]')?.value };
    restore();
    apply(false);
  }

  // ---- sorting ----
  function sort(table, column) {
    const head = table.tHead.rows[0].cells[column];
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const numeric = head.classList.contains("number");
    const value = (row) => {
      const cell = row.cells[column];
      if (!numeric) return cell.textContent;
      const number = Number(cell.dataset.v ?? (cell.textContent.trim() || NaN)); // a text that is the number says it once
      return Number.isNaN(number) ? null : number;
    };
    const rows = [...table.tBodies[0].rows].map((row) => [value(row), row]);
    rows.sort(([a], [b]) => { // what has no value is last, whichever way
      if (a === null || b === null) return (a === null) - (b === null);
      const order = numeric ? a - b : a.localeCompare(b, "en", { numeric: true });
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }

  // ---- copies of what is shown ----
  const shown = (element) => !element.hidden && getComputedStyle(element).display !== "none";
  function content(table) {
    const columns = [...table.tHead.rows[0].cells].filter(shown).map((head) => head.cellIndex);
    const text = (cell) => (cell.querySelector("summary, button") ?? cell).textContent.trim();
    const heads = columns.map((column) => text(table.tHead.rows[0].cells[column]));
    const numeric = columns.map((column) => table.tHead.rows[0].cells[column].classList.contains("number"));
    const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => columns.map((column) => row.cells[column]));
    return { heads, numeric, cells: rows.map((row) => row.map(text)), rows };
  }
  const latexOf = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "µ": "\\textmu{}", "×": "$\\times$", "−": "$-$", "≥": "$\\geq$", "≤": "$\\leq$", "·": "$\\cdot$", "–": "--", "…": "\\ldots{}", "<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}" };
  const latex = (text) => text.replace(/[\\~^µ×−≥≤·–…<>|]|[#$%&_{}]/g, (each) => latexOf[each] ?? `\\${each}`);
  const formats = {
    Markdown({ heads, numeric, cells }) {
      const clean = (text) => text.replace(/\s+/g, " ").replace(/[\\|]/g, "\\$&").replace(/</g, "&lt;");
      const row = (each) => `| ${each.map(clean).join(" | ")} |`;
      return [row(heads), `|${numeric.map((flag) => (flag ? "---:" : "---")).join("|")}|`, ...cells.map(row)].join("\n") + "\n";
    },
    LaTeX({ heads, numeric, cells }) {
      const row = (each) => `${each.map((text) => latex(text.replace(/\s+/g, " "))).join(" & ")} \\\\`;
      return [`\\begin{tabular}{${numeric.map((flag) => (flag ? "r" : "l")).join("")}}`, "\\toprule", row(heads), "\\midrule", ...cells.map(row), "\\bottomrule", "\\end{tabular}"].join("\n") + "\n";
    },
    CSV({ heads, cells }) {
      const quote = (text) => (/[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
      return [heads, ...cells].map((each) => each.map(quote).join(",")).join("\n") + "\n";
    },
    JSON({ heads, numeric, rows, cells }) {
      const lines = rows.map((row, place) => Object.fromEntries(row.flatMap((cell, column) => {
        const value = cell.dataset.v;
        const text = [heads[column], cells[place][column] === ABSENT ? null : cells[place][column]];
        return numeric[column] && value !== undefined && String(Number(value)) !== text[1] ? [text, [`${heads[column]} (number)`, Number(value)]] : [text];
      })));
      return JSON.stringify(lines, null, 1) + "\n";
    },
  };
  async function copy(text) {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* not allowed here: the older way */ }
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
  for (const figure of document.querySelectorAll("figure.table")) {
    const table = figure.querySelector("table"), tools = figure.querySelector(".tools");
    const said = document.createElement("span");
    said.setAttribute("role", "status");
    for (const name of Object.keys(formats)) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.setAttribute("aria-label", `Copy as ${name}`);
      button.addEventListener("click", async () => {
        const done = await copy(formats[name](content(table)));
        button.focus();
        said.textContent = done ? `copied as ${name}` : "the browser refused";
      });
      tools.append(button);
    }
    tools.prepend("copy: ");
    tools.append(said);
    for (const head of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, head.cellIndex));
      head.append(button);
    }
  }

  // ---- figures: drawn one after the other, those in sight first, and again when the state or the width changes ----
  const { specs, tables } = JSON.parse(document.getElementById("specs").textContent);
  const data = tables.map(({ fields, rows }) =>
    rows.map(([kind, ...row]) => Object.fromEntries(row.map((value, place) => [fields[kind][place], value]))));
  const places = [...document.querySelectorAll(".drawing")];
  let order = 0;
  const isNarrow = (place) => place.clientWidth < 660;
  function tablesOf(spec, found = []) { // every table of a specification: its rows are a place in `tables`
    if (Array.isArray(spec)) spec.forEach((each) => tablesOf(each, found));
    else if (spec && typeof spec === "object") {
      for (const [name, each] of Object.entries(spec)) {
        if (name === "data" && Number.isInteger(each?.values)) found.push(each);
        else tablesOf(each, found);
      }
    }
    return found;
  }
  function narrowed(spec, left) { // scales without what no row has any longer
    if (Array.isArray(spec)) { spec.forEach((each) => narrowed(each, left)); return; }
    if (!spec || typeof spec !== "object") return;
    const { domain, range } = spec.scale ?? {};
    if (typeof spec.field === "string" && Array.isArray(domain) && domain.every((each) => typeof each === "string")) {
      const kept = domain.map((each) => left.some((row) => row[spec.field] === each));
      if (kept.some(Boolean)) {
        spec.scale.domain = domain.filter((_, place) => kept[place]);
        if (Array.isArray(range) && range.length === domain.length) spec.scale.range = range.filter((_, place) => kept[place]);
      }
    }
    for (const [name, each] of Object.entries(spec)) if (name !== "data") narrowed(each, left);
  }
  function changed(spec, change) { // every part of a specification but its data
    if (Array.isArray(spec)) { spec.forEach((each) => changed(each, change)); return; }
    if (!spec || typeof spec !== "object") return;
    change(spec);
    for (const [name, each] of Object.entries(spec)) if (name !== "data") changed(each, change);
  }
  // Speedups over another baseline, of the times that the page holds: their rows and the range of the axis.
  function rebased(spec, held, keys, names, now) {
    const called = new Map(Object.entries(names).map(([shown, backend]) => [backend, shown]));
    const rows = [];
    for (const { row, backend, case: place } of keys) {
      const found = backend === now.baseline ? null : ratio(place, now, backend);
      if (found) rows.push({ row, backend: called.get(backend), ratio: found[0], low: found[1], high: found[2], certain: found[1] > 1 || found[2] < 1 });
    }
    const [marks, bands] = [(row) => "ratio" in row, (row) => "row" in row && !("ratio" in row)].map((is) => held.find(({ values }) => values.some(is)));
    if (bands) {
      const shaded = new Set(bands.values.map((band) => keys.find((key) => key.row === band.row)?.case));
      bands.values = keys.filter((key) => shaded.has(key.case)).map(({ row }) => ({ row }));
    }
    marks.values = rows;
    const ends = [1, ...rows.flatMap(({ low, high }) => [low, high])], low = Math.min(...ends), high = Math.max(...ends);
    const room = Math.exp(0.04 * Math.max(Math.log(high / low), 0.05));
    changed(spec, (part) => {
      if (part.field === "row" && part.scale) part.scale.domain = keys.map(({ row }) => row);
      if (part.scale?.type !== "log") return;
      part.scale.domain = [low / room, high * room];
      part.axis = { ...part.axis, values: undefined, tickCount: 6 };
    });
  }
  function filtered(whole, baseline, now) {
    const spec = structuredClone(whole.spec), names = whole.names, rowsOf = data[whole.keys.data.values];
    const known = new Map(rowsOf.map((each) => [each.row, each]));
    const held = tablesOf(spec), panels = (spec.vconcat ?? []).map((panel) => [panel, tablesOf(panel)]);
    for (const each of held) each.values = data[each.values];
    const other = baseline && now.baseline && baseline !== now.baseline;
    if (other) rebased(spec, held, rowsOf, names, now);
    const keysOf = (row) => known.get(row.row) ?? { ...row, ...(Object.hasOwn(names, row.backend) ? { backend: names[row.backend] } : {}) };
    const fits = (row) => {
      const of = keysOf(row);
      return lists.every((name) => now[`every ${name}`] || !(keys[name] in of) || now[name].includes(String(of[keys[name]])));
    };
    const before = held.reduce((sum, each) => sum + each.values.length, 0);
    for (const each of held) each.values = each.values.filter(fits);
    const left = held.flatMap((each) => each.values);
    if (panels.length) spec.vconcat = panels.filter(([, own]) => own.some(({ values }) => values.length)).map(([panel]) => panel);
    for (const each of held) each.values = structuredClone(each.values); // what draws writes into them
    if (other || left.length !== before) narrowed(spec, left);
    return left.some((row) => (known.has(row.row) && Object.keys(row).length > 1) || "backend" in row) || !(known.size || Object.keys(names).length) ? spec : null;
  }
  function entitle(place, { title, caption, baseline }, now) { // the words of a figure, by the clock and baseline that it has
    const said = baseline && now.baseline ? title.replace(baseline, now.baseline) : title;
    place.closest("article").querySelector("h3").textContent = said;
    place.closest("figure").querySelector("figcaption").textContent = said + caption.slice(title.length);
    place.setAttribute("aria-label", `Figure: ${said}`);
  }
  async function draw() {
    const mine = ++order;
    const now = form ? state() : Object.fromEntries(lists.map((name) => [`every ${name}`, true]));
    const far = (place) => Math.abs(place.getBoundingClientRect().top);
    for (const place of [...places].sort((a, b) => far(a) - far(b))) {
      const by = specs[places.indexOf(place)], found = by[""] ?? by[now.clock];
      place.toggleAttribute("data-narrow", isNarrow(place));
      const spec = found ? filtered(isNarrow(place) ? found.narrow : found.wide, found.baseline, now) : null;
      if (spec === null) { place.replaceChildren("No row of this figure is left by the filters."); continue; }
      entitle(place, found, now);
      const fresh = document.createElement("div");
      try {
        await vegaEmbed(fresh, spec, { mode: "vega-lite", renderer: "svg", ast: true, actions: false, defaultStyle: false, tooltip: false, logLevel: vega.Error });
      } catch (error) {
        fresh.textContent = `This figure could not be drawn: ${error.message}`;
      }
      for (const each of fresh.querySelectorAll("[role=graphics-symbol]:not([aria-label])")) { // a symbol needs a name
        each.setAttribute("aria-label", each.getAttribute("aria-roledescription") ?? "marks");
      }
      if (mine !== order) return; // the state has changed meanwhile
      place.replaceChildren(fresh);
      await new Promise((done) => setTimeout(done));
    }
    document.body.dataset.drawn = mine;
  }
  if (places.length && "vegaEmbed" in window) {
    let waiting, width = innerWidth;
    const later = () => { clearTimeout(waiting); waiting = setTimeout(draw, 150); };
    document.addEventListener("filtered", (event) => { if (event.detail) later(); });
    addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; later(); } });
    draw();
  }

  // ---- the files: as they are on disk, not packed as in the page ----
  for (const link of document.querySelectorAll("a.file")) {
    link.addEventListener("click", async (event) => {
      if (!("DecompressionStream" in window)) return; // then as gzip, which every verb reads
      event.preventDefault();
      const packed = Uint8Array.from(atob(link.href.split(",")[1]), (each) => each.charCodeAt(0));
      const name = link.download;
      const plain = link.dataset.packed === undefined ? packed : await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
      const saved = document.createElement("a");
      saved.href = URL.createObjectURL(new Blob([plain], { type: "application/octet-stream" }));
      saved.download = link.dataset.packed === undefined ? name : name.replace(/\.gz$/, "");
      saved.click();
      URL.revokeObjectURL(saved.href);
    });
  }
  addEventListener("beforeprint", () => { for (const each of document.querySelectorAll("details")) each.open = true; });
})();
