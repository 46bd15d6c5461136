// Dates in the reader's zone; the title keeps them in UTC.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const digits = { year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit' };
const clock = new Intl.DateTimeFormat('en-GB', { ...digits, hourCycle: 'h23', timeZoneName: 'short' });

export function localise(page) {
  for (const time of page.querySelectorAll('time[datetime]:not([title])')) {
    const part = Object.fromEntries(clock.formatToParts(new Date(time.dateTime)).map((each) => [each.type, each.value]));
    const name = Object.assign(document.createElement('abbr'), { title: zone, textContent: part.timeZoneName });
    time.title = time.textContent;
    const day = `${part.year}-${part.month}-${part.day}`;
    time.replaceChildren(`${day} ${part.hour}:${part.minute}:${part.second} `, name);
  }
}
