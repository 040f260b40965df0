// Conflicts, with both sides and buttons that resolve them.

import { change, encodePath, get } from './api.js';
import { bytes, el, fill, notice, time } from './dom.js';
import { compare, preview } from './versions.js';

export function show(body, mount, _path, allowChanges) {
  const list = el('div', { tabindex: -1 });
  fill(body, list);
  // State of the volume at the last load, the number of loads, and the conflicts that are shown.
  let [synchronised, loads, shown] = [null, 0, null];
  const load = async () => {
    loads += 1;
    const own = loads;
    try {
      const found = await get('conflicts', { mount });
      // A later load has begun, or the list would be the same: a new one would lose the focus.
      if (own !== loads || JSON.stringify(found) === shown) return;
      shown = JSON.stringify(found);
      fill(list, found.length ? found.map((one) => card(one, mount, allowChanges, resolved)) : el('p', { class: 'card good' }, 'There is no conflict.'));
    } catch (error) {
      notice(error.message, 'bad');
    }
  };
  const resolved = async () => {
    // If it failed, the buttons have to work again.
    shown = null;
    await load();
    // The pressed button is gone. The keyboard continues at the remaining conflicts.
    list.focus();
  };
  load();
  return (volume) => {
    if (!volume) return;
    // Conflicts arise and end by changes that are sent or received. Their number alone is not enough: another one may have arisen.
    const now = JSON.stringify([volume.conflicts, volume.pending, volume.sent, volume.received]);
    if (synchronised !== null && now !== synchronised) load();
    synchronised = now;
  };
}

function card(conflict, mount, allowChanges, resolved) {
  const path = encodePath(conflict.path);
  const resolve = async (keep, buttons) => {
    buttons.forEach((button) => { button.disabled = true; });
    const done = keep === 'both' ? `Both versions of ${conflict.path} are kept.` : `${conflict.path}: the version of ${keep} is kept.`;
    await change('resolve', { mount, path, keep }, done);
    await resolved();
  };
  const buttons = [];
  const button = (keep, label) => {
    const made = el('button', { type: 'button', 'data-keep': keep, disabled: !allowChanges, onclick: () => resolve(keep, buttons) }, label);
    buttons.push(made);
    return made;
  };
  const sides = conflict.sides.map((side) => ({ ...side, encoded: `${path}%2F${encodeURIComponent(side.node)}` }));
  const comparison = el('div');
  return el('section', { class: 'card conflict', 'data-path': conflict.path },
    el('h2', {}, conflict.path),
    el('p', { class: 'muted' }, `${conflict.kind}, since ${time(conflict.since)}`),
    el('div', { class: 'sides' }, sides.map((side) => el('div', { class: 'side' },
      el('strong', {}, side.node, side.here ? ' (this machine)' : ''),
      el('div', {}, describe(side)),
      side.what === 'file' && preview({ mount, path: side.encoded }),
      el('p', {}, button(side.node, side.what === 'deleted' ? `Keep deleted, as on ${side.node}` : `Keep the version of ${side.node}`))))),
    el('div', { class: 'row' }, button('both', 'Keep both'),
      sides.every((side) => side.what === 'file') && el('button', {
        type: 'button',
        onclick: () => compare(comparison, { mount, path: sides[0].encoded, other_path: sides[1].encoded }, sides.map((side) => side.node)),
      }, 'Compare'),
      !allowChanges && el('span', { class: 'muted' }, 'Start shunt web --allow-changes to resolve conflicts here.')),
    comparison);
}

function describe(side) {
  if (side.what === 'deleted') return 'deleted';
  const size = side.what === 'file' ? `, ${bytes(side.size)}` : '';
  return `${side.what}${size}, written ${time(side.modified)}`;
}
