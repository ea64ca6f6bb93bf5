// Looks at the page of a server of queues in a headless Chromium: node check.mjs URL. The test that starts it serves two instances.
// It tells on its output how far it is, and the test then sends requests, ends a server, or lets one answer.
import { fileURLToPath } from 'node:url';

process.env.TMPDIR = fileURLToPath(new URL('unpacked', import.meta.url)); // where the browser is unpacked
process.env.AWS_EXECUTION_ENV = 'AWS_Lambda_nodejs20.x'; // its libraries, too
const { default: chromium } = await import('@sparticuz/chromium');
const { default: puppeteer } = await import('puppeteer-core');

const browser = await puppeteer.launch({ executablePath: await chromium.executablePath(), args: ['--no-sandbox', '--disable-gpu', '--no-zygote', '--single-process'], headless: 'shell', env: process.env });
const page = await browser.newPage();
const errors = [];
page.on('console', (m) => ['error', 'warn'].includes(m.type()) && errors.push(`${m.type()}: ${m.text()}`));
page.on('pageerror', (e) => errors.push(`thrown: ${e.message}`));
page.on('requestfailed', (r) => errors.push(`failed: ${r.url()} ${r.failure()?.errorText}`));
let loads = 0;
page.on('load', () => loads++);

const seen = () => page.evaluate(() => {
  const rows = (title) => [...document.querySelectorAll('section')].filter((s) => s.querySelector('h2').textContent === title)
    .flatMap((s) => [...s.querySelectorAll('tbody tr')].map((r) => [...r.cells].map((c) => c.textContent)));
  return { text: document.body.textContent, instances: rows('Instances'), groups: rows('Groups, in the order of service'), events: rows('Last events') };
});
async function until(what, ok) {
  let now;
  for (const end = Date.now() + 20000; Date.now() < end; await new Promise((r) => setTimeout(r, 50))) {
    now = await seen();
    if (ok(now)) return console.log(what);
  }
  console.error(`FAIL ${what}: ${JSON.stringify(now)} ${errors}`);
  process.exit(1);
}

await page.goto(process.argv[2], { waitUntil: 'domcontentloaded' });
const waiting = (list, column) => list.reduce((n, row) => n + Number(row[column]), 0);
await until('idle', (s) => s.text.includes('0 requests without an answer') && s.instances.length === 2 && s.instances.every((i) => i[1] === 'a' && i[6] === '0') && s.groups.length === 0);
await until('busy', (s) => /[1-9]\d* requests without an answer/.test(s.text) && s.instances.some((i) => i[3] !== '0') && s.groups.some((g) => Number(g[2]) > 0 && / s( ago)?$/.test(g[3])) &&
  waiting(s.instances, 6) === waiting(s.groups, 2));
await until('down', (s) => s.instances.filter((i) => i[1] === 'down').length === 1 && s.events.some((e) => e[2].includes('an instance is lost')));
await until('done', (s) => s.text.includes('0 requests without an answer') && s.groups.length === 0);
if (errors.length || loads !== 1) {
  console.error(`FAIL console: ${errors}, ${loads} loads of the page`);
  process.exit(1);
}
console.log(`passed in ${await browser.version()}`);
await browser.close();
