"use strict";
// Elements, numbers as text, the tooltip.

const record = JSON.parse(document.getElementById("record").textContent);
const epuStages = record.stages.filter((stage) => stage.where === "EPU");
const kernels = epuStages.flatMap((stage) => stage.kernels.map((kernel, index) => ({ ...kernel, stage: stage.index, index })));
const CLASSES = ["compute", "mac", "data_array", "data_ocm", "data_external"];
const MODES = ["isolated", "segment", "end_to_end"];
const totalCycles = record.totals.cycles.total;

function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + (name || "none")).trim();
}

function section(id, title, about, ...children) {
  const made = element("section", { id }, element("h2", {}, title), about ? element("p", {}, about) : null, ...children);
  document.getElementById("sections").append(made);
  document.getElementById("contents").append(element("a", { href: "#" + id }, title));
  return made;
}

function legend(entries) {
  const marks = entries.map(([name, shade]) => element("span", {}, element("i", { style: `background:${shade}` }), name));
  return element("div", { class: "legend" }, ...marks);
}

function choice(label, options, chosen, onchange) {
  const items = options.map(([value, text]) => element("option", { value, ...(value === chosen ? { selected: "" } : {}) }, text));
  const select = element("select", { "aria-label": label, onchange: () => onchange(select.value) }, ...items);
  return element("label", {}, label + " ", select);
}

const whole = (value) => (value === null || value === undefined ? "" : value.toLocaleString("en-US"));

function real(value, digits = 5) {
  if (value === null || value === undefined) return "";
  if (value === Infinity) return "∞";
  if (value === -Infinity) return "−∞";
  return Number(value.toPrecision(digits)).toString();
}

function short(value) {
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (Math.abs(value) >= size) return real(value / size, 3) + " " + unit;
  }
  return real(value, 3);
}

function bytes(value) {
  for (const [unit, size] of [["MiB", 1 << 20], ["KiB", 1 << 10]]) {
    if (value >= size) return real(value / size, 4) + " " + unit;
  }
  return value + " B";
}

function joules(value) {
  for (const [unit, size] of [["mJ", 1e-3], ["µJ", 1e-6], ["nJ", 1e-9]]) {
    if (value >= size) return real(value / size, 3) + " " + unit;
  }
  return real(value, 3) + " J";
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
const percent = (value) => (value === null ? "" : real(100 * value, 3) + " %");

// Tooltip: elements that carry a text in their data show it while the pointer is on them.
const tip = document.getElementById("tip");

function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = !text;
  const right = event.clientX + 16 + tip.offsetWidth > window.innerWidth;
  const below = event.clientY + 16 + tip.offsetHeight > window.innerHeight;
  tip.style.left = Math.max(4, right ? event.clientX - 12 - tip.offsetWidth : event.clientX + 14) + "px";
  tip.style.top = Math.max(4, below ? event.clientY - 12 - tip.offsetHeight : event.clientY + 14) + "px";
}

document.addEventListener("mousemove", (event) => {
  const marked = event.target.closest ? event.target.closest("[data-tip]") : null;
  if (marked) showTip(event, marked.getAttribute("data-tip"));
  else if (!event.target.closest || !event.target.closest("canvas")) tip.hidden = true;
});
