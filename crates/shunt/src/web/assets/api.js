// Requests to the server. Paths are percent-encoded bytes, since names need not be UTF-8.

import { notice } from './dom.js';

// Parameters whose values are percent-encoded already.
const ENCODED = ['path', 'other_path'];

function encode(parameters) {
  return Object.entries(parameters)
    .filter(([, value]) => value !== undefined && value !== null && value !== '')
    .map(([name, value]) => `${name}=${ENCODED.includes(name) ? value : encodeURIComponent(value)}`)
    .join('&');
}

async function reply(response) {
  if (!response.ok) throw new Error((await response.text()) || response.statusText);
  return response.json();
}

export async function get(name, parameters = {}) {
  return reply(await fetch(`api/${name}?${encode(parameters)}`));
}

// A change. Reports its outcome; false if it failed.
export async function change(name, parameters, done) {
  try {
    const value = await reply(await fetch(`api/${name}`, {
      method: 'POST', body: encode(parameters), headers: { 'Content-Type': 'text/plain' },
    }));
    if (done) notice(done, 'good');
    return value;
  } catch (error) {
    notice(error.message, 'bad');
    return false;
  }
}

export function fileUrl(parameters) {
  return `file?${encode(parameters)}`;
}

// Encodes a path of text, as conflicts and commits have it.
export function encodePath(path) {
  return path.split('/').map(encodeURIComponent).join('%2F');
}

export function decodePath(path) {
  try { return decodeURIComponent(path); } catch { return path; }
}
