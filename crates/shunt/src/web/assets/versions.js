// Versions of a file: their contents, side by side, and restoring them.

import { change, decodePath, fileUrl, get } from './api.js';
import { bytes, el, fill, notice, table, time } from './dom.js';

// Unchanged lines that are shown around changes.
const CONTEXT = 3;
const MAX_ROWS = 4000;

// The contents of a file: text, or a picture.
export function preview(parameters) {
  const place = el('div');
  get('text', parameters).then((content) => {
    if (content.kind === 'text') fill(place, el('pre', { tabindex: 0 }, content.text));
    else if (content.kind === 'picture') fill(place, picture(parameters));
    else fill(place, el('p', { class: 'muted' }, content.kind === 'large' ? 'too large to show' : 'not a text'));
    place.append(el('p', {}, el('a', { href: fileUrl({ ...parameters, download: 1 }), download: '' }, `Download (${bytes(content.size)})`)));
  }).catch((error) => fill(place, el('p', { class: 'bad' }, error.message)));
  return place;
}

function picture(parameters) {
  return el('img', { src: fileUrl(parameters), alt: `Picture ${decodePath(parameters.path)}`, loading: 'lazy' });
}

// Shows two files side by side. `parameters` has path, at or version, and the other ones.
export async function compare(place, parameters, labels) {
  fill(place, el('p', { class: 'muted' }, 'Comparing'));
  try {
    const { kinds, rows } = await get('diff', parameters);
    if (rows) fill(place, diffTable(rows, labels));
    else if (kinds.every((kind) => kind === 'picture')) {
      const { mount } = parameters;
      const other = { mount, path: parameters.other_path, at: parameters.other_at, version: parameters.other_version };
      fill(place, el('div', { class: 'sides' }, [parameters, other].map((side, at) =>
        el('figure', { class: 'side' }, el('figcaption', {}, labels[at]),
          picture({ mount, path: side.path, at: side.at, version: side.version })))));
    } else fill(place, el('p', {}, `These cannot be compared: ${kinds.join(' and ')}.`));
  } catch (error) {
    fill(place, el('p', { class: 'bad' }, error.message));
  }
  place.scrollIntoView({ block: 'nearest' });
}

function diffTable(rows, labels) {
  const near = rows.map(() => false);
  rows.forEach(([kind], at) => {
    if (kind === '=') return;
    for (let beside = at - CONTEXT; beside <= at + CONTEXT; beside += 1) if (beside in near) near[beside] = true;
  });
  if (!near.includes(true)) return el('p', {}, 'The texts are equal.');
  const body = el('tbody');
  let skipped = 0;
  const gap = () => {
    if (skipped) body.append(el('tr', {}, el('td', { colspan: 4, class: 'muted' }, `${skipped} equal lines`)));
    skipped = 0;
  };
  rows.forEach(([kind, leftNumber, left, rightNumber, right], at) => {
    if (!near[at] || body.childElementCount > MAX_ROWS) { skipped += 1; return; }
    gap();
    body.append(el('tr', {},
      el('td', { class: 'number' }, leftNumber ?? ''), el('td', { class: left !== null && kind !== '=' ? 'removed' : '' }, left ?? ''),
      el('td', { class: 'number' }, rightNumber ?? ''), el('td', { class: right !== null && kind !== '=' ? 'added' : '' }, right ?? '')));
  });
  gap();
  const columns = el('colgroup', {}, ['number', '', 'number', ''].map((kind) => el('col', { class: kind })));
  return el('table', { class: 'diff' }, columns, el('thead', {}, el('tr', {}, el('th', { colspan: 2 }, labels[0]), el('th', { colspan: 2 }, labels[1]))), body);
}

// The versions of a path, with buttons for each.
export async function showVersions(place, mount, path, allowChanges, changed) {
  fill(place, el('p', { class: 'muted' }, 'Loading versions'));
  let versions;
  try {
    versions = await get('history', { mount, path });
  } catch (error) {
    fill(place, el('p', { class: 'bad' }, error.message));
    return;
  }
  const detail = el('div', { 'aria-live': 'polite' });
  const restore = async (version) => {
    if (await change('restore', { mount, path, version: version.seq }, `Restored ${decodePath(path)} as of ${version.at ? time(version.at) : `commit ${version.seq}`}.`)) {
      changed();
      await showVersions(place, mount, path, allowChanges, changed);
    }
  };
  const buttons = (version) => {
    if (version.what !== 'file') return '';
    const shown = { mount, path, version: version.seq };
    return el('span', { class: 'row' },
      el('button', { type: 'button', onclick: () => fill(detail, el('h2', {}, `Commit ${version.seq}`), preview(shown)) }, 'View'),
      !version.current && el('button', {
        type: 'button', onclick: () => compare(detail, { ...shown, other_path: path }, [`commit ${version.seq}`, 'now']),
      }, 'Compare with now'),
      el('a', { href: fileUrl({ ...shown, download: 1 }), download: '' }, 'Download'),
      !version.current && allowChanges && el('button', { type: 'button', 'data-restore': version.seq, onclick: () => restore(version) }, 'Restore'));
  };
  fill(place, versions.length ? table([['Time'], ['Node'], ['Kind', 'wide'], ['Size', 'number'], ['']], versions.map((version) => [
    `${version.at ? time(version.at) : '(unknown)'}${version.current ? ' (now)' : ''}`, version.node ?? '-', version.what,
    version.what === 'file' ? bytes(version.size) : '', buttons(version),
  ])) : el('p', {}, 'No version is kept.'), detail);
  notice('');
}
