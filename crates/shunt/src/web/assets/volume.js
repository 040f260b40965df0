// A volume: its tabs, and the one with its state.

import { change } from './api.js';
import { bytes, el, facts, fill, fillOnChange, micros } from './dom.js';
import * as conflicts from './conflicts.js';
import * as files from './files.js';
import { plots } from './mounts.js';
import * as nodes from './nodes.js';

const TABS = { status: ['Status', showStatus], files: ['Files', files.show], conflicts: ['Conflicts', conflicts.show], nodes: ['Nodes', nodes.show] };

export function tabLink(mount, tab, path = '') {
  return `#/volume/${encodeURIComponent(mount)}/${tab}${path ? `/${path}` : ''}`;
}

export function show(main, mount, tab, path, allowChanges) {
  const [, showTab] = TABS[tab] || TABS.status;
  const body = el('div');
  const count = el('span');
  fill(main, el('h1', {}, mount),
    el('nav', { class: 'tabs', 'aria-label': 'Volume' }, Object.entries(TABS).map(([name, [label]]) =>
      el('a', { href: tabLink(mount, name), 'aria-current': name === tab ? 'page' : null }, label, name === 'conflicts' && count))),
    body);
  const update = showTab(body, mount, path, allowChanges);
  return (reply) => {
    const found = reply.mounts.find((one) => one.mountpoint === mount);
    const volume = found && found.volume;
    fill(count, volume && volume.conflicts > 0 ? ` (${volume.conflicts})` : '');
    if (update) update(volume, found);
  };
}

// Progress of synchronisation, in one sentence.
function progress(volume) {
  const parts = [];
  if (volume.pending > 0) parts.push(`local changes to send: ${volume.pending}`);
  if (volume.blocked > 0) parts.push(`of them wait for a conflict or an open file: ${volume.blocked}`);
  if (volume.missing_files > 0) parts.push(`files to download: ${volume.missing_files}`);
  return parts.length ? parts.join('; ') : 'everything is synchronised';
}

function showStatus(body, mount, _path, allowChanges) {
  const [state, connection, cache, pinned] = [el('div'), el('div'), el('div'), el('div')];
  const view = plots(mount);
  const failure = el('p', { class: 'bad', hidden: true }, 'The daemon does not answer, or nothing is mounted there any more.');
  const cards = el('div', { class: 'grid' },
    el('section', { class: 'card' }, el('h2', {}, 'Synchronisation'), state, connection),
    el('section', { class: 'card' }, el('h2', {}, 'Cache'), cache, pinned,
      el('p', { class: 'muted' }, 'Pin files and directories under ', el('a', { href: tabLink(mount, 'files') }, 'Files'), '.')));
  fill(body, failure, cards, el('section', { class: 'card' }, view.element));
  return (volume) => {
    view.draw();
    failure.hidden = Boolean(volume);
    cards.hidden = !volume;
    if (!volume) return;
    const online = volume.state !== 'offline';
    fillOnChange(state, volume, () => stateFacts(volume));
    fillOnChange(connection, online, () => (allowChanges ? connectionButton(mount, online) : []));
    fillOnChange(cache, volume, () => cacheFacts(volume));
    fillOnChange(pinned, volume.pinned, () => (volume.pinned.length ? pinnedTable(mount, volume.pinned, allowChanges) : []));
  };
}

function stateFacts(volume) {
  const usage = volume.quota.held;
  const limit = usage.limit_bytes ? ` of ${bytes(usage.limit_bytes)}` : '';
  return facts([
    ['Volume', `${volume.name} as ${volume.node}${volume.read_only ? ', read-only' : ''}`],
    ['State', el('span', { class: volume.state === 'online' ? 'good' : 'warn' }, volume.state, volume.reason ? `: ${volume.reason}` : '')],
    ['Progress', progress(volume)],
    ['Peers', volume.connected ? `${volume.peers} connected` : 'not connected'],
    ['Since the mount', `${volume.sent} changes sent, ${volume.received} received`],
    ['Conflicts', String(volume.conflicts)],
    ['Usage', `${bytes(usage.bytes)}${limit} in ${usage.objects} objects`],
    volume.answer_ms !== null && ['Store latency', micros(volume.answer_ms * 1000)],
    volume.bytes_per_second !== null && ['Download rate', `${bytes(volume.bytes_per_second)}/s`],
  ]);
}

function connectionButton(mount, online) {
  return el('p', {}, el('button', {
    type: 'button',
    onclick: () => change(online ? 'offline' : 'online', { mount }, online ? 'Disconnected from the store.' : 'Connecting to the store.'),
  }, online ? 'Work offline' : 'Go online'));
}

function cacheFacts(volume) {
  const limit = volume.cached_limit;
  return [
    limit !== null && el('meter', { min: 0, max: limit, high: limit * 0.95, value: Math.min(volume.cached_bytes, limit), 'aria-label': 'Cache usage' }),
    facts([
      ['Cached', `${bytes(volume.cached_bytes)}${limit === null ? '' : ` of ${bytes(limit)}`}${volume.cache_mode ? ` (mode: ${volume.cache_mode})` : ''}`],
      ['Pinned', bytes(volume.pinned_bytes)],
      ['Not in the store', bytes(volume.unsent_bytes)],
      volume.unevictable_bytes > 0 && ['Unevictable above the limit', bytes(volume.unevictable_bytes)],
      ['Opens and reads', `${volume.cache_hits} cached, ${volume.cache_misses} downloaded`],
      volume.offline_misses > 0 && ['Misses while offline', `${volume.offline_misses}: ${volume.offline_miss_paths.join(', ')}`],
    ]),
  ];
}

function pinnedTable(mount, pinned, allowChanges) {
  return el('table', {}, el('caption', {}, 'Pinned paths'), el('tbody', {}, pinned.map((path) => el('tr', {},
    el('td', {}, path || '(the whole volume)'),
    allowChanges && el('td', {}, el('button', {
      type: 'button', 'aria-label': `Unpin ${path || 'the whole volume'}`,
      onclick: () => change('unpin', { mount, path: encodeURIComponent(path) }, `Unpinned ${path || 'the whole volume'}.`),
    }, 'Unpin'))))));
}
