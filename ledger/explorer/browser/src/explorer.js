// Pages with scripts: they stay current, tell dates in the reader's zone, copy what they shorten, draw their tables.
import { drawCharts, frameCharts } from './page/charts.js';
import { offerCopies } from './page/copying.js';
import { nameRows, stayLive } from './page/live.js';
import { localise } from './page/times.js';

// Says of a page, the open one or one that is to become it, what a script can say better.
function enhance(page) {
  localise(page);
  offerCopies(page);
  frameCharts(page);
  nameRows(page);
}

enhance(document);
drawCharts();
stayLive(enhance, drawCharts);
