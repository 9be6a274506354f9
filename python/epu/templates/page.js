"use strict";
// The page: which sections there are and what stands in them.

function heading() {
  const { model, settings, validation } = record;
  const verdict = validation ? (validation.passed ? "PASS" : "FAIL") : "not validated";
  document.getElementById("top").append(
    element("h1", {}, model.file, element("span", { class: "badge " + verdict }, verdict)),
    element("p", {}, `${settings.module} · rounding ${settings.rounding}`),
  );
}

function tile(value, name, about = "") {
  return element("div", { class: "tile", "data-tip": about || null }, element("b", {}, value), element("span", {}, name));
}

function facts(pairs) {
  return element("dl", { class: "facts" }, ...pairs.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, String(value))]));
}

function summary() {
  const { totals, machine, validation, software, settings, model } = record;
  const where = (place) => record.nodes.filter((node) => node.where === place).length;
  const tiles = element("div", { class: "tiles" },
    tile(whole(totals.cycles.total), "cycles"),
    tile(real(totals.latency_s * 1e3, 4) + " ms", `latency at ${machine.clock_ghz} GHz`),
    tile(totals.per_second === null ? "–" : real(totals.per_second, 4), "inferences per second"),
    tile(short(totals.macs), "MACs"),
    tile(percent(totals.mac_utilization), "MAC utilisation"),
    tile(joules(sum(Object.values(totals.energy))), "dynamic energy, assumed prices", Object.entries(totals.energy).map(([name, each]) => `${name} ${joules(each)}`).join("\n")),
    tile(totals.latency_s ? real(sum(Object.values(totals.energy)) / totals.latency_s, 3) + " W" : "–", "dynamic power at that rate"),
    tile(bytes(totals.peak_ocm_bytes), `OCM of ${bytes(machine.ocm_bytes)}`),
    tile(bytes(totals.peak_lrm_bytes), `LRM of ${bytes(machine.lrm_bytes)}`),
    tile(bytes(totals.ext_read_bytes), "read from external memory"),
    tile(bytes(totals.ext_write_bytes), "written to it"),
    tile(`${where("EPU")} / ${where("host")}`, "nodes on the EPU / on the host"),
  );
  const body = [tiles];
  if (validation) {
    const numbers = validation.summary;
    body.unshift(...validation.failures.map((text) => element("p", { class: "FAIL" }, text)));
    const plain = Object.entries(numbers).filter(([, value]) => value === null || typeof value !== "object");
    body.push(element("div", { class: "columns" },
      facts(plain.map(([name, value]) => [name.replaceAll("_", " "), Number.isInteger(value) ? whole(value) : typeof value === "number" ? real(value, 7) : value === null ? "none" : value])),
      facts(Object.entries(numbers.end_to_end || {}).flatMap(([name, found]) => [
        [`end to end, ${name}`, `${real(found.psnr_db)} dB, ${whole(found.mismatches)} of ${whole(found.total)} differ, at most ${real(found.max_abs_err)}`],
        ...(found.one_lsb_floor ? [["ORT itself, input 1 LSB off", `${real(found.one_lsb_floor.psnr_db)} dB`]] : []),
      ]).concat([["ONNX Runtime", validation.ort_version], ["computed on", validation.cpu]])),
    ));
  }
  body.push(element("div", { class: "columns" },
    facts([["hardware", settings.hardware], ["array", `${machine.rows} × ${machine.cols} PEs, ${machine.macs_per_pe} MACs each`], ["ranges", settings.tranges || "none given"], ["model SHA-256", model.sha256 || "unknown"]]),
    facts([...Object.entries(software).map(([name, version]) => [name, version || "not installed"])]),
  ));
  section("summary", "Summary", "", ...body);
}

function nodesTable() {
  const options = [["", "all modes"], ...MODES.map((mode) => [mode, mode.replaceAll("_", " ")])];
  const column = (title, key, digits) => ({ title, number: true, value: (row) => row[key], text: (row) => real(row[key], digits) });
  const columns = [
    { title: "S", value: (row) => row.S, class: (row) => row.S },
    { title: "Name", value: (row) => row.Name, wrap: true, class: () => "name" },
    { title: "Op", value: (row) => row.op },
    { title: "Mode", value: (row) => row.mode.replaceAll("_", " ") },
    { title: "Depth", number: true, value: (row) => row.depth },
    { title: "Type", value: (row) => row.dtype },
    { title: "Elements", number: true, value: (row) => row.total, text: (row) => whole(row.total) },
    { title: "Differ", number: true, value: (row) => row["Bitwise Mismatches"], text: (row) => whole(row["Bitwise Mismatches"]) },
    column("PSNR dB", "PSNR (dB)", 5),
    column("Max error", "Max Abs Err", 4),
    column("in LSB", "Max Abs Err / ε", 4),
    { title: "Above tol.", number: true, value: (row) => row["Mismatches Above Tol"], text: (row) => whole(row["Mismatches Above Tol"]) },
    { title: "Comment", value: (row) => row.Comment, wrap: true, class: () => "comment" },
  ];
  const failed = record.rows.find((row) => row.S === "FAIL"); // what failed is what one looks for
  const unexplained = (row) => Boolean(row.reasons && row.reasons.unexplained);
  const table = dataTable(record.rows, columns, {
    mark: (row) => (unexplained(row) ? "red" : null),
    choices: [
      { label: "Mode", options, initial: failed ? failed.mode : "isolated", keep: (row, mode) => !mode || row.mode === mode },
      { label: "State", options: [["", "all"], ["PASS", "PASS"], ["FAIL", "FAIL"], ["SKIPPED", "SKIPPED"], ["differ", "with mismatches"], ["unexplained", "unexplained"]], initial: failed ? "FAIL" : "", keep: (row, state) => !state || row.S === state || (state === "differ" && row["Bitwise Mismatches"] > 0) || (state === "unexplained" && unexplained(row)) },
    ],
  });
  section("nodes", "Node outputs", "Each output of each ONNX node, ONNX Runtime against the simulator. Click a heading to sort. Red: a mismatch that nothing explains.", table);
}

function kernelsTable() {
  const count = (title, value) => ({ title, number: true, value, text: (kernel) => whole(value(kernel)) });
  const columns = [
    { title: "Kernel", value: (kernel) => kernel.name, wrap: true, class: () => "name" },
    { title: "Op", value: (kernel) => kernel.op },
    count("Cycles", (kernel) => kernel.cycles.total),
    { title: "Share", number: true, value: (kernel) => kernel.cycles.total, text: (kernel) => percent(totalCycles ? kernel.cycles.total / totalCycles : 0) },
    { title: "Bound by", value: (kernel) => kernel.bound },
    ...CLASSES.map((name) => count(name, (kernel) => kernel.cycles[name])),
    count("MACs", (kernel) => kernel.macs),
  ];
  const options = [["", "anything"], ...CLASSES.map((name) => [name, name])];
  const table = dataTable(kernels, columns, { noun: "kernels", sort: 2, descending: true, choices: [{ label: "Bound by", options, initial: "", keep: (kernel, name) => !name || kernel.bound === name }] });
  section("kernels", "Kernels", "The longest first. Bound by: the class of cycles to shorten first.", table);
}

function chart(id, title, about, label, options, make) {
  let chosen = options.length ? options[0][0] : null;
  const place = drawn((width) => make(width, chosen));
  const control = options.length > 1 ? [element("div", { class: "controls" }, choice(label, options, chosen, (value) => { chosen = value; place.again(); }))] : [];
  section(id, title, about, ...control, place);
}

function memorySections() {
  section("ocm", "On-chip memory over time", "Every tenant of the OCM: from when to when, and at which addresses.", drawn(ocmMap));
  let chosen = String(kernels.length ? kernels.reduce((best, kernel, index) => (kernel.cycles.total > kernels[best].cycles.total ? index : best), 0) : 0);
  const detail = drawn((width) => lrmMap(width, chosen));
  const options = kernels.map((kernel, index) => [String(index), `${index}: ${kernel.name} (${kernel.op})`]);
  const pick = choice("Kernel", options, chosen, (value) => { chosen = value; detail.again(); });
  const peaks = drawn((width) => lrmPeaks(width, (value) => { pick.querySelector("select").value = value; chosen = value; detail.again(); }));
  section("lrm", "Local register memory", "The highest byte by kernel, and the tenants of one kernel's LRM.", peaks, element("div", { class: "controls" }, pick), detail);
}

function placementTable() {
  const columns = [
    { title: "Node", value: (node) => node.name, wrap: true, class: () => "name" },
    { title: "Op", value: (node) => node.op },
    { title: "Where", value: (node) => node.where, class: (node) => node.where },
    { title: "Stage", number: true, value: (node) => node.stage },
    { title: "Kernel", number: true, value: (node) => node.kernel },
    { title: "Depth", number: true, value: (node) => node.depth },
    { title: "Reason", value: (node) => node.reason, wrap: true },
    { title: "Remedy", value: (node) => node.remedy, wrap: true },
  ];
  const options = [["", "anywhere"], ["EPU", "EPU"], ["host", "host"], ["folded", "folded"]];
  const table = dataTable(record.nodes, columns, { noun: "nodes", choices: [{ label: "Where", options, initial: "", keep: (node, where) => !where || node.where === where }] });
  section("placement", "Placement", "Where each ONNX node runs, and why. Folded: computed at compile time. A node without a kernel only renames or reshapes.", table);
}

const interval = (pair) => (pair ? `${real(pair[0], 5)} … ${real(pair[1], 5)}` : "");

function rangesTable() {
  const order = ["saturated", "beyond range", "clipped", "close", "low", "unknown"];
  const meter = (tensor) => element("span", {}, tensor.use === null ? "" : element("span", { class: "meter" }, element("i", { style: `width:${Math.min(100, 100 * tensor.use)}%` })), percent(tensor.use));
  const columns = [
    { title: "Tensor", value: (tensor) => tensor.name, wrap: true, class: () => "name" },
    { title: "Type", value: (tensor) => tensor.type },
    { title: "Range", value: (tensor) => (tensor.range ? tensor.range[1] : null), text: (tensor) => interval(tensor.range) },
    { title: "From", value: (tensor) => tensor.source },
    { title: "Seen", value: (tensor) => (tensor.seen ? tensor.seen[1] : null), text: (tensor) => interval(tensor.seen) },
    { title: "Limits", value: (tensor) => (tensor.limits ? tensor.limits[1] : null), text: (tensor) => interval(tensor.limits) },
    { title: "Use", value: (tensor) => tensor.use, text: (tensor) => percent(tensor.use), node: meter },
    { title: "At the limit", number: true, value: (tensor) => tensor.at_limit, text: (tensor) => whole(tensor.at_limit) },
    { title: "Risk", value: (tensor) => order.indexOf(tensor.risk), text: (tensor) => tensor.risk, class: (tensor) => tensor.risk.replace("beyond range", "warn") },
  ];
  const options = [["", "any"], ...order.map((risk) => [risk, risk])];
  const table = dataTable(record.tensors, columns, { noun: "tensors", sort: 8, choices: [{ label: "Risk", options, initial: "", keep: (tensor, risk) => !risk || tensor.risk === risk }] });
  section("ranges", "Ranges", "Calibrated ranges, where they come from, what was seen, and how near it came to the limits of the word.", table);
}

heading();
summary();
if (record.rows.length) {
  nodesTable();
  chart("depth", "Error against depth", "Isolated: each kernel on ORT's own tensors. Segment: fixed-point stretches run free. End to end: nothing is corrected.", "Measure", Object.entries(METRICS).map(([name, metric]) => [name, metric.title]), errorByDepth);
}
if (kernels.length) {
  kernelsTable();
  chart("cycles", "Cycles by class", "What each kernel spends its time on. Point at a bar for its numbers.", "Order", [["program", "program order"], ["longest", "60 longest first"]], cyclesByClass);
  chart("roofline", "Roofline", "How much work each kernel does per cycle, against what the machine allows at its work per byte.", "Memory", Object.entries(MEMORIES).map(([name, memory]) => [name, memory.text]), roofline);
  section("timeline", "Timeline", "Wheel: zoom. Drag: move. Double click: all.", ...timelineChart());
  memorySections();
}
placementTable();
if (record.tensors.length) rangesTable();
document.body.dataset.drawn = "yes";
