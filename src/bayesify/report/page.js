"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = Array.from(table.tHead.rows[0].cells);
  const original = Array.from(body.rows);
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const first = head.dataset.better === "higher" ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const now = before === first ? other : before === other ? "none" : first;
      heads.forEach((h) => h.hasAttribute("aria-sort") && h.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", now);
      const value = (row) => {
        const cell = row.cells[column];
        return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
      };
      const missing = (v) => v === "" || v === "–" || Number.isNaN(v);
      const rows = now === "none" ? original : original.slice().sort((a, b) => {
        const x = value(a), y = value(b);
        if (missing(x) || missing(y)) return missing(x) - missing(y);
        const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
        return now === "ascending" ? order : -order;
      });
      rows.forEach((row) => body.appendChild(row));
    });
  });
}
const theme = document.getElementById("theme");
const dark = () => {
  const set = document.documentElement.dataset.theme;
  return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
const name = () => { theme.textContent = dark() ? "Light" : "Dark"; };
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  name();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
name();
const folded = new Set();
addEventListener("beforeprint", () => document.querySelectorAll("details:not([open])").forEach((d) => {
  folded.add(d);
  d.open = true;
}));
addEventListener("afterprint", () => { folded.forEach((d) => { d.open = false; }); folded.clear(); });
