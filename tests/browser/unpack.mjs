// Unpacks Chromium into the folder for temporary files and prints its path and the flags it runs with as JSON.
import chromium from '@sparticuz/chromium';

console.log(JSON.stringify({ path: await chromium.executablePath(), args: chromium.args }));
