// The list of mounts, with live plots.

import { bytes, el, fill, micros, number, time } from './dom.js';
import { plot } from './plot.js';

export const POLL_MS = 1000;
// Values that are kept for a plot, one for each poll.
const MAX_POINTS = 300;
// A plot grows by this number of values until it is full.
const POINT_STEP = 60;

// Rates and latencies by mount point, since the page was opened.
const histories = new Map();

// The latency below which this part of the requests was answered; none without requests.
function percentile(counts, bounds, part) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (!total) return null;
  let left = total * part;
  for (let at = 0; at < counts.length; at += 1) {
    if (counts[at] >= left && counts[at] > 0) {
      const low = at ? bounds[at - 1] : 0;
      const high = at < bounds.length ? bounds[at] : low;
      return low + (high - low) * (left / counts[at]);
    }
    left -= counts[at];
  }
  return bounds[bounds.length - 1];
}

export function record(reply) {
  for (const mount of reply.mounts) {
    const history = histories.get(mount.mountpoint) || { points: [] };
    histories.set(mount.mountpoint, history);
    const { last } = history;
    if (mount.up && last && last.mount.pid === mount.pid && reply.time_s > last.time) {
      const seconds = reply.time_s - last.time;
      const rate = (name) => Math.max(mount[name] - last.mount[name], 0) / seconds;
      const latency = mount.latency.map((count, at) => Math.max(count - (last.mount.latency[at] || 0), 0));
      history.points.push({
        requests: rate('requests'), errors: rate('errors'), read: rate('read_bytes'), written: rate('written_bytes'),
        p50: percentile(latency, mount.latency_bounds_us, 0.5), p99: percentile(latency, mount.latency_bounds_us, 0.99),
        cpu: rate('cpu_s') * 100,
      });
      if (history.points.length > MAX_POINTS) history.points.shift();
    }
    history.last = mount.up ? { mount, time: reply.time_s } : null;
  }
  const known = new Set(reply.mounts.map((mount) => mount.mountpoint));
  for (const name of histories.keys()) if (!known.has(name)) histories.delete(name);
}

// Plots of a mount, and a function that draws them.
export function plots(mountpoint) {
  const canvas = (label) => el('canvas', { class: 'plot', role: 'img', 'aria-label': label });
  const [rates, latencies] = [canvas('requests'), canvas('latency')];
  const values = el('p', { class: 'muted' });
  const element = el('div', {}, values, el('div', { class: 'grid' },
    el('figure', {}, el('figcaption', {}, el('span', { class: 'plotted-first' }, 'Requests'), ' and ', el('span', { class: 'bad' }, 'errors'), ' per second'), rates),
    el('figure', {}, el('figcaption', {}, 'Latency: ', el('span', { class: 'plotted-first' }, 'median'), ', ', el('span', { class: 'plotted-second' }, '99th percentile')), latencies)));
  const draw = () => {
    const points = (histories.get(mountpoint) || { points: [] }).points;
    const of = (name) => points.map((point) => point[name]);
    const shown = Math.max(Math.ceil(points.length / POINT_STEP), 1) * POINT_STEP;
    const seconds = (shown * POLL_MS) / 1000;
    plot(rates, [
      { label: 'requests per second', color: '--accent', values: of('requests') },
      { label: 'errors per second', color: '--bad', values: of('errors') },
    ], shown, seconds, number);
    plot(latencies, [
      { label: 'median latency', color: '--accent', values: of('p50') },
      { label: '99th percentile', color: '--second', values: of('p99') },
    ], shown, seconds, micros);
    const last = points[points.length - 1];
    fill(values, last ? `${number(last.requests)} requests/s, ${number(last.errors)} errors/s, median ${micros(last.p50)}, `
      + `99 % ${micros(last.p99)}, read ${bytes(last.read)}/s, written ${bytes(last.written)}/s, processor ${last.cpu.toFixed(1)} %` : 'Measuring');
  };
  return { element, draw };
}

function title(mount) {
  if (!mount.volume) return mount.mountpoint;
  return el('a', { href: `#/volume/${encodeURIComponent(mount.mountpoint)}` }, mount.mountpoint);
}

function badges(mount) {
  if (!mount.up) return el('span', { class: 'badge bad' }, 'daemon does not answer');
  const volume = mount.volume;
  return [
    el('span', { class: 'badge' }, volume ? `volume ${volume.name} as ${volume.node}` : mount.kind),
    volume && el('span', { class: `badge ${volume.state === 'online' ? 'good' : 'warn'}` }, volume.state),
    volume && volume.conflicts > 0 && el('span', { class: 'badge bad' }, `conflicts: ${volume.conflicts}`),
    mount.waiting > 0 && el('span', { class: 'badge warn' }, `requests waiting: ${mount.waiting}`),
  ];
}

// Shows the list; returns the function that updates it.
export function show(main) {
  const list = el('div');
  fill(main, el('h1', {}, 'Mounts'), list);
  let shown = '';
  let draws = [];
  return (reply) => {
    const key = JSON.stringify(reply.mounts.map((mount) => [mount.mountpoint, mount.up, mount.pid,
      mount.volume && [mount.volume.state, mount.volume.conflicts], mount.waiting > 0]));
    if (key !== shown) {
      shown = key;
      draws = [];
      const focus = document.activeElement && document.activeElement.getAttribute('href');
      fill(list, reply.mounts.length ? reply.mounts.map((mount) => {
        const view = plots(mount.mountpoint);
        draws.push(view.draw);
        return el('section', { class: 'card' },
          el('div', { class: 'row' }, el('h2', {}, title(mount)), badges(mount)),
          mount.up && el('p', { class: 'muted' }, `of ${mount.source}; process ${mount.pid}, version ${mount.version}, since ${time(mount.started_s)}, `
            + `transport ${mount.transport}, passthrough ${mount.passthrough ? 'on' : 'off'}`),
          mount.up && view.element);
      }) : el('p', {}, 'Nothing is mounted. ', el('code', {}, 'shunt --help'), ' shows how to mount.'));
      if (focus) for (const link of list.querySelectorAll('a')) if (link.getAttribute('href') === focus) link.focus();
    }
    for (const draw of draws) draw();
  };
}
