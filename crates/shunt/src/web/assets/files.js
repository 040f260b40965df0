// The file browser, at any time that the volume keeps.

import { change, decodePath, fileUrl, get } from './api.js';
import { bytes, el, fill, table, time } from './dom.js';
import { preview, showVersions } from './versions.js';
import { tabLink } from './volume.js';

// The time that is shown, by mount point: it stays while directories are opened. Empty for now.
const times = new Map();

export function show(body, mount, directory, allowChanges) {
  const [list, detail] = [el('div'), el('div', { class: 'detail' })];
  const join = (encoded) => (directory ? `${directory}%2F${encoded}` : encoded);
  const load = async () => {
    const at = times.get(mount);
    fill(list, el('p', { class: 'muted' }, 'Loading'));
    try {
      const { entries, truncated } = await get('files', { mount, path: directory, at });
      fill(list, table([['Name'], ['Size', 'number'], ['Modified', 'wide'], ['']], entries.map((entry) => row(entry, at))),
        !entries.length && el('p', { class: 'muted' }, 'The directory is empty.'),
        truncated && el('p', { class: 'warn' }, 'There are more entries than shown.'));
    } catch (error) {
      fill(list, el('p', { class: 'bad' }, error.message));
    }
  };
  const row = (entry, at) => {
    const path = join(entry.encoded);
    const open = (...children) => {
      fill(detail, el('section', { class: 'card' }, el('h2', { tabindex: -1 }, decodePath(path)), children));
      detail.querySelector('h2').focus();
    };
    const view = () => open(preview({ mount, path, at }));
    const versions = () => {
      const place = el('div');
      open(place);
      showVersions(place, mount, path, allowChanges, load);
    };
    const name = entry.kind === 'directory' ? el('a', { href: tabLink(mount, 'files', path) }, `${entry.name}/`)
      : entry.kind === 'file' ? el('button', { type: 'button', onclick: view }, entry.name) : `${entry.name}${entry.target ? ` → ${entry.target}` : ''}`;
    return [name, entry.kind === 'file' ? bytes(entry.size) : '', time(entry.modified_s), el('span', { class: 'row' },
      entry.kind === 'file' && el('a', { href: fileUrl({ mount, path, at, download: 1 }), download: '' }, 'Download'),
      !at && entry.kind === 'file' && el('button', { type: 'button', 'data-versions': entry.name, onclick: versions }, 'Versions'),
      !at && allowChanges && el('button', { type: 'button', onclick: () => change('pin', { mount, path }, `Pinned ${entry.name}.`) }, 'Pin'),
      !at && allowChanges && el('button', { type: 'button', onclick: () => change('unpin', { mount, path }, `Unpinned ${entry.name}.`) }, 'Unpin'),
      at && allowChanges && el('button', {
        type: 'button', onclick: () => change('restore', { mount, path, at }, `Restored ${entry.name} as of ${at}.`),
      }, 'Restore'))];
  };
  fill(body, timeForm(mount, load), removedFile(mount, join, detail, allowChanges, load), el('section', { class: 'card' }, crumbs(mount, directory), list), detail);
  load();
  return null;
}

function crumbs(mount, directory) {
  const parts = directory ? directory.split(/%2F/i) : [];
  const link = (label, path) => el('a', { href: tabLink(mount, 'files', path) }, label);
  return el('nav', { class: 'crumbs', 'aria-label': 'Directory' }, link('/', ''),
    parts.flatMap((part, at) => [' ', link(`${decodePath(part)}/`, parts.slice(0, at + 1).join('%2F'))]));
}

// Chooses the time that is shown, in the time zone of the machine that has the volume mounted.
function timeForm(mount, load) {
  const input = el('input', { type: 'datetime-local', step: 1, id: 'at', value: times.get(mount) ?? '' });
  return el('form', { class: 'card row', onsubmit: (event) => { event.preventDefault(); times.set(mount, input.value); load(); } },
    el('label', { for: 'at' }, 'Show the volume as of'), input,
    el('button', { type: 'submit' }, 'Show'),
    el('button', { type: 'button', onclick: () => { input.value = ''; times.delete(mount); load(); } }, 'Now'));
}

// Finds the versions of a file that is not listed any more.
function removedFile(mount, join, detail, allowChanges, load) {
  const input = el('input', { type: 'text', id: 'removed', placeholder: 'name', required: true });
  return el('form', {
    class: 'card row',
    onsubmit: (event) => {
      event.preventDefault();
      const place = el('div');
      fill(detail, el('section', { class: 'card' }, el('h2', {}, input.value), place));
      showVersions(place, mount, join(encodeURIComponent(input.value)), allowChanges, load);
    },
  }, el('label', { for: 'removed' }, 'Versions of a removed file here'), input, el('button', { type: 'submit' }, 'Find'));
}
