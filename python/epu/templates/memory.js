"use strict";
// Who holds which bytes: OCM over the run, LRM over the instructions of one kernel, and who is busy when.

function shade(text) {
  let hash = 7;
  for (const letter of text) hash = (hash * 31 + letter.charCodeAt(0)) % 360;
  return `hsl(${hash} 46% 56%)`;
}

const KINDS = { tensor: null, constants: "#8d99ae", scratch: "#c9a227", slice: "#7aa6a1" };

// Nested names keep their telling end: ".../layers.0/attn/Add" -> "attn/Add".
const tail = (name) => name.split("/").slice(-2).join("/");

function box(picture, x, y, width, height, fill, name, about) {
  const group = svg("g", { class: "tenant", "data-tip": about }, svg("rect", { x, y, width: Math.max(0.6, width), height: Math.max(0.6, height), fill, stroke: color("card"), "stroke-width": 0.5 }));
  const room = Math.floor(width / 5.6);
  const text = tail(name);
  if (height > 11 && room > 8) group.append(svg("text", { class: "label", x: x + 3, y: y + Math.min(height / 2 + 4, 12), style: "fill:#111" }, text.length > room ? text.slice(0, room - 1) + "…" : text));
  picture.append(group);
}

function ocmMap(width) {
  const tenants = epuStages.flatMap((stage) => stage.ocm);
  const top = Math.max(record.totals.peak_ocm_bytes, 1);
  const steps = binary(top, 6);
  const { picture, atX, atY } = frame(width, 380, linear(0, totalCycles, 8), steps, { xTitle: "cycles", yTitle: "address in OCM" });
  for (const each of tenants) {
    const about = `${each.name}\n${each.kind}, ${bytes(each.bytes)} at ${whole(each.addr)}\ncycles ${whole(each.start)} to ${whole(each.end)}, kernels ${each.first} to ${each.last - 1}`;
    box(picture, atX(each.start), atY(each.addr + each.bytes), atX(each.end) - atX(each.start), atY(each.addr) - atY(each.addr + each.bytes), KINDS[each.kind] || shade(each.name), each.name, about);
  }
  const use = `At most ${bytes(record.totals.peak_ocm_bytes)} of ${bytes(record.machine.ocm_bytes)} are used.`;
  return [picture, legend([["tensors, a colour each", shade("tensor")], ...Object.entries(KINDS).filter(([, fill]) => fill).map(([kind, fill]) => [kind, fill])]), element("div", { class: "quiet" }, use)];
}

function lrmPeaks(width, onpick) {
  const peaks = epuStages.flatMap((stage) => stage.lrm.peak);
  const { picture, atX, atY, y0 } = frame(width, 150, linear(0, totalCycles, 8), binary(Math.max(1, ...peaks), 3), { xTitle: "cycles", yTitle: "LRM" });
  kernels.slice(0, peaks.length).forEach((kernel, index) => {
    const about = `${kernel.name}\n${bytes(peaks[index])} of ${bytes(record.machine.lrm_bytes)} in each PE. Click for its tenants.`;
    const wide = Math.max(0.6, atX(kernel.start + kernel.cycles.total) - atX(kernel.start));
    picture.append(svg("rect", { class: "peak", x: atX(kernel.start), y: atY(peaks[index]), width: wide, height: y0 - atY(peaks[index]), fill: shade(kernel.op), "data-tip": about, onclick: () => onpick(String(index)) }));
  });
  return [picture];
}

function lrmMap(width, chosen) {
  const holdings = epuStages.flatMap((stage) => stage.lrm.holdings)[Number(chosen)] || [];
  const last = Math.max(1, ...holdings.map((each) => each[4]));
  const top = Math.max(1, ...holdings.map((each) => each[1] + each[2]));
  const { picture, atX, atY } = frame(width, 220, linear(0, last, 8, whole), binary(top, 5), { xTitle: "instruction of the kernel (first tile of each shape)", yTitle: "address in LRM" });
  for (const [name, addr, size, from, to] of holdings) {
    const about = `${name}\n${bytes(size)} at ${addr} of each PE, instructions ${from} to ${to - 1}`;
    box(picture, atX(from), atY(addr + size), atX(to) - atX(from), atY(addr) - atY(addr + size), shade(name), name, about);
  }
  return [picture];
}

// The timeline is a canvas, because it has thousands of spans: wheel zooms, dragging moves, a double click shows all.
function timelineChart() {
  const spans = epuStages.flatMap((stage) => stage.timeline.spans.map((span) => ({ track: stage.timeline.tracks[span[0]], what: stage.timeline.kinds[span[1]], stage, kernel: stage.kernels[span[2]], start: span[3], end: span[4], busy: span[5], count: span[6] })));
  const lanes = ["kernels", "array", "port", "in", "out"];
  const names = { kernels: "kernels", array: "PE array", port: "OCM port", in: "ext. reads", out: "ext. writes" };
  const fills = { Load: "#f28e2b", Store: "#d7691f", Mac: "#f7b56b", Dma: color("data_external") };
  const canvas = element("canvas", { height: 210, style: "height:210px; cursor:grab; touch-action:none", "aria-label": "timeline" });
  const view = { from: 0, to: Math.max(1, totalCycles) };
  const [left, high] = [80, 34];
  const at = (cycle) => left + ((cycle - view.from) / (view.to - view.from)) * (canvas.clientWidth - left - 8);
  const cycleAt = (x) => view.from + ((x - left) / (canvas.clientWidth - left - 8)) * (view.to - view.from);

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = 210 * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.clearRect(0, 0, canvas.clientWidth, 210);
    pen.font = "11px system-ui, sans-serif";
    const ink = color("quiet");
    const paint = (lane, start, end, fill, alpha) => {
      if (end < view.from || start > view.to) return;
      const [a, b] = [Math.max(left, at(start)), Math.min(canvas.clientWidth - 8, at(end))];
      pen.globalAlpha = alpha;
      pen.fillStyle = fill;
      pen.fillRect(a, lanes.indexOf(lane) * high + 4, Math.max(0.5, b - a), high - 10);
    };
    kernels.forEach((kernel) => paint("kernels", kernel.start, kernel.start + kernel.cycles.total, shade(kernel.op), 1));
    spans.forEach((span) => paint(span.track, span.start, span.end, fills[span.what] || color(span.what), Math.max(0.25, span.busy / (span.end - span.start || 1))));
    pen.globalAlpha = 1;
    pen.fillStyle = ink;
    lanes.forEach((lane, index) => pen.fillText(names[lane], 6, index * high + 21));
    for (const [value, text] of linear(view.from, view.to, Math.max(3, canvas.clientWidth / 130), (cycle) => (view.to - view.from < 2e5 ? whole(Math.round(cycle)) : short(cycle))).ticks) {
      pen.fillRect(at(value), 4, 0.5, lanes.length * high);
      pen.fillText(text, at(value) + 3, lanes.length * high + 14);
    }
    canvas.dataset.view = `${Math.round(view.from)} ${Math.round(view.to)}`;
  }

  function zoom(factor, cycle) {
    const size = Math.min(Math.max((view.to - view.from) * factor, 50), Math.max(50, totalCycles));
    const share = (cycle - view.from) / (view.to - view.from);
    move(cycle - share * size, size);
  }

  function move(from, size) {
    view.from = Math.min(Math.max(0, from), Math.max(0, totalCycles - size));
    view.to = view.from + size;
    draw();
  }

  function underPointer(event) {
    const lane = lanes[Math.floor(event.offsetY / high)];
    const [cycle, slack] = [cycleAt(event.offsetX), (view.to - view.from) / canvas.clientWidth];
    const inside = (start, end) => start - slack <= cycle && cycle <= end + slack;
    if (lane === "kernels") {
      const kernel = kernels.find((each) => inside(each.start, each.start + each.cycles.total));
      return kernel ? kernelText(kernel) : "";
    }
    const found = spans.filter((span) => span.track === lane && inside(span.start, span.end)).slice(0, 4);
    return found.map((span) => `${span.what}, ${whole(span.busy)} cycles of ${whole(span.start)} to ${whole(span.end)}, ${whole(span.count)} instructions\n${span.kernel ? span.kernel.name : "outside kernels"}`).join("\n");
  }

  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, cycleAt(event.offsetX)); }, { passive: false });
  canvas.addEventListener("dblclick", () => move(0, totalCycles));
  canvas.addEventListener("pointermove", (event) => {
    if (event.buttons) move(view.from - (event.movementX / canvas.clientWidth) * (view.to - view.from), view.to - view.from);
    showTip(event, underPointer(event));
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  new ResizeObserver(() => requestAnimationFrame(draw)).observe(canvas);
  return [canvas, legend([["mac", color("mac")], ["compute", color("compute")], ["data_array", color("data_array")], ["Load", fills.Load], ["Store", fills.Store], ["Mac operand", fills.Mac], ["Dma", fills.Dma]])];
}
