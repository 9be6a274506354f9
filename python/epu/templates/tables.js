"use strict";
// A table that sorts by any column and filters by text and by choices.

// columns: { title, value(item), text(item)?, number?, wrap?, class(item)?, node(item)? }
// mark(item): class of the row. choices: { label, options: [[value, text]], initial, keep(item, value) }
function dataTable(items, columns, { choices = [], sort = null, descending = false, noun = "rows", mark = () => null } = {}) {
  const state = { sort, descending, text: "", chosen: choices.map((each) => each.initial) };
  const body = element("tbody");
  const count = element("span", { class: "quiet" });
  const heads = columns.map((column, index) => {
    const toggle = () => {
      state.descending = state.sort === index ? !state.descending : Boolean(column.number);
      state.sort = index;
      fill();
    };
    const key = (event) => event.key === "Enter" && toggle();
    return element("th", { class: column.number ? "number" : null, tabindex: "0", onclick: toggle, onkeydown: key }, column.title);
  });
  const search = element("input", { type: "search", placeholder: "Filter", "aria-label": "Filter" });
  search.addEventListener("input", () => { state.text = search.value.toLowerCase(); fill(); });
  const selects = choices.map((each, index) => choice(each.label, each.options, each.initial, (value) => { state.chosen[index] = value; fill(); }));

  const shown = (column, item) => String(column.text ? column.text(item) : column.value(item) ?? "");
  const words = new Map(items.map((item) => [item, columns.map((column) => shown(column, item)).join("\n").toLowerCase()]));

  function cell(column, item) {
    const classes = [column.number ? "number" : "", column.wrap ? "wrap" : "", column.class ? column.class(item) : ""];
    return element("td", { class: classes.join(" ").trim() || null }, column.node ? column.node(item) : shown(column, item));
  }

  const made = new Map();
  function rowOf(item) {
    if (!made.has(item)) made.set(item, element("tr", { class: mark(item) }, ...columns.map((column) => cell(column, item))));
    return made.get(item);
  }

  function fill() {
    const kept = items.filter((item) => words.get(item).includes(state.text) && choices.every((each, index) => each.keep(item, state.chosen[index])));
    if (state.sort !== null) kept.sort((a, b) => compared(columns[state.sort].value(a), columns[state.sort].value(b)) * (state.descending ? -1 : 1));
    heads.forEach((head, index) => head.setAttribute("aria-sort", index !== state.sort ? "none" : state.descending ? "descending" : "ascending"));
    body.replaceChildren(...kept.map(rowOf));
    count.textContent = `${whole(kept.length)} of ${whole(items.length)} ${noun}`;
  }

  fill();
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body);
  return element("div", {}, element("div", { class: "controls" }, search, ...selects, count), element("div", { class: "scroll" }, table));
}

const collator = new Intl.Collator("en", { numeric: true });

// Nothing goes last, numbers by size, all else as text with its numbers by size.
function compared(a, b) {
  const [noA, noB] = [a === null || a === undefined, b === null || b === undefined];
  if (noA || noB) return noA - noB;
  if (typeof a === "number" && typeof b === "number") return a < b ? -1 : a > b ? 1 : 0;
  return collator.compare(String(a), String(b));
}
