"use strict";
// Draws the charts of a report. All text is set with textContent: a name in a recording is never read as HTML.
(async () => {
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;
  const make = (tag, text, name) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (name) node.className = name;
    return node;
  };

  // -- the data: JSON, deflated, in base64 -------------------------------------------------------------------------

  async function unpacked(page) {
    const bytes = Uint8Array.from(atob(page.getElementById("data").textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).json();
  }
  if (!("DecompressionStream" in window)) {
    byId("charts").textContent = "The charts need a browser of 2023 or later (DecompressionStream).";
    return;
  }
  const data = await unpacked(document);
  const axisStart = data.start ?? 0;
  const isClock = data.start !== null;
  const xs = Array.from({length: data.count}, (_, n) => axisStart + (n + 0.5) * data.step);
  const whole = [axisStart, axisStart + data.count * data.step];

  /** Return the mean, lowest and highest value of a series in each bucket; null where there is no reading. */
  function decoded(series, quantum) {
    if (series.values) return series.values;
    const empty = () => new Array(data.count).fill(null);
    const mean = empty(), low = empty(), high = empty();
    let value = 0, n = 0;
    for (let pair = 0; pair < series.runs.length; pair += 2) {
      for (let at = series.runs[pair], end = at + series.runs[pair + 1]; at < end; at++, n++) {
        value += series.mean[n];
        mean[at] = value * quantum;
        low[at] = (value - (series.low ? series.low[n] : 0)) * quantum;
        high[at] = (value + (series.high ? series.high[n] : 0)) * quantum;
      }
    }
    series.values = {mean, low, high};
    return series.values;
  }

  /** Return the mean, lowest and highest value over several series in each bucket. */
  function together(parts) {
    if (parts.length === 1) return parts[0];
    const mean = [], low = [], high = [];
    for (let at = 0; at < data.count; at++) {
      let sum = 0, count = 0, least = Infinity, most = -Infinity;
      for (const part of parts) {
        if (part.mean[at] === null) continue;
        sum += part.mean[at];
        count += 1;
        least = Math.min(least, part.low[at]);
        most = Math.max(most, part.high[at]);
      }
      mean.push(count ? sum / count : null);
      low.push(count ? least : null);
      high.push(count ? most : null);
    }
    return {mean, low, high};
  }

  /** Return the sum of the means of several series, as a layer of an area chart. */
  function summed(parts) {
    const mean = new Array(data.count).fill(null);
    for (const [series, quantum] of parts) {
      decoded(series, quantum).mean.forEach((value, at) => { if (value !== null) mean[at] = (mean[at] ?? 0) + value; });
    }
    return {mean, low: mean, high: mean};
  }

  // -- numbers and times as text -----------------------------------------------------------------------------------

  const three = (value) => {
    const size = Math.abs(value);
    return String(Number(size >= 100 ? value.toFixed(0) : value.toPrecision(3)));
  };
  function scaled(value, base, names) {
    let power = 0;
    while (Math.abs(value) >= base * 0.9995 && power < names.length - 1) { value /= base; power += 1; }
    return `${three(value)} ${names[power]}`;
  }
  const lengths = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
  const powers = Array.from({length: 61}, (_, n) => 2 ** n);
  function amount(value, unit) {
    if (value === null || value === undefined || Number.isNaN(value)) return "-";
    const [first, per] = [unit.replace(/\/s$/, ""), unit.endsWith("/s") ? "/s" : ""];
    if (first === "By") return scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]) + per;
    if (unit === "s/s") return `${three(value)} s/s`;
    if (first === "Cel") return `${three(value)} °C`;
    if (first === "MHz" || first === "%") return `${three(value)} ${first}`;
    const named = first.startsWith("{") ? first.slice(1, -1) : first === "1" ? "" : first;
    return Math.abs(value) >= 1e4 ? scaled(value, 1000, ["", "k", "M", "G", "T"]) + named + per : `${three(value)} ${named}${per}`.trim();
  }
  const two = (number) => String(number).padStart(2, "0");
  const clock = (seconds) => `${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  const moment = (x) => (isClock ? new Date(Math.round(x) * 1000).toISOString().slice(11, 19) : `+${clock(Math.round(x))}`);

  /** The labels of the time axis; the day stands where it changes, if there are several. */
  function times(splits, gap) {
    if (!isClock) return splits.map((x) => moment(x).slice(whole[1] < 3600 ? 3 : 1));
    const days = splits.map((x) => new Date(x * 1000).toISOString());
    return days.map((text, n) => (whole[1] - whole[0] > 86400 && text.slice(11, 19) === "00:00:00" ? text.slice(5, 10) : text.slice(11, gap < 60 ? 19 : 16)));
  }

  // -- colours -----------------------------------------------------------------------------------------------------

  const color = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const chosen = matchMedia("(prefers-color-scheme: dark)");
  const setTheme = (name) => { root.dataset.theme = name; };
  setTheme(chosen.matches ? "dark" : "light");
  const colorOf = (chart, n) => (chart.section === "Time" && color(chart.groups[n])) || color(`c${n % 8}`);
  const faint = (text, share) => text + Math.round(share * 255).toString(16).padStart(2, "0");

  // -- charts ------------------------------------------------------------------------------------------------------

  const panels = [], most = 100; // lines of a chart
  let zoomed = [...whole], isByDevice = false, cursorAt = null;

  /** The lines of a chart: the mean and range of each group, or each series. */
  function linesOf(chart) {
    chart.decoded = chart.layers?.map(summed) ?? chart.drawn.map((series) => decoded(series, chart.quantum));
    const isArea = chart.section === "Time";
    if (isArea || (isByDevice && chart.drawn.length > 1)) {
      return chart.drawn.slice(0, most).map((series, n) => ({
        name: (isArea ? [series.name] : [chart.groups[series.group], series.name].filter(Boolean)).join(" ") || "value",
        values: chart.decoded[n], stroke: isArea ? colorOf(chart, series.group) : color(`c${n % 8}`),
        dash: !isArea && n >= 8 ? [4 + (n >> 3), 3] : undefined,
      }));
    }
    return chart.groups.slice(0, most).map((name, group) => {
      const members = chart.decoded.filter((_, n) => chart.drawn[n].group === group);
      return {
        name: name || (members.length > 1 ? `mean of ${members.length}` : "value"),
        values: together(members), stroke: colorOf(chart, group), band: true,
        dash: group >= 8 ? [4 + (group >> 3), 3] : undefined,
      };
    });
  }

  function stacked(lines) {
    const sums = new Array(data.count).fill(null);
    return lines.map((line) => {
      if (!line.hidden) line.values.mean.forEach((value, at) => { if (value !== null) sums[at] = (sums[at] ?? 0) + value; });
      return [...sums];
    });
  }

  function range(chart) {
    return (_, low, high) => {
      if (low === null || high === null) return [0, 1];
      if (chart.unit === "%" && high <= 100) return [0, 100];
      if (chart.layers || (low >= 0 && low < 0.7 * high)) return [0, high * 1.06 || 1];
      const room = (high - low) * 0.1 || Math.abs(high) * 0.1 || 1;
      return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
    };
  }

  function eventsPlugin() {
    return {hooks: {drawClear: (u) => {
      const {ctx, bbox} = u, ratio = devicePixelRatio || 1;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      for (const event of data.events) {
        const left = u.valToPos(axisStart + event.from, "x", true), right = u.valToPos(axisStart + event.to, "x", true);
        if (right < bbox.left || left > bbox.left + bbox.width) continue;
        ctx.fillStyle = faint(color(event.kind), 0.8);
        if (event.kind === "bad") ctx.fillRect(left, bbox.top, ratio, bbox.height);
        if (event.kind !== "quiet") ctx.fillRect(left, bbox.top, Math.max(4 * ratio, right - left), 3 * ratio);
      }
      ctx.restore();
    }}};
  }

  /** Draw a chart into its figure, again after each change of theme, mode or hidden lines. */
  function draw(panel) {
    const {chart, plot, legend} = panel, isArea = chart.section === "Time";
    panel.u?.destroy();
    const lines = panel.lines = linesOf(chart);
    for (const line of lines) line.hidden = panel.hidden.has(line.name);
    const values = [xs], series = [{}], bands = [];
    if (isArea) {
      const sums = stacked(lines);
      for (let n = lines.length - 1; n >= 0; n--) {
        values.push(sums[n]);
        series.push({stroke: lines[n].stroke, fill: lines[n].stroke, width: 0, points: {show: false}, show: !lines[n].hidden});
      }
    } else {
      for (const line of lines) {
        const at = values.length, show = !line.hidden;
        values.push(line.values.mean);
        series.push({stroke: line.stroke, width: lines.length > 10 ? 1 : 1.5, dash: line.dash, show, points: {show: false}});
        if (line.band) {
          values.push(line.values.high, line.values.low);
          series.push({width: 0, show, points: {show: false}}, {width: 0, show, points: {show: false}});
          bands.push({series: [at + 1, at + 2], fill: faint(line.stroke, 0.16)});
        }
      }
    }
    const axis = {stroke: color("quiet"), font: "11px Inter, system-ui, sans-serif", grid: {stroke: color("grid"), width: 1}, ticks: {show: false}};
    panel.u = new uPlot({
      width: plot.clientWidth || 380, height: plot.clientHeight || 168, padding: [6, 14, 0, 0],
      ...(isClock ? {tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC")} : {}),
      scales: {x: {time: isClock}, y: {range: range(chart)}},
      series, bands,
      axes: [
        {...axis, size: 24, gap: 4, space: 70, ...(isClock ? {} : {incrs: lengths}), values: (_, at, __, ___, gap) => times(at, gap)},
        {...axis, size: /^By\/s/.test(chart.unit) ? 68 : 58, gap: 6, space: 32, ...(chart.unit.startsWith("By") ? {incrs: powers} : {}), values: (_, at) => at.map((y) => amount(y, chart.unit === "GPUs" ? "1" : chart.unit))},
      ],
      legend: {show: false},
      cursor: {
        sync: {key: "report", setSeries: false, scales: ["x", null]}, y: false, points: {show: false},
        drag: {x: true, y: false, setScale: false}, bind: {dblclick: () => () => { zoom(whole); return null; }},
      },
      hooks: {
        setCursor: [(u) => moved(panel, u)],
        setSelect: [(u) => {
          if (u.select.width < 4) return;
          const ends = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
          u.setSelect({left: 0, width: 0, top: 0, height: 0}, false);
          zoom(ends);
        }],
      },
      plugins: [eventsPlugin()],
    }, values, plot);
    panel.u.setScale("x", {min: zoomed[0], max: zoomed[1]});
    drawLegend(panel, legend);
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", `${chart.title}: ${lines.map((line) => `${line.name} ${amount(average(line), chart.unit)}`).join(", ")}`.slice(0, 400));
  }

  function average(line) {
    const seen = line.values.mean.filter((value, at) => value !== null && xs[at] >= zoomed[0] && xs[at] <= zoomed[1]);
    return seen.length ? seen.reduce((sum, value) => sum + value, 0) / seen.length : null;
  }

  function drawLegend(panel, legend) {
    legend.replaceChildren(...panel.lines.map((line) => {
      const button = make("button"), swatch = make("i"), value = make("span");
      swatch.style.background = line.stroke;
      button.append(swatch, make("em", line.name), value);
      button.title = line.name;
      button.setAttribute("aria-pressed", String(!line.hidden));
      button.onclick = (click) => {
        const others = panel.lines.map((each) => each.name).filter((name) => name !== line.name);
        if (click.shiftKey) panel.hidden = new Set(panel.hidden.size === others.length && !line.hidden ? [] : others);
        else if (!panel.hidden.delete(line.name)) panel.hidden.add(line.name);
        draw(panel);
      };
      line.shown = value;
      return button;
    }));
    showValues(panel, null);
  }

  /** Write the values at the cursor into the legend; without a cursor the means of what is shown. */
  function showValues(panel, at) {
    for (const line of panel.lines) {
      const {mean, low, high} = line.values;
      const value = at === null ? average(line) : mean[at];
      const spread = at !== null && line.band && value !== null && high[at] > low[at];
      line.shown.textContent = amount(value, panel.chart.unit) + (spread ? ` (${amount(low[at], panel.chart.unit)} to ${amount(high[at], panel.chart.unit)})` : "");
    }
    panel.time.textContent = at === null ? "mean" : moment(xs[at]);
  }

  let waiting = null;
  function moved(panel, u) {
    const at = u.cursor.left >= 0 ? u.cursor.idx ?? null : null;
    if (panel.at !== at) {
      panel.at = at;
      showValues(panel, at);
    }
    if (u.cursor.event && panel.plot.matches(":hover")) {
      cursorAt = at;
      const isNear = (x) => Math.abs(u.valToPos(axisStart + x, "x") - u.cursor.left) < 6;
      const near = u.cursor.left < 0 ? [] : data.events.filter((event) => event.kind !== "quiet" && (isNear(event.from) || isNear(event.to)));
      waiting ??= requestAnimationFrame(() => {
        waiting = null;
        const place = panel.plot.getBoundingClientRect();
        tip(near, place.left + u.over.offsetLeft + u.cursor.left, place.top + 4);
      });
    }
  }

  function tip(events, left, top) {
    const box = byId("tip");
    box.hidden = !events.length;
    if (!events.length) return;
    const lines = events.slice(0, 6).map((event) => `${moment(axisStart + event.from)}${event.to > event.from ? ` to ${moment(axisStart + event.to)}` : ""}  ${data.runs.length > 1 ? `${data.runs[event.run]}: ` : ""}${event.text}`);
    box.textContent = lines.join("\n") + (events.length > 6 ? `\nand ${events.length - 6} more` : "");
    box.style.left = `${Math.max(4, Math.min(left + 12, innerWidth - box.offsetWidth - 8))}px`;
    box.style.top = `${Math.max(4, top)}px`;
  }

  function zoom(ends) {
    const least = 2 * data.step, middle = (ends[0] + ends[1]) / 2;
    const half = Math.max(least, ends[1] - ends[0]) / 2;
    zoomed = [Math.max(whole[0], middle - half), Math.min(whole[1], middle + half)];
    for (const panel of panels) {
      if (!panel.u) continue;
      panel.u.setScale("x", {min: zoomed[0], max: zoomed[1]});
      showValues(panel, panel.at ?? null);
    }
    byId("reset").disabled = zoomed[0] === whole[0] && zoomed[1] === whole[1];
    drawLane();
  }

  function setCursor(at) {
    cursorAt = Math.max(0, Math.min(data.count - 1, at));
    if (xs[cursorAt] < zoomed[0] || xs[cursorAt] > zoomed[1]) {
      const half = (zoomed[1] - zoomed[0]) / 2;
      zoom([xs[cursorAt] - half, xs[cursorAt] + half]);
    }
    for (const {u} of panels) u?.setCursor({left: u.valToPos(xs[cursorAt], "x"), top: 10}, true, false);
  }

  // -- events ------------------------------------------------------------------------------------------------------

  function drawLane() {
    const lane = byId("lane"), span = zoomed[1] - zoomed[0];
    lane.hidden = !data.events.length;
    const marks = data.events.slice(0, 400).filter((event) => axisStart + event.to >= zoomed[0] && axisStart + event.from <= zoomed[1]);
    lane.replaceChildren(...marks.map((event) => {
      const mark = make("button", undefined, event.kind);
      const left = Math.max(0, (axisStart + event.from - zoomed[0]) / span);
      const right = Math.min(1, (axisStart + event.to - zoomed[0]) / span);
      mark.style.left = `${100 * left}%`;
      mark.style.width = `${100 * (right - left)}%`;
      mark.setAttribute("aria-label", event.text);
      mark.onmouseenter = () => { const place = mark.getBoundingClientRect(); tip([event], place.left, place.bottom + 4); };
      mark.onmouseleave = () => tip([]);
      mark.onclick = () => setCursor(Math.floor(event.from / data.step));
      return mark;
    }));
  }

  function nextEvent() {
    const now = cursorAt === null ? -1 : cursorAt;
    const starts = data.events.map((event) => Math.floor(event.from / data.step)).sort((a, b) => a - b);
    const next = starts.find((at) => at > now) ?? starts[0];
    if (next === undefined) return;
    setCursor(next);
    tip(data.events.filter((event) => Math.floor(event.from / data.step) === next), innerWidth / 2, 60);
  }

  // -- the page ----------------------------------------------------------------------------------------------------

  const seen = new IntersectionObserver((entries) => {
    for (const {target, isIntersecting} of entries) if (isIntersecting && !target.panel.u) draw(target.panel);
  }, {rootMargin: "300px"});
  const resized = new ResizeObserver((entries) => {
    for (const {target} of entries) {
      const {u, plot} = target.panel;
      if (u && plot.clientWidth && (u.width !== plot.clientWidth || u.height !== plot.clientHeight)) {
        u.setSize({width: plot.clientWidth, height: plot.clientHeight});
      }
    }
  });

  function addPanel(chart, grid) {
    const figure = make("figure"), caption = make("figcaption"), legend = make("div", undefined, "legend");
    const plot = make("div", undefined, "plot"), time = make("time", "");
    const number = chart.drawn.length;
    caption.append(make("b", chart.title), make("span", number > 1 && chart.section !== "Time" ? `${number} series` : ""), time);
    figure.append(caption, legend, plot);
    caption.title = `${chart.metric}, ${chart.unit}`;
    const panel = {chart, figure, plot, legend, time, hidden: new Set(), words: `${chart.title} ${chart.metric}`.toLowerCase()};
    figure.panel = plot.panel = panel;
    panels.push(panel);
    grid.append(figure);
    seen.observe(figure);
    resized.observe(plot);
  }

  /** A metric's name as a title. */
  const titles = new Map(Object.entries(data.titles));
  const inWords = (metric) => metric.split(/[._]/).map((word, n) => titles.get(word) ?? (n ? word : word.slice(0, 1).toUpperCase() + word.slice(1))).join(" ");

  /** Name each series by as few dimensions as tell them apart: its line, which is a group, and its name in it. */
  function label(chart) {
    const keys = [...new Set(chart.series.flatMap((series) => Object.keys(series.dims)))];
    const place = (key) => (data.members.includes(key) ? data.members.indexOf(key) : 99);
    keys.sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
    const picked = [], distinct = (chosen) => new Set(chart.series.map((series) => JSON.stringify([series.run, ...chosen.map((key) => (Object.hasOwn(series.dims, key) ? series.dims[key] : null))]))).size;
    let count = distinct([]);
    for (const key of keys) {
      const finer = count < chart.series.length ? distinct([...picked, key]) : count;
      if (finer > count) { picked.push(key); count = finer; }
    }
    const several = data.runs.length > 1, groups = new Map();
    for (const series of chart.series) {
      const has = picked.filter((key) => Object.hasOwn(series.dims, key));
      series.part = has.filter((key) => place(key) === 99).map((key) => series.dims[key]).join(", ");
      series.name = has.filter((key) => place(key) < 99).map((key) => `${titles.get(key) ?? key} ${series.dims[key]}`).join(", ");
      const group = [several ? data.runs[series.run] : "", series.part].filter(Boolean).join(", ");
      if (!groups.has(group)) groups.set(group, groups.size);
      series.group = groups.get(group);
    }
    chart.groups = [...groups.keys()];
    chart.title = inWords(chart.metric);
    chart.section = chart.main ? "Overview" : inWords(chart.metric.split(".")[0]);
    chart.drawn = chart.series.filter((series) => series.runs);
  }

  /** Return an area chart of one run: for each layer the series whose sum it is. */
  function area(title, run, layers, of) {
    const filled = layers.filter(([, series]) => series.length);
    if (!filled.length) return [];
    return [{
      metric: "time", title: data.runs.length > 1 ? `${title}: ${data.runs[run]}` : title, unit: "GPUs", section: "Time", of,
      groups: filled.map(([name]) => name), drawn: filled.map(([name], group) => ({name: name.replaceAll("_", " "), group, run})), layers: filled.map(([, series]) => series),
    }];
  }

  function areas() {
    const byMetric = new Map(data.charts.map((chart) => [chart.metric, chart]));
    const layers = (metric, run, key) => {
      const chart = byMetric.get(metric), parts = new Map();
      for (const series of chart?.drawn ?? []) {
        if (series.run !== run) continue;
        const name = series.dims[key] ?? "unknown";
        parts.set(name, [...(parts.get(name) ?? []), [series, chart.quantum]]);
      }
      return [...parts];
    };
    return data.runs.flatMap((_, run) => {
      const jobs = layers("job.gpu.time", run, "state"), idle = layers("gpu.idle.time", run, "cause");
      const busy = layers("gpu.busy.time", run, "kind");
      const states = [
        ["busy", busy.filter(([name]) => name !== "waiting").flatMap(([, parts]) => parts)],
        ["waiting", busy.filter(([name]) => name === "waiting").flatMap(([, parts]) => parts)],
        ["idle", idle.flatMap(([, parts]) => parts)],
      ];
      return [
        ...(jobs.length ? area("GPU time of jobs, by state", run, jobs, "the time of jobs") : area("GPU time, by state", run, states, "the time")),
        ...area("GPU time without a kernel (stalled, held, lost, free), by cause", run, idle, "the time without a kernel"),
      ];
    });
  }

  /** List what each state and cause of the areas means and what to do, with its share of the time. */
  function meanings(charts) {
    const list = make("dl", undefined, "meanings"), shares = new Map();
    for (const {groups, layers} of charts) {
      layers.forEach((parts, n) => shares.set(groups[n], parts.reduce((sum, [series]) => sum + series.stats.at(-1), shares.get(groups[n]) ?? 0)));
    }
    const whole = [...shares.values()].reduce((sum, seconds) => sum + seconds, 0);
    for (const [name, seconds] of [...shares].sort((one, two) => two[1] - one[1])) {
      if (seconds < whole / 1000) continue;
      const term = make("dt", `${name.replaceAll("_", " ")} `), swatch = make("i");
      swatch.style.background = color(name) || color("quiet");
      term.prepend(swatch);
      term.append(make("span", `${three(100 * seconds / whole)} % of ${charts[0].of}`));
      list.append(term, make("dd", Object.hasOwn(data.meanings, name) ? data.meanings[name] : ""));
    }
    list.renewed = () => meanings(charts);
    return list;
  }

  /** Return a table of the differences between two runs: their length, what they are judged by, the rest; the largest first. */
  function differences() {
    const rows = [];
    const compare = (rank, name, before, after, shown) => {
      const change = (after - before) / Math.max(Math.abs(before), Math.abs(after), Number.MIN_VALUE);
      const words = before && after ? `${change > 0 ? "+" : ""}${three(100 * (after - before) / before)} %` : before ? "gone" : "new";
      if (Math.abs(change) >= 0.03) rows.push([rank, Math.abs(change), [name, ...shown, words]]);
    };
    compare(-1, "Length of the run", ...data.lengths, data.lengths.map((seconds) => (seconds < 60 ? amount(seconds, "s") : clock(Math.round(seconds)))));
    for (const chart of data.charts) {
      if (chart.metric.startsWith("agent.")) continue;
      const group = data.judged.findIndex((names) => names.some((name) => chart.metric.startsWith(name)));
      const isTime = /^(job\.)?gpu\.(idle\.|busy\.)?time$/.test(chart.metric), isCounter = chart.unit.endsWith("/s"), isEvents = isCounter && chart.unit.startsWith("{");
      const parts = new Map();
      for (const {dims, part, run, stats} of chart.series) {
        const name = isTime ? dims.cause ?? dims.state ?? dims.kind : part;
        if (!parts.has(name)) parts.set(name, [[], []]);
        parts.get(name)[run].push(isEvents ? stats.at(-1) : stats[1]);
      }
      for (const [name, both] of parts) {
        const [before, after] = both.map((values) => values.reduce((sum, value) => sum + value, 0) / (isCounter ? 1 : values.length || 1));
        const unit = isTime ? "GPUs" : isEvents ? chart.unit.slice(0, -2) : chart.unit;
        compare(group < 0 ? data.judged.length : group, [chart.title, name].filter(Boolean).join(" "), before, after, [amount(before, unit), amount(after, unit)]);
      }
    }
    const table = make("table"), head = make("tr"), section = make("section", undefined, "table"), box = make("div");
    ["mean, or number of events", ...data.runs, "difference"].forEach((name) => head.append(make("th", name)));
    table.append(head);
    for (const [, , cells] of rows.sort((one, two) => one[0] - two[0] || two[1] - one[1]).slice(0, 15)) {
      const row = make("tr");
      cells.forEach((cell) => row.append(make("td", cell)));
      table.append(row);
    }
    box.append(table);
    section.append(make("h2", rows.length ? "Differences: what the runs are judged by, then the rest" : "No figure differs by 3 % or more"));
    if (rows.length && Math.min(...data.lengths) < 60) section.append(make("p", "A run took less than a minute: differences this short are mostly noise."));
    section.append(box);
    return section;
  }

  data.charts.forEach(label);
  const sections = new Map();
  for (const chart of [...areas(), ...data.charts]) {
    if (!chart.drawn.length) continue;
    if (!sections.has(chart.section)) sections.set(chart.section, []);
    sections.get(chart.section).push(chart);
  }
  const places = byId("charts");
  places.replaceChildren();
  for (const [name, charts] of sections) {
    const group = make("details", undefined, "group"), head = make("summary", name), grid = make("div", undefined, "grid");
    head.append(make("span", String(charts.length)));
    group.open = group.first = name === "Time" || name === "Overview" || (!sections.has("Overview") && places.children.length < 4);
    if (name === "Time") grid.classList.add("wide");
    group.append(head, grid);
    for (const chart of charts) addPanel(chart, grid);
    if (name === "Time") group.append(...[...new Set(charts.map((chart) => chart.of))].map((of) => meanings(charts.filter((chart) => chart.of === of))));
    places.append(group);
  }
  if (data.runs.length > 1) byId("lane").before(document.querySelector("section.table"));
  if (data.runs.length === 2) byId("lane").before(differences());

  function find(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    for (const group of places.children) {
      let count = 0;
      for (const {panel} of group.querySelectorAll("figure")) {
        const fits = words.every((word) => panel.words.includes(word));
        panel.figure.hidden = !fits;
        count += fits;
      }
      group.hidden = !count;
      group.open = words.length ? count > 0 : group.first;
    }
  }

  function redraw() {
    for (const panel of panels) if (panel.u) draw(panel);
    drawLane();
  }

  const figures = byId("figures");
  figures.hidden = false;
  figures.ontoggle = () => {
    if (!figures.open || figures.filled) return;
    figures.filled = true;
    const box = figures.querySelector("div"), filter = make("input"), table = make("table");
    filter.placeholder = "filter";
    const rows = data.charts.flatMap((chart) => chart.series.filter((series) => series.stats).map((series) => [
      chart.metric, [chart.groups[series.group], series.name].filter(Boolean).join(" "), chart.unit, ...series.stats,
    ]));
    const fill = () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      const shown = rows.filter((row) => words.every((word) => `${row[0]} ${row[1]}`.toLowerCase().includes(word)));
      const head = make("tr"), body = [head];
      ["metric", "series", "unit", "readings", "mean", "p95", "minimum", "maximum", "sum or increase"].forEach((name, n) => head.append(make("th", name, n > 2 ? "number" : "")));
      for (const row of shown.slice(0, 1000)) {
        const line = make("tr");
        row.forEach((cell, n) => line.append(make("td", n > 2 ? String(Number(cell.toPrecision(7))) : cell, n > 2 ? "number" : "")));
        body.push(line);
      }
      table.replaceChildren(...body);
    };
    filter.oninput = fill;
    fill();
    box.replaceChildren(filter, table);
  };

  function switchTheme() {
    setTheme(root.dataset.theme === "dark" ? "light" : "dark");
    redraw();
  }
  function switchDevices() {
    isByDevice = !isByDevice;
    byId("devices").setAttribute("aria-pressed", String(isByDevice));
    for (const panel of panels) panel.hidden.clear();
    redraw();
  }
  function zoomBy(factor) {
    const middle = cursorAt === null ? (zoomed[0] + zoomed[1]) / 2 : xs[cursorAt];
    zoom([middle - (middle - zoomed[0]) * factor, middle + (zoomed[1] - middle) * factor]);
    if (cursorAt !== null) setCursor(cursorAt);
  }

  const search = byId("search"), keys = byId("keys");
  document.querySelector("nav").hidden = false;
  search.oninput = () => find(search.value);
  byId("devices").onclick = switchDevices;
  byId("reset").onclick = () => zoom(whole);
  byId("theme").onclick = switchTheme;
  byId("help").onclick = () => keys.showModal();
  chosen.addEventListener("change", () => { setTheme(chosen.matches ? "dark" : "light"); redraw(); });

  addEventListener("keydown", (press) => {
    if (press.target === search && press.key === "Escape") { search.value = ""; find(""); search.blur(); return; }
    if (press.ctrlKey || press.metaKey || press.altKey || press.target.tagName === "INPUT" || keys.open) return;
    const step = press.shiftKey ? 10 : 1, from = cursorAt ?? Math.floor(data.count / 2);
    const actions = {
      ArrowLeft: () => setCursor(from - step), ArrowRight: () => setCursor(from + step),
      "+": () => zoomBy(0.5), "=": () => zoomBy(0.5), "-": () => zoomBy(2), 0: () => zoom(whole),
      d: switchDevices, t: switchTheme, e: nextEvent, "?": () => keys.showModal(), "/": () => search.focus(),
      Escape: () => tip([]),
    };
    if (actions[press.key]) {
      press.preventDefault();
      actions[press.key]();
    }
  });
  addEventListener("scroll", () => tip([]), {passive: true});

  let before = null;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    setTheme("light");
    root.dataset.print = "yes"; // the layout on paper, before the charts are drawn
    for (const panel of panels) if (panel.figure.offsetParent) draw(panel);
  });
  addEventListener("afterprint", () => {
    delete root.dataset.print;
    setTheme(before ?? root.dataset.theme);
    redraw();
  });

  // -- a recording that goes on: a request an interval ---------------------------------------------------------------

  const keyOf = (name, dims) => JSON.stringify([name, Object.entries(dims).sort()]), known = data.count, mostBuckets = 2000;
  const drawn = new Map(data.live ? data.charts.flatMap((chart) => chart.drawn.map((series) => [keyOf(chart.metric, series.dims), series])) : []);
  const shapeOf = (charts) => JSON.stringify(charts.map((chart) => [chart.metric, chart.series.map((series) => Boolean(series.runs))]));
  let slots = [], isFull = false, renewAt = performance.now() + 15_000;

  /** Put a reading into the bucket of its time (s); a counter counts from zero after a new start, and after a fall. */
  function put(slot, value, at) {
    const {series, start, isCounter} = slot, before = series.last;
    series.last = {value, at, start};
    if (isCounter && (!before || at <= before.at)) return;
    const rise = before && (start !== before.start || value < before.value) ? value : value - before?.value;
    const reading = isCounter ? rise / (at - before.at) : value, place = Math.floor((at - axisStart) / data.step);
    if (place >= mostBuckets && !isFull) { isFull = true; renewAt = Math.min(renewAt, 15_000); } // at most a load in 15 s
    if (place < known || place >= mostBuckets) return;
    for (; data.count <= place; data.count++) {
      xs.push(axisStart + (data.count + 0.5) * data.step);
      for (const {values} of drawn.values()) for (const list of Object.values(values)) list.push(null);
    }
    const {mean, low, high} = series.values;
    series.readings = mean[place] === null ? 1 : series.readings + 1;
    mean[place] = (mean[place] ?? 0) + (reading - (mean[place] ?? 0)) / series.readings;
    low[place] = Math.min(low[place] ?? reading, reading);
    high[place] = Math.max(high[place] ?? reading, reading);
  }

  function take(line) {
    if (line.chipwatch) slots = [];
    for (const {name, dims, kind, start} of line.series ?? []) slots.push({series: drawn.get(keyOf(name, dims)), start, isCounter: kind === "counter"});
    (line.row ?? []).forEach((value, n) => { if (value !== null && slots[n]?.series) put(slots[n], value, line.at / 1e9); });
  }

  /** Return what the server answers; if it cannot read the recording, throw its reason. */
  async function text(place) {
    const answer = await fetch(place), body = await answer.text();
    if (!answer.ok) throw new Error(body.trim());
    return body;
  }

  /** Take words, tables, events and statistics from the page as it is now; load it again if it has other charts. */
  async function renew() {
    const page = new DOMParser().parseFromString(await text("./"), "text/html"), now = await unpacked(page);
    if (shapeOf(now.charts) !== shapeOf(data.charts) || isFull) { location.reload(); return; }
    byId("headline").replaceWith(page.getElementById("headline"));
    for (const table of document.querySelectorAll("section.table")) table.remove();
    byId("figures").before(...page.querySelectorAll("section.table"));
    data.events = now.events;
    data.charts.forEach((chart, n) => chart.series.forEach((series, m) => { series.stats = now.charts[n].series[m].stats; }));
    for (const list of document.querySelectorAll(".meanings")) list.replaceWith(list.renewed());
    figures.filled = false;
  }

  async function follow() {
    const when = document.querySelector(".when");
    try {
      const {first, next, lines} = JSON.parse(await text(data.live.next)), now = performance.now();
      if (first > data.live.next) { location.reload(); return; }
      data.live.next = next;
      lines.forEach(take);
      if (now >= renewAt) {
        renewAt = now + 60_000; // should it fail
        await renew();
        renewAt = performance.now() + 250 * (performance.now() - now); // so that making the page takes 0.4 % of a core
      }
      const isWhole = zoomed[1] >= whole[1];
      whole[1] = axisStart + data.count * data.step;
      if (isWhole) zoomed = [zoomed[0], whole[1]];
      for (const panel of document.hidden ? [] : panels) {
        const {top, bottom} = panel.figure.getBoundingClientRect(), isNear = bottom > -300 && top < innerHeight + 300;
        if (panel.u && isNear) draw(panel);
        else if (panel.u) { panel.u.destroy(); panel.u = null; }
      }
      zoom(zoomed);
      when.textContent = `live, ${moment(xs.at(-1))} UTC`;
    } catch (problem) {
      when.textContent = `not live: ${problem.message}`;
    }
    setTimeout(follow, 1000 * data.live.seconds);
  }

  zoom(whole);
  if (data.live) {
    for (const chart of data.charts) chart.drawn.forEach((series) => decoded(series, chart.quantum));
    follow();
  }
  root.dataset.ready = "yes";
})();
