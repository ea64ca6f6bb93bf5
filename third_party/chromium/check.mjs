// Looks at the page of the queues in a headless Chromium: node check.mjs URL. The test that starts it serves two instances.
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

const seen = () => page.evaluate(() => ({
  summary: document.getElementById('summary').textContent,
  instances: [...document.getElementById('instances').rows].map((r) => ({ kind: r.className, cells: [...r.cells].map((c) => c.textContent) })),
  groups: [...document.getElementById('groups').rows].map((r) => [...r.cells].map((c) => c.textContent)),
}));
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
await until('idle', (s) => s.summary.startsWith('0 requests open; plans of the queues: ') && s.instances.length === 2 && s.instances.every((i) => i.kind === '' && i.cells[1] === 'a' && i.cells[6] === '0') && s.groups.length === 0);
await until('busy', (s) => /^[1-9]\d* requests open/.test(s.summary) && s.instances.some((i) => i.cells[3] !== '0') && s.groups.some((g) => Number(g[2]) > 0 && / s( ago)?$/.test(g[3])) &&
  s.instances.reduce((n, i) => n + Number(i.cells[6]), 0) === s.groups.reduce((n, g) => n + Number(g[2]), 0));
await until('down', (s) => s.instances.filter((i) => i.kind === 'down' && i.cells[1] === 'down').length === 1);
await until('done', (s) => s.summary.startsWith('0 requests open') && s.groups.length === 0);
if (errors.length || loads !== 1) {
  console.error(`FAIL console: ${errors}, ${loads} loads of the page`);
  process.exit(1);
}
console.log(`passed in ${await browser.version()}`);
await browser.close();
