// Looks at pages in a headless Chromium: node shots.mjs FOLDER PAGE.html... Each page is shown 400 and 1200 pixels wide, bright and
// dark. A page fails if it sends a request, logs an error, or is wider than the window. FOLDER gets the screenshots.
import { writeFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

process.env.TMPDIR = fileURLToPath(new URL('unpacked', import.meta.url)); // where the browser is unpacked
process.env.AWS_EXECUTION_ENV = 'AWS_Lambda_nodejs20.x'; // its libraries, too
const { default: chromium } = await import('@sparticuz/chromium');
const { default: puppeteer } = await import('puppeteer-core');

// Text is drawn with the font that comes with the browser.
const executablePath = await chromium.executablePath();
process.env.FONTCONFIG_FILE = join(process.env.TMPDIR, 'shots-fonts.conf');
writeFileSync(process.env.FONTCONFIG_FILE, `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig><dir>${process.env.TMPDIR}/fonts</dir><cachedir>${process.env.TMPDIR}/fonts-cache</cachedir></fontconfig>`);

const [folder, ...files] = process.argv.slice(2);
const browser = await puppeteer.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--no-zygote', '--single-process'], headless: 'shell', env: process.env });
const page = await browser.newPage();
const errors = [];
let url;
page.on('console', (m) => ['error', 'warn'].includes(m.type()) && errors.push(`${url}: ${m.text()}`));
page.on('pageerror', (e) => errors.push(`${url}: thrown: ${e.message}`));
page.on('request', (r) => r.url() !== url && errors.push(`${url}: requests ${r.url()}`));
for (const file of files) {
  url = `file://${resolve(file)}`;
  for (const scheme of ['light', 'dark']) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
    for (const width of [400, 1200]) {
      await page.setViewport({ width, height: 900 });
      await page.goto(url, { waitUntil: 'load' });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      if (wide > width) errors.push(`${url}: ${wide} pixels wide in a window of ${width}`);
      await page.screenshot({ path: join(folder, `${basename(file, '.html')}-${width}-${scheme}.png`), fullPage: true });
    }
  }
}
console.log(errors.join('\n') || `passed in ${await browser.version()}`);
await browser.close();
process.exit(errors.length ? 1 : 0);
