"use strict";

// A head sorts its column: up, down, as it was. What is unknown stays last.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const next = { ascending: "descending", descending: null }[head.getAttribute("aria-sort")];
    const order = next === undefined ? "ascending" : next;
    heads.forEach(each => each.removeAttribute("aria-sort"));
    if (order) head.setAttribute("aria-sort", order);
    body.append(...(order ? sorted(original, column, order === "ascending" ? 1 : -1, head.classList.contains("num")) : original));
  }));
}

function sorted(rows, column, sign, numeric) {
  const value = row => row.cells[column].dataset.v;
  const compare = numeric ? (a, b) => a - b : (a, b) => a.localeCompare(b, "en", { numeric: true });
  return [...rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
    return sign * compare(a, b);
  });
}

// The values of the mark that is pointed at, as text, beside it.
const tip = document.body.appendChild(document.createElement("div"));
tip.id = "tip";
tip.setAttribute("aria-hidden", "true");

function show(mark) {
  tip.replaceChildren(...mark.dataset.tip.split("\n").flatMap(line => {
    const [name, text] = line.split("\t");
    return [element("span", name), element("b", text)];
  }));
  tip.className = "on";
  const at = mark.getBoundingClientRect();
  const left = Math.min(Math.max(8, at.left + at.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 8);
  const above = at.top - tip.offsetHeight - 6;
  tip.style.left = `${left}px`;
  tip.style.top = `${above > 4 ? above : at.bottom + 6}px`;
}

function element(name, text) {
  const created = document.createElement(name);
  created.textContent = text;
  return created;
}

let shown = null;
const hide = () => { shown = null; tip.className = ""; };
const showOnly = mark => { shown = mark; if (mark) show(mark); else hide(); };
const markOf = event => event.target.closest("[data-tip]");
// Not pointerover: a page that scrolls below a mouse at rest is no pointing.
document.addEventListener("pointermove", event => { const mark = markOf(event); if (mark !== shown) showOnly(mark); });
document.addEventListener("focusin", event => showOnly(markOf(event)));
document.addEventListener("focusout", hide);
document.addEventListener("scroll", () => showOnly(shown === document.activeElement ? shown : null), true);
document.addEventListener("keydown", event => { if (event.key === "Escape") hide(); });

// One stop of the keyboard per figure; arrows go from mark to mark.
for (const figure of document.querySelectorAll("figure")) {
  const marks = [...figure.querySelectorAll("[data-tip]")];
  marks.forEach((mark, i) => {
    mark.tabIndex = i ? -1 : 0;
    mark.addEventListener("keydown", event => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const to = step && marks[i + step];
      if (!to) return;
      event.preventDefault();
      mark.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
    });
  });
}

// On paper nothing can be unfolded.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const each of folded) each.open = true;
});
addEventListener("afterprint", () => { for (const each of folded) each.open = false; });

// Without a choice the page follows the system.
const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
});
