// Takes a picture of a page in a headless Chromium: node picture.mjs URL FILE.png HEIGHT. The page is shown 1200 pixels wide, bright,
// and the picture has its upper HEIGHT pixels.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

process.env.TMPDIR = fileURLToPath(new URL('unpacked', import.meta.url)); // where the browser is unpacked
process.env.AWS_EXECUTION_ENV = 'AWS_Lambda_nodejs20.x'; // its libraries, too
const { default: chromium } = await import('@sparticuz/chromium');
const { default: puppeteer } = await import('puppeteer-core');

// Text is drawn with the font that comes with the browser.
const executablePath = await chromium.executablePath();
process.env.FONTCONFIG_FILE = join(process.env.TMPDIR, 'shots-fonts.conf');
writeFileSync(process.env.FONTCONFIG_FILE, `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig><dir>${process.env.TMPDIR}/fonts</dir><cachedir>${process.env.TMPDIR}/fonts-cache</cachedir></fontconfig>`);

const [url, file, height] = process.argv.slice(2);
const browser = await puppeteer.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--no-zygote', '--single-process', '--disable-lcd-text'], headless: 'shell', env: process.env });
const page = await browser.newPage();
await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'light' }]);
await page.setViewport({ width: 1200, height: Number(height) });
await page.goto(url, { waitUntil: 'load' });
await page.screenshot({ path: file });
await browser.close();
