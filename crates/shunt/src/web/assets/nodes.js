// The nodes of a volume that a gateway of this machine serves: invite and revoke.

import { change, get } from './api.js';
import { el, fill, notice, table, time } from './dom.js';

// Light modules around a QR code, which readers need.
const MARGIN = 4;

export function show(body, mount, _path, allowChanges) {
  const [list, invitation] = [el('div'), el('div')];
  const load = async () => {
    try {
      const nodes = await get('nodes', { mount });
      const columns = [['Node'], ['Role'], ['Since', 'wide'], ...(allowChanges ? [['']] : [])];
      fill(list, nodes.length ? table(columns, nodes.map((node) => [node.name, node.role, time(node.since), ...(allowChanges ? [revoke(node)] : [])]))
        : el('p', {}, 'No node has joined.'));
    } catch (error) {
      fill(list, el('p', { class: 'warn' }, error.message),
        el('p', { class: 'muted' }, 'Nodes are managed on the machine whose gateway serves the volume: shunt volume serve.'));
    }
  };
  const revoke = (node) => {
    const button = el('button', {
      type: 'button', class: 'danger', 'data-revoke': node.name,
      onclick: async () => {
        // The second click confirms.
        if (button.dataset.sure) {
          await change('revoke', { mount, node: node.name }, `${node.name} was removed; its requests are refused.`);
          await load();
        } else {
          button.dataset.sure = 'yes';
          button.textContent = `Really revoke ${node.name}?`;
        }
      },
      onblur: () => { delete button.dataset.sure; button.textContent = 'Revoke'; },
    }, 'Revoke');
    return button;
  };
  fill(body, el('section', { class: 'card' }, el('h2', {}, 'Nodes'), list), allowChanges
    ? el('section', { class: 'card' }, el('h2', {}, 'Invite a node'), form(mount, invitation), invitation)
    : el('p', { class: 'muted' }, 'Start shunt web --allow-changes to invite and revoke nodes.'));
  load();
  return null;
}

function form(mount, invitation) {
  const role = el('select', { id: 'role' }, ['read', 'write', 'admin', 'gateway'].map((name) => el('option', { value: name, selected: name === 'write' }, name)));
  const hours = el('input', { id: 'hours', type: 'number', min: 1, max: 8784, value: 24, required: true });
  return el('form', {
    class: 'row',
    onsubmit: async (event) => {
      event.preventDefault();
      const made = await change('invite', { mount, role: role.value, hours: hours.value }, 'A token was created. It is valid for one machine.');
      if (made) fill(invitation, token(made));
    },
  }, el('label', { for: 'role' }, 'Role'), role, el('label', { for: 'hours' }, 'Hours'), hours,
  el('button', { type: 'submit', class: 'primary', id: 'invite' }, 'Invite'));
}

function token(made) {
  const text = el('code', { id: 'token' }, made.token);
  return [
    el('p', {}, 'On the other machine: ', el('code', {}, 'shunt volume join TOKEN'), '. Whoever has the token can join: handle it like a password.'),
    el('p', {}, text),
    el('button', { type: 'button', onclick: () => copy(made.token) }, 'Copy'),
    made.qr.length > 0 && qr(made.qr),
  ];
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    notice('The token was copied.', 'good');
  } catch (error) {
    notice(`cannot copy the token: ${error.message}; select its text`, 'bad');
  }
}

function qr(rows) {
  const size = rows.length + 2 * MARGIN;
  const scale = 8;
  const canvas = el('canvas', { class: 'qr', role: 'img', 'aria-label': 'QR code of the token', width: size * scale, height: size * scale });
  const context = canvas.getContext('2d');
  context.fillStyle = '#fff';
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = '#000';
  rows.forEach((row, y) => [...row].forEach((module, x) => {
    if (module === '1') context.fillRect((x + MARGIN) * scale, (y + MARGIN) * scale, scale, scale);
  }));
  return canvas;
}
