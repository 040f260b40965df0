// Builds elements. Text is always set as text, never parsed: names of files come from other machines.

export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'class') element.className = value;
    else element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

// Keys of what fillOnChange built last, by element.
const keys = new WeakMap();

// Fills an element with what `build` returns, if the key differs from that of the last time. So buttons keep the focus, and stay
// where they are pressed, while other values change.
export function fillOnChange(element, key, build) {
  const text = JSON.stringify(key);
  if (keys.get(element) === text) return;
  keys.set(element, text);
  fill(element, build());
}

export function notice(text, kind = '') {
  const place = document.getElementById('notice');
  place.className = kind;
  place.textContent = text;
  place.hidden = !text;
}

// A table with labelled columns: [label, class].
export function table(columns, rows, attributes = {}) {
  return el('div', { class: 'scroll' }, el('table', attributes,
    el('thead', {}, el('tr', {}, columns.map(([label, kind]) => el('th', { scope: 'col', class: kind }, label)))),
    el('tbody', {}, rows.map((row) => el('tr', {}, row.map((cell, at) => el('td', { class: columns[at][1] }, cell)))))));
}

export function facts(pairs) {
  return el('dl', {}, pairs.filter(Boolean).flatMap(([label, value]) => [el('dt', {}, label), el('dd', {}, value)]));
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytes(count) {
  let unit = 0;
  while (count >= 1024 && unit < UNITS.length - 1) { count /= 1024; unit += 1; }
  return `${unit ? count.toFixed(1) : Math.round(count)} ${UNITS[unit]}`;
}

export function number(value) {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
}

export function micros(value) {
  if (value === null) return '-';
  if (value >= 1e6) return `${(value / 1e6).toFixed(2)} s`;
  if (value >= 1e3) return `${(value / 1e3).toFixed(1)} ms`;
  return `${value.toFixed(value < 10 ? 1 : 0)} µs`;
}

export function time(value) {
  const at = typeof value === 'number' ? new Date(value * 1000) : new Date(value);
  return Number.isNaN(at.getTime()) ? String(value) : at.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
}
