"use strict";
// Axes and the drawings of error, cycles and roofline. Widths are those of the page when drawn; a resize draws again.

const PLOT = { left: 64, right: 16, top: 10, bottom: 34 };

// A frame of given height: scales map data to pixels, ticks are [value, text] of the data.
function frame(width, height, x, y, { xTitle = "", yTitle = "" } = {}) {
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height });
  const [x0, x1, y0, y1] = [PLOT.left, width - PLOT.right, height - PLOT.bottom, PLOT.top];
  const atX = (value) => x0 + x.share(value) * (x1 - x0);
  const atY = (value) => y0 + y.share(value) * (y1 - y0);
  for (const [value, text] of y.ticks) {
    picture.append(svg("line", { class: "grid", x1: x0, x2: x1, y1: atY(value), y2: atY(value) }));
    picture.append(svg("text", { x: x0 - 6, y: atY(value) + 4, "text-anchor": "end" }, text));
  }
  for (const [value, text] of x.ticks) {
    picture.append(svg("line", { class: "grid", x1: atX(value), x2: atX(value), y1: y0, y2: y1 }));
    picture.append(svg("text", { x: atX(value), y: y0 + 15, "text-anchor": "middle" }, text));
  }
  picture.append(svg("line", { class: "axis", x1: x0, x2: x1, y1: y0, y2: y0 }), svg("line", { class: "axis", x1: x0, x2: x0, y1: y0, y2: y1 }));
  picture.append(svg("text", { x: (x0 + x1) / 2, y: height - 4, "text-anchor": "middle" }, xTitle));
  picture.append(svg("text", { x: 12, y: (y0 + y1) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(y0 + y1) / 2})` }, yTitle));
  return { picture, atX, atY, x0, x1, y0, y1 };
}

function linear(low, high, count = 6, text = short) {
  const span = high - low || 1;
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const ticks = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) ticks.push([value, text(value)]);
  return { share: (value) => (value - low) / span, ticks };
}

// Steps of a power of two.
function binary(high, count) {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(high / count)));
  const ticks = [];
  for (let value = 0; value <= high; value += step) ticks.push([value, bytes(value)]);
  return { share: (value) => value / high, ticks };
}

function logarithmic(low, high) {
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const ticks = [];
  for (let power = from; power <= to; power++) ticks.push([10 ** power, Math.abs(power) > 3 ? `1e${power}` : short(10 ** power)]);
  return { low: 10 ** from, high: 10 ** to, share: (value) => (Math.log10(value) - from) / (to - from || 1), ticks };
}

// Draws now and whenever the width changes; make(width) returns nodes.
function drawn(make) {
  const place = element("div");
  let last = 0;
  const draw = () => {
    const width = Math.round(place.clientWidth);
    if (width > 0 && width !== last) place.replaceChildren(...make((last = width)));
  };
  new ResizeObserver(() => requestAnimationFrame(draw)).observe(place);
  place.again = () => { last = 0; draw(); };
  return place;
}

const METRICS = {
  psnr: { title: "PSNR, dB", value: (row) => row["PSNR (dB)"], exact: Infinity, worst: Math.min },
  mismatches: { title: "elements that differ, %", value: (row) => row["Mismatch %"], exact: 0, worst: Math.max },
  lsb: { title: "largest error, LSB", value: (row) => row["Max Abs Err / ε"], exact: 0, worst: Math.max },
};

// Rows without error stand in a band of their own: above for PSNR, below for errors.
function errorScale(metric, rows) {
  const values = rows.map(metric.value).filter((value) => Number.isFinite(value) && value !== metric.exact);
  if (metric.exact === Infinity) {
    const [low, high] = [Math.min(0, ...values), Math.max(40, ...values) * 1.04];
    const inner = linear(low, high, 6);
    const share = (value) => (value === Infinity ? 1 : value === -Infinity ? 0 : 0.04 + 0.86 * inner.share(value));
    return { share, ticks: [...inner.ticks, [Infinity, "no error"]] };
  }
  if (!values.length) return { share: () => 0, ticks: [[0, "no error"]] };
  const inner = logarithmic(Math.min(...values), Math.max(...values));
  const share = (value) => (value === 0 ? 0 : value === Infinity ? 1 : 0.1 + 0.9 * inner.share(value));
  return { share, ticks: [...inner.ticks, [0, "no error"]] };
}

function errorByDepth(width, metricName) {
  const metric = METRICS[metricName];
  const rows = record.rows.filter((row) => row.Type !== "Output" && row.S !== "SKIPPED");
  const deepest = Math.max(1, ...rows.map((row) => row.depth));
  const { picture, atX, atY } = frame(width, 330, linear(0, deepest + 0.5, 12, whole), errorScale(metric, rows), { xTitle: "depth in the model", yTitle: metric.title });
  [...MODES.entries()].reverse().forEach(([index, mode]) => {
    const own = rows.filter((row) => row.mode === mode);
    const worst = new Map();
    for (const row of own) worst.set(row.depth, worst.has(row.depth) ? metric.worst(worst.get(row.depth), metric.value(row)) : metric.value(row));
    const line = [...worst].sort((a, b) => a[0] - b[0]).map(([depth, value]) => `${atX(depth)},${atY(value)}`);
    picture.append(svg("polyline", { points: line.join(" "), fill: "none", stroke: color(mode), "stroke-width": 1, "stroke-opacity": 0.5 }));
    for (const row of own) {
      const about = `${row.Name} (${row.op})\n${mode.replaceAll("_", " ")}: ${row.dtype}, PSNR ${real(row["PSNR (dB)"])} dB, ${whole(row["Bitwise Mismatches"])} of ${whole(row.total)} differ, at most ${real(row["Max Abs Err / ε"])} LSB\n${row.Comment}`;
      const size = row.S === "FAIL" ? 5 : 3;
      picture.append(svg("circle", { class: "point " + mode, cx: atX(row.depth + (index - 1) * 0.22), cy: atY(metric.value(row)), r: size, fill: color(mode), "fill-opacity": 0.75, stroke: row.S === "FAIL" ? color("bad") : "none", "data-tip": about }));
    }
  });
  return [picture, legend(MODES.map((mode) => [mode.replaceAll("_", " "), color(mode)]))];
}

const kernelText = (kernel) => {
  const parts = CLASSES.filter((name) => kernel.cycles[name]).map((name) => `${name} ${whole(kernel.cycles[name])}`);
  return `${kernel.name} (${kernel.op})\n${whole(kernel.cycles.total)} cycles from ${whole(kernel.start)}, bound by ${kernel.bound || "nothing"}\n${parts.join(", ")}${kernel.cycles.overlap ? `, overlap ${whole(kernel.cycles.overlap)}` : ""}\nwaits ${whole(kernel.wait)}, ${short(kernel.macs)} MACs, ${short(kernel.operations)} ALU operations\n${bytes(kernel.port_bytes)} over the port, ${bytes(kernel.ext_bytes)} external, ${joules(kernel.energy)}`;
};

function cyclesByClass(width, order) {
  const shown = order === "program" ? kernels : [...kernels].sort((a, b) => b.cycles.total - a.cycles.total).slice(0, 60);
  const stack = (kernel) => CLASSES.reduce((sum, name) => sum + kernel.cycles[name], 0);
  const { picture, atX, atY, y0 } = frame(width, 300, linear(0, shown.length, 10, whole), linear(0, Math.max(1, ...shown.map(stack))), { xTitle: order === "program" ? "kernel, in program order" : "kernel, longest first", yTitle: "cycles" });
  const step = atX(1) - atX(0);
  shown.forEach((kernel, index) => {
    const group = svg("g", { class: "kernel", "data-tip": kernelText(kernel) }, svg("rect", { x: atX(index), y: PLOT.top, width: step, height: y0 - PLOT.top, fill: "transparent" }));
    let below = 0;
    for (const name of CLASSES) {
      const cycles = kernel.cycles[name];
      if (!cycles) continue;
      group.append(svg("rect", { x: atX(index), width: Math.max(0.8, step * 0.86), y: atY(below + cycles), height: atY(below) - atY(below + cycles), fill: color(name) }));
      below += cycles;
    }
    const total = atY(kernel.cycles.total);
    group.append(svg("line", { x1: atX(index), x2: atX(index) + Math.max(0.8, step * 0.86), y1: total, y2: total, stroke: color("ink"), "stroke-width": 1.2 }));
    picture.append(group);
  });
  return [picture, legend([...CLASSES.map((name) => [name, color(name)]), ["time taken (what overlaps is counted once)", color("ink")]])];
}

const MEMORIES = {
  port: { text: "port between OCM and array", bytes: (kernel) => kernel.port_bytes, rate: record.machine.port_bytes_per_cycle },
  external: { text: "external memory", bytes: (kernel) => kernel.ext_bytes, rate: record.machine.ext_read_bytes_per_cycle },
};

function roofline(width, memoryName) {
  const memory = MEMORIES[memoryName];
  const work = (kernel) => kernel.macs || kernel.operations;
  const points = kernels.filter((kernel) => memory.bytes(kernel) && work(kernel) && kernel.cycles.total)
    .map((kernel) => ({ kernel, x: work(kernel) / memory.bytes(kernel), y: work(kernel) / kernel.cycles.total }));
  const { peak_macs_per_cycle: macs, peak_operations_per_cycle: operations } = record.machine;
  const xs = points.map((point) => point.x).concat(macs / memory.rate, operations / memory.rate);
  const [x, y] = [logarithmic(Math.min(...xs) / 2, Math.max(...xs) * 2), logarithmic(Math.min(operations / 10, ...points.map((point) => point.y)), macs)];
  const { picture, atX, atY } = frame(width, 360, x, y, { xTitle: `work per byte (${memory.text})`, yTitle: "work per cycle" });
  for (const [peak, text] of [[macs, `MAC array, ${whole(macs)} per cycle`], [operations, `ALUs, ${whole(operations)} per cycle`]]) {
    const corner = Math.min(Math.max(peak / memory.rate, x.low), x.high);
    const start = Math.max(x.low, y.low / memory.rate);
    picture.append(svg("polyline", { class: "roof", points: `${atX(start)},${atY(Math.max(y.low, start * memory.rate))} ${atX(corner)},${atY(peak)} ${atX(x.high)},${atY(peak)}`, fill: "none", stroke: color("quiet"), "stroke-width": 1.5 }));
    picture.append(svg("text", { x: atX(x.high) - 4, y: atY(peak) - 5, "text-anchor": "end" }, text));
  }
  for (const { kernel, x: intensity, y: rate } of points) {
    const roof = Math.min(kernel.macs ? macs : operations, intensity * memory.rate);
    const about = `${kernelText(kernel)}\n${real(rate, 4)} of ${real(roof, 4)} per cycle under its roof, ${real(intensity, 3)} per byte`;
    const look = { class: "point", fill: color(kernel.bound), "fill-opacity": 0.75, "data-tip": about };
    picture.append(kernel.macs ? svg("circle", { ...look, cx: atX(intensity), cy: atY(rate), r: 4.5 }) : svg("rect", { ...look, x: atX(intensity) - 3.5, y: atY(rate) - 3.5, width: 7, height: 7 }));
  }
  const absent = kernels.length - points.length;
  const note = absent ? `${whole(absent)} kernels move no bytes there, or only move bytes, and have no point. ` : "";
  return [picture, legend(CLASSES.map((name) => [`bound by ${name}`, color(name)])), element("div", { class: "quiet" }, note + "Circles: multiply-accumulates. Squares: ALU operations.")];
}
