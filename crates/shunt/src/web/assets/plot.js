// Lines over time on a canvas, with a scale. The label says the last values for those who cannot see it.

const HEIGHT = 144;
const LEFT = 62;
const BOTTOM = 18;

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A round number at or above a value: 1, 2 or 5 times a power of ten.
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((round) => round >= value);
}

// lines: [{ label, color, values }], of equal lengths; null where there is no value. The plot has room for `count` values, which
// cover `seconds`.
export function plot(canvas, lines, count, seconds, format) {
  const width = canvas.clientWidth;
  if (!width) return;
  const scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = HEIGHT * scale;
  const context = canvas.getContext('2d');
  context.scale(scale, scale);
  const top = ceiling(Math.max(...lines.flatMap((line) => line.values.filter((value) => value !== null)), 0));
  const x = (at, length) => width - ((length - 1 - at) / Math.max(count - 1, 1)) * (width - LEFT) - 1;
  const y = (value) => 6 + (1 - value / top) * (HEIGHT - BOTTOM - 6);
  context.font = '11px system-ui, sans-serif';
  context.fillStyle = color('--muted');
  context.strokeStyle = color('--line');
  context.lineWidth = 1;
  for (const part of [0, 0.5, 1]) {
    const level = Math.round(y(top * part)) + 0.5;
    context.beginPath();
    context.moveTo(LEFT, level);
    context.lineTo(width, level);
    context.stroke();
    context.textAlign = 'right';
    context.fillText(format(top * part), LEFT - 6, level + 4);
  }
  context.textAlign = 'left';
  context.fillText(`${Math.round(seconds / 60)} min ago`, LEFT, HEIGHT - 4);
  context.textAlign = 'right';
  context.fillText('now', width - 1, HEIGHT - 4);
  for (const line of lines) {
    context.strokeStyle = color(line.color);
    context.lineWidth = 1.8;
    context.beginPath();
    let drawing = false;
    line.values.forEach((value, at) => {
      if (value === null) { drawing = false; return; }
      const point = [x(at, line.values.length), y(value)];
      if (drawing) context.lineTo(...point); else context.moveTo(...point);
      // A single value between gaps is a dot.
      if (!drawing) { context.lineTo(point[0] + 0.5, point[1]); }
      drawing = true;
    });
    context.stroke();
  }
  const last = (values) => { const value = values[values.length - 1]; return value === null || value === undefined ? 'none' : format(value); };
  canvas.setAttribute('aria-label', lines.map((line) => `${line.label}: ${last(line.values)}`).join(', '));
}
