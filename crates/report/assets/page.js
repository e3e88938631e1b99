// Draws the charts of a report from the data in the page, with Observable Plot. Nothing is fetched.
"use strict";
(() => {
  const NARROW = 520;
  const DRAWN_HIDDEN = 640;
  const COLORS = 8;
  const DASHES = ["", "6 3", "2 3"];
  const SYMBOLS = ["circle", "square", "triangle", "diamond", "star", "wye", "cross", "hexagon"];
  const color = (index) => `var(--c${index % COLORS})`;
  const dash = (index) => DASHES[Math.floor(index / COLORS) % DASHES.length];
  const symbol = (index) => SYMBOLS[index % SYMBOLS.length];

  const digits = (value) => {
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size >= 99.95) return Math.round(value).toLocaleString("en-US");
    if (size >= 9.995) return value.toFixed(1);
    return value.toPrecision(3);
  };
  const plain = (value) => digits(value).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
  const scaled = (units) => (value, short) => {
    const text = short ? plain : digits;
    const unit = units.find(([size]) => Math.abs(value) >= size * 0.9995) ?? units[units.length - 1];
    return value === 0 ? "0" : `${text(value / unit[0])}${unit[1] && " "}${unit[1]}`;
  };
  const FORMATS = {
    number: scaled([[1e6, "M"], [1e3, "k"], [1, ""]]),
    bytes: scaled([[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "KB"], [1, "B"]]),
    seconds: scaled([[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]),
  };

  const common = (chart, width) => ({
    width,
    style: { background: "none", color: "inherit", fontFamily: "inherit", fontSize: width < NARROW ? "11px" : "12px", overflow: "visible" },
    ariaLabel: chart.title,
  });

  const NAME_LETTERS_MAX = 20;
  const shortened = (name) => (name.length > NAME_LETTERS_MAX ? `${name.slice(0, NAME_LETTERS_MAX - 1)}…` : name);

  // Names at the ends of lines, moved apart.
  const nameEnds = (plot, ends) => {
    const x = plot.scale("x");
    const y = plot.scale("y");
    const placed = ends.map((end) => ({ ...end, at: y.apply(end.y) })).sort((a, b) => a.at - b.at);
    placed.forEach((end, index) => {
      if (index > 0) end.at = Math.max(end.at, placed[index - 1].at + 14);
    });
    for (const end of placed) {
      const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
      text.setAttribute("x", x.apply(end.x) + (x.bandwidth ?? 0) / 2 + 8);
      text.setAttribute("y", end.at);
      text.setAttribute("dy", "0.32em");
      text.setAttribute("fill", color(end.color));
      text.setAttribute("class", "end");
      text.setAttribute("text-anchor", "start");
      text.textContent = shortened(end.label);
      plot.append(text);
    }
  };

  const endsMargin = (chart, width) =>
    width < NARROW ? 12 : 22 + 7 * Math.min(NAME_LETTERS_MAX, Math.max(...chart.series.map((series) => series.label.length)));

  const lines = (chart, width) => {
    const format = FORMATS[chart.unit];
    const narrow = width < NARROW;
    const shared = new Map();
    for (const series of chart.series) {
      for (const [x, y] of series.points) {
        if (!shared.has(x)) shared.set(x, { x, y, rows: [] });
        const row = shared.get(x);
        row.y = Math.max(row.y, y);
        row.rows.push(`${shortened(series.label)}: ${format(y)}`);
      }
    }
    const marks = [Plot.ruleY([0], { strokeOpacity: 0.5 })];
    for (const series of chart.series) {
      const points = series.points.map(([x, y, low = y, high = y]) => ({ x, y, low, high }));
      const look = { x: "x", stroke: color(series.color), strokeDasharray: dash(series.color) };
      if (points.some((point) => point.high > point.low)) {
        marks.push(Plot.areaY(points, { x: "x", y1: "low", y2: "high", fill: color(series.color), fillOpacity: 0.13, curve: "step" }));
      }
      marks.push(Plot.lineY(points, { ...look, y: "y", strokeWidth: 1.8 }));
      if (chart.dots) {
        marks.push(Plot.dot(points, { x: "x", y: "y", fill: color(series.color), symbol: symbol(series.color), r: 3.5 }));
      }
    }
    const rows = [...shared.values()].sort((a, b) => a.x - b.x);
    marks.push(Plot.ruleX(rows, Plot.pointerX({ x: "x", strokeOpacity: 0.35 })));
    marks.push(Plot.tip(rows, Plot.pointerX({ x: "x", y: "y", title: (row) => [`${chart.xName} ${plain(row.x)}`, ...row.rows].join("\n") })));
    const plot = Plot.plot({
      ...common(chart, width),
      height: narrow ? 220 : chart.small ? 220 : 320,
      marginLeft: 58,
      marginRight: chart.small ? 12 : endsMargin(chart, width),
      marginBottom: 38,
      x: { label: chart.xName, labelAnchor: "center", labelArrow: "none", ticks: chart.dots ? rows.map((row) => row.x).filter((x) => !narrow || x % 2) : undefined, tickFormat: chart.dots ? "d" : undefined },
      y: { label: null, grid: true, zero: true, nice: true, ticks: narrow ? 4 : 6, tickFormat: (value) => format(value, true) },
      marks,
    });
    if (!narrow && !chart.small) {
      const ends = chart.series.filter((series) => series.points.length > 0).map((series) => {
        const [x, y] = series.points[series.points.length - 1];
        return { x, y, label: series.label, color: series.color };
      });
      nameEnds(plot, ends);
    }
    return plot;
  };

  // Ticks of a logarithmic axis: 1, 2 and 5 of each power of ten, or fewer where that would be many.
  const decades = ([low, high]) => {
    const span = Math.log10(high / low);
    const steps = span > 4 ? [1] : span > 2 ? [1, 3] : [1, 2, 5];
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
      for (const step of steps) {
        const tick = step * 10 ** power;
        if (tick >= low && tick <= high) ticks.push(tick);
      }
    }
    return ticks;
  };

  const percentiles = (chart, width) => {
    const format = FORMATS.seconds;
    const marks = [];
    const shared = new Map(chart.names.map((name) => [name, { name, y: 0, rows: [] }]));
    for (const series of chart.series) {
      const points = series.values.map((y, index) => ({ name: chart.names[index], y }));
      for (const point of points) {
        const row = shared.get(point.name);
        row.y = Math.max(row.y, point.y);
        row.rows.push(`${shortened(series.label)}: ${format(point.y)}`);
      }
      marks.push(Plot.lineY(points, { x: "name", y: "y", stroke: color(series.color), strokeDasharray: dash(series.color), strokeWidth: 1.6 }));
      marks.push(Plot.dot(points, { x: "name", y: "y", fill: color(series.color), symbol: symbol(series.color), r: 3.2 }));
    }
    const rows = [...shared.values()];
    marks.push(Plot.tip(rows, Plot.pointerX({ x: "name", y: "y", title: (row) => [row.name, ...row.rows].join("\n") })));
    return Plot.plot({
      ...common(chart, width),
      height: 230,
      marginLeft: 54,
      marginRight: 20,
      x: { type: "point", domain: chart.names, label: null, padding: 0.3, tickFormat: (name) => name.replace(/^p/, "") },
      y: { type: "log", domain: chart.domain, label: null, grid: true, ticks: decades(chart.domain), tickFormat: (value) => format(value, true) },
      marks,
    });
  };

  const bars = (chart, width) => {
    const format = FORMATS[chart.unit];
    const longest = Math.max(...chart.rows.map((row) => row.label.length));
    const marginLeft = Math.min(14 + 6.6 * longest, width * 0.36);
    const parts = chart.rows.flatMap((row) => {
      let from = 0;
      return row.parts.map((value, part) => {
        const stacked = { label: row.label, color: row.color, part, x1: from, x2: from + value };
        from += value;
        return stacked;
      });
    });
    const text = (row) => row.parts.map((value) => format(value)).join(" + ");
    const room = 16 + 6.4 * Math.max(...chart.rows.map((row) => text(row).length));
    return Plot.plot({
      ...common(chart, width),
      height: 16 + chart.rows.length * 30,
      marginLeft,
      marginRight: Math.min(room, width * 0.5),
      marginTop: 4,
      marginBottom: 8,
      x: { axis: null, zero: true },
      y: { label: null, domain: chart.rows.map((row) => row.label), padding: 0.28 },
      marks: [
        Plot.axisY({ label: null, tickSize: 0, lineWidth: marginLeft / 12 - 0.5, textOverflow: "ellipsis" }),
        Plot.barX(parts, { x1: "x1", x2: "x2", y: "label", fill: (part) => color(part.color), fillOpacity: (part) => (part.part === 0 ? 0.95 : 0.4), rx: 2 }),
        Plot.text(chart.rows, { x: (row) => row.parts.reduce((a, b) => a + b, 0), y: "label", text, dx: 6, textAnchor: "start" }),
      ],
      color: { type: "identity" },
      opacity: { type: "identity" },
    });
  };

  const KINDS = { lines, percentiles, bars };

  const draw = (place, chart) => {
    const width = Math.floor(place.clientWidth) || DRAWN_HIDDEN;
    if (+place.dataset.width === width) return;
    place.dataset.width = width;
    try {
      place.replaceChildren(KINDS[chart.kind](chart, width));
      place.dataset.drawn = "true";
    } catch (error) {
      place.textContent = "This chart could not be drawn; its figures are in the tables.";
      console.error(chart.title, error);
    }
  };

  const charts = JSON.parse(document.getElementById("data").textContent);
  const places = new Map();
  for (const place of document.querySelectorAll("[data-chart]")) {
    places.set(place, charts[+place.dataset.chart]);
    draw(place, charts[+place.dataset.chart]);
  }
  const watcher = new ResizeObserver((entries) => {
    for (const entry of entries) {
      if (entry.contentRect.width > 0) draw(entry.target, places.get(entry.target));
    }
  });
  for (const place of places.keys()) watcher.observe(place);
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details.print")) details.open = true;
  });
})();
