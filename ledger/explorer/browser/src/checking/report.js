// What a check found: a line is good (with what was checked), bad (with both values), or unknown (with the reason).
const MOST_DIFFERENCES = 12;
const ADDRESS = /^0x[0-9a-fA-F]{40}$/;

/** Returns a value as text that is equal for equal values: keys sorted, addresses in lower case, integers as text. */
export const canonical = (value) => JSON.stringify(value ?? null, (key, each) => {
  if (typeof each === 'bigint') return String(each);
  if (typeof each === 'string') return ADDRESS.test(each) ? each.toLowerCase() : each;
  return each?.constructor === Object ? Object.fromEntries(Object.entries(each).sort()) : each;
});

/** Returns the one difference between what was told and what was found, in a list; none where they are equal. */
export const differ = (what, told, found) =>
  canonical(told) === canonical(found) ? [] : [{ what, told: canonical(told), found: canonical(found) }];

/** Returns the differences in the fields of what was found; what was told may have others. */
export const differEach = (what, told, found) => Object.keys(found).flatMap((field) =>
  differ(`${field} of ${what}`, told?.[field], found[field]));

/** Lines of a check, each passed to `show(mark, text)` as it is found. */
export class Report {
  constructor(show) {
    Object.assign(this, { show, marks: { good: 0, bad: 0, unknown: 0 } });
  }

  /** Tells one line. */
  line(mark, text) {
    this.marks[mark] += 1;
    this.show(mark, text);
  }

  /** Makes a part of a check; where it cannot be made to its end, says why. */
  trying(what, check) {
    return check().catch((error) => this.line('unknown', `${what} cannot be checked: ${error.message}`));
  }

  /** Tells what was checked, or each difference that the check found. */
  checked(what, differences) {
    if (!differences.length) this.line('good', what);
    for (const { what: where, told, found } of differences.slice(0, MOST_DIFFERENCES))
      this.line('bad', `${where}: the claim is ${told}, the check gives ${found}`);
    if (differences.length > MOST_DIFFERENCES) this.line('bad', `and more: ${differences.length} differences in all`);
  }
}
