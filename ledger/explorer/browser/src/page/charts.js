// A table with data-chart becomes a chart above it; the table stays, folded. First column x, each other one a series.
import uPlot from 'uplot';
import sheet from 'uplot/dist/uPlot.min.css';

const HEIGHT = 240;
const DASHES = [[], [8, 5], [2, 4], [12, 4, 2, 4]]; // colours are not all that tells series apart
const BORDERS = ['solid', 'dashed', 'dotted', 'double'];
const GAP = '–';
const drawn = new Map();

const style = new CSSStyleSheet();
style.replaceSync(sheet);
document.adoptedStyleSheets.push(style);

const written = new Intl.NumberFormat('en', { maximumSignificantDigits: 6 });
const spelled = (value) => (value == null ? GAP : written.format(value));

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function numberOf(cell, scale) {
  const text = cell.querySelector('data')?.value ?? cell.textContent.replaceAll(',', '');
  const number = parseFloat(text);
  return Number.isFinite(number) ? number / scale : null;
}

// Columns of a table, in order of the first: their names, tones and numbers. A header's data-scale divides its column.
function read(table) {
  const heads = [...table.tHead.rows[0].cells];
  const rows = [...table.tBodies[0].rows].map((row) =>
    [...row.cells].map((cell, at) => numberOf(cell, Number(heads[at].dataset.scale ?? 1))),
  );
  const known = rows.filter((row) => row[0] !== null).sort((one, other) => one[0] - other[0]);
  return heads.map((head, at) => ({
    name: head.textContent.trim(),
    tone: head.dataset.tone,
    numbers: known.map((row) => row[at]),
  }));
}

function described(title, [x, ...series]) {
  const parts = series.map(({ name, numbers }) => {
    const known = numbers.filter((each) => each !== null);
    if (!known.length) return `${name}: nothing`;
    return `${name}: ${spelled(Math.min(...known))} to ${spelled(Math.max(...known))}, newest ${spelled(known.at(-1))}`;
  });
  return `Line chart. ${title}, ${x.name} ${spelled(x.numbers[0])} to ${spelled(x.numbers.at(-1))}. ${parts.join('. ')}.`;
}

// Puts the frame of a chart above each table that has enough to show, and folds the table.
export function frameCharts(page) {
  for (const table of page.querySelectorAll('table[data-chart="line"]')) {
    if (table.closest('.chart') || table.tBodies[0].rows.length < 2) continue;
    const box = table.closest('.box') ?? table, title = table.caption.textContent.trim();
    const plot = element('div', { className: 'plot', role: 'img', ariaLabel: described(title, read(table)) });
    plot.dataset.keepInside = '';
    const fold = element('details', {}, element('summary', { textContent: 'As a table' }));
    const figure = element('figure', { className: 'chart' }, element('figcaption', { textContent: title }), plot, fold);
    box.replaceWith(figure);
    fold.append(box);
  }
}

function colours(tones) {
  const of = getComputedStyle(document.documentElement);
  const named = (name) => of.getPropertyValue(`--${name}`).trim();
  return { ink: named('muted'), rule: named('rule'), series: tones.map((tone, at) => named(tone ?? `series-${1 + (at % 4)}`)) };
}

function options(width, [x, ...series]) {
  const paint = colours(series.map((each) => each.tone));
  const whole = (columns) => columns.every(({ numbers }) => numbers.every(Number.isInteger));
  const steps = (columns) => (whole(columns) ? { incrs: [1, 2, 5].flatMap((n) => [...Array(12).keys()].map((e) => n * 10 ** e)).sort((a, b) => a - b) } : {});
  const axis = { stroke: paint.ink, font: '12px system-ui, sans-serif', grid: { stroke: paint.rule, width: 1 }, ticks: { stroke: paint.rule, width: 1 } };
  const value = (plot, number, at, index) => spelled(index === null ? plot.data[at].findLast((each) => each !== null) : number);
  return {
    width,
    height: HEIGHT,
    scales: { x: { time: false }, y: { range: (plot, least, most) => uPlot.rangeNum(Math.min(0, least ?? 0), most ?? 1, 0.1, true) } },
    axes: [
      { ...axis, ...steps([x]), values: (plot, at) => at.map(spelled) },
      { ...axis, ...steps(series), values: (plot, at) => at.map(spelled), size: (plot, shown) => 20 + 7 * Math.max(2, ...(shown ?? []).map((each) => each.length)) },
    ],
    series: [
      { label: x.name, value },
      ...series.map(({ name }, at) => ({ label: name, value, stroke: paint.series[at], width: 2, dash: DASHES[at % DASHES.length], points: { size: 6 } })),
    ],
    legend: { markers: { dash: (plot, at) => BORDERS[(at - 1) % BORDERS.length] } },
    cursor: { drag: { x: false, y: false } },
  };
}

function draw(plot) {
  const columns = read(plot.parentElement.querySelector('table')), numbers = columns.map((each) => each.numbers);
  const kind = JSON.stringify(columns.map(({ name, tone }) => [name, tone]));
  const before = drawn.get(plot);
  if (before?.kind === kind) {
    before.chart.setData(numbers);
    return;
  }
  forget(plot);
  const chart = new uPlot(options(plot.clientWidth, columns), numbers, plot);
  const watcher = new ResizeObserver(() => plot.clientWidth && chart.setSize({ width: plot.clientWidth, height: HEIGHT }));
  watcher.observe(plot);
  drawn.set(plot, { kind, chart, watcher });
}

function forget(plot) {
  const before = drawn.get(plot);
  before?.watcher.disconnect();
  before?.chart.destroy();
  drawn.delete(plot);
}

// Draws every chart of the page, or gives those that are drawn the numbers of their tables.
export function drawCharts() {
  for (const plot of [...drawn.keys()]) if (!plot.isConnected) forget(plot);
  for (const plot of document.querySelectorAll('.chart .plot')) draw(plot);
}

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const plot of [...drawn.keys()]) forget(plot);
  drawCharts();
});
