// Dates in the reader's zone; the title keeps them in UTC.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const two = '2-digit';
const fields = { year: 'numeric', month: two, day: two, hour: two, minute: two, second: two, timeZoneName: 'short' };
const clock = new Intl.DateTimeFormat('en-GB', { ...fields, hourCycle: 'h23' });

export function localise(page) {
  for (const time of page.querySelectorAll('time[datetime]:not([title])')) {
    const parts = clock.formatToParts(new Date(time.dateTime));
    const part = Object.fromEntries(parts.map((each) => [each.type, each.value]));
    const name = Object.assign(document.createElement('abbr'), { title: zone, textContent: part.timeZoneName });
    time.title = time.textContent;
    const day = `${part.year}-${part.month}-${part.day}`;
    time.replaceChildren(`${day} ${part.hour}:${part.minute}:${part.second} `, name);
  }
}
