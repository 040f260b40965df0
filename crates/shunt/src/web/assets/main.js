// Polls the mounts, and shows the view that the fragment of the address names.

import { get } from './api.js';
import { el, fill, notice } from './dom.js';
import * as mounts from './mounts.js';
import * as volume from './volume.js';

const main = document.getElementById('main');
const link = document.getElementById('link');
let update = () => {};
let last = null;

function view() {
  notice('');
  const [, kind, mount, tab, path] = window.location.hash.split('/');
  if (kind === 'volume' && mount) {
    update = volume.show(main, decodeURIComponent(mount), tab || 'status', path || '', Boolean(last && last.allow_changes));
  } else {
    update = mounts.show(main);
  }
  if (last) update(last);
}

async function poll() {
  try {
    const reply = await get('mounts');
    const first = !last;
    last = reply;
    mounts.record(reply);
    fill(document.getElementById('mode'), reply.allow_changes ? 'changes allowed' : 'read-only');
    fill(link);
    // Views know whether changes are allowed only from the first reply on.
    if (first) view(); else if (!document.hidden) update(reply);
  } catch (error) {
    fill(link, el('span', { class: 'bad' }, `No data: ${error.message}`));
  }
  setTimeout(poll, mounts.POLL_MS);
}

window.addEventListener('hashchange', () => { view(); main.focus(); });
window.addEventListener('resize', () => last && update(last));
poll();
