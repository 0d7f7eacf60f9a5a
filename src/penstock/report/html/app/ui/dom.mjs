// Creation of elements. Text is always set as text, so that names from files are never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

// In `props`, functions are listeners (onclick), "text" is the content, and all others are attributes.
function filled(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

export const el = (tag, props = {}, ...children) => filled(document.createElement(tag), props, children);
export const svg = (tag, props = {}, ...children) => filled(document.createElementNS(SVG, tag), props, children);

// A section of the page with a heading.
export const section = (id, title, ...children) =>
  el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title`, text: title }), ...children);

// Fills a box now, and again whenever its width changes.
export function fillToWidth(box, fill) {
  let width = 0;
  new ResizeObserver(() => {
    if (box.clientWidth !== width) {
      width = box.clientWidth;
      fill();
    }
  }).observe(box);
  fill();
}

export function choice(label, options, chosen, onchange) {
  const select = el("select", { "aria-label": label, onchange: () => onchange(select.value) });
  for (const [value, text] of options) select.append(el("option", { value, text }));
  select.value = chosen;
  return select;
}

export function toggle(text, checked, onchange) {
  const box = el("input", { type: "checkbox", onchange: () => onchange(box.checked) });
  box.checked = checked;
  return el("label", { class: "toggle" }, box, el("span", { text }));
}

export function save(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = el("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// A table with numbers aligned right. `columns`: {text, number}.
export function table(caption, columns, rows) {
  const head = el(
    "tr",
    {},
    ...columns.map((column) =>
      el("th", { scope: "col", class: column.number ? "num" : null }, column.head ?? column.text),
    ),
  );
  const body = el("tbody", {}, ...rows.map((cells) => tableRow(columns, cells)));
  return el(
    "div",
    { class: "scroll-x", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", { class: "unseen", text: caption }), el("thead", {}, head), body),
  );
}

export function tableRow(columns, cells) {
  return el(
    "tr",
    {},
    ...cells.map((cell, index) => {
      const props = { class: columns[index].number ? "num" : null };
      return index === 0 ? el("th", { scope: "row", ...props }, cell) : el("td", props, cell);
    }),
  );
}
