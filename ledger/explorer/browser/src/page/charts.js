// A table with data-chart becomes a chart above it; the table stays, folded. First column x, each other one a series.
import uPlot from 'uplot';
import css from 'uplot/dist/uPlot.min.css';

const HEIGHT = 240;
const DASHES = [[], [8, 5], [2, 4], [12, 4, 2, 4]]; // colours are not all that tells series apart
const BORDERS = ['solid', 'dashed', 'dotted', 'dashed'];
const WHOLE_STEPS = Array.from({ length: 48 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3));
const drawn = new Map();

const style = new CSSStyleSheet();
style.replaceSync(css);
document.adoptedStyleSheets.push(style);

const written = new Intl.NumberFormat('en', { maximumSignificantDigits: 6 });
const spelled = (value) => (value == null ? '–' : written.format(value));
const known = (numbers) => numbers.filter((each) => each !== null);

// The number of a cell: that of its <data>, or of its text; null where there is none.
function numberOf(cell, scale) {
  const number = parseFloat(cell.querySelector('data')?.value ?? cell.textContent.replaceAll(',', ''));
  return Number.isFinite(number) ? number / scale : null;
}

// The columns of a table in the order of the first: their names, tones and numbers.
function read(table) {
  const heads = [...table.tHead.rows[0].cells];
  const scales = heads.map((head) => Number(head.dataset.scale ?? 1));
  const rows = [...table.tBodies[0].rows].map((row) => scales.map((scale, at) => numberOf(row.cells[at], scale)));
  const inOrder = rows.filter((row) => row[0] !== null).sort((one, other) => one[0] - other[0]);
  return heads.map(({ textContent, dataset }, at) => (
    { name: textContent.trim(), tone: dataset.tone, numbers: inOrder.map((row) => row[at]) }
  ));
}

function described(title, [x, ...series]) {
  const parts = series.map(({ name, numbers }) => {
    const some = known(numbers);
    if (!some.length) return `${name}: nothing`;
    return `${name}: ${spelled(Math.min(...some))} to ${spelled(Math.max(...some))}, newest ${spelled(some.at(-1))}`;
  });
  const span = `${x.name} ${spelled(x.numbers[0])} to ${spelled(x.numbers.at(-1))}`;
  return `Line chart. ${title}, ${span}. ${parts.join('. ')}.`;
}

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// Puts the frame of a chart above each table that has enough to show, and folds the table.
export function frameCharts(page) {
  for (const table of page.querySelectorAll('table[data-chart="line"]')) {
    if (table.closest('.chart') || table.tBodies[0].rows.length < 2) continue;
    const box = table.closest('.box') ?? table, title = table.caption.textContent.trim();
    const plot = element('div', { className: 'plot', role: 'img', ariaLabel: described(title, read(table)) });
    plot.dataset.keepInside = '';
    const fold = element('details', {}, element('summary', { textContent: 'As a table' }));
    const heading = element('figcaption', { textContent: title });
    box.replaceWith(element('figure', { className: 'chart' }, heading, plot, fold));
    fold.append(box);
  }
}

// What uPlot draws columns by: a straight line for each, with the numbers at the cursor or else the newest beside it.
function options(width, [x, ...series]) {
  const styles = getComputedStyle(document.documentElement);
  const colour = (name) => styles.getPropertyValue(`--${name}`).trim();
  const line = { stroke: colour('rule'), width: 1 };
  const axis = (columns) => ({
    stroke: colour('muted'),
    font: '12px system-ui, sans-serif',
    grid: line,
    ticks: line,
    values: (plot, at) => at.map(spelled),
    ...(columns.every(({ numbers }) => known(numbers).every(Number.isInteger)) ? { incrs: WHOLE_STEPS } : {}),
  });
  const wide = (plot, shown) => 20 + 7 * Math.max(2, ...(shown ?? []).map((each) => each.length));
  const from = (plot, least, most) => uPlot.rangeNum(Math.min(0, least ?? 0), most ?? 1, 0.1, true);
  const value = (plot, number, at, index) => spelled(index === null ? known([...plot.data[at]]).at(-1) : number);
  const drawnAs = ({ name, tone }, at) => ({
    label: name,
    value,
    stroke: colour(tone ?? `series-${1 + (at % 4)}`),
    width: 2,
    dash: DASHES[at % 4],
    points: { size: 6 },
  });
  return {
    width,
    height: HEIGHT,
    scales: { x: { time: false }, y: { range: from } },
    axes: [axis([x]), { ...axis(series), size: wide }],
    series: [{ label: x.name, value }, ...series.map(drawnAs)],
    legend: { markers: { dash: (plot, at) => BORDERS[(at - 1) % 4] } },
    cursor: { drag: { x: false, y: false } },
  };
}

function draw(plot) {
  const columns = read(plot.parentElement.querySelector('table')), numbers = columns.map((each) => each.numbers);
  const kind = JSON.stringify(columns.map(({ name, tone }) => [name, tone]));
  if (drawn.get(plot)?.kind === kind) {
    drawn.get(plot).chart.setData(numbers);
    return;
  }
  forget(plot);
  const chart = new uPlot(options(plot.clientWidth, columns), numbers, plot);
  const fit = () => plot.clientWidth && chart.setSize({ width: plot.clientWidth, height: HEIGHT });
  const watcher = new ResizeObserver(fit);
  watcher.observe(plot);
  drawn.set(plot, { kind, chart, watcher });
}

function forget(plot) {
  drawn.get(plot)?.watcher.disconnect();
  drawn.get(plot)?.chart.destroy();
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
